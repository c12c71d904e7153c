//! How connections are made: encrypted as asked, with a password that may change, and without a secret in anything that
//! is shown.

use std::fmt::Write as _;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use statehold_conformance::postgres::{self, Server, Setup};
use statehold_core::command::{EntrySet, TaskCreate};
use statehold_core::{Backend, Batch, Error, Json, Result};
use statehold_postgres::{Config, Postgres};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{Client, NoTls};

/// How long anything may take. It only keeps a broken store from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    postgres::with_server(|| {
        let trials = vec![
            test("each_sslmode_asks_as_much_of_a_server_as_libpq_does", sslmodes),
            test("a_server_without_tls_is_refused_by_whoever_requires_it", no_tls),
            test("a_password_that_changes_is_read_anew", password_changes),
            test("a_wrong_password_is_told_and_not_asked_again_and_again", wrong_password),
            test("nothing_secret_is_shown", nothing_secret),
            test("what_cannot_be_reached_is_told_with_a_hint", unreachable),
            test("parameters_of_the_url_are_kept", parameters),
        ];
        libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
    })
}

fn test<F: Future<Output = ()> + 'static>(name: &str, run: fn() -> F) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let judged = runtime.block_on(async { timeout(2 * PATIENCE, run()).await });
        judged.map_err(|_| "it does not end".into())
    })
}

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connected");
    tokio::spawn(connection);
    client
}

async fn open(url: &str) -> Result<Postgres> {
    Postgres::open(Config::from_url(url)?).await
}

async fn create(store: &Postgres) -> Result<()> {
    let (batch, _) = Batch::of("n", TaskCreate::new("k"));
    store.apply(batch.prepare()?).await.map(drop)
}

/// An authority, with its certificate in a file.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let file = folder.join(format!("{name}.pem"));
        std::fs::write(&file, params.self_signed(&key).expect("signed").pem()).expect("written");
        Self { issuer: Issuer::new(params, key), file }
    }

    /// A certificate for a host, and its key.
    fn sign(&self, host: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
        (params.signed_by(&key, &self.issuer).expect("signed").pem(), key.serialize_pem())
    }
}

/// A server with a certificate for `localhost`, which user `hidden` must use.
fn tls_server(authority: &Authority) -> Server {
    let (certificate, key) = authority.sign("localhost");
    Server::start_with(&Setup {
        settings: "ssl = on\nlisten_addresses = 'localhost'".into(),
        access: "hostssl all hidden 127.0.0.1/32 trust\nhostnossl all hidden 127.0.0.1/32 reject".into(),
        files: vec![("server.crt", certificate), ("server.key", key)],
    })
}

async fn sslmodes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (own, other) = (Authority::new(folder.path(), "own"), Authority::new(folder.path(), "other"));
    let server = tls_server(&own);
    let admin = client(&server.url()).await;
    admin.batch_execute("CREATE ROLE hidden LOGIN SUPERUSER").await.expect("a role");
    let (own, other) = (own.file.display().to_string(), other.file.display().to_string());
    let own = format!("&sslrootcert={own}");
    let other = format!("&sslrootcert={other}");
    // Who connects to which host, how, and whether that is encrypted; none if it is refused.
    let cases = [
        ("statehold", "localhost", "disable", "", Some(false)),
        ("statehold", "localhost", "allow", "", Some(false)),
        ("hidden", "localhost", "disable", "", None),
        ("hidden", "localhost", "allow", "", Some(true)),
        ("statehold", "localhost", "prefer", "", Some(true)),
        ("statehold", "127.0.0.1", "require", "", Some(true)),
        ("statehold", "127.0.0.1", "require", own.as_str(), Some(true)),
        ("statehold", "127.0.0.1", "require", other.as_str(), None),
        ("statehold", "127.0.0.1", "verify-ca", own.as_str(), Some(true)),
        ("statehold", "127.0.0.1", "verify-ca", other.as_str(), None),
        ("statehold", "localhost", "verify-ca", "", None),
        ("statehold", "localhost", "verify-full", own.as_str(), Some(true)),
        ("statehold", "localhost", "verify-full", other.as_str(), None),
        ("statehold", "127.0.0.1", "verify-full", own.as_str(), None),
        ("statehold", "localhost", "verify-full", "", None),
        ("statehold", "localhost", "verify-full", "&sslrootcert=system", None),
    ];
    for (number, (user, host, mode, authority, expected)) in cases.into_iter().enumerate() {
        let (port, case) = (server.port(), format!("{user} at {host} with {mode}{authority}"));
        let name = format!("case_{number}");
        let place = format!("postgres://{user}@{host}:{port}/postgres");
        let url = format!("{place}?sslmode={mode}{authority}&application_name={name}");
        match (open(&url).await, expected) {
            (Ok(store), Some(encrypted)) => {
                create(&store).await.expect("created");
                assert_eq!(encryption(&admin, &name).await, encrypted, "{case}");
            }
            (Err(error), None) => {
                assert_eq!(error.code(), "unavailable", "{case}: {error}");
                assert!(error.hint_text().is_some(), "{case}: {error}");
            }
            (opened, expected) => panic!("{case}: {opened:?} instead of {expected:?}"),
        }
    }
}

