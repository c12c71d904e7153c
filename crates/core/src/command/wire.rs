//! Reading a command's fields. An internally tagged enum would buffer them and lose numbers, so
//! the fields stay raw text until the command's type is known.

use std::collections::BTreeMap;

use serde::de::value::MapDeserializer;
use serde::de::{self, DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// The fields of a command, each as the text it came as. Some may come from elsewhere, such as from a path.
///
/// ```
/// use statehold_core::command::{EntryDelete, Fields};
///
/// let mut fields = Fields::parse("{}").unwrap();
/// fields.give("key", &"result/7").unwrap();
/// assert!(fields.give("key", &"result/8").unwrap_err().message().contains("unknown field `key`"));
/// assert_eq!(fields.read::<EntryDelete>().unwrap().key, "result/7");
/// ```
#[derive(Debug)]
pub struct Fields(BTreeMap<String, Box<RawValue>>);

impl Fields {
    /// The fields of a JSON object.
    pub fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|e| Error::invalid("", format!("not an object of fields: {e}")))
    }

    /// Takes one field out.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        serde_json::from_str(value.get()).map(Some).map_err(|e| Error::invalid(name, e.to_string()))
    }

    /// Adds a field that the object itself must not have.
    pub fn give<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<()> {
        let value =
            serde_json::value::to_raw_value(value).map_err(|e| Error::invalid(name, e.to_string()))?;
        if self.0.contains_key(name) {
            return Err(Error::invalid(name, format!("unknown field `{name}`: it is said elsewhere")));
        }
        self.0.insert(name.to_owned(), value);
        Ok(())
    }

    /// All of them as a type, which refuses what it does not know.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        let pairs = || self.0.iter().map(|(name, value)| (name.as_str(), value.as_ref()));
        let map = || MapDeserializer::<_, serde_json::Error>::new(pairs());
        // Where something is wrong is looked for only when something is: keeping track of the place takes time.
        T::deserialize(map())
            .or_else(|_| serde_path_to_error::deserialize(map()))
            .map_err(|e| Error::invalid(e.path().to_string().trim_matches('.'), e.inner().to_string()))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

/// Reads fields and refuses one that is there twice.
struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Fields;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            if fields.contains_key(&name) {
                return Err(de::Error::custom(format!("field `{name}` is there twice")));
            }
            fields.insert(name, value);
        }
        Ok(Fields(fields))
    }
}
