//! How the limit's log is taken over into its file: beside the writer, who takes the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Sender, channel};

use rusqlite::Connection;
use rusqlite::hooks::Wal;

/// The lengths, in pages, at which it is begun, ended by the writer, and waited for.
const LONG: i32 = 4000;
const FEW: i32 = 500;
const MOST: i32 = 40_000;

pub(super) struct Log {
    pages: Arc<AtomicI32>,
    busy: Arc<AtomicBool>,
    call: Sender<()>,
    begun: Option<i32>,
}

impl Log {
    /// The helper's thread ends when this is dropped.
    pub(super) fn start(writer: &mut Connection, helper: Connection) -> rusqlite::Result<Self> {
        let (pages, busy) = (Arc::<AtomicI32>::default(), Arc::<AtomicBool>::default());
        let (count, done) = (Arc::clone(&pages), Arc::clone(&busy));
        writer.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            count.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        let (call, calls) = channel();
        std::thread::spawn(move || {
            while calls.recv().is_ok() {
                take_over(&helper);
                done.store(false, Ordering::Release);
            }
        });
        Ok(Self { pages, busy, call, begun: None })
    }

    pub(super) fn tend(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        let too_long = pages > MOST;
        if pages < LONG || self.busy.load(Ordering::Acquire) && !too_long {
            return;
        }
        if too_long || self.begun.is_some_and(|begun| pages - begun < FEW) {
            take_over(writer);
            self.begun = None;
            self.pages.store(0, Ordering::Relaxed);
        } else {
            self.begun = Some(pages);
            self.busy.store(true, Ordering::Release);
            let _ = self.call.send(());
        }
    }
}

fn take_over(connection: &Connection) {
    let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
}
