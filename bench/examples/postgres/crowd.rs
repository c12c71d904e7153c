//! Tasks that cannot be claimed, beside those that can: a claim does not see them.

use std::time::{Duration, Instant};

use statehold::core::command::TaskCancel;
use statehold::{Clock, Seconds, Statehold, TaskCreate, TaskId};

use super::cycles::times;
use super::{Anything, cycle, number, per_mille};

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
    // What was ready a moment ago leaves entries in the index that claims step over until they are swept up.
    vacuumed(url).await?;
    let now = claims(&hold).await?;
    println!("after autovacuum: {now} µs, {:.2} times as long", times(now, before));
    Ok(())
}

/// Waits until autovacuum has been at the tasks after all that was done to them.
async fn vacuumed(url: &str) -> Anything<()> {
    const LEFT: &str = "SELECT n_dead_tup FROM pg_stat_user_tables \
                        WHERE schemaname = 'statehold' AND relname = 'tasks'";
    const FEW: i64 = 10_000;
    let patience = Instant::now() + Duration::from_secs(180);
    while number(url, LEFT).await? >= FEW {
        if Instant::now() > patience {
            return Err("autovacuum did not come within three minutes".into());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
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
