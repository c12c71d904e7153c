//! The suite on one file that two processes have open.

use statehold_sqlite::{Config, Sqlite};

statehold_conformance::tests_in_processes!(2, |folder, clock| async move {
    let config = Config::new(folder.join("store.db")).with_clock(clock);
    Sqlite::open(config).await.expect("the store opens")
});
