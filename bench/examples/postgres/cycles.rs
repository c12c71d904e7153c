//! Tasks by the hundred thousand, on a server whose autovacuum is on: claims do not become slower.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use statehold::Statehold;

use super::{Anything, cycle, number, per_mille};

const CYCLES: u64 = 300_000;
const PARTS: u64 = 10;
const CALLERS: usize = 16;

pub(super) async fn measure(url: &str) -> Anything<()> {
    let hold = Statehold::open(url).await?;
    println!(
        "{:>8} {:>9} {:>9} {:>9} {:>10} {:>8}",
        "cycles", "per s", "p50 µs", "p99 µs", "dead rows", "MB"
    );
    let mut first = 0;
    for part in 1..=PARTS {
        let began = Instant::now();
        let mut claims = run(&hold, CYCLES / PARTS).await?;
        let per_second = u128::from(CYCLES / PARTS) * 1000 / began.elapsed().as_millis().max(1);
        let (p50, p99) = (per_mille(&mut claims, 500), per_mille(&mut claims, 990));
        let dead = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'statehold.tasks'::regclass";
        let size = "SELECT pg_total_relation_size('statehold.tasks') / 1048576";
        let (dead, size) = (number(url, dead).await?, number(url, size).await?);
        println!("{:>8} {per_second:>9} {p50:>9} {p99:>9} {dead:>10} {size:>8}", part * CYCLES / PARTS);
        if part == 1 {
            first = p50;
        } else if part == PARTS {
            println!("claim p50 at the end / at the start: {:.2}", times(p50, first));
        }
    }
    let vacuums =
        "SELECT autovacuum_count FROM pg_stat_user_tables WHERE relid = 'statehold.tasks'::regclass";
    println!("autovacuum has been at the tasks {} times", number(url, vacuums).await?);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a latency in microseconds fits")]
pub(super) fn times(one: u128, other: u128) -> f64 {
    one as f64 / other.max(1) as f64
}

/// Lets the callers do so many cycles together; answers how long the claims took.
async fn run(hold: &Statehold, cycles: u64) -> Anything<Vec<Duration>> {
    let left = Arc::new(AtomicU64::new(cycles));
    let callers = (0..CALLERS).map(|caller| {
        let (hold, left) = (hold.clone(), Arc::clone(&left));
        tokio::spawn(async move {
            let (owner, mut claims) = (format!("worker-{caller}"), Vec::new());
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
            {
                claims.push(cycle(&hold, "cycles", &owner).await?);
            }
            Anything::Ok(claims)
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut all = Vec::new();
    for caller in callers {
        all.append(&mut caller.await??);
    }
    Ok(all)
}