/// Whether all connections of a name are encrypted.
async fn encryption(admin: &Client, name: &str) -> bool {
    let sql = "SELECT ssl, count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
        WHERE application_name = $1 GROUP BY ssl";
    let found = admin.query(sql, &[&name]).await.expect("asked");
    assert_eq!(found.len(), 1, "the connections of {name} are of one kind");
    found[0].get(0)
}

async fn no_tls() {
    let url = postgres::url();
    for mode in ["require", "verify-ca", "verify-full"] {
        let error = open(&format!("{url}?schema=no_tls&sslmode={mode}")).await.expect_err("refused");
        assert_eq!(error.code(), "unavailable", "{mode}: {error}");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("ssl = on")), "{mode}: {error:?}");
    }
    for mode in ["disable", "allow", "prefer"] {
        let store = open(&format!("{url}?schema=no_tls&sslmode={mode}")).await.expect("opened");
        create(&store).await.expect("created");
    }
    assert_eq!(Config::from_url(&format!("{url}?sslmode=sometimes")).expect_err("refused").code(), "invalid");
    let missing = format!("{url}?sslmode=verify-full&sslrootcert=/nowhere/ca.pem");
    assert_eq!(Config::from_url(&missing).expect_err("refused").code(), "invalid");
}

/// A server that asks user `keeper` for a password, and what it costs to ask again.
struct Guarded {
    server: Server,
    admin: Client,
    folder: TempDir,
}

impl Guarded {
    async fn start() -> Self {
        let access = "host all keeper 127.0.0.1/32 scram-sha-256".to_owned();
        let server = Server::start_with(&Setup { access, ..Setup::default() });
        let admin = client(&server.url()).await;
        admin.batch_execute("CREATE ROLE keeper LOGIN SUPERUSER").await.expect("a role");
        Self { server, admin, folder: tempfile::tempdir().expect("a folder") }
    }

    /// Changes the password at the server and ends all connections.
    async fn change(&self, password: &str) {
        let change = format!("ALTER ROLE keeper PASSWORD '{password}'");
        self.admin.batch_execute(&change).await.expect("changed");
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'keeper'";
        self.admin.batch_execute(end).await.expect("ended");
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("password")
    }

    /// A file with a line for each time that the command ran.
    fn asked(&self) -> PathBuf {
        self.folder.path().join("asked")
    }

    fn times_asked(&self) -> usize {
        std::fs::read_to_string(self.asked()).map_or(0, |lines| lines.lines().count())
    }

    /// A URL with a command that prints the password and counts.
    fn command_url(&self) -> String {
        let command = format!("echo>>{}; cat {}", self.asked().display(), self.file().display());
        let command = command.replace(' ', "%20").replace('&', "%26");
        format!("{}?password_command={command}", self.url(""))
    }

