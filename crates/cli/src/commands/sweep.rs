//! `statehold sweep`: does what time brings, once, until nothing is left to do.

use clap::Args;
use serde::Serialize;
use statehold::{Result, Statehold};
use statehold_core::call::{Sweep as Call, Swept};
use statehold_core::policy::Retention;

use crate::show::{Show, plain};
use crate::trouble::Exit;

/// The arguments of `statehold sweep`.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Sweep {
    /// In every namespace of the store
    #[arg(long)]
    all_namespaces: bool,
    /// Also removes what ended long ago
    ///
    /// Completed tasks after a week, failed and cancelled ones after 30 days, events of category audit after 30 days,
    /// of category compliance after a year, of category live after an hour.
    #[arg(long)]
    retention: bool,
}

/// What was done in a namespace.
#[derive(Serialize)]
struct Done {
    namespace: String,
    #[serde(flatten)]
    swept: Swept,
}

/// Sweeps.
pub(crate) async fn run(hold: &Statehold, args: &Sweep, show: &Show) -> Result<Exit> {
    let namespaces = if args.all_namespaces {
        hold.backend().namespaces().await?
    } else {
        vec![hold.namespace().to_owned()]
    };
    for namespace in namespaces {
        let swept = until_done(hold, &namespace, args.retention).await?;
        let done = Done { namespace, swept };
        show.answer(&done, || format!("{}: {}", plain(&done.namespace), in_words(&done.swept)))?;
    }
    Ok(Exit::Success)
}

async fn until_done(hold: &Statehold, namespace: &str, retention: bool) -> Result<Swept> {
    let mut call = Call::new(namespace);
    if retention {
        call.retention = Retention::default();
    }
    let mut all = Swept::default();
    loop {
        let swept = hold.backend().sweep(call.clone()).await?;
        call.retention_after = swept.retention_after;
        let more = swept.more;
        all.add(&swept);
        if !more {
            return Ok(all);
        }
    }
}

/// The counts of a sweep, each with its name in words.
fn counts(swept: &Swept) -> [(u32, &'static str); 9] {
    [
        (swept.leases, "leases taken back"),
        (swept.timers, "tasks moved by time"),
        (swept.chores, "left-over chores done"),
        (swept.documents, "documents expired"),
        (swept.entries, "entries expired"),
        (swept.locks, "locks forgotten"),
        (swept.answers, "answers forgotten"),
        (swept.purged, "tasks removed"),
        (swept.trimmed, "streams trimmed"),
    ]
}

fn in_words(swept: &Swept) -> String {
    let done = counts(swept).into_iter().filter(|(count, _)| *count > 0);
    let done: Vec<_> = done.map(|(count, what)| format!("{count} {what}")).collect();
    if done.is_empty() { "nothing to do".to_owned() } else { done.join(", ") }
}
