//! How long an event takes from its commit to who subscribes, while others append at half of what the server can take.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use statehold::{From, Json, NewEvent, Statehold, StreamName};
use statehold_bench::{Op, Options, Store};
use statehold_postgres::{Config, Postgres};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{Anything, per_mille};

/// What makes this program the other process.
pub(super) const LISTEN: &str = "listen";
const CALLERS: u64 = 64;
const STREAMS: u64 = 1000;
const PROBES: u64 = 400;
const EVERY: Duration = Duration::from_millis(25);

/// When each event of the probe was seen, by its number.
type Seen = Arc<Mutex<HashMap<u64, Duration>>>;

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn probe() -> Anything<StreamName> {
    Ok("probe/live".parse()?)
}

pub(super) async fn measure(url: &str) -> Anything<()> {
    let half = limit(url).await? / 2;
    println!("half of the limit: {half} appends a second");
    let hold = Statehold::open(url).await?;
    hold.streams().append(&probe()?, vec![NewEvent::new("begun")]).await?;
    let (here, there) = (Seen::default(), Seen::default());
    let mut other = other_process(url, Arc::clone(&there))?;
    let following = tokio::spawn(follow(hold.clone(), Arc::clone(&here)));
    while there.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
        sleep(EVERY).await;
    }
    let appended = Arc::new(AtomicU64::new(0));
    let load: Vec<_> = (0..CALLERS)
        .map(|caller| tokio::spawn(append(hold.clone(), caller, half, Arc::clone(&appended))))
        .collect();
    sleep(Duration::from_secs(2)).await;
    let (began, before) = (Instant::now(), appended.load(Ordering::Relaxed));
    let mut asked = Vec::new();
    for _ in 0..PROBES {
        let called = now();
        let seq = hold.streams().append(&probe()?, vec![NewEvent::new("probe")]).await?.last_seq;
        asked.push((seq, called, now()));
        sleep(EVERY).await;
    }
    let rate =
        u128::from(appended.load(Ordering::Relaxed) - before) * 1000 / began.elapsed().as_millis().max(1);
    sleep(Duration::from_secs(1)).await;
    load.iter().for_each(tokio::task::JoinHandle::abort);
    following.abort();
    other.kill()?;
    other.wait()?;
    println!("load: {rate} appends a second");
    tell("this process", &asked, &here)?;
    tell("another process", &asked, &there)
}

/// How many appends a second the server can take, as the benchmark measures it.
async fn limit(url: &str) -> Anything<u64> {
    let config = Config::from_url(url)?;
    let slice = Duration::from_secs(1);
    let options = Options {
        ops: vec![Op::StreamAppend],
        concurrency: vec![64],
        rounds: 3,
        slice,
        ..Options::default()
    };
    let backend = Arc::new(Postgres::open(config.clone()).await?);
    let store = Store::Postgres(Box::new(config));
    let report = statehold_bench::run(backend, &store, &options, |line| eprintln!("{line}")).await?;
    let limit = report.results.first().and_then(|row| row.limit).ok_or("there is no limit")?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of appends fits")]
    Ok(limit.per_second as u64)
}

/// One caller of the load, at its part of the rate.
async fn append(hold: Statehold, caller: u64, rate: u64, appended: Arc<AtomicU64>) -> Anything<()> {
    let data = Json::of(&"x".repeat(200))?;
    let mut ticks = interval(Duration::from_secs(1).mul_f64(64.0) / u32::try_from(rate.max(1))?);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in 0.. {
        ticks.tick().await;
        let stream = format!("thread/{}", (number * CALLERS + caller) % STREAMS).parse()?;
        hold.streams().append(&stream, vec![NewEvent::new("message").data(data.clone())]).await?;
        appended.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn follow(hold: Statehold, seen: Seen) -> Anything<()> {
    let mut events = Box::pin(hold.streams().subscribe(&probe()?, From::Oldest));
    while let Some(event) = events.next().await {
        seen.lock().unwrap_or_else(PoisonError::into_inner).insert(event?.seq, now());
    }
    Ok(())
}

/// Follows the probe in another process, which says what it sees, line by line.
pub(super) async fn listen(url: &str) -> Anything<()> {
    let hold = Statehold::open(url).await?;
    let mut events = Box::pin(hold.streams().subscribe(&probe()?, From::Oldest));
    while let Some(event) = events.next().await {
        println!("{} {}", event?.seq, now().as_micros());
    }
    Ok(())
}

fn other_process(url: &str, seen: Seen) -> Anything<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.args([LISTEN, url]).stdout(Stdio::piped()).spawn()?;
    let said = BufReader::new(child.stdout.take().ok_or("it says nothing")?);
    std::thread::spawn(move || {
        for line in said.lines().map_while(std::io::Result::ok) {
            let Some((seq, at)) = line.split_once(' ') else { continue };
            if let (Ok(seq), Ok(at)) = (seq.parse(), at.parse()) {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.insert(seq, Duration::from_micros(at));
            }
        }
    });
    Ok(child)
}

/// Tells how long the events took, from the answer to the append, and from the call.
fn tell(who: &str, asked: &[(u64, Duration, Duration)], seen: &Seen) -> Anything<()> {
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut answered, mut called) = (Vec::new(), Vec::new());
    for (seq, begun, done) in asked {
        let at = seen.get(seq).ok_or_else(|| format!("{who} did not see event {seq}"))?;
        answered.push(at.saturating_sub(*done));
        called.push(at.saturating_sub(*begun));
    }
    let [p50, p99] = [500, 990].map(|part| per_mille(&mut answered, part));
    println!(
        "{who}: {p50} µs after the answer at the median, p99 {p99}; {} µs after the call",
        per_mille(&mut called, 500)
    );
    Ok(())
}