    fn url(&self, password: &str) -> String {
        let user = if password.is_empty() { "keeper".into() } else { format!("keeper:{password}") };
        self.server.url().replace("statehold@", &format!("{user}@"))
    }
}

async fn password_changes() {
    let guarded = Guarded::start().await;
    guarded.change("first").await;
    std::fs::write(guarded.file(), "first\n").expect("written");
    let by_file = format!("{}?password_file={}", guarded.url(""), guarded.file().display());
    let stores = [
        open(&by_file).await.expect("opened by the file"),
        open(&guarded.command_url()).await.expect("opened by the command"),
    ];
    for store in &stores {
        create(store).await.expect("created");
    }
    let before = guarded.times_asked();
    std::fs::write(guarded.file(), "second").expect("written");
    guarded.change("second").await;
    for store in &stores {
        eventually(async || create(store).await).await;
        eventually(async || store.entry_get("n", "e").await.map(drop)).await;
    }
    assert!(guarded.times_asked() > before, "the command was not run again");
}

/// Tries until it succeeds: a connection that was ended is noticed when it is used.
async fn eventually(attempt: impl AsyncFn() -> Result<()>) {
    let began = Instant::now();
    while let Err(error) = attempt().await {
        assert!(began.elapsed() < PATIENCE, "it does not go on: {error}");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn wrong_password() {
    let guarded = Guarded::start().await;
    guarded.change("right").await;
    let error = open(&guarded.url("wrong")).await.expect_err("refused");
    assert_eq!(error.code(), "unavailable", "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("password")), "{error:?}");
    let error = open(&guarded.url("")).await.expect_err("refused");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("password_file")), "{error:?}");
    let error = open(&format!("{}?password_command=false", guarded.url(""))).await.expect_err("refused");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("password_command")), "{error:?}");
    let error = open(&format!("{}?password_file=/nowhere", guarded.url(""))).await.expect_err("refused");
    assert!(error.to_string().contains("/nowhere"), "{error:?}");
    let twice = format!("{}?password_file=/nowhere", guarded.url("right"));
    assert_eq!(Config::from_url(&twice).expect_err("refused").code(), "invalid");

    std::fs::write(guarded.file(), "right").expect("written");
    let store = open(&guarded.command_url()).await.expect("opened");
    create(&store).await.expect("created");
    guarded.change("changed").await;
    let before = guarded.times_asked();
    let mut refused = None;
    eventually(async || Ok(())).await;
    for _ in 0..5 {
        if let Err(error) = create(&store).await {
            refused = Some(error);
        }
        sleep(Duration::from_millis(400)).await;
    }
    let refused = refused.expect("the new password was not asked for");
    assert!(refused.to_string().contains("refused the login"), "{refused}");
    // Five for the callers, and one or two each for the listener and the notifier.
    let asked = guarded.times_asked() - before;
    assert!(asked <= 10, "the server was asked {asked} times");
}

/// All that can be seen of an error.
fn all_of(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {error:#?} {:?} ", error.hint_text());
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        write!(text, "{cause} {cause:?} ").expect("written");
        source = cause.source();
    }
    text
}

async fn nothing_secret() {
    const SECRET: &str = "s3cr3t";
    let guarded = Guarded::start().await;
    guarded.change(SECRET).await;
    let (good, none) = (guarded.url(SECRET), guarded.url(""));
    let wrong = guarded.url(&format!("not-{SECRET}"));
    let command = format!("{none}?password_command=echo%20{SECRET}");
    let mut seen = String::new();
    for url in [good.clone(), format!("{none}?password={SECRET}"), command] {
        let config = Config::from_url(&url).expect("a good URL");
        write!(seen, "{config:?} {config:#?} {config} ").expect("written");
        let store = Postgres::open(config).await.expect("opened");
        write!(seen, "{store:?} {:?} ", store.health().await.expect("healthy")).expect("written");
        create(&store).await.expect("created");
    }
    let broken = [
        wrong.clone(),
        wrong.replace("/postgres", "/nowhere"),
        good.replace("/postgres", "/nowhere"),
        good.replace("127.0.0.1", "127.0.0.9"),
        format!("{good}?sslmode=require"),
        format!("{good}?port=many"),
        format!("{good}?colour=red"),
        format!("{good}?password_file=/nowhere"),
        format!("{none}?password={SECRET}&connect_timeout=soon"),
        format!("{none}?password_command=false%20{SECRET}"),
        format!("{none}?password_command={SECRET}%zz"),
        good.replace("postgres://", "postgres:/"),
        good.replace(':', "%3"),
    ];
    for url in broken {
        let error = open(&url).await.expect_err("refused");
        seen.push_str(&all_of(&error));
    }
    // A store that loses its login while it is open.
    let store = open(&good).await.expect("opened");
    guarded.change("another").await;
    let error = create(&store).await.expect_err("refused");
    seen.push_str(&all_of(&error));
    let error = store.health().await.expect_err("refused");
    seen.push_str(&all_of(&error));
    assert!(seen.len() > 2000, "too little was looked at");
    assert!(!seen.contains(SECRET), "a secret is shown: {seen}");
}

