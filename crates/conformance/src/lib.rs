//! The suite that judges every backend.
//!
//! A backend becomes a conforming one by a test file with one line:
//!
//! ```no_run
//! statehold_conformance::tests!(|clock| async move { statehold_core::memory::Memory::new(clock) });
//! ```
//!
//! - [`mod@cases`] holds the promises one by one: a plain async function each, named after the promise it keeps.
//! - [`model`] is a naive, independent model of the rules; [`property`] runs random requests against it and
//!   a backend, and shrinks what differs.
//! - [`harness`] is what cases are written with.
//! - [`remote`] runs all of it through several processes that have one store open.
//!
//! Beside the suite stands what other tests of stores need: [`process`], servers ([`postgres`], [`redis`]), and a bad way to
//! one ([`line`](mod@line)).

pub mod cases;
pub mod harness;
pub mod line;
pub mod model;
pub mod postgres;
pub mod process;
pub mod property;
pub mod redis;
pub mod remote;
pub mod server;

pub use harness::{Case, Store, run, run_cases};
pub use remote::run_in_processes;

/// Makes the suite the tests of a backend: the argument opens one with the given clock. For a test target
/// with `harness = false`.
#[macro_export]
macro_rules! tests {
    ($open:expr) => {
        fn main() -> std::process::ExitCode {
            $crate::run($open)
        }
    };
}

/// Makes the suite the tests of a store that several processes have open: the first argument says how many, the
/// second opens it in a given folder with the given clock. For a test target with `harness = false`.
///
/// ```no_run
/// use statehold_core::memory::Memory;
///
/// statehold_conformance::tests_in_processes!(1, |_folder, clock| async move { Memory::new(clock) });
/// ```
#[macro_export]
macro_rules! tests_in_processes {
    ($processes:expr, $open:expr) => {
        fn main() -> std::process::ExitCode {
            $crate::run_in_processes($processes, $open)
        }
    };
}
