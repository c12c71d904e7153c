//! Running programs: found before they are needed, stopped as a whole, with nothing left behind.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use statehold::{Error, Result};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// A program that was started. It is killed if this is dropped before it has ended.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    pid: Pid,
    whole_group: bool,
    reaped: bool,
}

impl Program {
    /// Starts a program in a process group of its own, so that what it starts is stopped with it.
    pub(crate) fn start_group(mut command: Command) -> io::Result<Self> {
        command.process_group(0);
        Self::spawn(command, true)
    }

    /// Starts a program in the group of this process, so that it keeps the terminal.
    pub(crate) fn start(command: Command) -> io::Result<Self> {
        Self::spawn(command, false)
    }

    /// Takes the command, for what it holds for the program, such as the end of a pipe, must be closed here.
    fn spawn(mut command: Command, whole_group: bool) -> io::Result<Self> {
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pid = pid.ok_or_else(|| io::Error::other("it has ended before it was seen"))?;
        Ok(Self { child, pid, whole_group, reaped: false })
    }

    /// Its pipes and the like.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal to it, and to its group if it has one of its own.
    pub(crate) fn signal(&self, signal: Signal) {
        // Whoever has ended meanwhile needs no signal. Until it is reaped, its id is nobody else's.
        let send = if self.whole_group { kill_process_group } else { kill_process };
        let _ = send(self.pid, signal);
    }

    /// Comes when it has ended. It is not reaped yet, so that its group can still be named safely.
    pub(crate) async fn ended(&self) {
        // Registered before the first look, so that no end is missed.
        let Ok(mut children) = signal(SignalKind::child()) else { return };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while let Ok(None) = waitid(WaitId::Pid(self.pid), look) {
            children.recv().await;
        }
    }

    /// Asks it to end, and kills it if it does not within a time.
    pub(crate) async fn stop(&self, kill_after: Duration) {
        self.signal(Signal::TERM);
        if tokio::time::timeout(kill_after, self.ended()).await.is_err() {
            self.signal(Signal::KILL);
            self.ended().await;
        }
    }

    /// Kills what is left of it, and answers how it ended.
    pub(crate) async fn finish(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.leave().await
    }

    /// Answers how it ended, and leaves alone what it has started.
    pub(crate) async fn leave(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.reaped = true;
        Ok(status)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::KILL);
        }
    }
}

/// What a shell would give as the exit code: 128 and the number of the signal that ended it.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Signals that programs are commonly ended by.
const SIGNALS: [(Signal, &str); 15] = [
    (Signal::HUP, "SIGHUP"),
    (Signal::INT, "SIGINT"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::ILL, "SIGILL"),
    (Signal::TRAP, "SIGTRAP"),
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::FPE, "SIGFPE"),
    (Signal::KILL, "SIGKILL"),
    (Signal::SEGV, "SIGSEGV"),
    (Signal::PIPE, "SIGPIPE"),
    (Signal::ALARM, "SIGALRM"),
    (Signal::TERM, "SIGTERM"),
    (Signal::XCPU, "SIGXCPU"),
    (Signal::XFSZ, "SIGXFSZ"),
];

/// The name of a signal.
pub(crate) fn signal_name(number: i32) -> String {
    let named = SIGNALS.iter().find(|(signal, _)| signal.as_raw() == number);
    named.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}

/// Where a program is, as a shell would find it. One that cannot be run is an error that says why.
pub(crate) fn find(program: &str) -> Result<PathBuf> {
    let trouble = |why: &str| {
        Error::invalid("", format!("the program `{program}` {why}"))
            .hint("write -- and then the program and its arguments, as you would to run it yourself")
    };
    let places: Vec<PathBuf> = if program.contains('/') {
        vec![program.into()]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
    };
    match places.iter().find(|place| is_executable(place)) {
        Some(place) => std::path::absolute(place).map_err(|e| trouble("cannot be found").caused_by(e)),
        None if places.iter().any(|place| place.is_file()) => Err(trouble("is not executable")),
        None => Err(trouble("is not there")),
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// The words that this process was told to end by: SIGTERM or SIGINT, as often as they come.
#[derive(Debug)]
pub(crate) struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl Signals {
    /// Listens from now on; the signals no longer end this process by themselves.
    pub(crate) fn listen() -> Result<Self> {
        let trouble = |e| Error::unavailable("signals cannot be listened for").caused_by(e);
        let term = signal(SignalKind::terminate()).map_err(trouble)?;
        let int = signal(SignalKind::interrupt()).map_err(trouble)?;
        Ok(Self { term, int })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.term.recv() => Signal::TERM,
            _ = self.int.recv() => Signal::INT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_names() {
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(64), "signal 64");
    }

    #[test]
    fn a_program_is_found_as_a_shell_would_find_it() {
        assert!(find("sh").is_ok_and(|path| path.is_absolute()));
        assert!(find("/bin/sh").is_ok());
        assert!(find("no-such-program").is_err_and(|e| e.message().contains("is not there")));
        assert!(find("/etc/passwd").is_err_and(|e| e.message().contains("is not executable")));
    }
}
