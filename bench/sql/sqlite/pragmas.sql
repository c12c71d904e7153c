-- What crates/sqlite sets, in `open.rs`; keep them equal.
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA trusted_schema = OFF;
PRAGMA temp_store = MEMORY;
