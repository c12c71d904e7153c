//! Connections that only read, beside the writer. Short reads are done where they are asked for; long ones on a
//! thread that may block, with connections of their own, so that no short one waits for them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use rusqlite::{Connection, Result};

use crate::statements::{Db, sql};

/// Connections that take turns.
pub(crate) struct Readers {
    connections: Vec<Mutex<Connection>>,
    turn: AtomicUsize,
}

impl Readers {
    pub(crate) fn new(connections: Vec<Connection>) -> Self {
        Self { connections: connections.into_iter().map(Mutex::new).collect(), turn: AtomicUsize::new(0) }
    }

    /// Reads with a connection that is free, or the next one to be.
    pub(crate) fn read<T>(&self, read: impl FnOnce(Db<'_, '_>) -> Result<T>) -> Result<T> {
        read(Db::new(&self.free()))
    }

    /// The same for several statements that must see one state.
    pub(crate) fn snapshot<T>(&self, read: impl FnOnce(Db<'_, '_>) -> Result<T>) -> Result<T> {
        let connection = self.free();
        let db = Db::new(&connection);
        db.run(sql!("begin_read"), [])?;
        let answer = read(db);
        db.run(sql!("commit"), [])?;
        answer
    }

    fn free(&self) -> MutexGuard<'_, Connection> {
        let first = self.turn.load(Ordering::Relaxed);
        let count = self.connections.len();
        for at in 0..count {
            match self.connections[(first + at) % count].try_lock() {
                Ok(connection) => return connection,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.connections[turn % count].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
