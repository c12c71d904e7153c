//! What a store says about the server it is given.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use statehold_conformance::redis::Server;
use statehold_conformance::server::free_port;
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

/// Runs openssl in a folder.
fn openssl(folder: &Path, words: &str) {
    let made =
        Command::new("openssl").args(words.split(' ')).current_dir(folder).output().expect("openssl runs");
    assert!(made.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&made.stderr));
}

#[tokio::test]
async fn a_server_with_a_certificate_of_our_own_authority_is_trusted_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = "-newkey rsa:2048 -nodes -days 2";
    openssl(folder.path(), &format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=ours"));
    openssl(folder.path(), &format!("req -x509 {key} -keyout other.key -out other.pem -subj /CN=other"));
    let name = "-subj /CN=server -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=CA:FALSE";
    let by = "-CA ca.pem -CAkey ca.key";
    openssl(folder.path(), &format!("req -x509 {key} -keyout server.key -out server.pem {name} {by}"));
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let open_to_all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open_to_all.clone()).expect("the server reads the folder");
    std::fs::set_permissions(path("server.key"), open_to_all).expect("the server reads its key");
    let tls = free_port();
    let (port, certificate, own_key, authority) =
        (tls.to_string(), path("server.pem"), path("server.key"), path("ca.pem"));
    let _server = Server::start(&[
        "--tls-port",
        &port,
        "--tls-auth-clients",
        "no",
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &own_key,
        "--tls-ca-cert-file",
        &authority,
    ]);
    let url = |ca: &str| format!("rediss://127.0.0.1:{tls}/0?ca={}", path(ca));
    let store = open(&url("ca.pem")).await.expect("our authority is trusted");
    assert!(store.health().await.expect("it is well").store.starts_with("rediss://"));
    let error = open(&url("other.pem")).await.expect_err("another authority is not");
    assert_eq!(error.code(), "unavailable", "{error}");
}
