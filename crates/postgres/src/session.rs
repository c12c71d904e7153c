//! The session that locks of this process can end with: a connection of its own that holds a number, as an advisory lock
//! of the server. Whoever can have the number knows that the session is over, and `lock_get` then shows the lock as free.
//! A number is for one connection only; one that was lost does not come back.

use std::time::Duration;

use statehold_core::model::TaskId;
use statehold_core::session::{Session, SessionId};
use statehold_core::{Error, Result};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::config::Config;
use crate::connection::{Connection, connect, sql};
use crate::values::param;

/// How often a new session is tried for while connections are lost, and how long is waited after the first time.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(50);

/// What the connection is told: it is idle for long, and a machine that vanished is noticed in half a minute.
const SETTINGS: [&str; 4] = [
    "idle_session_timeout = 0",
    "tcp_keepalives_idle = 15",
    "tcp_keepalives_interval = 5",
    "tcp_keepalives_count = 3",
];

/// The session of this process, from the first time that someone asks for it.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Option<Held>>);

struct Held {
    session: Session,
    /// The session ends with it.
    _connection: Connection,
}

impl Sessions {
    /// The session that lasts, or a new one.
    pub(crate) async fn current(&self, config: &Config) -> Result<Session> {
        if config.pooled {
            let message = "a pooler in transaction mode keeps no session that a lock could end with";
            return Err(Error::unsupported(message)
                .hint("leave the session out, or connect to the server itself, without pooled=true"));
        }
        let mut held = self.0.lock().await;
        if let Some(held) = held.as_ref().filter(|held| !held.session.has_ended()) {
            return Ok(held.session.clone());
        }
        let mut tries = 0;
        loop {
            tries += 1;
            match begin(config).await {
                Ok(begun) => return Ok(held.insert(begun).session.clone()),
                Err(trouble) if trouble.is_lost() && tries < TRIES => sleep(PAUSE * tries).await,
                Err(trouble) => return Err(trouble.into_error()),
            }
        }
    }
}

async fn begin(config: &Config) -> crate::error::Result<Held> {
    let (when, random) = TaskId::generate().0.as_u64_pair();
    let id = (when ^ random).cast_signed();
    let (session, life) = Session::begin(SessionId(id));
    // What hears the server goes when the connection does, and the life of the session with it.
    let connection = connect(config, move |_| {
        let _ = &life;
    })
    .await?;
    connection.set(&SETTINGS).await?;
    connection.query(sql!("session_begin"), vec![param(id)]).await?;
    Ok(Held { session, _connection: connection })
}
