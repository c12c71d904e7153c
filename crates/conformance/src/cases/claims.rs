//! Claims: who gets what, in which order, and what is told when there is nothing.

use serde_json::json;
use statehold_core::call::{Claim, Claimed};
use statehold_core::command::{QueueSet, TaskCreate, TaskEvict, TaskRenew};
use statehold_core::model::{Children, Task, TaskId, Token, WaitFor};
use statehold_core::{Seconds, Status};

use crate::harness::{event, plain_create, refused, token_of};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_claim_starts_what_it_gives,
    a_claim_starts_the_same_for_who_has_asked_before,
    a_claim_goes_by_priority_then_time_then_id,
    a_claim_gives_no_more_than_its_limit,
    a_claim_of_several_queues_takes_the_first_of_all,
    a_claim_leaves_other_queues_alone,
    a_paused_queue_gives_nothing,
    only_ready_tasks_are_given,
    a_task_becomes_claimable_at_its_time,
    a_task_noticed_as_due_stays_so_when_the_clock_steps_back,
    a_claim_can_give_leases_of_any_length_or_without_end,
    a_claimed_lease_ends_with_the_attempts_timeout,
    an_empty_claim_tells_the_earliest_time,
    an_empty_claim_tells_when_a_lease_or_a_wait_ends,
    an_empty_claim_of_nothing_tells_no_time,
    a_claim_takes_over_a_lease_that_is_over,
    a_lease_that_is_over_comes_before_what_is_ready_after_it,
    a_claim_counts_a_timeout,
    a_claim_resumes_waits_that_are_over,
    a_claim_fails_expired_tasks,
    a_claim_handles_only_the_queues_it_asks,
    a_claim_that_reached_its_bound_says_now,
    a_repeated_claim_answers_what_is_still_held,
    a_repeated_claim_shows_the_lease_as_it_is,
    a_repeated_claim_claims_anew_when_nothing_is_held,
    a_claim_key_is_its_owners,
    a_claim_key_forgets_what_was_taken_away,
    a_wrong_claim_is_refused,
];

fn ids(claimed: &Claimed) -> Vec<TaskId> {
    claimed.tasks.iter().map(|task| task.id).collect()
}

async fn claim(store: &Store, claim: Claim) -> Claimed {
    store.backend.claim(claim).await.expect("the claim is answered")
}

fn of(store: &Store, queues: &[&str]) -> Claim {
    let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
    Claim { queues, limit: 100, ..Claim::new(&store.namespace, "q", "w") }
}

fn keyed(store: &Store, owner: &str, limit: u32) -> Claim {
    Claim { limit, key: Some("key".into()), ..Claim::new(&store.namespace, "q", owner) }
}

async fn in_queue(store: &Store, queue: &str, create: TaskCreate) -> Task {
    store.create(TaskCreate { queue: Some(queue.into()), ..create }).await
}

async fn pause(store: &Store, queue: &str) {
    store.run(QueueSet { queue: queue.into(), paused: true }).await.expect("the queue is paused");
}

async fn a_claim_starts_what_it_gives(store: Store) {
    let task = store.plain().await;
    store.clock.advance(5);
    let now = store.now();
    let given = store.claim("w", 1).await.tasks.remove(0);
    let mut expected = task.clone();
    (expected.status, expected.attempt, expected.revision) = (Status::Running, 1, 2);
    (expected.started_at, expected.updated_at, expected.lease) = (Some(now), now, given.lease.clone());
    assert_eq!(given, expected);
    let lease = given.lease.as_ref().expect("a lease");
    assert_eq!((lease.owner.as_str(), lease.token), ("w", Token(now.as_micros())));
    assert_eq!((lease.started_at, lease.heartbeat_at), (now, now));
    assert_eq!(lease.expires_at, Some(now + Seconds::new(30)));
    assert_eq!(store.task(task.id).await, given);
    let started = event("task.started", &json!({"owner": "w", "attempt": 1}));
    assert_eq!(store.log(task.id).await[1..], [started]);
    assert!(store.claim("v", 1).await.tasks.is_empty());
}

