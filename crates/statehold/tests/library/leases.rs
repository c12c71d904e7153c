//! Leases: each thing done with one is refused once it is lost, and leaves nothing.

use crate::common::{claim, code, everything, json, on_every_store, story, stream};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use statehold::core::command::{DocumentPut, EntrySet, Expect, LockAcquire, TaskCancel};
use statehold::core::model::{OnTimeout, ResumedBy};
use statehold::{
    Clock, Lease, NewEvent, Result, Seconds, Statehold, Status, TaskCreate, TaskError, TaskId, WaitFor,
};

/// Everything that can be done with a lease.
fn writes(lease: &Lease) -> Vec<(&'static str, BoxFuture<'_, Result<()>>)> {
    macro_rules! writes {
        ($($name:literal: $write:expr,)*) => { vec![$(($name, $write.map(|done| done.map(drop)).boxed())),*] };
    }
    let event = || vec![NewEvent::new("late")];
    let signal = || WaitFor::Signal("go".into());
    let settle = || {
        let mut settle = lease.settle();
        settle.put("work", "late", json("late"));
        settle.append(stream("log/late"), event());
        settle.dispatch(TaskCreate::new("child").child_key("late"));
        settle
    };
    writes! {
        "renew": lease.renew(),
        "report": lease.report(Some(json("late"))),
        "complete": lease.complete(Some(json("late"))),
        "fail": lease.fail(TaskError::new("late", "late"), true),
        "release": lease.release(),
        "release_until": lease.release_until(Some("2099-01-01T00:00:00Z".parse().unwrap())),
        "suspend": lease.suspend(signal()),
        "suspend_for": lease.suspend_for(signal(), Some(Seconds::new(1)), OnTimeout::Fail),
        "append": lease.append(event()),
        "append_to": lease.append_to(stream("log/late"), event()),
        "dispatch": lease.dispatch(TaskCreate::new("child").child_key("late")),
        "run": lease.run(EntrySet::new("late", json("late"))),
        "settle.commit": settle().commit(),
        "settle.complete": settle().complete(None),
        "settle.fail": settle().fail(TaskError::new("late", "late"), false),
        "settle.suspend": settle().suspend(signal()),
    }
}

/// The ways to lose a lease.
#[derive(Clone, Copy, Debug)]
enum Loss {
    TakenOver,
    Over,
    Evicted,
    Cancelled,
    Completed,
}

async fn lose(lease: &Lease, loss: Loss, hold: &Statehold, clock: &Clock) {
    match loss {
        Loss::TakenOver => {
            clock.advance(31);
            assert_eq!(claim(hold, "successor").await.id(), lease.id());
        }
        Loss::Over => clock.advance(31),
        Loss::Evicted => drop(hold.tasks().evict(lease.id()).await.unwrap()),
        Loss::Cancelled => {
            let cancel = TaskCancel { id: lease.id(), force: true, children: false };
            hold.run(cancel).await.unwrap();
        }
        Loss::Completed => drop(lease.complete(None).await.unwrap()),
    }
}

fn refuses_everything_after(loss: Loss) {
    on_every_store(async |hold, clock| {
        hold.tasks().create(TaskCreate::new("work")).await.unwrap();
        let lease = claim(&hold, "zombie").await;
        lose(&lease, loss, &hold, &clock).await;
        let before = everything(&hold).await;
        for (name, write) in writes(&lease) {
            let outcome = write.await;
            // A completion that is repeated with its own token answers the same.
            if matches!(loss, Loss::Completed) && name == "complete" {
                assert!(outcome.is_ok(), "{name}: {outcome:?}");
            } else {
                assert_eq!(code(outcome), "fenced", "{name} after {loss:?}");
            }
            assert_eq!(everything(&hold).await, before, "{name} after {loss:?} leaves nothing");
        }
    });
}

#[test]
fn each_write_is_refused_after_a_takeover() {
    refuses_everything_after(Loss::TakenOver);
}

#[test]
fn each_write_is_refused_when_the_lease_is_over_although_nobody_took_the_task() {
    refuses_everything_after(Loss::Over);
}

#[test]
fn each_write_is_refused_after_an_eviction() {
    refuses_everything_after(Loss::Evicted);
}

#[test]
fn each_write_is_refused_after_a_forced_cancel() {
    refuses_everything_after(Loss::Cancelled);
}

#[test]
fn each_write_but_the_same_completion_is_refused_after_the_end() {
    refuses_everything_after(Loss::Completed);
}

#[test]
fn each_write_is_accepted_while_the_lease_holds() {
    on_every_store(async |hold, _| {
        for index in 0.. {
            let queue = format!("q{index}");
            hold.tasks().create(TaskCreate::new("work").queue(&queue)).await.unwrap();
            let lease = hold.tasks().claim(&[&queue], "me", 1).await.unwrap().remove(0);
            let before = everything(&hold).await;
            let mut writes = writes(&lease);
            if index >= writes.len() {
                break;
            }
            let (name, write) = writes.swap_remove(index);
            let outcome = write.await;
            assert!(outcome.is_ok(), "{name}: {outcome:?}");
            assert_ne!(everything(&hold).await, before, "{name} does something");
        }
    });
}

