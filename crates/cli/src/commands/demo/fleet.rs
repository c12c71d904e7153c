//! The processes of the demo: started, killed, paused, woken and dismissed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use statehold::{Error, NewEvent, Result, Statehold, StreamName};
use tokio::process::Command;

use super::Demo;
use crate::process::Program;

/// How long a write takes at most while nobody stands in its way.
const WRITABLE: Duration = Duration::from_secs(1);

/// Processes of this binary, by their names. They are killed when this is dropped; should even that be impossible, they
/// end by themselves as their standard input ends.
#[derive(Debug)]
pub(super) struct Fleet {
    binary: PathBuf,
    arguments: Vec<String>,
    workers: BTreeMap<String, Program>,
}

impl Fleet {
    pub(super) fn new(demo: &Demo, store: &str, space: &str) -> Result<Self> {
        let binary = std::env::current_exe();
        let binary = binary.map_err(|e| Error::unavailable("this binary cannot be found").caused_by(e))?;
        let mut arguments: Vec<String> =
            ["demo", "--store", store, "--space", space, "--tasks"].map(str::to_owned).into();
        arguments.push(demo.tasks.to_string());
        arguments.extend(demo.fast.then(|| "--fast".to_owned()));
        Ok(Self { binary, arguments, workers: BTreeMap::new() })
    }

    fn start(&self, part: &str, name: &str) -> Result<Program> {
        let mut command = Command::new(&self.binary);
        command.args(&self.arguments).args(["--part", part, "--called", name]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let trouble = |e| Error::unavailable(format!("{name} cannot be started")).caused_by(e);
        Program::start_group(command).map_err(trouble)
    }

    /// Lets two receivers take in the same webhooks at once.
    pub(super) async fn receive_twice(&self) -> Result<()> {
        let receivers = ["receiver-1", "receiver-2"].map(|name| self.start("receiver", name));
        for receiver in receivers {
            well(&mut receiver?, "a receiver").await?;
        }
        Ok(())
    }

    /// Starts a worker.
    pub(super) fn hire(&mut self, name: &str) -> Result<()> {
        let worker = self.start("worker", name)?;
        self.workers.insert(name.to_owned(), worker);
        Ok(())
    }

    fn worker(&self, name: &str) -> Result<&Program> {
        self.workers.get(name).ok_or_else(|| Error::not_found("worker", name))
    }

    /// Kills a worker: it has no chance to say or do anything.
    pub(super) async fn kill(&mut self, name: &str) -> Result<()> {
        let mut worker = self.workers.remove(name).ok_or_else(|| Error::not_found("worker", name))?;
        let ended = worker.finish().await;
        ended.map(drop).map_err(|e| Error::unavailable(format!("{name} cannot be killed")).caused_by(e))
    }

    /// Stops a worker in its tracks. One that is stopped while it writes has the lock of a SQLite file, and everyone
    /// would wait for it; then it is let go on for a moment.
    pub(super) async fn pause(&self, name: &str, hold: &Statehold) -> Result<()> {
        loop {
            self.worker(name)?.signal(Signal::STOP);
            let probe: StreamName = "demo/probe".parse()?;
            let write = hold.streams().append(&probe, vec![NewEvent::new("written")]);
            match tokio::time::timeout(WRITABLE, write).await {
                Ok(written) => return written.map(drop),
                Err(_) => self.wake(name)?,
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Lets a paused worker go on.
    pub(super) fn wake(&self, name: &str) -> Result<()> {
        self.worker(name)?.signal(Signal::CONT);
        Ok(())
    }

    /// Asks all workers to end, and waits until they have ended well.
    pub(super) async fn dismiss(&mut self) -> Result<()> {
        self.workers.values().for_each(|worker| worker.signal(Signal::TERM));
        for (name, mut worker) in std::mem::take(&mut self.workers) {
            well(&mut worker, &name).await?;
        }
        Ok(())
    }
}

/// Waits for the end of a process, which must be a good one.
async fn well(program: &mut Program, name: &str) -> Result<()> {
    program.ended().await;
    match program.finish().await {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::unavailable(format!("{name} ended with {status}"))),
        Err(e) => Err(Error::unavailable(format!("{name} cannot be waited for")).caused_by(e)),
    }
}
