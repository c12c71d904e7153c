//! This side of the pipe: a process that serves, and a store that it has open.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::BoxStream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use statehold_core::batch::{Prepared, Replies};
use statehold_core::call::{Claim, Claimed, Deliveries, GroupRead};
use statehold_core::dump::Record;
use statehold_core::model::Document;
use statehold_core::query::{DocumentList, Page};
use statehold_core::wake::{Hub, Mark, Topic, Waiter};
use statehold_core::{Clock, Result};
use tokio::sync::oneshot;

use super::SERVE_VARIABLE;
use super::wire::{Dump, Message, Request, read, write};

/// A folder that goes when nobody needs it any more.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a folder.
    pub fn create(path: PathBuf) -> Self {
        std::fs::create_dir(&path).expect("the folder is made");
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Someone may have been faster.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What to do with an answer. It is dropped if there will be none.
type Then = Box<dyn FnOnce(Result<Box<RawValue>>) + Send>;

/// Another run of this program, which serves. It ends when this is dropped.
pub struct Process {
    child: Child,
    requests: Mutex<ChildStdin>,
    next: AtomicU64,
    inbox: Arc<Inbox>,
    stderr: PathBuf,
}

/// Who waits for what from a process.
struct Inbox {
    /// None when the process has ended.
    answers: Mutex<Option<HashMap<u64, Then>>>,
    hub: Hub,
}

impl Process {
    /// Starts this program again to serve; what it says on stderr goes into the file.
    pub fn start(stderr: PathBuf) -> Self {
        let program = std::env::current_exe().expect("this program has a name");
        let said = std::fs::File::create(&stderr).expect("the file for stderr is made");
        let mut command = Command::new(program);
        command.env(SERVE_VARIABLE, "1").env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said);
        let mut child = command.spawn().expect("this program starts again");
        let requests = Mutex::new(child.stdin.take().expect("its stdin is a pipe"));
        let messages = child.stdout.take().expect("its stdout is a pipe");
        let inbox = Arc::new(Inbox { answers: Mutex::new(Some(HashMap::new())), hub: Hub::new() });
        let receiving = Arc::clone(&inbox);
        std::thread::spawn(move || receiving.receive(messages));
        Self { child, requests, next: AtomicU64::new(0), inbox, stderr }
    }

    fn send(&self, store: u64, clock: &Clock, call: &str, arguments: Box<RawValue>, then: Then) {
        let id = self.number();
        match lock(&self.inbox.answers).as_mut() {
            Some(answers) => answers.insert(id, then),
            None => return,
        };
        // The clock is read under the lock, so that no request is followed by one from before.
        let mut requests = lock(&self.requests);
        let request = Request { id, store, now: clock.now().as_micros(), call: call.to_owned(), arguments };
        let line = format!("{}\n", write(&request));
        // A process that does not take it has ended, which its inbox notices.
        let _ = requests.write_all(line.as_bytes());
    }

    /// A number that stands for nothing else in the process.
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Fails with what the process said last.
    fn fail(&self, call: &str) -> ! {
        let said = std::fs::read(&self.stderr).unwrap_or_default();
        let last = String::from_utf8_lossy(&said[said.len().saturating_sub(4000)..]);
        panic!("process {} did not answer `{call}`; it said:\n{last}", self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("id", &self.child.id()).finish_non_exhaustive()
    }
}

impl Inbox {
    fn receive(&self, messages: ChildStdout) {
        for line in BufReader::new(messages).lines() {
            let Some(message) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else { break };
            match message {
                Message::Answer(id, result) => {
                    if let Some(then) = self.expected(id) {
                        then(result);
                    }
                }
                Message::Panic(id) => drop(self.expected(id)),
                Message::Wake(waiter) => self.hub.wake([Mark::of("", &own_topic(waiter))]),
            }
        }
        drop(lock(&self.answers).take());
    }

    fn expected(&self, id: u64) -> Option<Then> {
        lock(&self.answers).as_mut()?.remove(&id)
    }
}

/// What only the waiter with this number waits for.
fn own_topic(waiter: u64) -> Topic {
    Topic::Entry(waiter.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A store that another process has open. A call panics if that process panics or ends.
#[derive(Debug)]
pub struct Remote {
    process: Arc<Process>,
    store: u64,
    folder: Arc<Folder>,
    clock: Clock,
}

impl Remote {
    /// Lets a process open the store in a folder. It goes by the time of `clock` at each call.
    pub async fn open(process: Arc<Process>, folder: Arc<Folder>, clock: Clock) -> Self {
        let store = process.number();
        let remote = Self { process, store, folder, clock };
        let opened: Result<()> = remote.ask("open", remote.folder.path()).await;
        opened.expect("opening panics or succeeds");
        remote
    }

    pub(super) async fn ask<T: DeserializeOwned>(&self, call: &str, arguments: impl Serialize) -> Result<T> {
        let arguments = write(&arguments);
        let (sender, receiver) = oneshot::channel();
        let then = Box::new(move |result| drop(sender.send(result)));
        self.process.send(self.store, &self.clock, call, arguments, then);
        match receiver.await {
            Ok(result) => Ok(read(&result?)),
            Err(_) => self.process.fail(call),
        }
    }

    pub(super) async fn apply(&self, batch: Prepared) -> Result<Replies> {
        let (replies, replayed): (Box<RawValue>, bool) = self.ask("apply", &batch).await?;
        Ok(Replies { replies: batch.batch().read_replies(replies.get())?, replayed })
    }

    pub(super) async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.ask("claim", (&claim.namespace, &claim)).await
    }

    pub(super) async fn group_read(&self, read: GroupRead) -> Result<Deliveries> {
        self.ask("group_read", (&read.namespace, &read.group, &read)).await
    }

    pub(super) async fn document_list(&self, namespace: &str, list: &DocumentList) -> Result<Page<Document>> {
        self.ask("document_list", (namespace, &list.kind, list)).await
    }

    /// The other process keeps its waiter until the store is closed: nothing tells that this one is dropped.
    pub(super) async fn register(&self, namespace: &str, topics: &[Topic]) -> Result<Waiter> {
        let number = self.process.number();
        let waiter = self.process.inbox.hub.register("", &[own_topic(number)]);
        self.ask::<()>("register", (namespace, topics, number)).await?;
        Ok(waiter)
    }

    pub(super) async fn dump(&self, namespace: &str) -> Result<BoxStream<'static, Result<Record>>> {
        let dump: Dump = self.ask("dump", namespace).await?;
        Ok(dump.stream())
    }

    pub(super) async fn load(
        &self,
        namespace: &str,
        records: BoxStream<'static, Result<Record>>,
    ) -> Result<u64> {
        self.ask("load", (namespace, Dump::collect(records).await)).await
    }
}

/// The folder goes once every process that had the store open has closed it.
impl Drop for Remote {
    fn drop(&mut self) {
        let folder = Arc::clone(&self.folder);
        self.process.send(self.store, &self.clock, "close", write(&()), Box::new(move |_| drop(folder)));
    }
}
