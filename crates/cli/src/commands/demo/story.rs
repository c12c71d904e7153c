//! The story of the demo, told from what the store says happened.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::Write as _;
use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use serde_json::Value;
use statehold::{Error, From, Json, Result, Statehold, StreamName, Task, TaskId};
use statehold_core::model::Event;
use statehold_core::query::TaskList;

use super::fleet::Fleet;
use super::parts::{APPROVAL, APPROVED, BOOKINGS, DISPATCHED, INVOICE, REFUSED, TRIP, WRITING};
use super::{Demo, summary};
use crate::show::{BOLD, FAINT};

/// Prints a line; a reader that has seen enough is no reason to stop.
pub(super) fn say(text: &(impl Display + ?Sized)) {
    let _ = writeln!(anstream::stdout(), "{text}");
}

/// What the story is told with.
pub(super) struct Story<'a> {
    demo: &'a Demo,
    hold: &'a Statehold,
    fleet: Fleet,
    coming: Pin<Box<dyn Stream<Item = Result<Event>> + Send>>,
    seen: Vec<Event>,
    chapter: u32,
}

impl<'a> Story<'a> {
    pub(super) fn new(demo: &'a Demo, hold: &'a Statehold, fleet: Fleet) -> Self {
        let coming = Box::pin(hold.streams().subscribe_category("task", From::Oldest));
        Self { demo, hold, fleet, coming, seen: Vec::new(), chapter: 0 }
    }

    /// Tells all of it, and answers whether it held.
    pub(super) async fn tell(mut self) -> Result<bool> {
        self.webhooks().await?;
        let tasks = self.tasks().await?;
        self.hire().await?;
        let killed = self.kill(tasks.trip).await?;
        let paused = self.pause(tasks.invoice).await?;
        self.take_over(tasks.trip, &killed).await?;
        self.wake(tasks.invoice, &paused).await?;
        self.approve(tasks.approval).await?;
        self.finish().await?;
        self.heading("What the store says").await;
        summary::check(self.hold, self.demo.tasks).await
    }

    async fn heading(&mut self, text: &str) {
        tokio::time::sleep(self.demo.pause()).await;
        self.chapter += 1;
        say(&format!("\n{BOLD}{}. {text}{BOLD:#}", self.chapter));
    }

    async fn line(&self, text: impl Display) {
        say(&format!("   {text}"));
        tokio::time::sleep(self.demo.pause() / 3).await;
    }

    /// The next event that is as wanted, or one that has come before.
    async fn until(&mut self, is: impl Fn(&Event) -> bool) -> Result<Event> {
        if let Some(event) = self.seen.iter().find(|event| is(event)) {
            return Ok(event.clone());
        }
        loop {
            let next = self.coming.next().await;
            let event = next.ok_or_else(|| Error::unavailable("the events came to an end"))??;
            self.seen.push(event.clone());
            if is(&event) {
                return Ok(event);
            }
        }
    }

    /// The next event of a task of a type.
    async fn until_of(&mut self, task: TaskId, kind: &str) -> Result<Event> {
        let stream = StreamName::of_task(task);
        self.until(|event| event.stream == stream && event.kind == kind).await
    }

    /// Who has started a task for the nth time.
    async fn starter(&mut self, task: TaskId, attempt: u64) -> Result<String> {
        let stream = StreamName::of_task(task);
        let started =
            |event: &Event| event.kind == "task.started" && number(event, "attempt") == Some(attempt);
        let event = self.until(|event| event.stream == stream && started(event)).await?;
        field(&event, "owner")
            .and_then(|owner| owner.as_str().map(str::to_owned))
            .ok_or_else(|| Error::corrupt("a task was started by nobody"))
    }

    async fn webhooks(&mut self) -> Result<()> {
        let count = self.demo.tasks;
        self.heading("Webhooks arrive, and each of them arrives twice").await;
        self.line(format!("Two receivers take in the same {count} webhooks at the same time.")).await;
        self.fleet.receive_twice().await?;
        let tasks = self.hold.tasks().count(None).await?.counts.values().sum::<u64>();
        self.line(format!(
            "{} webhooks made {tasks} tasks: each task's key lets it be made once.",
            2 * count
        ))
        .await;
        Ok(())
    }

    async fn tasks(&self) -> Result<Tasks> {
        let list = TaskList { limit: 1000, ..TaskList::default() };
        let tasks = self.hold.tasks().list(&list).await?.items;
        let by_kind: HashMap<&str, TaskId> =
            tasks.iter().map(|task: &Task| (task.kind.as_str(), task.id)).collect();
        let find = |kind| by_kind.get(kind).copied().ok_or_else(|| Error::not_found("task", kind));
        Ok(Tasks { trip: find(TRIP)?, invoice: find(INVOICE)?, approval: find(APPROVAL)? })
    }

