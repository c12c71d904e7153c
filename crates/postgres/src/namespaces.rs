//! The numbers of namespaces. A namespace keeps its number for good.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::connection::{Connection, sql};
use crate::error::Result;
use crate::rows::{read_all, read_first};
use crate::values::{Cells, param};

/// The numbers that are known.
#[derive(Clone, Default)]
pub(crate) struct Namespaces(Arc<RwLock<HashMap<String, i64>>>);

impl Namespaces {
    /// The number of a namespace; 0, which none has, if it is not known to the store.
    pub(crate) async fn number(&self, db: &Connection, name: &str) -> Result<i64> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        if let Some(number) = known {
            return Ok(number);
        }
        let found = db.query(sql!("namespace_get"), vec![param(name.to_owned())]).await?;
        let number = read_first(&found, Cells::get)?.unwrap_or_default();
        self.note(name, number);
        Ok(number)
    }

    /// Remembers a number.
    pub(crate) fn note(&self, name: &str, number: i64) {
        if number != 0 {
            self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), number);
        }
    }
}

/// The namespaces in which there is anything, by name.
pub(crate) async fn list(db: &Connection) -> Result<Vec<String>> {
    read_all(&db.query(sql!("namespaces_list"), Vec::new()).await?, Cells::text)
}
