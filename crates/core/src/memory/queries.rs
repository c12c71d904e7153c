//! Answers to questions: plain scans of the maps.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::space::Space;
use crate::clock::{Seconds, Timestamp};
use crate::error::{Error, Result};
use crate::model::{
    Document, Entry, Event, GroupInfo, Lock, Pending, Poller, Position, QueueInfo, Source, StreamInfo,
    StreamName, Task, TaskId,
};
use crate::query::{
    CategoryCursor, CategoryFrom, CategoryPage, CategoryRead, DocumentList, KeyList, POLLER_MEMORY, Page,
    ReadFrom, StreamPage, StreamRead, TaskCounts, TaskList,
};
use crate::row::{DocumentKey, GroupKey, PollerRow, TaskRow, Turn};

/// Whether a task could be claimed now.
fn claimable(row: &TaskRow, now: Timestamp) -> bool {
    let turned = match row.turn {
        Turn::Ready => true,
        Turn::Later => row.task.run_at <= now && row.task.exclusive_key.is_none(),
        Turn::Off | Turn::InLine => false,
    };
    turned && row.task.expires_at.is_none_or(|at| at > now)
}

/// Whether someone counts as asking for work.
fn recent(poller: &PollerRow, now: Timestamp) -> bool {
    poller.at + POLLER_MEMORY > now
}

/// The page of a list that is sorted by key.
fn page<T>(list: &KeyList, items: impl Iterator<Item = (String, T)>) -> Result<Page<T>> {
    let place = list.place()?;
    let after = |key: &String| place.as_ref().is_none_or(|place| key > place);
    let items = items.filter(|(key, _)| key.starts_with(&list.prefix) && after(key));
    let items: Vec<_> = items.take(list.limit as usize + 1).collect();
    let page = Page::of(items, list.limit as usize, |(key, _)| key.clone());
    Ok(Page { items: page.items.into_iter().map(|(_, item)| item).collect(), next_cursor: page.next_cursor })
}

impl Space {
    pub(super) fn tasks(&self, ids: &[TaskId]) -> Vec<Option<Task>> {
        ids.iter().map(|id| self.tasks.get(id).map(|row| row.task.clone())).collect()
    }

    pub(super) fn task_list(&self, list: &TaskList) -> Result<Page<Task>> {
        let direction = |ordering: Ordering| if list.descending { ordering.reverse() } else { ordering };
        let place = list.place()?;
        let after = |task: &Task| {
            place.is_none_or(|place| direction(list.place_of(task).cmp(&place)) == Ordering::Greater)
        };
        let tasks = self.tasks.values().map(|row| &row.task);
        let mut tasks: Vec<_> = tasks.filter(|task| list.matches(task) && after(task)).collect();
        tasks.sort_by(|one, two| direction(list.place_of(one).cmp(&list.place_of(two))));
        tasks.truncate(list.limit as usize + 1);
        let tasks = tasks.into_iter().cloned().collect();
        Ok(Page::of(tasks, list.limit as usize, |task| list.place_of(task)))
    }

    pub(super) fn task_count(&self, queue: Option<&str>, now: Timestamp) -> TaskCounts {
        let mut counts = TaskCounts::default();
        for row in self.tasks.values().filter(|row| queue.is_none_or(|queue| row.task.queue == queue)) {
            *counts.counts.entry(row.task.status).or_default() += 1;
            if claimable(row, now) {
                counts.claimable += 1;
                let oldest = counts.oldest_claimable.unwrap_or(row.task.run_at);
                counts.oldest_claimable = Some(oldest.min(row.task.run_at));
            }
        }
        counts
    }

    pub(super) fn queue_list(&self, now: Timestamp) -> Vec<QueueInfo> {
        let mut queues: BTreeSet<&String> = self.tasks.values().map(|row| &row.task.queue).collect();
        queues.extend(self.queues.values().filter(|row| row.paused).map(|row| &row.queue));
        queues.extend(self.pollers.values().filter(|row| recent(row, now)).map(|row| &row.key.queue));
        queues.into_iter().map(|queue| self.queue_info(queue, now)).collect()
    }

    fn queue_info(&self, queue: &str, now: Timestamp) -> QueueInfo {
        let TaskCounts { counts, claimable, oldest_claimable } = self.task_count(Some(queue), now);
        let pollers = self.pollers_of(queue).filter(|row| recent(row, now));
        let pollers = pollers.map(|row| Poller { owner: row.key.owner.clone(), at: row.at }).collect();
        let ended = |row: &&Arc<TaskRow>| {
            row.task.queue == queue && row.task.finished_at.is_some_and(|at| at + Seconds::new(60) > now)
        };
        QueueInfo {
            queue: queue.to_owned(),
            paused: self.queues.get(queue).is_some_and(|row| row.paused),
            counts,
            claimable,
            oldest_pending_seconds: oldest_claimable.map(|oldest| now.since(oldest)),
            per_minute: self.tasks.values().filter(ended).count() as u64,
            pollers,
        }
    }

