//! The suite on `memory:` with several requests in one commit, as stores do that coalesce their callers.

use statehold_core::memory::Memory;

statehold_conformance::tests!(|clock| async move { Memory::grouping(clock, 8) });
