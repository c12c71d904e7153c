//! Who this process is, for owners of leases and locks.

use statehold_core::model::TaskId;

/// The machine, the process, and a random part, so that no two processes ever share a name.
pub fn default_owner() -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let machine = machine.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let machine = if machine.trim().is_empty() { "host" } else { machine.trim() };
    let random = TaskId::generate().to_string();
    let random = random.rsplit('-').next().unwrap_or_default();
    format!("{machine}/{}/{random}", std::process::id())
}