async fn unreachable() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it").port();
    let away = open(&format!("postgres://me@127.0.0.1:{port}/db")).await.expect_err("refused");
    assert_eq!(away.code(), "unavailable", "{away}");
    assert!(away.hint_text().is_some_and(|hint| hint.contains("server runs")), "{away:?}");
    let missing = postgres::url().replace("/postgres", "/nowhere");
    let missing = open(&missing).await.expect_err("refused");
    assert!(missing.to_string().contains("nowhere"), "{missing}");
    assert!(missing.hint_text().is_some_and(|hint| hint.contains("createdb")), "{missing:?}");
    // Someone who takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("it").port();
    let url = format!("postgres://me@127.0.0.1:{port}/db?connect_timeout=1");
    let error = open(&url).await.expect_err("refused");
    assert_eq!(error.code(), "unavailable", "{error}");
    drop(silent);
}

async fn parameters() {
    let url = postgres::url();
    for (query, word) in [
        ("colour=red", "sslmode"),
        ("pool_max=2", "3"),
        ("pool_max=many", "3"),
        ("poll_only=perhaps", "true"),
        ("statement_timeout=long", "20s"),
        ("lock_timeout=0", "20s"),
        ("schema=Quoted", "lowercase"),
        ("schema=a%zz", "%25"),
    ] {
        let error = Config::from_url(&format!("{url}?{query}")).expect_err("refused");
        assert_eq!(error.code(), "invalid", "{query}: {error}");
        assert!(error.hint_text().is_some_and(|hint| hint.contains(word)), "{query}: {error:?}");
    }
    let query = "schema=par%61meters&pool_max=5&poll_only=true&statement_timeout=1min&lock_timeout=1500\
        &application_name=parameters%40test&connect_timeout=7";
    let config = Config::from_url(&format!("{url}?{query}")).expect("a good URL");
    assert_eq!((config.schema.as_str(), config.readers, config.poll_only), ("parameters", 3, true));
    let store = Postgres::open(config).await.expect("opened");
    assert_eq!(store.health().await.expect("healthy").push, statehold_core::backend::Push::PollOnly);
    let admin = client(&url).await;
    // What the server was told is what counts: a statement that waits for a lock gives up after it.
    let locked = "BEGIN; LOCK TABLE parameters.entries";
    create(&store).await.expect("created");
    admin.batch_execute(locked).await.expect("locked");
    let (batch, _) = Batch::of("n", EntrySet::new("e", Json::null()));
    let (set, waiting) = tokio::join!(store.apply(batch.prepare().expect("good")), async {
        let began = Instant::now();
        loop {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'parameters@test' \
                AND wait_event_type = 'Lock'";
            let waiting: i64 = client(&url).await.query_one(sql, &[]).await.expect("asked").get(0);
            if waiting > 0 || began.elapsed() > PATIENCE {
                sleep(Duration::from_secs(2)).await;
                admin.batch_execute("ROLLBACK").await.expect("freed");
                return waiting;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waiting > 0, "nobody waited for the lock");
    set.expect("it goes on when the lock is free");
}
