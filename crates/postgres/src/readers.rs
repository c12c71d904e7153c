//! Connections that only read, beside the writer. They are opened when they are needed, up to a number. Single statements
//! share some of them, one behind the other without waiting for answers; what takes several, or needs a plan for its
//! parameters, has one for itself.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::config::Config;
use crate::connection::{BY_KEY, Connection, connect, sql};
use crate::error::Result;
use crate::values::{Param, limit, param};

/// How many connections single statements share: more than one, so that a long list is not in everyone's way.
const SHARED: usize = 2;

/// The connections.
pub(crate) struct Readers {
    config: Config,
    shared: Mutex<Vec<Arc<Connection>>>,
    turns: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(config: Config) -> Self {
        let turns = Semaphore::new(config.readers.saturating_sub(SHARED).max(1));
        Self { turns, config, shared: Mutex::default(), idle: Mutex::default() }
    }

    /// The connection with the fewest statements under way, if there are enough connections.
    fn least_used(&self) -> Option<Arc<Connection>> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|connection| !connection.is_closed());
        let least = shared.iter().min_by_key(|connection| Arc::strong_count(connection))?;
        (shared.len() >= SHARED || Arc::strong_count(least) == 1).then(|| Arc::clone(least))
    }

    /// A connection for single statements.
    pub(crate) async fn shared(&self) -> Result<Arc<Connection>> {
        if let Some(connection) = self.least_used() {
            return Ok(connection);
        }
        let connection = connect(&self.config, drop).await?;
        connection.set(BY_KEY).await?;
        let connection = Arc::new(connection);
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.len() < SHARED {
            shared.push(Arc::clone(&connection));
        }
        Ok(connection)
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

    /// A connection for oneself.
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
        crate::readers::read!(@ {
            let shared = $store.0.readers.shared().await?;
            let $db = &*shared;
            let $ns = $store.0.namespaces.number($db, $namespace).await?;
            $read.await
        })
    };
    ($store:expr, $namespace:expr, apart, |$db:ident, $ns:ident| $read:expr) => {
        crate::readers::read!(@ {
            let reader = $store.0.readers.reader().await?;
            let $db = &reader.connection;
            let $ns = $store.0.namespaces.number($db, $namespace).await?;
            let answer = $read.await;
            reader.leave();
            answer
        })
    };
    ($store:expr, $namespace:expr, together, |$db:ident, $ns:ident| $read:expr) => {
        crate::readers::read!(@ {
            let reader = $store.0.readers.reader().await?;
            let $db = &reader.connection;
            let $ns = $store.0.namespaces.number($db, $namespace).await?;
            reader.freeze().await?;
            let answer = $read.await;
            reader.thaw().await?;
            reader.leave();
            answer
        })
    };
    (@ $read:block) => {{
        let mut first = true;
        loop {
            let answer: crate::error::Result<_> = async $read.await;
            match answer {
                Err(trouble) if trouble.is_lost() && first => first = false,
                answer => break answer.map_err(crate::error::Trouble::into_error),
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
