//! The command line and the server with a Redis server beside the file.

use crate::programs::{LIMIT, Place, Ran, eventually};
use rustix::process::Signal;
use serde_json::Value;
use statehold_conformance::redis::Server;

/// Runs a command with both stores.
async fn told(place: &Place, redis: &str, args: &[&str]) -> Ran {
    let also = |command: &mut std::process::Command| {
        command.env("STATEHOLD_EPHEMERAL", redis);
    };
    place.start_with(args, also).ended().await
}

/// What a page says.
async fn page(url: &str, path: &str) -> String {
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(LIMIT).build().expect("a client");
    client.get(format!("{url}{path}")).send().await.expect("an answer").text().await.expect("a body")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_goes_on_without_the_ephemeral_store_and_says_so() {
    let (place, mut redis) = (Place::new().await, Server::start(&[]));
    let url = redis.url();
    let args = ["serve", "-o", "json", "--listen", "127.0.0.1:0", "--log", "none", "--ephemeral", &url];
    let run = place.start(&args);
    eventually("it listens", || run.printed().contains('\n')).await;
    let said: Value = serde_json::from_str(&run.printed()).expect("one line of JSON");
    let server = said["listening"].as_str().expect("an address").to_owned();
    assert!(page(&server, "/metrics").await.contains("\nstatehold_ephemeral_up 1\n"));

    redis.kill();
    let set = place.start_with(&["result", "set", "42", "1"], |command| {
        command.env("STATEHOLD_STORE", &server);
    });
    set.ended_well().await;
    assert!(page(&server, "/health/ready").await.contains("degraded"));
    let metrics = page(&server, "/metrics").await;
    assert!(metrics.contains("\nstatehold_ephemeral_up 0\n"), "{metrics}");
    assert!(!metrics.contains("\nstatehold_ephemeral_fallbacks_total 0\n"), "{metrics}");

    redis.revive();
    loop {
        if page(&server, "/metrics").await.contains("\nstatehold_ephemeral_up 1\n") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    run.signal(Signal::TERM);
    run.ended_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_the_programs_that_they_run_use_both_stores() {
    let (place, redis) = (Place::new().await, Server::start(&[]));
    let url = redis.url();
    let told = async |args: &[&str]| {
        let ran = told(&place, &url, args).await;
        assert_eq!(ran.code, Some(0), "{args:?}: {ran:?}");
        ran.out
    };
    told(&["task", "create", "k"]).await;
    let program = format!("{} result set 7 1", env!("CARGO_BIN_EXE_statehold"));
    told(&["work", "--until-empty", "--", "sh", "-c", &program]).await;
    assert!(told(&["result", "get", "7"]).await.contains('1'));
    let alone = statehold::Statehold::open(&url).await.expect("it opens");
    assert!(alone.results().get("7").await.expect("read").is_some(), "it is on Redis");
    assert!(place.hold.results().get("7").await.expect("read").is_none(), "it is not in the file");
    assert!(told(&["config"]).await.contains("STATEHOLD_EPHEMERAL"));
    assert!(told(&["health"]).await.contains("short-lived"));
    told(&["doctor"]).await;
    told(&["migrate"]).await;
}
