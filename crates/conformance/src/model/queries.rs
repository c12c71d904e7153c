//! What can be asked, answered by looking at everything.

use std::collections::{BTreeMap, BTreeSet};

use statehold_core::model::{
    Document, Entry, Event, GroupInfo, Lock, Pending, Position, QueueInfo, Source, StreamInfo, StreamName,
    Task, TaskId,
};
use statehold_core::query::{
    DocumentList, ReadFrom, StreamPage, StreamRead, TaskCounts, TaskList, TaskPlace,
};
use statehold_core::{Error, Result, Seconds, Timestamp};

use super::Model;
use super::groups::group_key;
use super::streams::compacted;

impl Model {
    /// Reads a task.
    pub fn task(&self, id: TaskId) -> Option<Task> {
        self.state.tasks.get(&id).map(|record| record.task.clone())
    }

    /// All tasks that pass the filters, in order, after a place. The list's limit and cursor do not count.
    pub fn task_list(&self, list: &TaskList, after: Option<TaskPlace>) -> Vec<Task> {
        let tasks = self.state.tasks.values().map(|record| &record.task).filter(|task| list.matches(task));
        let mut tasks: Vec<_> = tasks.map(|task| (list.place_of(task), task.clone())).collect();
        tasks.sort_by_key(|(place, _)| *place);
        if list.descending {
            tasks.reverse();
        }
        let beyond = |place: TaskPlace| {
            after.is_none_or(|after| if list.descending { place < after } else { place > after })
        };
        tasks.into_iter().filter(|(place, _)| beyond(*place)).map(|(_, task)| task).collect()
    }

    /// Counts the tasks of a queue, or of all.
    pub fn task_count(&self, queue: Option<&str>, now: Timestamp) -> TaskCounts {
        let mut counts = TaskCounts::default();
        for record in self.state.tasks.values() {
            if queue.is_some_and(|queue| queue != record.task.queue) {
                continue;
            }
            *counts.counts.entry(record.task.status).or_default() += 1;
            if self.state.is_claimable(record, now) {
                counts.claimable += 1;
                let since = counts.oldest_claimable.unwrap_or(record.task.run_at);
                counts.oldest_claimable = Some(since.min(record.task.run_at));
            }
        }
        counts
    }

    /// Every queue that must be listed. Pollers are left out; `per_minute` is what ended less than a minute
    /// ago.
    pub fn queue_list(&self, now: Timestamp) -> Vec<QueueInfo> {
        let with_tasks = self.state.tasks.values().map(|record| record.task.queue.clone());
        let set = self
            .state
            .queues
            .iter()
            .filter(|(_, queue)| queue.set == Some(true))
            .map(|(name, _)| name.clone());
        // Five minutes, less the ten seconds to which polls are remembered.
        let polled = self.polled_since(now - Seconds::new(290));
        let names: BTreeSet<_> = with_tasks.chain(set).chain(polled).collect();
        names.into_iter().map(|name| self.queue_info(name, now)).collect()
    }

    /// The queues that were polled after `since`.
    fn polled_since(&self, since: Timestamp) -> BTreeSet<String> {
        let late = |polls: &BTreeMap<String, Timestamp>| polls.values().any(|at| *at > since);
        self.state.queues.iter().filter(|(_, q)| late(&q.polls)).map(|(name, _)| name.clone()).collect()
    }

    /// Who asked a queue for work, and when last.
    pub fn polls(&self, queue: &str) -> BTreeMap<String, Timestamp> {
        self.state.queues.get(queue).map(|queue| queue.polls.clone()).unwrap_or_default()
    }

    /// How many tasks of a queue ended at exactly this time.
    pub fn ended_at(&self, queue: &str, at: Timestamp) -> u64 {
        self.ended(queue, |ended| ended == at)
    }

    fn ended(&self, queue: &str, when: impl Fn(Timestamp) -> bool) -> u64 {
        let own = self.state.tasks.values().filter(|record| record.task.queue == queue);
        own.filter(|record| record.task.finished_at.is_some_and(&when)).count() as u64
    }

    fn queue_info(&self, queue: String, now: Timestamp) -> QueueInfo {
        let counts = self.task_count(Some(&queue), now);
        let minute_ago = now - Seconds::new(60);
        QueueInfo {
            paused: self.state.is_paused(&queue),
            counts: counts.counts,
            claimable: counts.claimable,
            oldest_pending_seconds: counts.oldest_claimable.map(|since| now.since(since)),
            per_minute: self.ended(&queue, |ended| ended > minute_ago),
            pollers: Vec::new(),
            queue,
        }
    }

