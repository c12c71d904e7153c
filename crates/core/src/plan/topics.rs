//! Whom effects wake.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::rows::Effects;
use crate::model::{StreamName, TaskId};
use crate::row::{Change, LockRow, TaskRow, Turn};
use crate::wake::{Mark, Topic};

/// The topics whose waiters should look again after the start of a task.
pub fn start_topics(id: TaskId) -> [Topic; 3] {
    let stream = StreamName::of_task(id);
    [Topic::Task(id), Topic::Category(stream.category().to_owned()), Topic::Stream(stream)]
}

impl Effects {
    /// The marks of [`topics`](Self::topics), for a wake.
    pub fn marks(&self, namespace: &str) -> Vec<Mark> {
        self.topics().iter().map(|topic| Mark::of(namespace, topic)).collect()
    }

    /// The topics whose waiters should look again.
    pub fn topics(&self) -> BTreeSet<Topic> {
        let mut topics = BTreeSet::new();
        self.tasks.iter().for_each(|change| of_task(change, &mut topics));
        for change in &self.queues {
            let paused = |row: &Option<Arc<crate::row::QueueRow>>| row.as_ref().is_some_and(|row| row.paused);
            if paused(&change.before) != paused(&change.after) {
                topics.insert(Topic::Queue(change.key.clone()));
            }
        }
        let streams = self.events.iter().map(|event| &event.stream);
        for stream in streams.chain(self.trims.iter().map(|trim| &trim.stream)) {
            topics.insert(Topic::Category(stream.category().to_owned()));
            topics.insert(Topic::Stream(stream.clone()));
        }
        topics.extend(self.entries.iter().map(|change| Topic::Entry(change.key.clone())));
        topics.extend(
            self.locks.iter().filter(|change| freed(change)).map(|change| Topic::Lock(change.key.clone())),
        );
        topics.extend(
            self.documents.iter().map(|change| Topic::Document {
                kind: change.key.kind.clone(),
                name: change.key.name.clone(),
            }),
        );
        let given_back =
            self.deliveries.iter().filter(|change| change.after.as_ref().is_some_and(|row| !row.out));
        topics.extend(given_back.map(|change| Topic::Group(change.key.group.group.clone())));
        topics.extend(self.cleared.iter().map(|group| Topic::Group(group.group.clone())));
        topics
    }
}

fn of_task(change: &Change<TaskRow>, topics: &mut BTreeSet<Topic>) {
    let revision = |row: &Option<Arc<TaskRow>>| row.as_ref().map(|row| row.task.revision);
    if revision(&change.before) != revision(&change.after) {
        topics.insert(Topic::Task(change.key));
    }
    // A task that is to come earlier than a waiting claimer knows must wake it too.
    let turn = |row: &Option<Arc<TaskRow>>| row.as_ref().map(|row| (row.turn, row.task.run_at));
    let waits = |row: &&Arc<TaskRow>| matches!(row.turn, Turn::Ready | Turn::Later);
    if turn(&change.before) != turn(&change.after) {
        topics.extend(change.after.iter().find(waits).map(|row| Topic::Queue(row.task.queue.clone())));
    }
}

fn freed(change: &Change<LockRow>) -> bool {
    let held = |row: &Option<Arc<LockRow>>| row.as_ref().is_some_and(|row| row.holder.is_some());
    held(&change.before) && !held(&change.after)
}
