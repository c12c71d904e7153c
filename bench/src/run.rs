//! Measuring: slices of a fixed length, contenders in turn, and a check that the work was done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use statehold_core::{Error, Result};
use tokio::sync::Barrier;

use crate::contender::{Contender, Receipt, Slice};
use crate::machine::Ticks;
use crate::ops::Op;
use crate::report::{Row, Side};
use crate::stats::{self, Latencies};

/// What to measure, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which operations.
    pub ops: Vec<Op>,
    /// With how many callers, each waiting for its answer before it calls again.
    pub concurrency: Vec<usize>,
    /// How often each contender is measured.
    pub rounds: usize,
    /// How long each time.
    pub slice: Duration,
    /// How many tasks, events and documents are there before.
    pub present: u64,
    /// Whether rivals on PostgreSQL keep the indexes of tasks and events that ours has for lists, owners and categories.
    pub indexes: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ops: Op::ALL.to_vec(),
            concurrency: vec![1, 16, 64],
            rounds: 3,
            slice: Duration::from_millis(500),
            present: 0,
            indexes: false,
        }
    }
}

/// How long a contender is warmed up, with how much stock.
const WARM_UP: (Duration, u64) = (Duration::from_millis(150), 2000);
/// How much more stock there is than the fastest slice before used, in tenths.
const STOCK_TENTHS: u64 = 15;
/// A slice whose stock ran out counts if it lasted this part of its length.
const LONG_ENOUGH: f64 = 0.6;
/// How often a slice is tried with more stock.
const TRIES: usize = 5;

/// A contender and what was measured of it.
pub(crate) struct Lane {
    name: &'static str,
    contender: Arc<dyn Contender>,
    /// The fastest slice so far.
    fastest: f64,
    per_second: Vec<f64>,
    latencies: Latencies,
}

impl Lane {
    pub(crate) fn new(name: &'static str, contender: Arc<dyn Contender>) -> Self {
        Self { name, contender, fastest: 0.0, per_second: Vec::new(), latencies: Latencies::default() }
    }

    async fn warm_up(&mut self, op: Op, callers: usize) -> Result<()> {
        let (length, stock) = WARM_UP;
        (self.per_second, self.latencies) = (Vec::new(), Latencies::default());
        self.fastest = self.slice(op, callers, length, stock).await?.per_second();
        Ok(())
    }

    async fn round(&mut self, op: Op, callers: usize, length: Duration) -> Result<()> {
        for _ in 0..TRIES {
            let stock = whole(self.fastest * length.as_secs_f64()) * STOCK_TENTHS / 10 + 500;
            let measured = self.slice(op, callers, length, stock).await?;
            self.fastest = self.fastest.max(measured.per_second());
            if measured.elapsed.as_secs_f64() >= LONG_ENOUGH * length.as_secs_f64() {
                self.per_second.push(measured.per_second());
                self.latencies.extend(&measured.latencies);
                return Ok(());
            }
            self.fastest *= 2.0;
        }
        Err(self.broken(op, &format!("used up what was prepared for it {TRIES} times")))
    }

    async fn slice(&self, op: Op, callers: usize, length: Duration, stock: u64) -> Result<Measured> {
        let slice: Arc<dyn Slice> = self.contender.prepare(op, callers, stock).await?.into();
        let calls = if op.uses_stock() { stock } else { u64::MAX };
        let room = whole(self.fastest * length.as_secs_f64()) / callers as u64 * 2 + 1000;
        let shared = Arc::new(Shared {
            start: Barrier::new(callers),
            began: OnceLock::new(),
            length,
            next: AtomicU64::new(0),
            calls,
            room: usize::try_from(room).unwrap_or(0),
        });
        let tasks: Vec<_> = (0..callers)
            .map(|caller| tokio::spawn(call_until_over(Arc::clone(&slice), Arc::clone(&shared), caller)))
            .collect();
        let mut all = Vec::with_capacity(callers);
        for task in tasks {
            let calls = task.await.map_err(|e| self.broken(op, "stopped a caller").caused_by(e))?;
            all.push(calls?);
        }
        let measured = Measured::of(&all, shared.began.get().copied());
        self.judge(op, &all, slice.traces().await?, measured.latencies.len())?;
        Ok(measured)
    }

