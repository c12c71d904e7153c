//! The property test: random requests, on a backend and on the naive [`crate::model`], must be answered the
//! same. What differs is shrunk to the shortest sequence that still does.
//!
//! - `ops.rs` and `questions.rs` say what an operation is, `generate.rs` how often it comes; `resolve.rs`,
//!   `instead.rs`, `names.rs` and `seen.rs` say what it means at the time it is run.
//! - `run.rs` and `ask.rs` run it on both sides and compare; `coverage.rs` makes sure that it did something.

mod ask;
mod coverage;
mod generate;
mod instead;
mod names;
mod ops;
mod questions;
mod resolve;
mod run;
mod seen;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use statehold_core::Clock;

use crate::harness::{Open, start};
use coverage::Coverage;
use ops::Op;
use run::Run;

/// How many operations are run in all, unless [`OPERATIONS_VARIABLE`] says otherwise.
pub const OPERATIONS: usize = 20_000;
/// The environment variable that says how many operations are run in all.
pub const OPERATIONS_VARIABLE: &str = "STATEHOLD_PROPERTY_OPERATIONS";
/// The environment variable with a number that makes other sequences.
pub const SEED_VARIABLE: &str = "STATEHOLD_PROPERTY_SEED";
/// How many operations a sequence has, on average.
const LENGTH: usize = 150;

/// The number of operations that the environment asks for.
pub fn operations() -> usize {
    number(OPERATIONS_VARIABLE).and_then(|number| usize::try_from(number).ok()).unwrap_or(OPERATIONS)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs about `operations` operations in many sequences, each on a newly opened backend.
///
/// # Panics
/// If backend and model disagree, with the shortest sequence that shows it; or if some command was never
/// accepted or refused, or some effect never seen, in a run of at least [`OPERATIONS`].
pub(crate) fn property(open: &Open, operations: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let other = runtime.block_on(open(Clock::manual(start())));
    let coverage = Mutex::new(Coverage::default());
    let run = |ops: &[Op]| {
        let clock = Clock::manual(start());
        let mut coverage = coverage.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.block_on(async {
            let backend = open(clock.clone()).await;
            Run::new(backend, clock, &mut coverage).all(ops, &*other).await
        })
    };
    let result =
        runner(operations).run(&generate::sequences(LENGTH), |ops| run(&ops).map_err(TestCaseError::fail));
    match result {
        Ok(()) => judge(&coverage.lock().unwrap_or_else(PoisonError::into_inner), operations),
        Err(TestError::Fail(reason, ops)) => fail(reason.message(), ops, run),
        Err(TestError::Abort(reason)) => panic!("the test could not be run: {reason}"),
    }
}

/// Leaves out all that is not needed, which one pass of shrinking does not achieve, and panics.
fn fail(reason: &str, mut ops: Vec<Op>, run: impl Fn(&[Op]) -> run::Verdict) {
    let attempt =
        |ops: &[Op]| catch_unwind(AssertUnwindSafe(|| run(ops))).unwrap_or_else(|_| Err("it panics".into()));
    let mut reason = reason.to_owned();
    while let Some((problem, fewer)) =
        shorter(&ops).into_iter().find_map(|fewer| Some((attempt(&fewer).err()?, fewer)))
    {
        (reason, ops) = (problem, fewer);
    }
    let lines: Vec<_> = ops.iter().map(|op| format!("{op:?}")).collect();
    panic!("{reason}\n\nthe shortest sequence that shows it:\n{}\n", lines.join("\n"));
}

/// The sequences with one operation, one command, one fence or one key less.
fn shorter(ops: &[Op]) -> Vec<Vec<Op>> {
    let mut found = Vec::new();
    for index in 0..ops.len() {
        let mut fewer = ops.to_vec();
        fewer.remove(index);
        found.push(fewer);
        if let Op::Batch(batch) = &ops[index] {
            for smaller in batch.smaller() {
                let mut fewer = ops.to_vec();
                fewer[index] = Op::Batch(smaller);
                found.push(fewer);
            }
        }
    }
    found
}

fn runner(operations: usize) -> TestRunner {
    let cases = u32::try_from(operations.div_ceil(LENGTH)).unwrap_or(u32::MAX);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 4_000, ..Config::default() };
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number(SEED_VARIABLE).unwrap_or(0).to_le_bytes());
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

fn judge(coverage: &Coverage, operations: usize) {
    let missing = coverage.missing();
    let enough = operations < OPERATIONS || missing.is_empty();
    assert!(enough, "the sequences do too little:\n{}\n{coverage:#?}", missing.join("\n"));
}
