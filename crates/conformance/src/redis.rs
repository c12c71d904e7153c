//! A Redis server for one test program: in a folder of its own, run by a user without privileges, gone afterwards.

#![expect(clippy::missing_panics_doc, reason = "a test that cannot go on fails")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use statehold_core::model::TaskId;

use crate::server::{self, free_port, give_away, unprivileged};

/// The environment variable with the server's URL.
pub const URL_VARIABLE: &str = "STATEHOLD_TEST_REDIS";

/// The environment variable with the program of the server, if that is not `redis-server`.
const PROGRAM_VARIABLE: &str = "STATEHOLD_TEST_REDIS_SERVER";

/// The URL of the server.
pub fn url() -> String {
    std::env::var(URL_VARIABLE).expect("the server's URL is in the environment")
}

/// The same with a prefix of its own: a store that nobody else has.
pub fn fresh_url() -> String {
    format!("{}?prefix=test-{}", url(), TaskId::generate())
}

/// Runs the tests beside a server.
pub fn with_server(tests: impl FnOnce() -> ExitCode) -> ExitCode {
    let start = || {
        let server = Server::start(&[]);
        let url = server.url();
        (server, url)
    };
    server::beside(URL_VARIABLE, start, tests)
}

/// Runs the tests beside a cluster of three servers, of which the URL names the first.
pub fn with_cluster(tests: impl FnOnce() -> ExitCode) -> ExitCode {
    let start = || {
        let mut servers = [(); 3].map(|()| Server::in_a_cluster());
        let addresses = servers.each_ref().map(|server| format!("127.0.0.1:{}", server.port));
        let made = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(&addresses)
            .args(["--cluster-replicas", "0", "--cluster-yes"])
            .output()
            .expect("redis-cli runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        servers.iter_mut().for_each(Server::wait_for_cluster);
        let url = servers[0].url();
        (servers, url)
    };
    server::beside(URL_VARIABLE, start, tests)
}

/// A running server.
pub struct Server {
    process: Child,
    port: u16,
    settings: Vec<String>,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server that keeps every write, unless the settings say otherwise.
    pub fn start(settings: &[&str]) -> Self {
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
    fn in_a_cluster() -> Self {
        let bus = free_port().to_string();
        Self::start(&["--cluster-enabled", "yes", "--cluster-port", &bus])
    }

    /// Stops it as a crash does, without a word to anyone.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it again on what it has on its disk.
    pub fn revive(&mut self) {
        self.process = launch(self.folder.path(), self.port, &self.settings);
        self.wait();
    }

    /// Where it keeps its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    fn wait(&mut self) {
        server::wait(&mut self.process, || is_ready(self.port));
    }

    /// Waits until it knows the whole cluster.
    fn wait_for_cluster(&mut self) {
        let port = self.port.to_string();
        server::wait(&mut self.process, || {
            let said = Command::new("redis-cli").args(["-p", &port, "CLUSTER", "INFO"]).output();
            let said = said.expect("redis-cli runs");
            String::from_utf8_lossy(&said.stdout).contains("cluster_state:ok")
        });
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
    let program = std::env::var(PROGRAM_VARIABLE).unwrap_or_else(|_| "redis-server".to_owned());
    let mut command = unprivileged(program);
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
        .args(["--appendfsync", "always", "--logfile"])
        .arg(log)
        .arg("--dir")
        .arg(folder)
        .args(settings)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    server::launch(command)
}
