//! `statehold demo`: the promise in five steps, each checked.

use std::io::Write as _;
use std::process::ExitCode;

use statehold_core::batch::Fence;
use statehold_core::call::Claim;
use statehold_core::command::{DocumentPut, EntrySet, NewEvent, StreamAppend, TaskComplete, TaskCreate};
use statehold_core::memory::Memory;
use statehold_core::model::{StreamName, Task, Token};
use statehold_core::query::{ReadFrom, StreamRead};
use statehold_core::{Backend, Batch, Clock, Error, Json, Result, Timestamp};

const NAMESPACE: &str = "demo";

/// Tells the story and answers whether every step held.
pub(crate) async fn run() -> ExitCode {
    let mut story = Story { broken: 0 };
    if let Err(error) = tell(&mut story).await {
        story.check(false, &format!("unexpected: {error}"));
    }
    if story.broken == 0 {
        say("\nEvery step held.");
        return ExitCode::SUCCESS;
    }
    eprintln!("\n{} of the steps did not hold.", story.broken);
    ExitCode::FAILURE
}

/// Prints a line; a reader that has seen enough is no reason to stop.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

struct Story {
    broken: usize,
}

impl Story {
    fn check(&mut self, held: bool, what: &str) {
        say(&format!("  {} {what}", if held { "ok  " } else { "FAIL" }));
        self.broken += usize::from(!held);
    }
}

async fn tell(story: &mut Story) -> Result<()> {
    let clock = Clock::manual(Timestamp::from_micros(1_800_000_000_000_000));
    let memory = Memory::new(clock.clone());

    say("A webhook arrives, and its retry a moment later.");
    let first = create(&memory).await?;
    let again = create(&memory).await?;
    story.check(first.id == again.id, "both made the same task");

    say("Two workers ask for work.");
    let zombie = claim(&memory, "worker-1").await?;
    let empty = claim(&memory, "worker-2").await?;
    story.check(zombie.is_some() && empty.is_none(), "one of them got the task, for 30 seconds");
    let Some((task, stale)) = zombie else { return Ok(()) };

    say("The worker stalls. 31 seconds pass, and the other one asks again.");
    clock.advance(31);
    let successor = claim(&memory, "worker-2").await?;
    story.check(successor.as_ref().is_some_and(|(task, _)| task.attempt == 2), "it took the task over");
    let Some((_, current)) = successor else { return Ok(()) };

    say("The stalled worker wakes up and writes: an event, a document, a result, the completion.");
    let late = memory.apply(settle(&task, stale, "late").prepare()?).await;
    story.check(late.as_ref().is_err_and(Error::is_fenced), "all of it was refused");
    if let Err(error) = late {
        say(&format!("       {}", error.to_string().replace('\n', "\n       ")));
    }

    say("Its successor settles the same things.");
    memory.apply(settle(&task, current, "in time").prepare()?).await?;
    let document = memory.document_get(NAMESPACE, "thread", "42").await?;
    let body = document.and_then(|document| document.body);
    story.check(body == Some(Json::of("in time")?), "only its document is there");

    let read = StreamRead { stream: StreamName::of_task(task.id), from: ReadFrom::Oldest, limit: 100 };
    let events = memory.stream_read(NAMESPACE, &read).await?.events;
    let completed = events.iter().filter(|event| event.kind == "task.completed").count();
    story.check(completed == 1, "the task was completed exactly once");
    say("\nThe task's own history:");
    for event in events {
        say(&format!("  {:>2} {} {}", event.seq, event.kind, event.data.as_ref().map_or("", Json::as_str)));
    }
    Ok(())
}

async fn create(store: &Memory) -> Result<Task> {
    let create = TaskCreate { idempotency_key: Some("webhook-7".into()), ..TaskCreate::new("answer") };
    let (batch, reply) = Batch::of(NAMESPACE, create);
    Ok(store.apply(batch.prepare()?).await?.take(reply)?.task)
}

async fn claim(store: &Memory, owner: &str) -> Result<Option<(Task, Token)>> {
    let claimed = store.claim(Claim::new(NAMESPACE, "default", owner)).await?;
    let lease = |task: Task| task.lease.clone().map(|lease| (task, lease.token));
    Ok(claimed.tasks.into_iter().next().and_then(lease))
}

/// Everything a worker leaves behind, in one batch that only the lease's holder can apply.
fn settle(task: &Task, token: Token, text: &str) -> Batch {
    let body = Json::of(text).unwrap_or_else(|_| Json::null());
    let mut batch = Batch::new(NAMESPACE).fence(Fence::Task { task: task.id, token });
    let events = vec![NewEvent { kind: "answered".into(), data: Some(body.clone()) }];
    batch.add(StreamAppend { stream: StreamName::of_task(task.id), events, expect_seq: None });
    batch.add(DocumentPut::json("thread", "42", body.clone()));
    batch.add(EntrySet::new("result/42", body.clone()));
    batch.add(TaskComplete { id: task.id, token, output: Some(body) });
    batch
}
