//! Opens a file and says how long it took until it answered: `cargo run --release --example ready -- state.db`.

use std::time::Instant;

use statehold_core::{Backend as _, Error, Result};
use statehold_sqlite::{Config, Sqlite};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let path = std::env::args().nth(1).ok_or_else(|| Error::invalid("path", "is missing"))?;
    let began = Instant::now();
    let store = Sqlite::open(Config::new(path)).await?;
    let namespaces = store.namespaces().await?.len();
    println!("ready in {:?}, with {namespaces} namespaces", began.elapsed());
    Ok(())
}
