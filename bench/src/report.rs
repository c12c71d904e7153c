//! What was found: as JSON, as a table, as bars, and against the targets.

use std::fmt::Write as _;

use serde::Serialize;
use statehold_core::{Error, Result};

use crate::machine::Machine;
use crate::store::Store;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Which store.
    pub store: String,
    /// Where.
    pub machine: Machine,
    /// One for each operation and number of callers.
    pub results: Vec<Row>,
}

/// One operation with one number of callers.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The operation.
    pub op: &'static str,
    /// How many callers.
    pub concurrency: usize,
    /// Through the library.
    pub ours: Side,
    /// What the store can give.
    pub limit: Option<Side>,
    /// What one writes first.
    pub naive: Option<Side>,
    /// Our throughput through the limit's: the median over rounds.
    pub ratio_limit: Option<f64>,
    /// Our throughput through the naive one: the median over rounds.
    pub ratio_naive: Option<f64>,
    /// Our p50 through the limit's.
    pub p50_ratio_limit: Option<f64>,
    /// Our p50 through the naive one.
    pub p50_ratio_naive: Option<f64>,
    /// How far the rounds' `ratio_limit` lie apart, as a part of their median; of our throughput without a limit.
    pub spread: f64,
    /// The part of all processors that other processes used meanwhile, where the system tells it.
    pub others: Option<f64>,
    /// The ratios that miss their target.
    pub missed: Vec<&'static str>,
}

/// What one contender did.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Side {
    /// Calls per second, the median over rounds.
    pub per_second: f64,
    /// The latency of the median call.
    pub p50_us: f64,
    /// That of the slowest hundredth.
    pub p99_us: f64,
    /// That of the slowest thousandth.
    pub p999_us: f64,
    /// How far the rounds' `per_second` lie apart, as a part of their median.
    pub spread: f64,
}

/// What ours must reach with so many callers.
struct Target {
    concurrency: usize,
    /// The least part of the limit's throughput.
    limit: f64,
    /// The least multiple of the naive throughput.
    naive: Option<f64>,
}

/// The most that our p50 may be of the others' with one caller.
const P50_RATIO: f64 = 1.3;

fn targets(store: &Store) -> &'static [Target] {
    match store {
        Store::Memory => &[],
        Store::Redis(_) => &[
            Target { concurrency: 16, limit: 0.6, naive: None },
            Target { concurrency: 64, limit: 0.6, naive: Some(1.5) },
        ],
        Store::Sqlite(_) => &[
            Target { concurrency: 16, limit: 0.6, naive: Some(4.0) },
            Target { concurrency: 64, limit: 0.6, naive: Some(8.0) },
        ],
        Store::Postgres(_) => &[
            Target { concurrency: 16, limit: 0.6, naive: Some(1.5) },
            Target { concurrency: 64, limit: 0.6, naive: Some(4.0) },
        ],
    }
}

/// The ratios of a row that miss their target.
pub(crate) fn missed(store: &Store, row: &Row) -> Vec<&'static str> {
    let mut missed = Vec::new();
    if row.concurrency == 1 && !targets(store).is_empty() {
        let slow = |ratio: Option<f64>| ratio.is_some_and(|ratio| ratio > P50_RATIO);
        missed.extend(slow(row.p50_ratio_limit).then_some("p50_ratio_limit"));
        missed.extend(slow(row.p50_ratio_naive).then_some("p50_ratio_naive"));
    }
    for target in targets(store).iter().filter(|target| target.concurrency == row.concurrency) {
        let behind = |ratio: Option<f64>, least: f64| ratio.is_some_and(|ratio| ratio < least);
        missed.extend(behind(row.ratio_limit, target.limit).then_some("ratio_limit"));
        missed.extend(target.naive.filter(|least| behind(row.ratio_naive, *least)).map(|_| "ratio_naive"));
    }
    missed
}

