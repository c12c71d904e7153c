//! The server stops as in a crash and comes back, again and again, while callers write: what was acknowledged is there,
//! and what was repeated with its key is there once.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use libtest_mimic::{Arguments, Trial};
use statehold_conformance::postgres;
use statehold_core::batch::BatchKey;
use statehold_core::command::{NewEvent, StreamAppend};
use statehold_core::query::{ReadFrom, StreamRead};
use statehold_core::{Backend, Batch, Error};
use statehold_postgres::{Config, Postgres};
use tokio::time::sleep;

const ROUNDS: usize = 20;
const WRITERS: usize = 6;

fn main() -> ExitCode {
    let test = Trial::test("what_was_acknowledged_survives_crashes_of_the_server", || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(survive());
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![test]).exit_code()
}

async fn survive() {
    let mut server = postgres::Server::start();
    let config = Config::from_url(&server.url()).expect("a good URL");
    let stores =
        [Postgres::open(config.clone()).await.expect("opens"), Postgres::open(config).await.expect("opens")];
    let (done, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let write = |writer: usize| {
        let (store, done, failed) = (stores[writer % 2].clone(), Arc::clone(&done), Arc::clone(&failed));
        tokio::spawn(async move {
            let mut acknowledged = 0;
            while !done.load(Ordering::Relaxed) {
                failed.fetch_add(append(&store, writer).await, Ordering::Relaxed);
                acknowledged += 1;
            }
            acknowledged
        })
    };
    let writers: Vec<_> = (0..WRITERS).map(write).collect();
    for round in 0..ROUNDS {
        sleep(Duration::from_millis(150 + 20 * round as u64)).await;
        server = tokio::task::spawn_blocking(move || {
            server.crash();
            server
        })
        .await
        .expect("it comes back");
    }
    sleep(Duration::from_millis(500)).await;
    done.store(true, Ordering::Relaxed);
    let acknowledged = join_all(writers).await;
    assert!(failed.load(Ordering::Relaxed) > 0, "no crash was ever noticed");
    for (writer, acknowledged) in acknowledged.into_iter().enumerate() {
        let acknowledged: u64 = acknowledged.expect("the writer ends");
        let stream = format!("s/{writer}").parse().expect("a name");
        let read = StreamRead { stream, from: ReadFrom::Last, limit: 1 };
        let page = stores[0].stream_read("n", &read).await.expect("read");
        assert_eq!(page.last_seq, acknowledged, "each acknowledged append is there once");
    }
}

/// Appends an event, again and again with the same key until it is known to be done; answers how often that failed.
async fn append(store: &Postgres, writer: usize) -> usize {
    let stream = format!("s/{writer}").parse().expect("a name");
    let events = vec![NewEvent { kind: "said".into(), data: None }];
    let (mut batch, _) = Batch::of("n", StreamAppend { stream, events, expect_seq: None });
    batch.key = Some(BatchKey::for_retry());
    let mut failed = 0;
    loop {
        let error: Error = match store.apply(batch.clone().prepare().expect("good")).await {
            Ok(_) => return failed,
            Err(error) => error,
        };
        assert!(["timeout", "unavailable"].contains(&error.code()), "{error}");
        failed += 1;
        sleep(Duration::from_millis(20)).await;
    }
}
