//! Who waits to be written, shared out among the connections that write. No two of them work on the same rows at a time: who
//! needs what another is about to write is put aside until that is done.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::mem::take;
use std::sync::{Mutex, MutexGuard, PoisonError};

use statehold_core::plan::Needs;
use tokio::sync::Notify;

use crate::job::{Group, Job};
use crate::known::{Caution, each_kind};

/// How many requests share a transaction at most.
const MOST: usize = 500;

/// So few are not shared out: a transaction costs something by itself.
const FEW: usize = 8;

/// Who waits, and what is under way.
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    /// Tells each pen that there is something for it.
    bells: Vec<Notify>,
    hashes: RandomState,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Box<dyn Job>>,
    /// How many requests each pen has, and none while it is idle.
    busy: Vec<Option<usize>>,
    /// Those who need what a pen is writing, until it has.
    aside: Vec<Group>,
    /// What stands for rows that are being written, with the pen that does. If two rows have the same, one waits in vain.
    taken: HashMap<u64, usize>,
    /// Whether to share out at all, where most requests are about the same rows.
    sharing: Caution,
    closed: bool,
}

impl Inbox {
    pub(crate) fn new(pens: usize) -> Self {
        let (bells, aside) = (0..pens).map(|_| (Notify::new(), Group::new())).unzip();
        let waiting = Waiting { busy: vec![None; pens], aside, ..Waiting::default() };
        Self { waiting: Mutex::new(waiting), bells, hashes: RandomState::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a request behind those that wait.
    pub(crate) fn send(&self, job: Box<dyn Job>) {
        let mut waiting = self.waiting();
        waiting.jobs.push_back(job);
        self.ring(&waiting);
    }

    /// Nobody comes any more.
    pub(crate) fn close(&self) {
        self.waiting().closed = true;
        self.bells.iter().for_each(Notify::notify_one);
    }

    /// Wakes the first idle pen, so that a lone caller always meets the same one.
    fn ring(&self, waiting: &Waiting) {
        if let Some(idle) = waiting.busy.iter().position(Option::is_none) {
            self.bells[idle].notify_one();
        }
    }

    /// A pen's share of those who wait, once there is one; none when there never will be.
    pub(crate) async fn take(&self, pen: usize) -> Option<Group> {
        loop {
            if let Some(jobs) = self.share(pen) {
                return (!jobs.is_empty()).then_some(jobs);
            }
            self.bells[pen].notified().await;
        }
    }

    /// Nothing if it is not this pen's turn, an empty group if it is over.
    fn share(&self, pen: usize) -> Option<Group> {
        let mut waiting = self.waiting();
        let under_way: usize = waiting.busy.iter().flatten().sum();
        if waiting.jobs.is_empty() {
            // Those who were put aside are taken by the pen that they wait for.
            return waiting.closed.then(Group::new);
        }
        let shares = waiting.sharing.dares();
        if under_way > 0 && !shares {
            return None;
        }
        let all = waiting.jobs.len() + under_way;
        let share = if shares { all.div_ceil(self.bells.len()).max(FEW) } else { all };
        let count = share.min(waiting.jobs.len()).min(MOST);
        let jobs: Group = waiting.jobs.drain(..count).collect();
        waiting.busy[pen] = Some(jobs.len());
        if shares && !waiting.jobs.is_empty() {
            self.ring(&waiting);
        }
        Some(jobs)
    }

    /// Keeps the rows that a plan is missing for a pen. If another one has some of them, it is told which.
    pub(crate) fn hold(&self, pen: usize, namespace: &str, needs: &Needs) -> Result<(), usize> {
        self.keep(pen, self.marks(namespace, needs))
    }

    /// Keeps others from looking around in a namespace: what is found is held until it is known who gets it.
    pub(crate) fn hold_all(&self, pen: usize, namespace: &str) -> Result<(), usize> {
        self.keep(pen, vec![self.mark(0, namespace, &())])
    }

    fn keep(&self, pen: usize, marks: Vec<u64>) -> Result<(), usize> {
        let taken = &mut self.waiting().taken;
        if let Some(other) = marks.iter().find_map(|mark| taken.get(mark).copied().filter(|by| *by != pen)) {
            return Err(other);
        }
        taken.extend(marks.into_iter().map(|mark| (mark, pen)));
        Ok(())
    }

    /// What stands for rows.
    fn marks(&self, namespace: &str, needs: &Needs) -> Vec<u64> {
        let (mut marks, mut kind) = (Vec::new(), 0);
        each_kind!(needs, |keys| {
            kind += 1;
            marks.extend(keys.iter().map(|key| self.mark(kind, namespace, key)));
        });
        marks
    }

    fn mark(&self, kind: u8, namespace: &str, key: &impl Hash) -> u64 {
        self.hashes.hash_one((kind, namespace, key))
    }

    /// Lets requests wait until the pens that they met are done; of so many that were to go together.
    pub(crate) fn put_aside(&self, jobs: Vec<(usize, Box<dyn Job>)>, of: usize) {
        let mut waiting = self.waiting();
        if jobs.len() * 2 > of {
            waiting.sharing.was_wrong();
        } else {
            waiting.sharing.was_right();
        }
        for (pen, job) in jobs {
            match waiting.busy[pen] {
                Some(_) => waiting.aside[pen].push(job),
                None => waiting.jobs.push_front(job),
            }
        }
    }

    /// A pen is done with its share.
    pub(crate) fn done(&self, pen: usize) {
        let mut waiting = self.waiting();
        waiting.busy[pen] = None;
        waiting.taken.retain(|_, by| *by != pen);
        for job in take(&mut waiting.aside[pen]).into_iter().rev() {
            waiting.jobs.push_front(job);
        }
        if !waiting.jobs.is_empty() || waiting.closed {
            self.bells.iter().for_each(Notify::notify_one);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use statehold_core::Error;
    use statehold_core::plan::Rows;

    use super::*;
    use crate::job::{Progress, Sight};

    struct Nothing;

    impl Job for Nothing {
        fn namespace(&self) -> &'static str {
            "n"
        }

        fn is_alone(&self) -> bool {
            false
        }

        fn looks_around(&self) -> bool {
            false
        }

        fn switches(&self) -> &[String] {
            &[]
        }

        fn is_repeatable(&self) -> bool {
            true
        }

        fn step(&mut self, _: &Rows, _: &Sight<'_>) -> Progress {
            Progress::Done(Box::default())
        }

        fn answer(self: Box<Self>) {}

        fn fail(self: Box<Self>, _: Error) {}
    }

    fn with(jobs: usize) -> Inbox {
        let inbox = Inbox::new(2);
        (0..jobs).for_each(|_| inbox.send(Box::new(Nothing)));
        inbox
    }

    /// How many requests a pen gets at once; none if it has to wait.
    fn taken(inbox: &Inbox, pen: usize) -> Option<usize> {
        inbox.take(pen).now_or_never().map(|jobs| jobs.map_or(0, |jobs| jobs.len()))
    }

    fn lock_of(key: &str) -> Needs {
        Needs { locks: [key.to_owned()].into(), ..Needs::default() }
    }

    #[test]
    fn many_are_shared_out_and_few_are_not() {
        let many = with(64);
        assert_eq!((taken(&many, 0), taken(&many, 1), taken(&many, 0)), (Some(32), Some(32), None));
        let few = with(FEW);
        assert_eq!((taken(&few, 0), taken(&few, 1)), (Some(FEW), None));
    }

    #[test]
    fn who_meets_another_pen_comes_back_when_that_is_done() {
        let inbox = with(64);
        assert_eq!((taken(&inbox, 0), taken(&inbox, 1)), (Some(32), Some(32)));
        assert_eq!(inbox.hold(0, "n", &lock_of("a")), Ok(()));
        assert_eq!(inbox.hold(0, "n", &lock_of("a")), Ok(()));
        assert_eq!(inbox.hold(1, "n", &lock_of("a")), Err(0));
        assert_eq!(inbox.hold(1, "other", &lock_of("a")), Ok(()));
        assert_eq!((inbox.hold_all(0, "n"), inbox.hold_all(1, "n")), (Ok(()), Err(0)));
        inbox.put_aside(vec![(0, Box::new(Nothing))], 32);
        inbox.done(1);
        assert_eq!(taken(&inbox, 1), None, "it waits for the other");
        inbox.done(0);
        assert_eq!(inbox.hold(1, "n", &lock_of("a")), Ok(()));
        assert_eq!(taken(&inbox, 1), Some(1));
    }

    #[test]
    fn who_met_a_pen_that_is_done_by_now_does_not_wait() {
        let inbox = with(64);
        assert_eq!((taken(&inbox, 0), taken(&inbox, 1)), (Some(32), Some(32)));
        inbox.done(0);
        inbox.put_aside(vec![(0, Box::new(Nothing))], 32);
        assert_eq!(taken(&inbox, 0), Some(1));
    }

    #[test]
    fn where_most_meet_one_pen_does_it_all_for_a_while() {
        let inbox = with(64);
        assert_eq!((taken(&inbox, 0), taken(&inbox, 1)), (Some(32), Some(32)));
        inbox.put_aside((0..32).map(|_| (0, Box::new(Nothing) as Box<dyn Job>)).collect(), 32);
        inbox.done(1);
        inbox.done(0);
        (0..32).for_each(|_| inbox.send(Box::new(Nothing)));
        assert_eq!((taken(&inbox, 0), taken(&inbox, 1)), (Some(64), None));
    }

    #[test]
    fn what_waits_is_done_before_it_closes() {
        let inbox = with(1);
        inbox.close();
        assert_eq!((taken(&inbox, 0), taken(&inbox, 1)), (Some(1), Some(0)));
        inbox.put_aside(vec![(0, Box::new(Nothing))], 1);
        inbox.done(0);
        assert_eq!((taken(&inbox, 0), taken(&inbox, 0)), (Some(1), Some(0)));
    }
}