#[test]
fn a_settle_happens_as_a_whole_or_not_at_all() {
    on_every_store(async |hold, _| {
        hold.documents().put("work", "taken", json("before")).await.unwrap();
        hold.tasks().create(TaskCreate::new("work")).await.unwrap();
        let lease = claim(&hold, "me").await;
        let settle = |expect| {
            let mut settle = lease.settle();
            settle.append(stream("log/1"), vec![NewEvent::new("one"), NewEvent::new("two")]);
            settle.dispatch(TaskCreate::new("child").child_key("a"));
            let _ = settle.add(EntrySet::new("key", json("value")));
            let _ = settle.add(DocumentPut { expect, ..DocumentPut::json("work", "taken", json("after")) });
            settle
        };
        let before = everything(&hold).await;
        assert_eq!(code(settle(Expect::Absent).complete(None).await), "precondition_failed");
        assert_eq!(everything(&hold).await, before, "nothing of it is there");

        let lock = hold.locks().try_acquire("project", "me").await.unwrap().unwrap();
        let mut fenced = settle(Expect::Any);
        fenced.fence(lock.fence());
        hold.locks().force_release("project").await.unwrap();
        assert_eq!(code(fenced.complete(None).await), "fenced");
        let _ = hold.run(LockAcquire::new("project", "other")).await.unwrap();

        let task = settle(Expect::Any).complete(Some(json("done"))).await.unwrap();
        assert_eq!(task.status, Status::Completed);
        assert_eq!(hold.streams().last(&stream("log/1"), 10).await.unwrap().len(), 2);
        assert_eq!(hold.entries().get("key").await.unwrap().unwrap().value, json("value"));
        let document = hold.documents().get("work", "taken").await.unwrap().unwrap();
        assert_eq!((document.body, document.revision), (Some(json("after")), 2));
        let mut ended = story(&hold, &task).await;
        assert_eq!(ended.pop().as_deref(), Some("task.completed"));
    });
}

#[test]
fn a_child_is_dispatched_once_by_all_owners_of_its_parent() {
    on_every_store(async |hold, clock| {
        hold.tasks().create(TaskCreate::new("parent")).await.unwrap();
        let child = || TaskCreate::new("child").queue("children").child_key("first");
        let first = claim(&hold, "one").await;
        let made = first.dispatch(child()).await.unwrap();
        clock.advance(31);
        let second = claim(&hold, "two").await;
        let again = second.dispatch(child()).await.unwrap();
        assert!(made.created && !again.created);
        assert_eq!(made.task.id, again.task.id);
    });
}

#[test]
fn a_task_that_waits_is_resumed_by_its_signal_and_its_children() {
    on_every_store(async |hold, _| {
        let task = hold.tasks().create(TaskCreate::new("parent")).await.unwrap().task;
        let lease = claim(&hold, "one").await;
        lease.suspend(WaitFor::Signal("go".into())).await.unwrap();
        assert!(hold.tasks().claim(&["default"], "two", 1).await.unwrap().is_empty());
        hold.tasks().signal(task.id, "go", Some(json(&7))).await.unwrap();
        let lease = claim(&hold, "two").await;
        let signal = ResumedBy::Signal { name: "go".into(), data: Some(json(&7)) };
        assert_eq!(lease.task().resumed_by, Some(signal));

        lease.dispatch(TaskCreate::new("child").queue("children")).await.unwrap();
        lease.suspend(WaitFor::Children(statehold::core::model::Children::All)).await.unwrap();
        assert!(hold.tasks().claim(&["default"], "three", 1).await.unwrap().is_empty());
        let child = hold.tasks().claim(&["children"], "three", 1).await.unwrap().remove(0);
        child.complete(None).await.unwrap();
        assert_eq!(claim(&hold, "three").await.id(), task.id);
    });
}

#[test]
fn a_lease_is_taken_up_elsewhere_by_its_token_and_by_no_other() {
    on_every_store(async |hold, clock| {
        hold.tasks().create(TaskCreate::new("work")).await.unwrap();
        let lease = claim(&hold, "one").await;
        clock.advance(20);
        let resumed = hold.tasks().resume(lease.id(), lease.token()).await.unwrap();
        // It was renewed: what it believes of its end is true.
        clock.advance(20);
        resumed.append(vec![NewEvent::new("still here")]).await.unwrap();
        assert_eq!(code(hold.tasks().resume(lease.id(), statehold::Token(1)).await), "fenced");
        assert_eq!(code(hold.tasks().resume(TaskId::generate(), lease.token()).await), "not_found");
        clock.advance(31);
        assert_eq!(code(hold.tasks().resume(lease.id(), lease.token()).await), "fenced");
    });
}

#[test]
fn what_is_released_until_later_is_claimed_later() {
    on_every_store(async |hold, clock| {
        let task = hold.tasks().create(TaskCreate::new("work")).await.unwrap().task;
        let lease = claim(&hold, "one").await;
        let later = clock.now() + Seconds::new(60);
        lease.release_until(Some(later)).await.unwrap();
        assert!(hold.tasks().claim(&["default"], "two", 1).await.unwrap().is_empty());
        clock.advance(61);
        assert_eq!(claim(&hold, "two").await.id(), task.id);
    });
}