/// A store may give known askers what is ready without a plan.
async fn a_claim_starts_the_same_for_who_has_asked_before(store: Store) {
    assert!(store.claim("known", 1).await.tasks.is_empty());
    let mut seen = Vec::new();
    for owner in ["known", "new"] {
        let task = store.create(TaskCreate { timeout_seconds: Some(10.into()), ..plain_create() }).await;
        let asked =
            Claim { key: Some(format!("key of {owner}")), ..Claim::new(&store.namespace, "q", owner) };
        let mut given = claim(&store, asked).await.tasks.remove(0);
        assert_eq!(store.task(task.id).await, given);
        let data = json!({"owner": owner, "attempt": 1});
        assert_eq!(store.log(task.id).await[1..], [event("task.started", &data)]);
        // What differs by itself: who it is, and in which order they were made.
        (given.id, given.root) = (TaskId(uuid::Uuid::nil()), TaskId(uuid::Uuid::nil()));
        if let Some(lease) = &mut given.lease {
            assert_eq!(
                (lease.owner.as_str(), lease.expires_at),
                (owner, Some(store.now() + Seconds::new(10)))
            );
            lease.owner.clear();
        }
        seen.push(given);
    }
    assert_eq!(seen[0], seen[1]);
}

async fn a_claim_goes_by_priority_then_time_then_id(store: Store) {
    let mut expected = Vec::new();
    for (priority, age) in [(1, 0), (0, 0), (0, 5), (-1, 0), (0, 0), (-1, 9), (i16::MAX, 0), (i16::MIN, 0)] {
        let run_at = store.now() - Seconds::new(age);
        let create = TaskCreate { priority: Some(priority), run_at: Some(run_at), ..plain_create() };
        let task = store.create(create).await;
        expected.push((priority, run_at, task.id));
    }
    expected.sort();
    let expected: Vec<_> = expected.into_iter().map(|(_, _, id)| id).collect();
    assert_eq!(ids(&store.claim("w", 3).await), expected[..3]);
    assert_eq!(ids(&store.claim("w", 10).await), expected[3..]);
}

async fn a_claim_gives_no_more_than_its_limit(store: Store) {
    for _ in 0..5 {
        store.plain().await;
    }
    assert_eq!(store.claim("w", 2).await.tasks.len(), 2);
    assert_eq!(store.claim("w", 2).await.tasks.len(), 2);
    assert_eq!(store.claim("w", 2).await.tasks.len(), 1);
    assert_eq!(store.claim("w", 2).await.tasks.len(), 0);
}

async fn a_claim_of_several_queues_takes_the_first_of_all(store: Store) {
    let with = |priority| TaskCreate { priority: Some(priority), ..plain_create() };
    let third = in_queue(&store, "a", with(3)).await;
    let first = in_queue(&store, "b", with(1)).await;
    let fourth = in_queue(&store, "b", with(4)).await;
    let second = in_queue(&store, "c", with(2)).await;
    let two = claim(&store, Claim { limit: 2, ..of(&store, &["a", "b", "c"]) }).await;
    assert_eq!(ids(&two), [first.id, second.id]);
    let twice = of(&store, &["c", "b", "a", "b"]);
    assert_eq!(ids(&claim(&store, twice).await), [third.id, fourth.id]);
}

async fn a_claim_leaves_other_queues_alone(store: Store) {
    let other = in_queue(&store, "other", plain_create()).await;
    // A name that another one begins with, and one that differs only in case.
    let longer = in_queue(&store, "qq", plain_create()).await;
    let upper = in_queue(&store, "Q", plain_create()).await;
    assert!(store.claim("w", 10).await.tasks.is_empty());
    for task in [other, longer, upper] {
        assert_eq!(store.task(task.id).await, task);
    }
}

async fn a_paused_queue_gives_nothing(store: Store) {
    let paused = in_queue(&store, "a", plain_create()).await;
    let open = in_queue(&store, "b", plain_create()).await;
    pause(&store, "a").await;
    assert_eq!(ids(&claim(&store, of(&store, &["a", "b"])).await), [open.id]);
    let nothing = claim(&store, of(&store, &["a"])).await;
    assert_eq!((nothing.tasks.len(), nothing.next_at), (0, None));
    assert_eq!(store.task(paused.id).await, paused);
    store.run(QueueSet { queue: "a".into(), paused: false }).await.expect("the queue goes on");
    assert_eq!(ids(&claim(&store, of(&store, &["a"])).await), [paused.id]);
}

