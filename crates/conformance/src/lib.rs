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

pub mod cases;
pub mod harness;
pub mod model;
pub mod property;

pub use harness::{Case, Store, run};

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