    async fn hire(&mut self) -> Result<()> {
        self.heading("Three workers claim tasks, each in a process of its own").await;
        for name in ["worker-1", "worker-2", "worker-3"] {
            self.fleet.hire(name)?;
        }
        let lease = self.demo.lease().as_secs();
        self.line(format!(
            "A claim gives a lease of {lease} s, which its worker renews as long as it lives."
        ))
        .await;
        Ok(())
    }

    async fn kill(&mut self, trip: TaskId) -> Result<String> {
        self.until_of(trip, DISPATCHED).await?;
        let name = self.starter(trip, 1).await?;
        self.heading("A worker dies in the middle of a task").await;
        self.line(format!("{name} has the trip, and has dispatched its bookings: {}.", BOOKINGS.join(", ")))
            .await;
        self.fleet.kill(&name).await?;
        self.line(format!("{name} is killed (SIGKILL). It had no time to say what it had done.")).await;
        Ok(name)
    }

    async fn pause(&mut self, invoice: TaskId) -> Result<String> {
        self.until_of(invoice, WRITING).await?;
        let name = self.starter(invoice, 1).await?;
        self.heading("Another one stalls").await;
        self.fleet.pause(&name, self.hold).await?;
        self.line(format!(
            "{name} is about to write the invoice, and is paused (SIGSTOP), as by a sleeping machine."
        ))
        .await;
        self.line("It will not notice how much time goes by, and its lease is not renewed.").await;
        Ok(name)
    }

    async fn take_over(&mut self, trip: TaskId, killed: &str) -> Result<()> {
        self.heading("The leases end, and others take over").await;
        let name = self.starter(trip, 2).await?;
        self.line(format!("{name} has the trip now, in place of {killed}, and begins it again.")).await;
        let stream = StreamName::of_task(trip);
        let again = |event: &Event| event.kind == DISPATCHED && number(event, "new") == Some(0);
        self.until(|event| event.stream == stream && again(event)).await?;
        self.line("It dispatches the bookings again. They were there: none was made twice.").await;
        self.until_of(trip, "task.suspended").await?;
        self.line("The trip waits for its bookings, and needs no worker while it does.").await;
        self.until_of(trip, "task.completed").await?;
        self.line("The bookings are done, and so is the trip.").await;
        Ok(())
    }

    async fn wake(&mut self, invoice: TaskId, paused: &str) -> Result<()> {
        let name = self.starter(invoice, 2).await?;
        self.until_of(invoice, "task.completed").await?;
        self.heading("The stalled one wakes up").await;
        self.line(format!("{name} has taken over the invoice meanwhile, and has written it.")).await;
        let refusals: StreamName = REFUSED.parse()?;
        let mut refusals = Box::pin(self.hold.streams().subscribe(&refusals, From::Oldest));
        self.fleet.wake(paused)?;
        self.line(format!(
            "{paused} goes on (SIGCONT) where it was, and writes: the invoice, an event, the completion."
        ))
        .await;
        let refused =
            refusals.next().await.ok_or_else(|| Error::unavailable("the events came to an end"))??;
        let field = |name| {
            field(&refused, name).and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
        };
        self.line(format!("All of it is refused as {}:", field("code"))).await;
        self.line(format!("{FAINT}{}{FAINT:#}", field("message"))).await;
        Ok(())
    }

    async fn approve(&mut self, approval: TaskId) -> Result<()> {
        self.until_of(approval, "task.suspended").await?;
        self.heading("A task waits for a person").await;
        self.line("The approval gave up its worker, to wait for a signal. Here it comes.").await;
        self.hold.tasks().signal(approval, APPROVED, Some(Json::of("yes")?)).await?;
        self.until_of(approval, "task.completed").await?;
        let name = self.starter(approval, 2).await?;
        self.line(format!("{name} was given the task with the signal, and has completed it.")).await;
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        self.heading("Everything comes to its end").await;
        let list = TaskList { limit: 1000, ..TaskList::default() };
        for task in self.hold.tasks().list(&list).await?.items {
            self.hold.tasks().wait(task.id, None).await?;
        }
        self.fleet.dismiss().await?;
        self.line("No task is left. The workers were asked to end (SIGTERM), and have ended well.").await;
        Ok(())
    }
}

/// The tasks that something happens to.
struct Tasks {
    trip: TaskId,
    invoice: TaskId,
    approval: TaskId,
}

/// A member of an event's data.
pub(super) fn field(event: &Event, name: &str) -> Option<Value> {
    event.data.as_ref()?.to::<Value>().ok()?.get(name).cloned()
}

/// A member of an event's data that is a number.
pub(super) fn number(event: &Event, name: &str) -> Option<u64> {
    field(event, name)?.as_u64()
}
