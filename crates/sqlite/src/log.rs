//! The log, and how it is taken over into the file: mostly by a thread of its own, beside the writer, who only has to
//! take over what was written meanwhile, so that the log can begin anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rusqlite::Connection;
use statehold_core::{Error, Result};

use crate::error;

/// How many pages the log has when the thread begins: pages that change often are then written once for many commits.
const LONG: i32 = 4000;

/// How many pages the writer takes over by itself.
const FEW: i32 = 500;

/// How often the thread tries to bring it down to so few.
const ROUNDS: u32 = 4;

/// How many pages the log has at most before the writer stops for it, unless readers hold it.
const MOST: i32 = 40_000;

const TAKE_OVER: &str = "PRAGMA wal_checkpoint(PASSIVE)";

/// The log, as the writer sees it.
pub(crate) struct Log {
    /// How many pages it has since the last commit.
    pages: Arc<AtomicI32>,
    /// Whether the thread is at work.
    busy: Arc<AtomicBool>,
    /// Calls the thread to work, until it is dropped.
    call: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// How many pages there were when the thread began, and how often it has.
    begun: i32,
    rounds: u32,
    /// How many pages are left over from before, since a reader holds the log.
    held: i32,
}

impl Log {
    /// Starts the thread on a connection of its own, for a writer's log.
    pub(crate) fn start(writer: &mut Connection, helper: Connection) -> Result<Self> {
        let (pages, busy) = (Arc::<AtomicI32>::default(), Arc::<AtomicBool>::default());
        let count = Arc::clone(&pages);
        // This replaces SQLite's own way, which lets the caller whose commit makes the log too long wait for all of it.
        let hook = move |_: &mut rusqlite::hooks::Wal, pages: i32| {
            count.store(pages, Ordering::Relaxed);
            Ok(())
        };
        writer.wal_hook(Some(hook)).map_err(error::from)?;
        let (call, calls) = channel();
        let done = Arc::clone(&busy);
        let work = move || {
            while calls.recv().is_ok() {
                take_over(&helper);
                done.store(false, Ordering::Release);
            }
        };
        let thread = std::thread::Builder::new()
            .name("statehold-log".into())
            .spawn(work)
            .map_err(|e| Error::unavailable("no thread can be started for the log").caused_by(e))?;
        Ok(Self { pages, busy, call: Some(call), thread: Some(thread), begun: 0, rounds: 0, held: 0 })
    }

    /// Sees to it that the log does not grow too long. Called between transactions.
    pub(crate) fn tend(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        self.held = self.held.min(pages);
        if pages - self.held < LONG {
            return;
        }
        let too_long = pages - self.held > MOST;
        if self.busy.load(Ordering::Acquire) && !too_long {
            return;
        }
        let few_are_left = self.rounds > 0 && pages - self.begun < FEW;
        if few_are_left || self.rounds >= ROUNDS || too_long {
            take_over(writer);
            // If nobody reads it, the log begins anew with the next commit.
            (self.rounds, self.held) = (0, pages);
        } else if let Some(call) = &self.call {
            (self.begun, self.rounds) = (pages, self.rounds + 1);
            self.busy.store(true, Ordering::Release);
            let _ = call.send(());
        }
    }
}

/// What cannot be taken over now stays in the log until the next time.
fn take_over(connection: &Connection) {
    let _ = connection.query_row(TAKE_OVER, [], |_| Ok(()));
}

impl Drop for Log {
    fn drop(&mut self) {
        self.call = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
