//! Workers that are killed all the time, and some that stand still for longer than their leases: no task is lost, and
//! none is completed twice.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use statehold::core::query::{CategoryFrom, CategoryRead};
use statehold::worker::{Failure, Outcome, Stopping, Worker};
use statehold::{Error, NewEvent, Statehold, Status, TaskCreate, TaskId};
use statehold_conformance::process::{Process, given, hear, say};
use tokio::task::JoinHandle;

use super::{events, json, open_url, random, stream, tasks};

/// The environment variable with the number of tasks.
const TASKS: &str = "STATEHOLD_STORM_TASKS";
/// How many tasks are there to be claimed.
const READY: usize = 1000;
const WORKERS: usize = 8;
const KILL_EVERY: Duration = Duration::from_millis(200);
const LEASE: Duration = Duration::from_secs(1);
/// After so many kills one worker stands still for a while, and then goes on.
const FREEZE_AFTER: usize = 5;
const FROZEN: Duration = Duration::from_millis(1500);
/// What a worker says when the completion of a task was refused because another has it.
const REFUSED: &str = "refused";
/// The streams that what the tasks do is written to.
const LOGS: u64 = 16;
/// How long the storm may take. It only keeps a broken library from hanging.
const LONGEST: Duration = Duration::from_secs(600);

/// What a task does, beside its own end: it is written if and only if its completion is accepted.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Effect {
    task: TaskId,
    attempt: u32,
}

/// A worker until it is killed, or until its input ends.
pub(crate) fn worker() {
    let url = given("STORE").into_string().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let hold = open_url(&url).await;
        let stopping = Stopping::new();
        let told = stopping.clone();
        std::thread::spawn(move || {
            while hear().is_some() {}
            told.cancel();
        });
        let worker = Worker::new(&hold).lease(LEASE).concurrency(8).handle("work", async |job| {
            // One that was lost before takes longer, so that its first owner may come back meanwhile.
            let most = if job.task().attempt == 1 { 20 } else { 1000 };
            tokio::time::sleep(Duration::from_millis(random(most))).await;
            let effect = Effect { task: job.task().id, attempt: job.task().attempt };
            let event = NewEvent::new("done").data(json(&effect));
            let mut settle = job.lease().settle();
            settle.append(stream(&format!("effects/{}", random(LOGS))), vec![event]);
            let completed = settle.complete(Some(json(&effect.attempt))).await;
            if completed.as_ref().is_err_and(Error::is_fenced) {
                say(REFUSED);
            }
            completed.map(|_| Outcome::Settled).map_err(Failure::from)
        });
        worker.run(stopping).await.expect("the worker goes on");
    });
}

/// How many tasks there are.
fn many() -> usize {
    std::env::var(TASKS).map_or(10_000, |many| many.parse().expect("a number of tasks"))
}

fn start(url: &str) -> Process {
    Process::start("worker", &[("STORE", OsStr::new(url))])
}

/// Lets the storm rage over a store that is empty, whose `worker` is a role of the program.
pub(crate) fn no_task_is_lost_or_completed_twice(url: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let hold = open_url(url).await;
        let strikes = storm(&hold, url).await;
        let counts = look(&hold).await;
        eprintln!("{strikes:?}, {counts:?}");
        assert!(strikes.kills > 10, "too few kills to mean anything: {strikes:?}");
        assert!(strikes.refused > 0, "nobody came back too late: {strikes:?}");
        assert!(counts.lease_losses > 0, "no kill hit a task: {counts:?}");
        assert!(counts.takeovers > 0, "nothing was taken over: {counts:?}");
    });
}

#[derive(Debug, Default)]
struct Strikes {
    kills: usize,
    freezes: usize,
    /// How many completions came too late.
    refused: usize,
}

