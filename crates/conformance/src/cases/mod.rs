//! The promises, one file a noun. Each file lists its cases once.

use crate::Case;

/// All cases, each with the file it is in.
pub fn all() -> Vec<(&'static str, Case)> {
    let files: &[(&'static str, &'static [Case])] = &[];
    files.iter().flat_map(|(file, cases)| cases.iter().map(move |case| (*file, *case))).collect()
}
