//! Where it was measured.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::stats::Latencies;
use crate::store::{Store, beside};

/// What a reader must know of the machine to compare figures.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The operating system and the architecture.
    pub system: String,
    /// The processor's name, where the system tells it.
    pub processor: Option<String>,
    /// How many threads can run at once.
    pub cores: usize,
    /// How long the disk takes to make a small write durable, at the median; only for stores in files.
    pub sync_us: Option<f64>,
}

impl Machine {
    pub(crate) fn look(store: &Store) -> Self {
        let sync_us = match store {
            Store::Memory | Store::Postgres(_) | Store::Redis(_) => None,
            Store::Sqlite(path) => sync_time(path),
        };
        Self {
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            processor: processor(),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            sync_us,
        }
    }
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

/// Appends 200 pages to a file beside the store, each made durable.
fn sync_time(store: &Path) -> Option<f64> {
    let path = beside(store, "sync");
    let mut file = File::create(&path).ok()?;
    let mut latencies = Latencies::with_capacity(200);
    for _ in 0..200 {
        let start = Instant::now();
        file.write_all(&[7; 4096]).and_then(|()| file.sync_data()).ok()?;
        latencies.record(start.elapsed());
    }
    fs::remove_file(path).ok()?;
    let [p50] = latencies.per_mille([500]);
    Some(p50)
}

/// Processor time so far, in the system's ticks: of this process, and of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    own: u64,
    busy: u64,
    all: u64,
}

impl Ticks {
    /// None where the system does not tell.
    pub(crate) fn now() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/stat").ok()?;
        let all = fs::read_to_string("/proc/stat").ok()?;
        Self::parse(&own, &all)
    }

    fn parse(own: &str, all: &str) -> Option<Self> {
        // The name of the process stands in brackets and may have spaces in it; user and system time are the 12th
        // and 13th field after it.
        let own = own.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
        let own = own.map(|ticks| ticks.parse::<u64>().ok()).sum::<Option<u64>>()?;
        let all: Vec<u64> = all.lines().next()?.split_whitespace().skip(1).flat_map(str::parse).collect();
        // User, nice, system, idle, waiting for the disk, interrupts, soft interrupts, stolen; guests are in user.
        let total: u64 = all.iter().take(8).sum();
        let idle = all.get(3)? + all.get(4)?;
        Some(Self { own, busy: total - idle, all: total })
    }

    /// The part of all processors that others have used since.
    #[expect(clippy::cast_precision_loss, reason = "a run has far fewer ticks")]
    pub(crate) fn others_since(self, before: Self) -> f64 {
        let others = (self.busy - before.busy).saturating_sub(self.own - before.own);
        others as f64 / (self.all - before.all).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_use_is_told_from_what_we_use() {
        let parse = |own: &str, all: &str| Ticks::parse(own, all).expect("it is read");
        let own = |user, system| format!("7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 {user} {system} 0 0");
        let before = parse(&own(10, 10), "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 2 3");
        let after = parse(&own(20, 20), "cpu  130 0 120 945 5 0 0 0 0 0\ncpu0 1 2 3");
        assert!((after.others_since(before) - 0.15).abs() < 1e-9);
    }
}
