//! The promises, one file a noun. Each file lists its cases once.

mod batches;
mod keys;
mod fences;
mod streams;
mod trims;
mod categories;
mod create;
mod lifecycle;
mod transitions;
mod backlog;
mod leases;
mod failures;
mod claims;
mod dependencies;
mod groups;
mod acks;
mod dead_letters;
mod documents;
mod entries;
mod locks;
mod children;
mod waiting;
mod exclusive;
mod cancel;
mod input;
mod bounds;
mod fidelity;
mod wakes;
mod namespaces;
mod dumps;
mod sweep;
mod purge;
mod queues;
mod lists;
mod why;
mod races;
mod together;

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
