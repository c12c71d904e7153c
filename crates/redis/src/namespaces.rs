//! The namespaces of a store. Their names are in a set of its own, which is entered before the first write: it may name
//! one in which there is nothing.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::connection::Connection;
use crate::error::{Result, odd};
use crate::space::Space;
use crate::strokes::insist;

/// The namespaces that are known to be in the set.
pub(crate) struct Registry {
    prefix: String,
    known: Mutex<HashSet<String>>,
}

impl Registry {
    pub(crate) fn new(prefix: String) -> Self {
        Self { prefix, known: Mutex::default() }
    }

    fn key(&self) -> String {
        format!("{}:namespaces", self.prefix)
    }

    /// Enters a namespace, unless that was done before.
    pub(crate) async fn enter(&self, db: &Connection, namespace: &str) -> Result<()> {
        if self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(namespace) {
            return Ok(());
        }
        self.enter_anew(db, namespace).await?;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace.to_owned());
        Ok(())
    }

    /// Enters a namespace.
    pub(crate) async fn enter_anew(&self, db: &Connection, namespace: &str) -> Result<()> {
        let mut call = redis::cmd("SADD");
        call.arg(self.key()).arg(namespace);
        insist(db, &call).await.map(drop)
    }

    /// The namespaces in which there is anything, by name.
    pub(crate) async fn list(&self, db: &Connection) -> Result<Vec<String>> {
        let mut call = redis::cmd("SMEMBERS");
        call.arg(self.key());
        let names: Vec<String> = redis::from_redis_value(db.call(&call).await?).map_err(|_| odd("names"))?;
        let mut there = Vec::new();
        for name in names {
            let mut call = redis::cmd("EXISTS");
            call.arg(Space::new(&self.prefix, &name).index());
            let exists: bool = redis::from_redis_value(db.call(&call).await?).map_err(|_| odd("a number"))?;
            there.extend(exists.then_some(name));
        }
        there.sort();
        Ok(there)
    }
}