    /// Refuses a slice whose calls were acknowledged and not done, or done for two callers.
    fn judge(&self, op: Op, all: &[Calls], traces: Option<u64>, acknowledged: usize) -> Result<()> {
        if let Some(traces) = traces.filter(|traces| *traces != acknowledged as u64) {
            let problem = format!("acknowledged {acknowledged} calls and the store shows {traces}");
            return Err(self.broken(op, &problem));
        }
        if op.has_unique_receipts() {
            let mut receipts: Vec<_> = all.iter().flat_map(|calls| calls.receipts.iter().copied()).collect();
            receipts.sort_unstable();
            if receipts.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(self.broken(op, "gave the same thing to two callers"));
            }
        }
        Ok(())
    }

    fn broken(&self, op: Op, what: &str) -> Error {
        Error::corrupt(format!("{op}: {} {what}", self.name)).hint("its figures would mean nothing")
    }

    fn side(&self) -> Side {
        let [middle, hundredth, thousandth] = self.latencies.clone().per_mille([500, 990, 999]);
        Side {
            per_second: stats::median(&self.per_second),
            p50_us: middle,
            p99_us: hundredth,
            p999_us: thousandth,
            spread: stats::spread(&self.per_second),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of calls fits")]
fn whole(calls: f64) -> u64 {
    calls as u64
}

/// What the callers of a slice have in common.
struct Shared {
    start: Barrier,
    began: OnceLock<Instant>,
    length: Duration,
    next: AtomicU64,
    calls: u64,
    room: usize,
}

/// What one caller did.
struct Calls {
    latencies: Latencies,
    receipts: Vec<Receipt>,
    ended: Instant,
}

async fn call_until_over(slice: Arc<dyn Slice>, shared: Arc<Shared>, caller: usize) -> Result<Calls> {
    let mut latencies = Latencies::with_capacity(shared.room);
    let mut receipts = Vec::with_capacity(shared.room);
    shared.start.wait().await;
    let over = *shared.began.get_or_init(Instant::now) + shared.length;
    loop {
        // A store that answers without waiting would otherwise keep the other callers from the processor.
        tokio::task::coop::consume_budget().await;
        let asked = Instant::now();
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        if asked >= over || number >= shared.calls {
            return Ok(Calls { latencies, receipts, ended: asked });
        }
        receipts.push(slice.call(caller, number).await?);
        latencies.record(asked.elapsed());
    }
}

struct Measured {
    latencies: Latencies,
    elapsed: Duration,
}

impl Measured {
    fn of(all: &[Calls], began: Option<Instant>) -> Self {
        let mut latencies = Latencies::with_capacity(all.iter().map(|calls| calls.latencies.len()).sum());
        for calls in all {
            latencies.extend(&calls.latencies);
        }
        let ended = all.iter().map(|calls| calls.ended).max();
        let elapsed = ended.zip(began).map_or(Duration::ZERO, |(ended, began)| ended - began);
        Self { latencies, elapsed }
    }

    #[expect(clippy::cast_precision_loss, reason = "a slice has far fewer calls")]
    fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Measures one operation with one number of callers. The first lane is ours, then the limit and the naive one if
/// the store has them.
pub(crate) async fn measure(lanes: &mut [Lane], op: Op, callers: usize, options: &Options) -> Result<Row> {
    for lane in &mut *lanes {
        lane.warm_up(op, callers).await?;
    }
    let before = Ticks::now();
    for round in 0..options.rounds {
        for turn in 0..lanes.len() {
            let next = (round + turn) % lanes.len();
            lanes[next].round(op, callers, options.slice).await?;
        }
    }
    let others = Ticks::now().zip(before).map(|(now, before)| now.others_since(before));
    Ok(Row { others, ..row(lanes, op, callers) })
}

fn row(lanes: &[Lane], op: Op, concurrency: usize) -> Row {
    let sides: Vec<_> = lanes.iter().map(Lane::side).collect();
    let ratios = |other: usize| -> Option<Vec<f64>> {
        let other = lanes.get(other)?;
        Some(lanes[0].per_second.iter().zip(&other.per_second).map(|(ours, other)| ours / other).collect())
    };
    let p50_ratio = |other: usize| sides.get(other).map(|other| sides[0].p50_us / other.p50_us);
    let (limit, naive) = (ratios(1), ratios(2));
    Row {
        op: op.name(),
        concurrency,
        ratio_limit: limit.as_deref().map(stats::median),
        ratio_naive: naive.as_deref().map(stats::median),
        p50_ratio_limit: p50_ratio(1),
        p50_ratio_naive: p50_ratio(2),
        spread: limit.as_deref().map_or(sides[0].spread, stats::spread),
        ours: sides[0],
        limit: sides.get(1).copied(),
        naive: sides.get(2).copied(),
        others: None,
        missed: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;

    /// Gives numbers; a broken one gives one of them twice, a forgetful one leaves no trace of the last.
    #[derive(Clone, Copy, Default)]
    struct Counter {
        twice: bool,
        forgets: bool,
    }

    struct Counting(Counter, AtomicU64);

    #[async_trait]
    impl Contender for Counter {
        async fn prepare(&self, _: Op, _: usize, _: u64) -> Result<Box<dyn Slice>> {
            Ok(Box::new(Counting(*self, AtomicU64::new(0))))
        }
    }

    #[async_trait]
    impl Slice for Counting {
        async fn call(&self, _: usize, number: u64) -> Result<Receipt> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.1.fetch_add(1, Ordering::SeqCst);
            Ok(Receipt(if self.0.twice && number == 1 { 0 } else { number.into() }))
        }

        async fn traces(&self) -> Result<Option<u64>> {
            Ok(Some(self.1.load(Ordering::SeqCst) - u64::from(self.0.forgets)))
        }
    }

    async fn measured(counter: Counter) -> Result<Row> {
        let mut lanes = [Lane::new("ours", Arc::new(counter)), Lane::new("limit", Arc::new(counter))];
        let options = Options { rounds: 2, slice: Duration::from_millis(20), ..Options::default() };
        measure(&mut lanes, Op::TaskClaim, 4, &options).await
    }

    #[tokio::test]
    async fn equal_contenders_have_a_ratio_near_one() {
        let row = measured(Counter::default()).await.expect("it is measured");
        assert!(row.ratio_limit.is_some_and(|ratio| (0.5..2.0).contains(&ratio)), "{row:?}");
        assert!(row.naive.is_none() && row.ratio_naive.is_none());
        assert!(row.ours.p50_us >= 1000.0, "{row:?}");
    }

    #[tokio::test]
    async fn a_store_that_gives_something_twice_is_not_measured() {
        let error = measured(Counter { twice: true, ..Counter::default() }).await.expect_err("it is refused");
        assert!(error.message().contains("two callers"), "{error}");
    }

    #[tokio::test]
    async fn a_store_that_forgets_is_not_measured() {
        let error =
            measured(Counter { forgets: true, ..Counter::default() }).await.expect_err("it is refused");
        assert!(error.message().contains("the store shows"), "{error}");
    }
}
