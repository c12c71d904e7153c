//! Other processes of a test: the same program in another role, which can be killed, frozen and talked to.

#![expect(clippy::missing_panics_doc, reason = "a test that cannot go on fails")]

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use futures_util::future::lazy;
use libtest_mimic::{Arguments, Trial};

/// How long a process may be silent. It only keeps a broken store from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// The variable that makes this program another process of a test instead of the tests.
const ROLE: &str = "STATEHOLD_TEST_ROLE";

/// Functions by their names: tests, or roles of other processes.
#[macro_export]
macro_rules! named {
    ($($function:ident),* $(,)?) => { &[$((stringify!($function), $function as fn())),*] };
}

/// Runs the tests, or, in a process that a test started, its role.
pub fn run(tests: &'static [(&'static str, fn())], roles: &[(&str, fn())]) -> ExitCode {
    if let Some(role) = std::env::var_os(ROLE) {
        let found = roles.iter().find(|(name, _)| role == *name);
        found.expect("the role is known").1();
        return ExitCode::SUCCESS;
    }
    let trials = tests.iter().map(|(name, test)| {
        Trial::test(*name, || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// Another process: this program in a role. It is killed with its handle.
pub struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts a role.
    pub fn start(role: &str, variables: &[(&str, &OsStr)]) -> Self {
        Self::spawn(Command::new(this_program()), role, variables)
    }

    /// Starts a role behind another program, such as one that makes a namespace.
    pub fn start_behind(wrapper: &[&str], role: &str, variables: &[(&str, &OsStr)]) -> Self {
        let (program, arguments) = wrapper.split_first().expect("a program");
        let mut command = Command::new(program);
        command.args(arguments).arg(this_program());
        Self::spawn(command, role, variables)
    }

    fn spawn(mut command: Command, role: &str, variables: &[(&str, &OsStr)]) -> Self {
        command.env(ROLE, role).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?} cannot be started: {e}"));
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(std::io::Result::ok) {
                let _ = sender.send(line);
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines }
    }

    /// The next line that it says; none once it has ended.
    pub fn next_line(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the other process says nothing for {PATIENCE:?}"),
        }
    }

    /// A line that must come.
    pub fn line(&mut self) -> String {
        self.next_line().unwrap_or_else(|| panic!("the other process has ended: {:?}", self.child.wait()))
    }

    /// Reads a line that must be this.
    pub fn expect(&mut self, line: &str) {
        assert_eq!(self.line(), line, "the other process says something else");
    }

    /// Says a line to it.
    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input is open");
        writeln!(input, "{line}").expect("the other process listens");
    }

    /// Says a line to it when it is waited for.
    pub fn told(&mut self, line: &str) -> impl Future<Output = statehold_core::Result<()>> {
        lazy(move |_| {
            self.tell(line);
            Ok(())
        })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops it where it is, as a machine that hangs does.
    pub fn freeze(&self) {
        send_signal(self.id(), "STOP");
    }

    /// Stops it where it is, and lets it go on after a while. That depends on no store: one that stands still in the
    /// middle of a commit keeps all others from writing.
    pub fn freeze_for(&self, length: Duration) -> impl Future<Output = ()> + use<> {
        self.freeze();
        let id = self.id();
        async move {
            tokio::time::sleep(length).await;
            send_signal(id, "CONT");
        }
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        send_signal(self.id(), "CONT");
    }

    /// How it ended, if it has.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("its end is known")
    }

    /// Kills it with SIGKILL and waits for its end. What it said before can still be read.
    pub fn kill(&mut self) -> ExitStatus {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("its end is known")
    }

    /// Closes its input, by which it knows that it shall end, and requires that it ends well.
    pub fn finish(mut self) -> Vec<String> {
        drop(self.input.take());
        let lines: Vec<_> = std::iter::from_fn(|| self.next_line()).collect();
        let status = self.child.wait().expect("its end is known");
        assert!(status.success(), "the other process failed: {status}; it said {lines:?}");
        lines
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("the path of this program")
}

fn send_signal(id: u32, signal: &str) {
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(id.to_string()).status();
    assert!(sent.expect("kill can be started").success(), "SIG{signal} reaches the other process");
}

/// A variable that the parent gave.
pub fn given(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| panic!("{name} is given"))
}

/// Says a line to the parent, at once.
pub fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).expect("the parent listens");
}

/// The next line that the parent says; none once it has nothing more to say.
pub fn hear() -> Option<String> {
    std::io::stdin().lines().next().map(|line| line.expect("a line"))
}
