//! What people and programs see of the command, with the built binary and real SQLite files.

mod harness;
mod promises;
mod sessions;
