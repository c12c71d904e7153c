-- What crates/sqlite sets for its writer, in `open.rs`; keep them equal.
PRAGMA cache_size = -16384;
