//! What the processes of the demo do: receivers take webhooks in, workers work on tasks.

use std::io::Read as _;
use std::time::Duration;

use statehold::worker::{Failure, Job, Outcome, Stopping, Worker};
use statehold::{Error, Json, NewEvent, Result, Statehold, TaskCreate, WaitFor};
use statehold_core::model::{Children, ResumedBy};

use super::{Demo, Part};
use crate::process::Signals;

/// A trip whose parts are children: its first worker is killed.
pub(super) const TRIP: &str = "trip";
/// An invoice that must not be written twice: its first worker is paused.
pub(super) const INVOICE: &str = "invoice";
/// Something that a person has to approve.
pub(super) const APPROVAL: &str = "approval";
/// A plain task.
const MAIL: &str = "mail";
/// A child of a trip.
pub(super) const BOOKING: &str = "booking";
/// The children of a trip.
pub(super) const BOOKINGS: [&str; 3] = ["flight", "hotel", "car"];

/// The event of a trip whose children were dispatched.
pub(super) const DISPATCHED: &str = "dispatched";
/// The event of an invoice that is being written.
pub(super) const WRITING: &str = "writing";
/// The event that a zombie would write, were it not refused.
pub(super) const LATE: &str = "late";
/// The signal that an approval waits for.
pub(super) const APPROVED: &str = "approved";

/// The stream of received webhooks.
pub(super) const WEBHOOKS: &str = "demo/webhooks";
/// The stream of refused writes.
pub(super) const REFUSED: &str = "demo/refused";

/// Plays a part, to its end.
pub(super) async fn play(demo: &Demo, part: Part) -> Result<()> {
    end_with_the_demo();
    let (Some(store), Some(space), Some(name)) = (&demo.store, &demo.space, &demo.called) else {
        return Err(Error::invalid("", "a part needs a store, a namespace and a name"));
    };
    let hold = Statehold::open(store).await?.at(space).acting_as(name);
    match part {
        Part::Receiver => receive(demo, &hold).await,
        Part::Worker => work(demo, &hold, name).await,
    }
}

/// Ends this process when its standard input ends: whoever started it is no more. One that is paused cannot notice, so
/// that the kernel is asked to kill it then.
fn end_with_the_demo() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
}

/// Takes in webhooks, of which some other receiver has the same.
async fn receive(demo: &Demo, hold: &Statehold) -> Result<()> {
    for number in 0..demo.tasks {
        let kind = match number {
            0 => TRIP,
            1 => INVOICE,
            2 => APPROVAL,
            _ => MAIL,
        };
        let task =
            TaskCreate::new(kind).input(Json::of(&number)?).idempotency_key(format!("webhook-{number}"));
        let created = hold.tasks().create(task).await?.created;
        let event = NewEvent::new("received").data(Json::of(&serde_json::json!({ "created": created }))?);
        hold.streams().append(&WEBHOOKS.parse()?, vec![event]).await?;
    }
    Ok(())
}

/// Works until it is told to end.
async fn work(demo: &Demo, hold: &Statehold, name: &str) -> Result<()> {
    let mut signals = Signals::listen()?;
    let stopping = Stopping::new();
    let length = demo.work();
    let worker = Worker::new(hold)
        .owner(name)
        .lease(demo.lease())
        .handle(TRIP, trip)
        .handle(INVOICE, invoice)
        .handle(APPROVAL, approval)
        .handle_any(move |_| plain(length));
    let told = stopping.clone();
    tokio::spawn(async move {
        signals.next().await;
        told.cancel();
    });
    worker.run(stopping).await.map(drop)
}

/// A plain task takes its time.
async fn plain(length: Duration) -> Result<Outcome, Failure> {
    tokio::time::sleep(length).await;
    Ok(Outcome::Complete(None))
}

/// Dispatches the children, waits for them without a worker, and is done when they are. The first to try it is killed
/// after dispatching them.
async fn trip(job: Job) -> Result<Outcome, Failure> {
    let (task, lease) = (job.task(), job.lease());
    if task.resumed_by.is_some() {
        return Ok(Outcome::Complete(Some(Json::of(&BOOKINGS)?)));
    }
    let mut new = 0;
    for booking in BOOKINGS {
        new += u32::from(lease.dispatch(TaskCreate::new(BOOKING).child_key(booking)).await?.created);
    }
    let data = Json::of(&serde_json::json!({ "new": new }))?;
    lease.append(vec![NewEvent::new(DISPATCHED).data(data)]).await?;
    if task.attempt == 1 {
        std::future::pending::<()>().await;
    }
    lease.suspend(WaitFor::Children(Children::All)).await?;
    Ok(Outcome::Settled)
}

/// Writes the invoice. The first to try it is paused in the middle, and writes when it wakes up, as someone would who
/// does not know how long it slept.
async fn invoice(job: Job) -> Result<Outcome, Failure> {
    let lease = job.lease();
    let first = job.task().attempt == 1;
    lease.append(vec![NewEvent::new(WRITING)]).await?;
    if first {
        job.stopped().await;
    }
    let mut settle = lease.settle();
    settle.put(INVOICE, "1", Json::of(if first { LATE } else { "in time" })?);
    if first {
        settle.append(statehold::StreamName::of_task(job.task().id), vec![NewEvent::new(LATE)]);
    }
    if let Err(error) = settle.complete(None).await {
        let data = Json::of(&serde_json::json!({ "code": error.code(), "message": error.message() }))?;
        let refused = NewEvent::new("refused").data(data);
        lease.hold().streams().append(&REFUSED.parse()?, vec![refused]).await?;
    }
    Ok(Outcome::Settled)
}

/// Waits for a signal without a worker, and is done when it comes.
async fn approval(job: Job) -> Result<Outcome, Failure> {
    if let Some(ResumedBy::Signal { data, .. }) = &job.task().resumed_by {
        return Ok(Outcome::Complete(data.clone()));
    }
    job.lease().suspend(WaitFor::Signal(APPROVED.to_owned())).await?;
    Ok(Outcome::Settled)
}
