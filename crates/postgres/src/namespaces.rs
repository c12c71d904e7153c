//! The numbers of namespaces. A namespace keeps its number for good.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::connection::{Connection, sql};
use crate::error::Result;
use crate::rows::{read_all, read_first};
use crate::values::{Cells, param};

/// What is known of namespaces.
#[derive(Clone, Default)]
pub(crate) struct Namespaces(Arc<RwLock<HashMap<String, Space>>>);

#[derive(Clone, Copy)]
struct Space {
    number: i64,
    era: Option<Era>,
}

/// The epoch of a namespace, and how often epochs had changed when it was read: if that has not moved, nor has the epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Era {
    pub(crate) epoch: i64,
    pub(crate) changes: i64,
}

impl Namespaces {
    /// The number of a namespace; 0, which none has, if it is not known to the store.
    pub(crate) async fn number(&self, db: &Connection, name: &str) -> Result<i64> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).map(|space| space.number);
        if let Some(number) = known {
            return Ok(number);
        }
        let found = db.query(sql!("namespace_get"), vec![param(name.to_owned())]).await?;
        let number = read_first(&found, Cells::get)?.unwrap_or_default();
        self.note(name, number, None);
        Ok(number)
    }

    /// The era of a namespace, as far as it is known. There is none for a namespace that got its number after it was looked for:
    /// who found none must not go on with the era alone.
    pub(crate) fn era(&self, name: &str, number: i64) -> Option<Era> {
        let spaces = self.0.read().unwrap_or_else(PoisonError::into_inner);
        spaces.get(name).filter(|space| space.number == number)?.era
    }

    /// Remembers the number of a namespace, and its era if it is known.
    pub(crate) fn note(&self, name: &str, number: i64, era: Option<Era>) {
        if number != 0 {
            let mut spaces = self.0.write().unwrap_or_else(PoisonError::into_inner);
            spaces.insert(name.to_owned(), Space { number, era });
        }
    }

    /// Forgets all eras: this may be another server.
    pub(crate) fn begin_anew(&self) {
        let mut spaces = self.0.write().unwrap_or_else(PoisonError::into_inner);
        spaces.values_mut().for_each(|space| space.era = None);
    }
}

/// The namespaces in which there is anything, by name.
pub(crate) async fn list(db: &Connection) -> Result<Vec<String>> {
    read_all(&db.query(sql!("namespaces_list"), Vec::new()).await?, Cells::text)
}
