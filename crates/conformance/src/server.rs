//! What the servers of tests have in common: run by a user without privileges, gone with the test that started them.

#![expect(clippy::missing_panics_doc, reason = "a test that cannot go on fails")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Runs the tests beside a server: the program starts itself once more with the server's URL in that environment
/// variable, so that the server is stopped however the tests end, and so that the processes which the tests start
/// find it too.
pub(crate) fn beside<S>(
    variable: &str,
    start: impl FnOnce() -> (S, String),
    tests: impl FnOnce() -> ExitCode,
) -> ExitCode {
    if std::env::var_os(variable).is_some() {
        return tests();
    }
    let (server, url) = start();
    let program = std::env::current_exe().expect("this program has a name");
    let status = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(variable, url)
        .status()
        .expect("this program starts again");
    drop(server);
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Waits until a server answers.
pub(crate) fn wait(process: &mut Child, answers: impl Fn() -> bool) {
    let began = Instant::now();
    while !answers() {
        assert!(began.elapsed() < Duration::from_secs(60), "the server does not answer");
        assert!(process.try_wait().expect("its state").is_none(), "the server has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a server. The kernel ends it with the thread that started it, and the threads of a runtime come and go:
/// so all are started by one that stays.
pub(crate) fn launch(command: Command) -> Child {
    type Order = (Command, Sender<Child>);
    static STARTER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
        let (orders, waiting) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, started) in waiting {
                let child = command.spawn().expect("the server starts");
                let _ = started.send(child);
            }
        });
        Mutex::new(orders)
    });
    let (started, child) = channel();
    STARTER.lock().expect("unharmed").send((command, started)).expect("the starter lives");
    child.recv().expect("the server has started")
}

/// A program that is not run by root; run by root, the tests give it to another user.
pub(crate) fn unprivileged(program: impl AsRef<Path>) -> Command {
    if !is_root() {
        return Command::new(program.as_ref());
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--pdeathsig", "KILL", "--"]);
    command.arg(program.as_ref());
    command
}

/// Gives a file or folder to the user that runs the servers.
pub(crate) fn give_away(path: &Path) {
    if is_root() {
        let given = Command::new("chown").arg("nobody:nogroup").arg(path).status();
        assert!(given.is_ok_and(|status| status.success()), "it is given to the server's user");
    }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n")
}

/// A port that nobody listens at.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}