    /// Reads a stream.
    pub fn stream_read(&self, read: &StreamRead) -> Result<StreamPage> {
        let stream = self.state.streams.get(&read.stream).cloned().unwrap_or_default();
        let limit = read.limit as usize;
        let events = stream.events.iter();
        let events: Vec<Event> = match read.from {
            ReadFrom::Oldest => events.take(limit).cloned().collect(),
            ReadFrom::After(seq) if seq < stream.oldest => {
                return Err(compacted(stream.oldest));
            }
            ReadFrom::After(seq) => events.filter(|event| event.seq > seq).take(limit).cloned().collect(),
            ReadFrom::Before(seq) => last(events.filter(|event| event.seq < seq).cloned().collect(), limit),
            ReadFrom::Last => last(events.cloned().collect(), limit),
        };
        Ok(StreamPage { events, last_seq: stream.last, oldest: stream.oldest })
    }

    /// The events of a category after a position, or all. The position was given when the category had been
    /// trimmed `seen` times; 0 if that is not known.
    pub fn category_read(&self, category: &str, after: Option<&Position>, seen: usize) -> Result<Vec<Event>> {
        after.map(|after| self.state.judge_place(category, after, seen)).transpose()?;
        let events = self.state.category(category).into_iter();
        Ok(events.filter(|event| after.is_none_or(|after| event.position > *after)).cloned().collect())
    }

    /// Every event there is that has no position yet.
    pub fn unlearned(&self) -> Vec<Event> {
        let events = self.state.streams.values().flat_map(|stream| &stream.events);
        events.filter(|event| event.position.0.is_empty()).cloned().collect()
    }

    /// The highest position of a category that was trimmed.
    pub fn mark(&self, category: &str) -> Option<Position> {
        self.state.mark(category).cloned()
    }

    /// How often something of a category was trimmed.
    pub fn trims(&self, category: &str) -> usize {
        self.state.trims_of(category)
    }

    /// Streams that have or had events, by name.
    pub fn stream_list(&self, prefix: &str) -> Vec<StreamInfo> {
        let streams = self.state.streams.iter().filter(|(name, _)| name.as_str().starts_with(prefix));
        let info = |(name, stream): (&StreamName, &super::state::Stream)| StreamInfo {
            stream: name.clone(),
            last_seq: stream.last,
            oldest: stream.oldest,
        };
        streams.map(info).collect()
    }

    /// Says how far a group is.
    pub fn group_info(&self, group: &str, source: &Source) -> Result<GroupInfo> {
        let key = group_key(group, source);
        let known = self.state.groups.get(&key).ok_or_else(|| Error::not_found("group", group))?;
        let deliveries = self.state.deliveries_of(&key);
        let oldest = deliveries.iter().take(100).map(|(key, delivery)| Pending {
            stream: delivery.stream.clone(),
            seq: delivery.seq,
            position: key.position.clone(),
            consumer: delivery.consumer.clone(),
            delivery: delivery.times,
            visible_at: delivery.visible_at,
        });
        Ok(GroupInfo {
            group: group.to_owned(),
            source: source.clone(),
            cursor: known.cursor.as_ref().map(ToString::to_string),
            pending: deliveries.len() as u64,
            oldest: oldest.collect(),
        })
    }

    /// Reads a document.
    pub fn document(&self, kind: &str, name: &str, now: Timestamp) -> Option<Document> {
        self.state.document(kind, name, now).cloned()
    }

    /// Documents of a kind, in order. The list's limit and cursor do not count.
    pub fn document_list(&self, list: &DocumentList, now: Timestamp) -> Vec<Document> {
        let passes = |document: &&Document| {
            document.kind == list.kind
                && document.name.starts_with(&list.prefix)
                && document.expires_at.is_none_or(|at| at > now)
                && list.labels.iter().all(|(key, value)| document.labels.get(key) == Some(value))
        };
        let mut documents: Vec<_> = self.state.documents.values().filter(passes).cloned().collect();
        documents.sort_by(|one, two| one.name.cmp(&two.name));
        if list.descending {
            documents.reverse();
        }
        documents
    }

    /// Reads an entry.
    pub fn entry(&self, key: &str, now: Timestamp) -> Option<Entry> {
        self.state.entry(key, now).cloned()
    }

    /// Entries by key.
    pub fn entry_list(&self, prefix: &str, now: Timestamp) -> Vec<Entry> {
        let keys = self.state.entries.keys().filter(|key| key.starts_with(prefix));
        keys.filter_map(|key| self.entry(key, now)).collect()
    }

    /// Reads a lock that is held.
    pub fn lock(&self, key: &str, now: Timestamp) -> Option<Lock> {
        self.state.lock(key, now)
    }

    /// Held locks by key.
    pub fn lock_list(&self, prefix: &str, now: Timestamp) -> Vec<Lock> {
        let keys = self.state.locks.keys().filter(|key| key.starts_with(prefix));
        keys.filter_map(|key| self.lock(key, now)).collect()
    }
}

fn last(mut events: Vec<Event>, limit: usize) -> Vec<Event> {
    events.split_off(events.len().saturating_sub(limit))
}