impl Row {
    /// The row in a line, for those who watch.
    pub(crate) fn summary(&self) -> String {
        let mut line = format!("{} ×{}: {}/s", self.op, self.concurrency, thousands(self.ours.per_second));
        for (name, side) in [("limit", &self.limit), ("naive", &self.naive)] {
            if let Some(side) = side {
                let _ = write!(line, ", {name} {}/s", thousands(side.per_second));
            }
        }
        if !self.missed.is_empty() {
            let _ = write!(line, ", misses {}", self.missed.join(" and "));
        }
        line
    }

    fn cell(&self, name: &str, ratio: Option<f64>) -> String {
        let mark = if self.missed.contains(&name) { "!" } else { " " };
        ratio.map_or_else(|| "- ".into(), |ratio| format!("{ratio:.2}{mark}"))
    }

    fn line(&self) -> String {
        let rate = |side: Option<Side>| side.map_or_else(|| "-".into(), |side| thousands(side.per_second));
        format!(
            "{:<18}{:>4} {:>10} {:>9.1} {:>9.1} {:>9.1} {:>10} {:>7} {:>7} {:>10} {:>8} {:>7} {:>6} {:>6}",
            self.op,
            self.concurrency,
            thousands(self.ours.per_second),
            self.ours.p50_us,
            self.ours.p99_us,
            self.ours.p999_us,
            rate(self.limit),
            self.cell("ratio_limit", self.ratio_limit),
            self.cell("p50_ratio_limit", self.p50_ratio_limit),
            rate(self.naive),
            self.cell("ratio_naive", self.ratio_naive),
            self.cell("p50_ratio_naive", self.p50_ratio_naive),
            percent(self.spread),
            self.others.map_or_else(|| "-".into(), percent),
        )
    }
}

impl Report {
    pub(crate) fn new(store: &Store, machine: Machine) -> Self {
        Self { store: store.to_string(), machine, results: Vec::new() }
    }

    /// Whether every target was reached.
    pub fn reaches_targets(&self) -> bool {
        self.results.iter().all(|row| row.missed.is_empty())
    }

    /// Everything, for programs.
    pub fn json(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self);
        text.map_err(|e| Error::corrupt("a figure cannot be written as JSON").caused_by(e))
    }

    /// A table for people; `!` marks a missed target.
    pub fn table(&self) -> String {
        let mut text = self.heading();
        let _ = writeln!(
            text,
            "{:<18}{:>4} {:>10} {:>9} {:>9} {:>9} {:>10} {:>7} {:>7} {:>10} {:>8} {:>7} {:>6} {:>6}",
            "operation",
            "at",
            "ours/s",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "limit/s",
            "ratio ",
            "p50 ",
            "naive/s",
            "ratio ",
            "p50 ",
            "spread",
            "others"
        );
        let mut before = None;
        for row in &self.results {
            if before.replace(row.op).is_some_and(|op| op != row.op) {
                text.push('\n');
            }
            let _ = writeln!(text, "{}", row.line());
        }
        let missed = self.results.iter().filter(|row| !row.missed.is_empty()).count();
        if missed > 0 {
            let _ = writeln!(text, "\n! misses its target: {missed} of {} rows", self.results.len());
        }
        text
    }

    /// Bars of throughput, each operation and number of callers by itself.
    pub fn plot(&self) -> String {
        let mut text = self.heading();
        for row in &self.results {
            let _ = writeln!(text, "{} at {}", row.op, row.concurrency);
            let sides = [("ours", Some(row.ours)), ("limit", row.limit), ("naive", row.naive)];
            let most = sides.iter().filter_map(|(_, side)| *side).map(|s| s.per_second).fold(1.0, f64::max);
            for (name, side) in sides.into_iter().filter_map(|(name, side)| side.map(|side| (name, side))) {
                let bar = bar(side.per_second / most);
                let _ = writeln!(text, "  {name:<5} {bar} {}/s", thousands(side.per_second));
            }
        }
        text
    }

    fn heading(&self) -> String {
        let machine = &self.machine;
        let mut line = format!("{} on {}, {} cores", self.store, machine.system, machine.cores);
        if let Some(processor) = &machine.processor {
            let _ = write!(line, ", {processor}");
        }
        if let Some(sync_us) = machine.sync_us {
            let _ = write!(line, ", a durable write takes {sync_us:.0} µs");
        }
        line + "\n\n"
    }
}

