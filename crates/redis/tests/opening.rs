//! What a store says about the server it is given.

mod server;

use server::Server;
use statehold_core::backend::{Durability, Push};
use statehold_core::command::TaskCreate;
use statehold_core::{Backend, Batch, Error};
use statehold_redis::{Config, Redis};

async fn open(url: &str) -> Result<Redis, Error> {
    Redis::open(Config::from_url(url).expect("a good URL")).await
}

#[tokio::test]
async fn a_wrong_password_is_told_without_the_password() {
    let server = Server::start(&["--requirepass", "right"]);
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{}/0", server.port());
    open(&url("right")).await.expect("the right password opens");
    for wrong in [url("wr0ng-secret"), server.url()] {
        let error = open(&wrong).await.expect_err("a wrong password does not open");
        assert_eq!(error.code(), "unavailable", "{error}");
        assert!(error.to_string().contains("password"), "{error}");
        assert!(!format!("{error:?}").contains("wr0ng-secret"), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_with_the_setting_to_change() {
    let server = Server::start(&["--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"]);
    let error = open(&server.url()).await.expect_err("it is refused");
    assert_eq!(error.code(), "unsupported", "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("maxmemory-policy noeviction")), "{error}");
    let config = Config::from_url(&server.url()).expect("a good URL").ephemeral();
    let store = Redis::open(config).await.expect("what may be lost may be evicted");
    let notes = store.health().await.expect("it is well").notes;
    assert!(notes.iter().any(|note| note.contains("allkeys-lru")), "{notes:?}");
}

#[tokio::test]
async fn health_says_what_the_server_promises() {
    let promises = [
        (vec![], Durability::Durable),
        (vec!["--appendfsync", "everysec"], Durability::BoundedLoss),
        (vec!["--appendonly", "no"], Durability::None),
    ];
    for (settings, durability) in promises {
        let server = Server::start(&settings);
        let store = open(&server.url()).await.expect("it opens");
        let health = store.health().await.expect("it is well");
        assert_eq!(health.durability, durability, "{settings:?}");
        assert_eq!(health.notes.is_empty(), durability == Durability::Durable, "{:?}", health.notes);
        assert!(!health.store.contains('@'), "{}", health.store);
    }
}

#[tokio::test]
async fn wakes_are_heard_once_the_store_is_open() {
    let server = Server::start(&[]);
    let store = open(&server.url()).await.expect("it opens");
    let began = std::time::Instant::now();
    while store.health().await.expect("it is well").push != Push::Ok {
        assert!(began.elapsed().as_secs() < 60, "it never hears itself");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_replica_that_takes_no_writes_is_told() {
    let primary = Server::start(&[]);
    let port = primary.port().to_string();
    let replica = Server::start(&["--replicaof", "127.0.0.1", &port]);
    let error = open(&replica.url()).await.expect_err("a replica does not open");
    assert_eq!(error.code(), "unavailable", "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("primary")), "{error}");
}

#[tokio::test]
async fn a_primary_that_becomes_a_replica_is_told() {
    let (server, other) = (Server::start(&[]), Server::start(&[]));
    let store = open(&server.url()).await.expect("it opens");
    let client = redis::Client::open(server.url()).expect("a client");
    let mut raw = client.get_multiplexed_async_connection().await.expect("a connection");
    let demote = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(other.port()).clone();
    demote.exec_async(&mut raw).await.expect("it is demoted");
    let (batch, _) = Batch::of("default", TaskCreate::new("k"));
    let error = store.apply(batch.prepare().expect("good")).await.expect_err("a replica takes no writes");
    assert_eq!(error.code(), "unavailable", "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("primary")), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told() {
    let server = Server::start(&[]);
    let url = server.url();
    drop(server);
    let error = open(&url).await.expect_err("nobody answers");
    assert_eq!(error.code(), "unavailable", "{error}");
}

#[test]
fn a_prefix_cannot_leave_its_braces() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let config = Config::from_url("redis://127.0.0.1:1").expect("a good URL").with_prefix("a}b");
    let error = runtime.block_on(Redis::open(config)).expect_err("it is refused");
    assert_eq!(error.code(), "invalid", "{error}");
}
