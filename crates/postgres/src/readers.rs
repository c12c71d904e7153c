//! Connections that only read, beside the writer. They are opened when they are needed, up to a number, and taken by
//! turns.

use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::config::Config;
use crate::connection::{Connection, connect, sql};
use crate::error::Result;
use crate::values::{Param, limit, param};

/// Connections that take turns.
pub(crate) struct Readers {
    config: Config,
    turns: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(config: Config) -> Self {
        Self { turns: Semaphore::new(config.readers.max(1)), config, idle: Mutex::default() }
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(connection) = idle.pop() {
            if !connection.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    /// A connection that is free, or a new one.
    pub(crate) async fn reader(&self) -> Result<Reader<'_>> {
        let turn = self.turns.acquire().await.ok();
        let connection = match self.take() {
            Some(connection) => connection,
            None => connect(&self.config, drop).await?,
        };
        Ok(Reader { readers: self, connection, _turn: turn })
    }
}

/// A connection in use. If what it is used for is given up, it goes, since nobody knows what state it is in.
pub(crate) struct Reader<'a> {
    readers: &'a Readers,
    pub(crate) connection: Connection,
    _turn: Option<SemaphorePermit<'a>>,
}

impl Reader<'_> {
    /// Lets all that is read from now on be of one state.
    pub(crate) async fn freeze(&self) -> Result<()> {
        self.connection.run(sql!("begin_read"), Vec::new()).await.map(drop)
    }

    /// Ends that.
    pub(crate) async fn thaw(&self) -> Result<()> {
        self.connection.run(sql!("rollback"), Vec::new()).await.map(drop)
    }

    /// Leaves the connection to others.
    pub(crate) fn leave(self) {
        self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.connection);
    }
}

/// Reads from a namespace. If the connection was lost since the last time, once more on another one.
macro_rules! read {
    ($store:expr, $namespace:expr, |$db:ident, $ns:ident| $read:expr) => {
        crate::readers::read!(@ $store, $namespace, $db, $ns, $read, false)
    };
    ($store:expr, $namespace:expr, together, |$db:ident, $ns:ident| $read:expr) => {
        crate::readers::read!(@ $store, $namespace, $db, $ns, $read, true)
    };
    (@ $store:expr, $namespace:expr, $db:ident, $ns:ident, $read:expr, $together:literal) => {{
        let mut first = true;
        loop {
            let reader = $store.0.readers.reader().await.map_err(crate::error::Trouble::into_error)?;
            let $db = &reader.connection;
            let answer: crate::error::Result<_> = async {
                let $ns = $store.0.namespaces.number($db, $namespace).await?;
                if $together {
                    reader.freeze().await?;
                }
                let answer = $read.await;
                if $together {
                    reader.thaw().await?;
                }
                answer
            }
            .await;
            match answer {
                Err(trouble) if trouble.is_lost() && first => first = false,
                Err(trouble) if trouble.is_lost() => break Err(trouble.into_error()),
                answer => {
                    reader.leave();
                    break answer.map_err(crate::error::Trouble::into_error);
                }
            }
        }
    }};
}
pub(crate) use read;

/// Which keys are listed: the first ones after a key, that begin with a prefix.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) prefix: String,
    pub(crate) after: String,
    pub(crate) limit: usize,
}

impl Keys {
    /// As the parameters of a statement.
    pub(crate) fn params(&self, ns: i64) -> Vec<Param> {
        vec![param(ns), param(self.after.clone()), param(self.prefix.clone()), param(limit(self.limit))]
    }
}
