//! One file for each command.

pub(crate) mod bench;
pub(crate) mod doctor;
