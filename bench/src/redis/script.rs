//! A script that the server has.

use redis::Cmd;
use redis::aio::MultiplexedConnection;

use super::Done;

/// A script by the hash of its text.
pub(super) struct Script(String);

impl Script {
    /// Gives the server a script.
    pub(super) async fn load(db: &mut MultiplexedConnection, text: &str) -> Done<Self> {
        redis::cmd("SCRIPT").arg("LOAD").arg(text).query_async(db).await.map(Self)
    }

    /// A call on these keys, to which arguments are added.
    pub(super) fn call(&self, keys: &[String]) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.0).arg(keys.len()).arg(keys);
        call
    }
}
