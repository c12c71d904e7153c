//! The suite on `memory:`.

use statehold_core::memory::Memory;

statehold_conformance::tests!(|clock| async move { Memory::new(clock) });
