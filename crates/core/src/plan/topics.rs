//! Whom effects wake.

use std::sync::Arc;

use super::rows::Effects;
use crate::model::{StreamName, TaskId};
use crate::row::{Change, LockRow, TaskRow, Turn};
use crate::wake::{Mark, Marks, Topic, TopicRef};

/// The topics whose waiters should look again after the start of a task.
pub fn start_topics(id: TaskId) -> [Topic; 3] {
    let stream = StreamName::of_task(id);
    [Topic::Task(id), Topic::Category(stream.category().to_owned()), Topic::Stream(stream)]
}

impl Effects {
    /// The marks of topics whose waiters should look again, for a wake.
    pub fn marks(&self, namespace: &str) -> Vec<Mark> {
        let of = Marks::of(namespace);
        let mut marks = Vec::new();
        let mut wake = |topic: TopicRef<'_>| marks.push(of.mark(topic));
        self.tasks.iter().for_each(|change| of_task(change, &mut wake));
        for change in &self.queues {
            let paused = |row: &Option<Arc<crate::row::QueueRow>>| row.as_ref().is_some_and(|row| row.paused);
            if paused(&change.before) != paused(&change.after) {
                wake(TopicRef::Queue(&change.key));
            }
        }
        let streams = self.events.iter().map(|event| &event.stream);
        for stream in streams.chain(self.trims.iter().map(|trim| &trim.stream)) {
            wake(TopicRef::Category(stream.category()));
            wake(TopicRef::Stream(stream));
        }
        self.entries.iter().for_each(|change| wake(TopicRef::Entry(&change.key)));
        self.locks.iter().filter(|change| freed(change)).for_each(|change| wake(TopicRef::Lock(&change.key)));
        for change in &self.documents {
            wake(TopicRef::Document { kind: &change.key.kind, name: &change.key.name });
        }
        let given_back =
            self.deliveries.iter().filter(|change| change.after.as_ref().is_some_and(|row| !row.out));
        let groups = given_back.map(|change| &change.key.group).chain(&self.cleared);
        groups.for_each(|group| wake(TopicRef::Group(&group.group)));
        marks.sort_unstable();
        marks.dedup();
        marks
    }
}

fn of_task(change: &Change<TaskRow>, wake: &mut impl FnMut(TopicRef<'_>)) {
    let revision = |row: &Option<Arc<TaskRow>>| row.as_ref().map(|row| row.task.revision);
    if revision(&change.before) != revision(&change.after) {
        wake(TopicRef::Task(change.key));
    }
    // A task that is to come earlier than a waiting claimer knows must wake it too.
    let turn = |row: &Option<Arc<TaskRow>>| row.as_ref().map(|row| (row.turn, row.task.run_at));
    let waits = |row: &&Arc<TaskRow>| matches!(row.turn, Turn::Ready | Turn::Later);
    if turn(&change.before) != turn(&change.after)
        && let Some(row) = change.after.iter().find(waits)
    {
        wake(TopicRef::Queue(&row.task.queue));
    }
}

fn freed(change: &Change<LockRow>) -> bool {
    let held = |row: &Option<Arc<LockRow>>| row.as_ref().is_some_and(|row| row.holder.is_some());
    held(&change.before) && !held(&change.after)
}
