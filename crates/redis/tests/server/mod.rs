//! A Redis server for one test program: in a folder of its own, run by a user without privileges, gone afterwards.
//!
//! The program starts itself once more with the address of the server in its environment, so that the server is
//! stopped however the tests end, and so that the processes which the tests start find it too.

#![allow(dead_code, reason = "each test program uses its part of it")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use statehold_core::model::TaskId;
use statehold_redis::Config;

/// The environment variable with the server's URL.
pub(crate) const URL_VARIABLE: &str = "STATEHOLD_TEST_REDIS";

/// The URL of the server.
pub(crate) fn url() -> String {
    std::env::var(URL_VARIABLE).expect("the server's URL is in the environment")
}

/// Runs the tests beside a server.
pub(crate) fn with_server(tests: impl FnOnce() -> ExitCode) -> ExitCode {
    if std::env::var_os(URL_VARIABLE).is_some() {
        return tests();
    }
    let server = Server::start(&[]);
    let program = std::env::current_exe().expect("this program has a name");
    let status = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(URL_VARIABLE, server.url())
        .status()
        .expect("this program starts again");
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// The settings of a store with a prefix of its own.
pub(crate) fn config() -> Config {
    let prefix = format!("test-{}", TaskId::generate());
    Config::from_url(&url()).expect("a good URL").with_prefix(prefix)
}

/// A running server.
pub(crate) struct Server {
    process: Child,
    port: u16,
    settings: Vec<String>,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server that keeps every write, unless the settings say otherwise.
    pub(crate) fn start(settings: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("statehold-redis-").tempdir().expect("a folder");
        give_away(folder.path());
        let settings: Vec<_> = settings.iter().map(|word| (*word).to_owned()).collect();
        let port = free_port();
        let process = launch(folder.path(), port, &settings);
        let mut server = Self { process, port, settings, folder };
        server.wait();
        server
    }

    /// Starts a server that is to be a member of a cluster.
    pub(crate) fn in_a_cluster() -> Self {
        let bus = free_port().to_string();
        Self::start(&["--cluster-enabled", "yes", "--cluster-port", &bus])
    }

    /// Stops it as a crash does, without a word to anyone.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it again on what it has on its disk.
    pub(crate) fn revive(&mut self) {
        self.process = launch(self.folder.path(), self.port, &self.settings);
        self.wait();
    }

    /// Where it keeps its files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    fn wait(&mut self) {
        let began = Instant::now();
        while !is_ready(self.port) {
            assert!(began.elapsed() < Duration::from_secs(60), "the server does not answer");
            assert!(self.process.try_wait().expect("its state").is_none(), "the server has ended");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether a server answers and has loaded what it keeps. One that wants TLS or a password answers something else.
fn is_ready(port: u16) -> bool {
    let ping = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 8];
        let _ = stream.read(&mut answer);
        std::io::Result::Ok(answer)
    };
    ping().is_ok_and(|answer| answer != *b"-LOADING")
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(folder: &Path, port: u16, settings: &[String]) -> Child {
    let log = folder.join("log");
    unprivileged("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
        .args(["--appendfsync", "always", "--logfile"])
        .arg(log)
        .arg("--dir")
        .arg(folder)
        .args(settings)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server starts")
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n")
}

/// A program that is not run by root.
fn unprivileged(name: &str) -> Command {
    if !is_root() {
        return Command::new(name);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--pdeathsig", "KILL", "--", name]);
    command
}

fn give_away(folder: &Path) {
    if is_root() {
        let given = Command::new("chown").arg("nobody:nogroup").arg(folder).status();
        assert!(given.is_ok_and(|status| status.success()), "the folder is given to the server's user");
    }
}

/// A port that nobody listens at.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}