async fn only_ready_tasks_are_given(store: Store) {
    let (running, _) = store.started("w").await;
    store.after(&[running.id]).await;
    store.create(TaskCreate { backlog: true, ..plain_create() }).await;
    store.create(TaskCreate { run_at: Some(store.now() + Seconds::new(1)), ..plain_create() }).await;
    store.create(TaskCreate { expires_at: Some(store.now()), ..plain_create() }).await;
    let (waiting, token) = store.started("w").await;
    store.suspend(waiting.id, token, WaitFor::Signal("s".into())).await;
    store.cancel(store.plain().await.id).await.expect("cancelled");
    store.doom(store.plain().await.id).await;
    store.finish(store.plain().await.id).await;
    assert!(store.claim("w", 100).await.tasks.is_empty());
}

async fn a_task_becomes_claimable_at_its_time(store: Store) {
    let at = store.now() + Seconds::new(10);
    let task = store.create(TaskCreate { run_at: Some(at), ..plain_create() }).await;
    store.clock.advance(Seconds::from_micros(9_999_999));
    let claimed = store.claim("w", 1).await;
    assert_eq!((claimed.tasks.len(), claimed.next_at), (0, Some(at)));
    store.clock.advance(Seconds::from_micros(1));
    assert_eq!(ids(&store.claim("w", 1).await), [task.id]);
    assert_eq!(store.log(task.id).await.len(), 2);
}

async fn a_task_noticed_as_due_stays_so_when_the_clock_steps_back(store: Store) {
    let at = store.now() + Seconds::new(10);
    let due = store.create(TaskCreate { run_at: Some(at), ..plain_create() }).await;
    store.clock.advance(10);
    store.sweep().await;
    store.clock.rewind(5);
    let later = store.create(TaskCreate { run_at: Some(at), ..plain_create() }).await;
    let claimed = store.claim("w", 10).await;
    assert_eq!(ids(&claimed), [due.id]);
    assert_eq!(store.claim("w", 10).await.next_at, Some(later.run_at));
}

async fn a_claim_can_give_leases_of_any_length_or_without_end(store: Store) {
    for length in [Some(Seconds::from_micros(1_500_000)), Some(86_400.into()), None] {
        store.plain().await;
        let given = claim(&store, Claim { lease_seconds: length, ..of(&store, &["q"]) }).await;
        let lease = given.tasks[0].lease.as_ref().expect("a lease");
        assert_eq!(lease.expires_at, length.map(|length| store.now() + length));
    }
}

async fn a_claimed_lease_ends_with_the_attempts_timeout(store: Store) {
    store.create(TaskCreate { timeout_seconds: Some(10.into()), ..plain_create() }).await;
    let given = store.claim("w", 1).await.tasks.remove(0);
    assert_eq!(given.lease.expect("a lease").expires_at, Some(store.now() + Seconds::new(10)));
}

async fn an_empty_claim_tells_the_earliest_time(store: Store) {
    let at = |seconds| Some(store.now() + Seconds::new(seconds));
    for (queue, seconds) in [("a", 60), ("a", 50), ("b", 40), ("c", 10), ("d", 20)] {
        in_queue(&store, queue, TaskCreate { run_at: at(seconds), ..plain_create() }).await;
    }
    pause(&store, "d").await;
    assert_eq!(claim(&store, of(&store, &["a"])).await.next_at, at(50));
    assert_eq!(claim(&store, of(&store, &["a", "b", "d"])).await.next_at, at(40));
    assert_eq!(claim(&store, of(&store, &["d"])).await.next_at, None);
}

async fn an_empty_claim_tells_when_a_lease_or_a_wait_ends(store: Store) {
    let (task, token) = store.started("w").await;
    assert_eq!(store.claim("v", 1).await.next_at, Some(store.now() + Seconds::new(30)));
    let renew = TaskRenew { id: task.id, token, lease_seconds: Some(90.into()), progress: None };
    store.run(renew).await.expect("the lease is renewed");
    assert_eq!(store.claim("v", 1).await.next_at, Some(store.now() + Seconds::new(90)));
    let until = store.now() + Seconds::new(40);
    store.suspend(task.id, token, WaitFor::Until(until)).await;
    assert_eq!(store.claim("v", 1).await.next_at, Some(until));
}