/// Kills a worker and starts another, again and again, and lets one stand still at times, until all tasks have ended.
async fn storm(hold: &Statehold, url: &str) -> Strikes {
    let mut workers: Vec<_> = (0..WORKERS).map(|_| start(url)).collect();
    let (began, mut strikes) = (Instant::now(), Strikes::default());
    let mut frozen: Option<(usize, JoinHandle<()>)> = None;
    let mut made = 0;
    while feed(hold, &mut made).await {
        assert!(began.elapsed() < LONGEST, "it does not come to an end");
        tokio::time::sleep(KILL_EVERY).await;
        frozen.take_if(|(_, thawing)| thawing.is_finished());
        let which = usize::try_from(random(WORKERS as u64)).unwrap();
        let victim = &mut workers[which];
        assert_eq!(victim.has_ended(), None, "a worker ends only when it is killed");
        if frozen.is_none() && strikes.kills >= FREEZE_AFTER * (strikes.freezes + 1) {
            strikes.freezes += 1;
            frozen = Some((which, tokio::spawn(victim.freeze_for(FROZEN))));
        } else if frozen.as_ref().is_none_or(|(other, _)| *other != which) {
            strikes.kills += 1;
            victim.kill();
            strikes.refused += refusals(std::iter::from_fn(|| victim.next_line()));
            *victim = start(url);
        }
    }
    eprintln!("{made} tasks in {:?}", began.elapsed());
    if let Some((_, thawing)) = frozen {
        thawing.await.unwrap();
    }
    strikes.refused += workers.into_iter().map(|worker| refusals(worker.finish())).sum::<usize>();
    strikes
}

fn refusals(lines: impl IntoIterator<Item = String>) -> usize {
    lines.into_iter().filter(|line| line == REFUSED).count()
}

/// Makes tasks as workers take them: what is lost shall not wait long for its next owner. False once all have ended.
async fn feed(hold: &Statehold, made: &mut usize) -> bool {
    let counts = hold.tasks().count(None).await.unwrap();
    let ready = usize::try_from(counts.claimable).unwrap();
    let mut batch = hold.batch();
    for _ in 0..READY.saturating_sub(ready).min(many() - *made) {
        let _ = batch.add(TaskCreate::new("work"));
        *made += 1;
    }
    if !batch.commands.is_empty() {
        hold.apply(batch).await.unwrap();
        return true;
    }
    counts.counts.iter().any(|(status, _)| !status.is_terminal())
}

#[derive(Debug, Default)]
struct Counts {
    starts: usize,
    lease_losses: usize,
    takeovers: usize,
}

/// Looks at every task, its events and its effect.
async fn look(hold: &Statehold) -> Counts {
    let tasks = tasks(hold).await;
    assert_eq!(tasks.len(), many(), "no task is gone, and none was invented");
    let effects = effects(hold).await;
    let stories = stories(hold).await;
    let mut counts = Counts::default();
    for task in tasks {
        assert_eq!(task.status, Status::Completed, "lost: {task:?}");
        let story = &stories[&task.id];
        let times = |kind: &str| story.iter().filter(|event| *event == kind).count();
        assert_eq!(times("task.completed"), 1, "{}: {story:?}", task.id);
        assert_eq!(times("task.failed"), 0, "{}: {story:?}", task.id);
        assert_eq!(story.last().unwrap(), "task.completed", "nothing comes after the end");
        assert_eq!(times("task.started"), task.attempt as usize, "{}: {story:?}", task.id);
        let effect = Effect { task: task.id, attempt: task.attempt };
        assert_eq!(
            effects.get(&task.id),
            Some(&vec![effect]),
            "one effect, of the attempt that completed it"
        );
        assert_eq!(task.output, Some(json(&task.attempt)));
        counts.starts += times("task.started");
        counts.lease_losses += times("task.lease_lost");
        counts.takeovers += usize::from(times("task.started") > 1);
    }
    assert_eq!(effects.len(), many(), "no effect is without its task");
    counts
}

/// What was done, by task.
async fn effects(hold: &Statehold) -> BTreeMap<TaskId, Vec<Effect>> {
    let mut effects: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for log in 0..LOGS {
        let events = events(hold, &stream(&format!("effects/{log}"))).await;
        for (event, seq) in events.into_iter().zip(1..) {
            assert_eq!(event.seq, seq, "a stream has no gap");
            let effect: Effect = event.data.unwrap().to().unwrap();
            effects.entry(effect.task).or_default().push(effect);
        }
    }
    effects
}

/// The types of the events of each task, in order.
async fn stories(hold: &Statehold) -> BTreeMap<TaskId, Vec<String>> {
    let mut stories: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut from = CategoryFrom::Oldest;
    loop {
        let read = CategoryRead { category: "task".into(), from, limit: 1000 };
        let page = hold.backend().category_read(hold.namespace(), &read).await.unwrap();
        if page.events.is_empty() {
            return stories;
        }
        for event in page.events {
            stories.entry(event.stream.task().unwrap()).or_default().push(event.kind);
        }
        from = CategoryFrom::After(page.cursor);
    }
}