    pub(super) fn stream_read(&self, read: &StreamRead) -> Result<StreamPage> {
        let head = self.head(&read.stream);
        let limit = read.limit as usize;
        let forward = |seq| self.stream_after(&read.stream, seq).take(limit).cloned().collect::<Vec<_>>();
        let backward = |before: u64| {
            let events = self.stream_after(&read.stream, 0).rev().filter(|event| event.seq < before);
            let mut events: Vec<_> = events.take(limit).cloned().collect();
            events.reverse();
            events
        };
        let events = match read.from {
            ReadFrom::After(seq) if seq < head.oldest => {
                return Err(Error::compacted(read.stream.as_str(), &head.oldest));
            }
            ReadFrom::After(seq) => forward(seq),
            ReadFrom::Oldest => forward(head.oldest),
            ReadFrom::Before(seq) => backward(seq),
            ReadFrom::Last => backward(u64::MAX),
        };
        Ok(StreamPage { events: owned(&events), last_seq: head.last, oldest: head.oldest })
    }

    pub(super) fn category_read(&self, read: &CategoryRead) -> Result<CategoryPage> {
        let trims = self.trims_of(&read.category);
        let cursor = |position| CategoryCursor { position, trims: trims.count() };
        let after = match &read.from {
            CategoryFrom::Latest => {
                return Ok(CategoryPage { events: Vec::new(), cursor: cursor(self.latest(&read.category)) });
            }
            CategoryFrom::After(after) if trims.missed(&after.position, after.trims) => {
                return Err(Error::compacted(&read.category, &trims.oldest()));
            }
            CategoryFrom::After(after) => after.position.clone(),
            CategoryFrom::Oldest => Position::default(),
        };
        let events: Vec<_> =
            self.category_after(&read.category, &after).take(read.limit as usize).cloned().collect();
        let cursor = cursor(events.last().map_or(after, |event| event.position.clone()));
        Ok(CategoryPage { events: owned(&events), cursor })
    }

    pub(super) fn stream_list(&self, list: &KeyList) -> Result<Page<StreamInfo>> {
        let of_tasks = self.tasks.keys().map(|id| StreamName::of_task(*id));
        let names: BTreeMap<_, _> =
            of_tasks.chain(self.streams.keys().cloned()).map(|name| (name.to_string(), name)).collect();
        page(
            list,
            names.into_iter().map(|(key, stream)| {
                let head = self.head(&stream);
                (key, StreamInfo { stream, last_seq: head.last, oldest: head.oldest })
            }),
        )
    }

    pub(super) fn group_info(&self, group: &str, source: &Source) -> Result<GroupInfo> {
        let key = GroupKey { group: group.to_owned(), source: source.clone() };
        let row = self.groups.get(&key).ok_or_else(|| Error::not_found("group", group))?;
        let pending: Vec<_> = self.deliveries_of(&key).collect();
        let oldest = pending.iter().take(100).map(|row| Pending {
            stream: row.stream.clone(),
            seq: row.seq,
            position: row.key.position.clone(),
            consumer: row.consumer.clone(),
            delivery: row.delivery,
            visible_at: row.visible_at,
        });
        Ok(GroupInfo {
            group: key.group.clone(),
            source: source.clone(),
            cursor: row.cursor.as_ref().map(ToString::to_string),
            pending: pending.len() as u64,
            oldest: oldest.collect(),
        })
    }

    pub(super) fn document(&self, kind: &str, name: &str, now: Timestamp) -> Option<Document> {
        let key = DocumentKey { kind: kind.to_owned(), name: name.to_owned() };
        self.documents
            .get(&key)
            .filter(|row| row.expires_at.is_none_or(|at| at > now))
            .map(|row| Document::clone(row))
    }

    pub(super) fn document_list(&self, list: &DocumentList, now: Timestamp) -> Result<Page<Document>> {
        let place = list.place()?;
        let after = |name: &String| match &place {
            Some(place) if list.descending => name < place,
            Some(place) => name > place,
            None => true,
        };
        let matches = |row: &&Arc<Document>| {
            row.kind == list.kind
                && row.name.starts_with(&list.prefix)
                && after(&row.name)
                && row.expires_at.is_none_or(|at| at > now)
                && list.labels.iter().all(|(key, value)| row.labels.get(key) == Some(value))
        };
        let mut rows: Vec<_> = self.documents.values().filter(matches).collect();
        if list.descending {
            rows.reverse();
        }
        let rows = rows.into_iter().take(list.limit as usize + 1).map(|row| Document::clone(row)).collect();
        Ok(Page::of(rows, list.limit as usize, |document| document.name.clone()))
    }

    pub(super) fn entry(&self, key: &str, now: Timestamp) -> Option<Entry> {
        self.entries.get(key).filter(|row| row.expires_at > now).map(|row| Entry::clone(row))
    }

    pub(super) fn entry_list(&self, list: &KeyList, now: Timestamp) -> Result<Page<Entry>> {
        let live = self.entries.values().filter(|row| row.expires_at > now);
        page(list, live.map(|row| (row.key.clone(), Entry::clone(row))))
    }

    pub(super) fn lock(&self, key: &str, now: Timestamp) -> Option<Lock> {
        self.locks.get(key).and_then(|row| row.held(now))
    }

    pub(super) fn lock_list(&self, list: &KeyList, now: Timestamp) -> Result<Page<Lock>> {
        let held = self.locks.values().filter_map(|row| row.held(now));
        page(list, held.map(|lock| (lock.key.clone(), lock)))
    }
}

fn owned(events: &[Arc<Event>]) -> Vec<Event> {
    events.iter().map(|event| Event::clone(event)).collect()
}