const BAR: usize = 48;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small"
)]
fn bar(part: f64) -> String {
    let full = ((part * BAR as f64).round() as usize).clamp(1, BAR);
    format!("{:<BAR$}", "█".repeat(full))
}

fn percent(part: f64) -> String {
    format!("{:.0}%", part * 100.0)
}

/// A rounded number with commas.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(per_second: f64, p50_us: f64) -> Side {
        Side { per_second, p50_us, p99_us: p50_us * 2.0, p999_us: p50_us * 3.0, spread: 0.1 }
    }

    fn row(concurrency: usize, ours: Side, limit: Side, naive: Side) -> Row {
        Row {
            op: "task.create",
            concurrency,
            ours,
            limit: Some(limit),
            naive: Some(naive),
            ratio_limit: Some(ours.per_second / limit.per_second),
            ratio_naive: Some(ours.per_second / naive.per_second),
            p50_ratio_limit: Some(ours.p50_us / limit.p50_us),
            p50_ratio_naive: Some(ours.p50_us / naive.p50_us),
            spread: 0.1,
            others: None,
            missed: Vec::new(),
        }
    }

    #[test]
    fn targets_depend_on_the_number_of_callers() {
        let store = Store::Sqlite("a.db".into());
        let one = row(1, side(5000.0, 200.0), side(7000.0, 150.0), side(7000.0, 190.0));
        assert_eq!(missed(&store, &one), ["p50_ratio_limit"]);
        let many = row(64, side(50_000.0, 900.0), side(100_000.0, 500.0), side(10_000.0, 900.0));
        assert_eq!(missed(&store, &many), ["ratio_limit", "ratio_naive"]);
        let good = row(16, side(70_000.0, 900.0), side(100_000.0, 500.0), side(10_000.0, 900.0));
        assert!(missed(&store, &good).is_empty());
        assert!(missed(&Store::Memory, &many).is_empty());
    }

    #[test]
    fn targets_depend_on_the_store() {
        let config = statehold_postgres::Config::from_url("postgres://localhost").expect("a good URL");
        let store = Store::Postgres(Box::new(config));
        let many = row(64, side(50_000.0, 900.0), side(80_000.0, 500.0), side(10_000.0, 900.0));
        assert!(missed(&store, &many).is_empty());
        let few = row(16, side(14_000.0, 900.0), side(20_000.0, 500.0), side(10_000.0, 900.0));
        assert_eq!(missed(&store, &few), ["ratio_naive"]);
    }

    #[test]
    fn a_missed_target_is_marked_in_the_table() {
        let store = Store::Sqlite("a.db".into());
        let mut report = Report::new(&store, Machine::look(&Store::Memory));
        let mut many = row(64, side(50_000.0, 900.0), side(100_000.0, 500.0), side(5_000.0, 900.0));
        many.missed = missed(&store, &many);
        report.results.push(many);
        let table = report.table();
        assert!(table.contains("50,000") && table.contains("0.50!") && table.contains("10.00 "), "{table}");
        assert!(table.contains("1 of 1 rows"), "{table}");
        assert!(report.plot().contains("ours  ████"), "{}", report.plot());
    }

    #[test]
    fn without_rivals_the_json_says_null() {
        let many = row(64, side(1.0, 1.0), side(1.0, 1.0), side(1.0, 1.0));
        let alone = Row { limit: None, naive: None, ratio_limit: None, ratio_naive: None, ..many };
        let json = serde_json::to_value(alone).expect("a row is JSON");
        assert!(json["limit"].is_null() && json["ratio_naive"].is_null(), "{json}");
        assert_eq!(json["ours"]["per_second"], 1.0);
    }

    #[test]
    fn large_numbers_have_commas() {
        assert_eq!([999.4, 1000.0, 1_234_567.0].map(thousands), ["999", "1,000", "1,234,567"]);
    }
}