async fn an_empty_claim_of_nothing_tells_no_time(store: Store) {
    assert_eq!(store.claim("w", 1).await, Claimed::default());
    store.plain().await;
    let parent = claim(&store, Claim { lease_seconds: None, ..of(&store, &["q"]) }).await.tasks.remove(0);
    in_queue(&store, "elsewhere", TaskCreate { parent: Some(parent.id), ..plain_create() }).await;
    store.after(&[parent.id]).await;
    assert_eq!(store.claim("w", 1).await, Claimed::default());
    store.suspend(parent.id, token_of(&parent), WaitFor::Children(Children::All)).await;
    assert_eq!(store.claim("w", 1).await, Claimed::default());
}

async fn a_claim_takes_over_a_lease_that_is_over(store: Store) {
    let (task, token) = store.started("old").await;
    store.clock.advance(30);
    let second = store.claim("new", 1).await.tasks.remove(0);
    assert_eq!((second.id, second.attempt, second.lease_losses), (task.id, 2, 1));
    assert!(token_of(&second) > token);
    let log: Vec<_> = store.log(task.id).await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(log[2..], ["task.lease_lost", "task.started"]);
}

async fn a_lease_that_is_over_comes_before_what_is_ready_after_it(store: Store) {
    let first = store.plain().await;
    let short = Claim { lease_seconds: Some(5.into()), ..Claim::new(&store.namespace, "q", "w") };
    assert_eq!(ids(&claim(&store, short).await), [first.id]);
    let later = store.create(TaskCreate { priority: Some(1), ..plain_create() }).await;
    store.clock.advance(6);
    assert_eq!(ids(&store.claim("w", 1).await), [first.id]);
    assert_eq!(ids(&store.claim("w", 1).await), [later.id]);
}

async fn a_claim_counts_a_timeout(store: Store) {
    let task = store.create(TaskCreate { timeout_seconds: Some(10.into()), ..plain_create() }).await;
    store.start(task.id, "w").await;
    store.clock.advance(10);
    let claimed = store.claim("v", 1).await;
    let after = store.task(task.id).await;
    assert_eq!((claimed.tasks.len(), after.status, after.failures), (0, Status::Pending, 1));
    assert_eq!(claimed.next_at, Some(after.run_at));
}

async fn a_claim_resumes_waits_that_are_over(store: Store) {
    let (task, token) = store.started("w").await;
    let until = store.now() + Seconds::new(10);
    store.suspend(task.id, token, WaitFor::Until(until)).await;
    store.clock.advance(10);
    let given = store.claim("v", 1).await.tasks.remove(0);
    assert_eq!((given.id, given.attempt, given.run_at), (task.id, 2, until));
    assert_eq!(given.resumed_by, Some(statehold_core::model::ResumedBy::Until(until)));
}

async fn a_claim_fails_expired_tasks(store: Store) {
    let end = Some(store.now() + Seconds::new(10));
    let task = store.create(TaskCreate { expires_at: end, ..plain_create() }).await;
    store.clock.advance(10);
    assert_eq!(store.claim("w", 1).await, Claimed::default());
    let failed = store.task(task.id).await;
    assert_eq!((failed.status, failed.finished_at), (Status::Failed, end));
    assert_eq!(failed.error.and_then(|error| error.code).as_deref(), Some("expired"));
}

async fn a_claim_handles_only_the_queues_it_asks(store: Store) {
    let mut over = Vec::new();
    for queue in ["asked", "other", "paused"] {
        let task = in_queue(&store, queue, plain_create()).await;
        over.push(store.start(task.id, "old").await.0);
    }
    pause(&store, "paused").await;
    store.clock.advance(30);
    let given = claim(&store, of(&store, &["asked", "paused"])).await;
    assert_eq!(ids(&given), [over[0].id]);
    assert_eq!(
        (store.task(over[1].id).await, store.task(over[2].id).await),
        (over[1].clone(), over[2].clone())
    );
}

async fn a_claim_that_reached_its_bound_says_now(store: Store) {
    let end = Some(store.now() + Seconds::new(10));
    let mut batch = store.batch();
    for _ in 0..150 {
        batch.add(TaskCreate { expires_at: end, ..plain_create() });
    }
    store.apply(batch).await.expect("the tasks are created");
    store.clock.advance(10);
    let first = store.claim("w", 1).await;
    assert_eq!((first.tasks.len(), first.next_at), (0, Some(store.now())));
    let second = store.claim("w", 1).await;
    assert_eq!((second.tasks.len(), second.next_at), (0, None));
    let counts = store.backend.task_count(&store.namespace, Some("q")).await.expect("counted");
    assert_eq!(counts.counts, [(Status::Failed, 150)].into());
}

