//! The suite on `memory:` in another process: what crosses to it and back is not changed on the way.

use statehold_core::memory::Memory;

statehold_conformance::tests_in_processes!(1, |_folder, clock| async move { Memory::new(clock) });
