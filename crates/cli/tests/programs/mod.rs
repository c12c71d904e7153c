//! A folder with a store, and the binary at work in it. Every process that comes of it bears a mark, so that none can
//! be left behind unseen.

#![allow(dead_code, reason = "each test uses its part of it")]

pub(crate) mod servers;

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use statehold::core::query::ReadFrom;
use statehold::{Json, Statehold, StreamName, Task, TaskCreate, TaskId};

/// How long anything may take before a test fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The environment variable that marks processes.
const MARK: &str = "STATEHOLD_TEST_MARK";

/// A store in a folder of its own.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) hold: Statehold,
    mark: String,
}

impl Place {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}", folder.path().join("state.db").display());
        let hold = Statehold::open(&url).await.expect("a store");
        Self { folder, hold, mark: TaskId::generate().to_string() }
    }

    /// The binary, on this store.
    pub(crate) fn statehold(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_statehold"));
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("STATEHOLD_STORE", "sqlite:state.db")
            .env_remove("STATEHOLD_NAMESPACE")
            .env_remove("STATEHOLD_CONFIG")
            .env(MARK, &self.mark)
            .stdin(Stdio::null());
        command
    }

    /// Starts it; what it says goes to files, so that nobody has to read along.
    pub(crate) fn start(&self, args: &[&str]) -> Run {
        self.start_with(args, |_| {})
    }

    /// The same, with something else said about it.
    pub(crate) fn start_with(&self, args: &[&str], also: impl FnOnce(&mut Command)) -> Run {
        let name = TaskId::generate();
        let [out, err] = ["out", "err"].map(|end| self.file(&format!("{name}.{end}")));
        let mut command = self.statehold(args);
        command.stdout(File::create(&out).expect("a file")).stderr(File::create(&err).expect("a file"));
        also(&mut command);
        Run { child: command.spawn().expect("the binary starts"), out, err }
    }

    /// Works with a shell script until nothing is left to do.
    pub(crate) fn work(&self, options: &[&str], script: &str) -> Run {
        let mut args = vec!["work"];
        args.extend(options);
        args.extend(["--", "sh", "-c", script]);
        self.start(&args)
    }

    /// A file in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) async fn create(&self, task: TaskCreate) -> TaskId {
        self.hold.tasks().create(task).await.expect("a task").task.id
    }

    pub(crate) async fn task(&self, id: TaskId) -> Task {
        self.hold.tasks().get(id).await.expect("an answer").expect("the task")
    }

    /// Waits until something is true of a task.
    pub(crate) async fn until(&self, id: TaskId, what: &str, is: impl Fn(&Task) -> bool) -> Task {
        let task = self.hold.tasks().wait_until(id, Some(LIMIT), &is).await.expect("the task");
        assert!(is(&task), "not {what} in time: {task:?}");
        task
    }

    /// All events of a task: their types and data.
    pub(crate) async fn events(&self, id: TaskId) -> Vec<(String, Option<Json>)> {
        let stream = StreamName::of_task(id);
        let mut events = Vec::new();
        let mut from = ReadFrom::Oldest;
        loop {
            let page = self.hold.streams().read(&stream, from, 1000).await.expect("a page").events;
            let Some(last) = page.last() else { return events };
            from = ReadFrom::After(last.seq);
            events.extend(page.into_iter().map(|event| (event.kind, event.data)));
        }
    }

    /// Waits until no process bears the mark any more.
    pub(crate) async fn assert_nothing_left(&self) {
        let begun = Instant::now();
        while let Some((pid, command)) = self.left().pop() {
            assert!(begun.elapsed() < LIMIT, "process {pid} is left: {command}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The processes that bear the mark.
    pub(crate) fn left(&self) -> Vec<(i32, String)> {
        let mark = format!("{MARK}={}", self.mark);
        let processes = fs::read_dir("/proc").expect("/proc").filter_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let marked =
                fs::read(entry.path().join("environ")).ok()?.split(|b| *b == 0).any(|v| v == mark.as_bytes());
            let command = fs::read(entry.path().join("cmdline")).ok()?;
            marked.then(|| (pid, String::from_utf8_lossy(&command).replace('\0', " ")))
        });
        processes.collect()
    }
}

impl Drop for Place {
    /// A test that fails leaves nothing running either.
    fn drop(&mut self) {
        for (pid, _) in self.left() {
            send(pid.cast_unsigned(), Signal::KILL);
        }
    }
}

/// The binary at work.
pub(crate) struct Run {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

/// How it ended and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How many bytes of memory it has.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).expect("it runs");
        let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        kilobytes.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    pub(crate) fn printed(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Waits for its end.
    pub(crate) async fn ended(mut self) -> Ran {
        let status = wait(&mut self.child, || fs::read_to_string(&self.err).unwrap_or_default()).await;
        let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        Ran { code: status.code(), signal: status.signal(), out: read(&self.out), err: read(&self.err) }
    }

    /// Waits for its end, which must be a good one.
    pub(crate) async fn ended_well(self) -> Ran {
        let ran = self.ended().await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    }
}

async fn wait(child: &mut Child, said: impl Fn() -> String) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return status;
        }
        if begun.elapsed() > LIMIT {
            let _ = child.kill();
            panic!("still running after {LIMIT:?}; it said:\n{}", said());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until something is true.
pub(crate) async fn eventually(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < LIMIT, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).expect("an id"), signal);
}