async fn a_repeated_claim_answers_what_is_still_held(store: Store) {
    for _ in 0..5 {
        store.plain().await;
    }
    let first = claim(&store, keyed(&store, "w", 3)).await;
    store.clock.advance(1);
    assert_eq!(claim(&store, keyed(&store, "w", 3)).await, first);
    store.complete(first.tasks[1].id, token_of(&first.tasks[1])).await.expect("completed");
    let again = claim(&store, keyed(&store, "w", 10)).await;
    assert_eq!(again.tasks, [first.tasks[0].clone(), first.tasks[2].clone()]);
    assert_eq!(store.log(first.tasks[0].id).await.len(), 2);
    assert_eq!(store.claim("w", 10).await.tasks.len(), 2);
}

async fn a_repeated_claim_shows_the_lease_as_it_is(store: Store) {
    let task = store.plain().await;
    let first = claim(&store, keyed(&store, "w", 1)).await.tasks.remove(0);
    store.clock.advance(20);
    let token = token_of(&first);
    let renew = TaskRenew { id: task.id, token, lease_seconds: None, progress: None };
    store.run(renew).await.expect("the lease is renewed");
    store.clock.advance(20);
    let again = claim(&store, keyed(&store, "w", 1)).await;
    assert_eq!(again.tasks, [store.task(task.id).await]);
    assert_eq!(token_of(&again.tasks[0]), token);
}

async fn a_repeated_claim_claims_anew_when_nothing_is_held(store: Store) {
    let (one, two) = (store.plain().await, store.plain().await);
    let first = claim(&store, keyed(&store, "w", 1)).await.tasks.remove(0);
    store.complete(first.id, token_of(&first)).await.expect("completed");
    let second = claim(&store, keyed(&store, "w", 1)).await.tasks.remove(0);
    assert_eq!((first.id, second.id), (one.id.min(two.id), one.id.max(two.id)));
    store.clock.advance(30);
    let third = claim(&store, keyed(&store, "w", 1)).await.tasks.remove(0);
    assert_eq!((third.id, third.attempt, third.lease_losses), (second.id, 2, 1));
    assert!(token_of(&third) > token_of(&second));
}

async fn a_claim_key_is_its_owners(store: Store) {
    store.plain().await;
    store.plain().await;
    let mine = claim(&store, keyed(&store, "w", 1)).await;
    let theirs = claim(&store, keyed(&store, "v", 1)).await;
    assert_eq!((mine.tasks.len(), theirs.tasks.len()), (1, 1));
    assert_ne!(mine.tasks[0].id, theirs.tasks[0].id);
    assert_eq!(claim(&store, keyed(&store, "w", 1)).await, mine);
    assert_eq!(claim(&store, keyed(&store, "v", 1)).await, theirs);
}

async fn a_claim_key_forgets_what_was_taken_away(store: Store) {
    let task = store.plain().await;
    claim(&store, keyed(&store, "w", 1)).await;
    store.run(TaskEvict { id: task.id }).await.expect("evicted");
    assert_eq!(store.claim("v", 1).await.tasks.len(), 1);
    assert!(claim(&store, keyed(&store, "w", 1)).await.tasks.is_empty());
    store.run(TaskEvict { id: task.id }).await.expect("evicted");
    // The same owner without the key: what it holds is not what the key gave.
    assert_eq!(store.claim("w", 1).await.tasks.len(), 1);
    assert!(claim(&store, keyed(&store, "w", 1)).await.tasks.is_empty());
}

async fn a_wrong_claim_is_refused(store: Store) {
    let task = store.plain().await;
    let good = of(&store, &["q"]);
    let wrong = [
        Claim { limit: 0, ..good.clone() },
        Claim { limit: 1001, ..good.clone() },
        Claim { queues: Vec::new(), ..good.clone() },
        Claim { queues: vec![String::new()], ..good.clone() },
        Claim { owner: String::new(), ..good.clone() },
        Claim { lease_seconds: Some(Seconds::ZERO), ..good.clone() },
        Claim { key: Some(String::new()), ..good },
    ];
    for claim in wrong {
        refused(store.backend.claim(claim).await, "invalid");
    }
    assert_eq!(store.task(task.id).await, task);
}
