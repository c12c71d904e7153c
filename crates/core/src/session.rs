//! Sessions: the tie of a process to its store, by which the store knows when the process is gone.

use std::fmt;

use tokio::sync::watch;

use crate::error::Error;

/// The number of a session. It is never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId(pub i64);

/// A session of this process with its store. A lock that names it is free as soon as it ends.
#[derive(Clone)]
pub struct Session {
    id: SessionId,
    life: watch::Receiver<()>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session").field(&self.id.0).finish()
    }
}

/// What a backend keeps as long as a session lasts: dropping it tells whoever has the session that it has ended.
#[derive(Debug)]
pub struct SessionLife {
    _life: watch::Sender<()>,
}

impl Session {
    /// A session with this number, which ends when its life is dropped.
    pub fn begin(id: SessionId) -> (Self, SessionLife) {
        let (sender, life) = watch::channel(());
        (Self { id, life }, SessionLife { _life: sender })
    }

    /// What a store answers that has none.
    pub fn none(store: &str) -> Error {
        Error::unsupported(format!("{store} has no sessions that a lock could end with"))
            .hint("leave the session out; with a short ttl_seconds the lock of a process that died is free soon, too")
    }

    /// Its number.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Comes when it has ended.
    pub async fn ended(&self) {
        let mut life = self.life.clone();
        while life.changed().await.is_ok() {}
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.life.has_changed().is_err()
    }
}
