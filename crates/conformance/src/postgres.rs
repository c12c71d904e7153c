//! A PostgreSQL server for one test program: in a folder of its own, run by a user without privileges, gone afterwards.

#![expect(clippy::missing_panics_doc, reason = "a test that cannot go on fails")]

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use crate::server::{self, free_port, give_away, unprivileged};

/// The environment variable with the server's URL.
pub const URL_VARIABLE: &str = "STATEHOLD_TEST_POSTGRES";

/// The URL of the server.
pub fn url() -> String {
    std::env::var(URL_VARIABLE).expect("the server's URL is in the environment")
}

/// Runs the tests beside a server. It does not wait for the disk: nothing that these tests do ends the machine, and
/// what a server that is killed has written is safe with the kernel.
pub fn with_server(tests: impl FnOnce() -> ExitCode) -> ExitCode {
    let start = || {
        let server = Server::start_with(&Setup { settings: "fsync = off".to_owned(), ..Setup::default() });
        let url = server.url();
        (server, url)
    };
    server::beside(URL_VARIABLE, start, tests)
}

/// A running server.
pub struct Server {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
}

/// What is special about a server.
#[derive(Debug, Default)]
pub struct Setup {
    /// Lines for `postgresql.conf`.
    pub settings: String,
    /// Lines before all others in `pg_hba.conf`.
    pub access: String,
    /// Files in its folder, which only it may read.
    pub files: Vec<(&'static str, String)>,
}

impl Setup {
    /// Puts everything into the folder of a cluster.
    fn write(&self, data: &Path) {
        let change = |name: &str, change: &dyn Fn(String) -> String| {
            let path = data.join(name);
            let text = std::fs::read_to_string(&path).expect("initdb made it");
            std::fs::write(path, change(text)).expect("it can be changed");
        };
        change("postgresql.conf", &|text| format!("{text}\n{}\n", self.settings));
        change("pg_hba.conf", &|text| format!("{}\n{text}", self.access));
        for (name, text) in &self.files {
            let path = data.join(name);
            std::fs::write(&path, text).expect("written");
            let mode = Command::new("chmod").arg("600").arg(&path).status();
            assert!(mode.is_ok_and(|status| status.success()), "only its owner may read {name}");
            give_away(&path);
        }
    }
}

impl Server {
    /// Makes a cluster and starts a server on it.
    pub fn start() -> Self {
        Self::start_with(&Setup::default())
    }

    /// The same with something special.
    pub fn start_with(setup: &Setup) -> Self {
        let folder = tempfile::Builder::new().prefix("statehold-postgres-").tempdir().expect("a folder");
        let data = folder.path().join("data");
        std::fs::create_dir(&data).expect("a folder for the cluster");
        give_away(folder.path());
        give_away(&data);
        let made = unprivileged(program("initdb"))
            .args([
                "--auth=trust",
                "--username=statehold",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
                "-D",
            ])
            .arg(&data)
            .output()
            .expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        setup.write(&data);
        let port = free_port();
        let process = launch(folder.path(), port);
        let mut server = Self { process, port, folder };
        server.wait();
        server
    }

    /// Stops it as a crash does, without a word to anyone, and starts it again.
    pub fn crash(&mut self) {
        self.kill();
        self.process = launch(self.folder.path(), self.port);
        self.wait();
    }

    fn kill(&mut self) {
        let _ = Command::new("kill").args(["-QUIT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder with its socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("postgres://statehold@127.0.0.1:{}/postgres", self.port)
    }

    /// Waits until it answers, and lets its log flow away.
    fn wait(&mut self) {
        let mut log = self.process.stderr.take().expect("its log is a pipe");
        server::wait(&mut self.process, || answers(self.port));
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while log.read(&mut some).is_ok_and(|count| count > 0) {}
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // What it has is thrown away, so it need not put it in order first.
        self.kill();
    }
}

fn launch(folder: &Path, port: u16) -> Child {
    let mut command = unprivileged(program("postgres"));
    command
        .arg("-D")
        .arg(folder.join("data"))
        .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"])
        .args(["-c", "max_connections=200", "-k"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    server::launch(command)
}

fn answers(port: u16) -> bool {
    let program = program("pg_isready");
    let asked = Command::new(program).args(["-h", "127.0.0.1", "-p", &port.to_string()]).output();
    asked.is_ok_and(|answer| answer.status.success())
}

/// A program of PostgreSQL: on the path, or where Debian puts it.
fn program(name: &str) -> PathBuf {
    let versions =
        (14..=30).rev().map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin/{name}")));
    versions.into_iter().find(|path| path.exists()).unwrap_or_else(|| PathBuf::from(name))
}
