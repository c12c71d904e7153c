//! The promises, one file a noun. Each file lists its cases once.

mod acks;
mod backlog;
mod batches;
mod bounds;
mod cancel;
mod categories;
mod children;
mod claims;
mod create;
mod dead_letters;
mod dependencies;
mod documents;
mod dumps;
mod entries;
mod exclusive;
mod failures;
mod fences;
mod fidelity;
mod groups;
mod input;
mod keys;
mod leases;
mod lifecycle;
mod lists;
mod locks;
mod namespaces;
mod purge;
mod queues;
mod races;
mod streams;
mod sweep;
mod together;
mod transitions;
mod trims;
mod waiting;
mod wakes;
mod why;

use crate::Case;

/// All cases, each with the file it is in.
pub fn all() -> Vec<(&'static str, Case)> {
    let files: &[(&'static str, &'static [Case])] = &[
        ("batches", batches::CASES),
        ("keys", keys::CASES),
        ("fences", fences::CASES),
        ("streams", streams::CASES),
        ("trims", trims::CASES),
        ("categories", categories::CASES),
        ("create", create::CASES),
        ("lifecycle", lifecycle::CASES),
        ("transitions", transitions::CASES),
        ("backlog", backlog::CASES),
        ("leases", leases::CASES),
        ("failures", failures::CASES),
        ("claims", claims::CASES),
        ("dependencies", dependencies::CASES),
        ("groups", groups::CASES),
        ("acks", acks::CASES),
        ("dead_letters", dead_letters::CASES),
        ("documents", documents::CASES),
        ("entries", entries::CASES),
        ("locks", locks::CASES),
        ("children", children::CASES),
        ("waiting", waiting::CASES),
        ("exclusive", exclusive::CASES),
        ("cancel", cancel::CASES),
        ("input", input::CASES),
        ("bounds", bounds::CASES),
        ("fidelity", fidelity::CASES),
        ("wakes", wakes::CASES),
        ("namespaces", namespaces::CASES),
        ("dumps", dumps::CASES),
        ("sweep", sweep::CASES),
        ("purge", purge::CASES),
        ("queues", queues::CASES),
        ("lists", lists::CASES),
        ("why", why::CASES),
        ("races", races::CASES),
        ("together", together::CASES),
    ];
    files.iter().flat_map(|(file, cases)| cases.iter().map(move |case| (*file, *case))).collect()
}
