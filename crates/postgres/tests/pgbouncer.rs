//! The suite through `PgBouncer` in transaction mode, which gives every transaction another session of the server.

mod common;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use statehold_conformance::postgres;
use statehold_conformance::property::OPERATIONS_VARIABLE;
use statehold_core::backend::Push;
use statehold_core::{Backend as _, Clock};
use statehold_postgres::{Config, Postgres};
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// How many random operations there are: each takes several trips through the pooler.
const OPERATIONS: &str = "1000";

fn main() -> ExitCode {
    if std::env::var_os(OPERATIONS_VARIABLE).is_none() {
        let program = std::env::current_exe().expect("this program has a name");
        let mut again = Command::new(program);
        again.args(std::env::args_os().skip(1)).env(OPERATIONS_VARIABLE, OPERATIONS);
        let status = again.status().expect("this program starts again");
        return ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
    }
    postgres::with_server(|| {
        // A pooler of its own: a store that does not know of it leaves its settings in the sessions.
        runtime().block_on(it_says_what_is_off(&Pooler::start().url()));
        let pooler = Pooler::start();
        let url = pooler.url();
        let suite = url.clone();
        let judged = statehold_conformance::run(move |clock| open(suite.clone(), clock));
        runtime().block_on(it_leaves_nothing_in_sessions(&url));
        judged
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn open(url: String, clock: Clock) -> Postgres {
    let config = Config::from_url(&format!("{url}?pooled=true")).expect("a good URL").with_clock(clock);
    Postgres::open(config.with_schema("suite")).await.expect("the store opens")
}

/// Health tells that nobody is woken by other processes, and without `pooled` the error tells what to do.
async fn it_says_what_is_off(url: &str) {
    let store = open(url.to_owned(), Clock::real()).await;
    assert_eq!(store.health().await.expect("healthy").push, Push::PollOnly);
    let mut config = Config::from_url(url).expect("a good URL").with_schema(common::config().schema);
    config.poll_only = true;
    let store = match Postgres::open(config).await {
        Ok(store) => store,
        Err(error) => return assert!(error.hint_text().is_some(), "{error:?}"),
    };
    for round in 0..50 {
        // Several at once, so that the pooler has more than one session to give, and not always as many: it gives them in turn,
        // and each connection might meet the same one every time.
        let asked = join_all((0..=round % 6).map(|_| store.namespaces())).await;
        if let Some(error) = asked.into_iter().find_map(Result::err) {
            assert!(error.hint_text().is_some_and(|hint| hint.contains("pooled=true")), "{error:?}");
            return;
        }
    }
    panic!("the pooler keeps sessions, so that nothing is shown by this test");
}

/// Other users of the pooler find the sessions as they were.
async fn it_leaves_nothing_in_sessions(url: &str) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connected");
    tokio::spawn(connection);
    let mut sessions = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let sql = "SELECT pg_backend_pid(), current_setting('search_path'), current_setting('enable_seqscan'), \
            current_setting('statement_timeout')";
        let found = client.simple_query(sql).await.expect("asked");
        for message in found {
            if let SimpleQueryMessage::Row(row) = message {
                sessions.insert(row.get(0).unwrap_or_default().to_owned());
                let settings: Vec<_> = (1..4).map(|place| row.get(place).unwrap_or_default()).collect();
                assert_eq!(settings, ["\"$user\", public", "on", "0"], "settings were left in a session");
            }
        }
    }
    assert!(sessions.len() > 1, "the pooler has one session only, so that nothing is shown by this test");
}

/// `PgBouncer` in front of the server. It ends with this process.
struct Pooler {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Pooler {
    fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("statehold-pgbouncer-").tempdir().expect("a folder");
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let server: tokio_postgres::Config = postgres::url().parse().expect("the server's URL");
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = 10\nserver_round_robin = 1\nmax_client_conn = 2000\n",
            server.get_ports()[0],
            folder.path().join("users").display()
        );
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        write("users", "\"statehold\" \"\"\n");
        let settings = write("pgbouncer.ini", &settings);
        let readable = Command::new("chmod").args(["-R", "a+rX"]).arg(folder.path()).status();
        assert!(readable.is_ok_and(|status| status.success()), "its user may read its settings");
        let process = launch(&settings);
        let mut pooler = Self { process, port, _folder: folder };
        pooler.wait();
        pooler
    }

    fn url(&self) -> String {
        format!("postgres://statehold@127.0.0.1:{}/postgres", self.port)
    }

    fn wait(&mut self) {
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "PgBouncer does not answer");
            assert!(self.process.try_wait().expect("its state").is_none(), "PgBouncer has ended");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts it as a user without privileges: it refuses to be run by root.
fn launch(settings: &Path) -> Child {
    let debian = PathBuf::from("/usr/sbin/pgbouncer");
    let program = if debian.exists() { debian } else { "pgbouncer".into() };
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL");
    if Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n") {
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    }
    command.arg("--").arg(program).arg("-q").arg(settings);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("setpriv and pgbouncer are installed")
}
