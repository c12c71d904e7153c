//! Tasks that cannot be claimed, beside those that can: a claim does not see them.

use std::time::Duration;

use statehold::core::command::TaskCancel;
use statehold::{Clock, Seconds, Statehold, TaskCreate, TaskId};

use super::cycles::times;
use super::{Anything, cycle, per_mille};

const CROWD: usize = 100_000;
const BULK: usize = 500;
const CLAIMS: usize = 1000;

pub(super) async fn measure(url: &str) -> Anything<()> {
    let hold = Statehold::open(url).await?;
    claims(&hold).await?;
    let before = claims(&hold).await?;
    println!("claim p50 with one caller: {before} µs");
    let root = hold.tasks().create(TaskCreate::new("root").queue("other")).await?.task.id;
    let later = Clock::real().now() + Seconds::new(86_400);
    for (name, create) in [
        ("blocked", TaskCreate { depends_on: vec![root], ..TaskCreate::new("answer").queue("crowd") }),
        ("future", TaskCreate { run_at: Some(later), ..TaskCreate::new("answer").queue("crowd") }),
        ("finished", TaskCreate::new("answer").queue("crowd")),
    ] {
        for _ in 0..CROWD / BULK {
            let made = make(&hold, &create).await?;
            if name == "finished" {
                cancel(&hold, made).await?;
            }
        }
        let now = claims(&hold).await?;
        println!("beside {CROWD} {name} more: {now} µs, {:.2} times as long", times(now, before));
    }
    Ok(())
}

async fn make(hold: &Statehold, create: &TaskCreate) -> Anything<Vec<TaskId>> {
    let mut batch = hold.batch();
    let handles: Vec<_> = (0..BULK).map(|_| batch.add(create.clone())).collect();
    let mut replies = hold.apply(batch).await?;
    Ok(handles
        .into_iter()
        .map(|handle| replies.take(handle).map(|made| made.task.id))
        .collect::<Result<_, _>>()?)
}

async fn cancel(hold: &Statehold, tasks: Vec<TaskId>) -> Anything<()> {
    let mut batch = hold.batch();
    for id in tasks {
        batch.add(TaskCancel { id, force: false, children: false });
    }
    hold.apply(batch).await?;
    Ok(())
}

/// The median of many claims, one after the other, from the queue that the crowd is in.
async fn claims(hold: &Statehold) -> Anything<u128> {
    let mut claims: Vec<Duration> = Vec::new();
    for _ in 0..CLAIMS {
        claims.push(cycle(hold, "crowd", "worker").await?);
    }
    Ok(per_mille(&mut claims, 500))
}
