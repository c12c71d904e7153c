//! Reading a command's fields. An internally tagged enum would buffer them and lose numbers, so
//! the fields stay raw text until the command's type is known.

use std::collections::BTreeMap;

use serde::de::value::MapDeserializer;
use serde::de::{self, DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// The fields of a command, each as the text it came as.
pub(super) struct Fields(BTreeMap<String, Box<RawValue>>);

impl Fields {
    pub(super) fn remove(&mut self, name: &str) -> Option<Box<RawValue>> {
        self.0.remove(name)
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

pub(super) fn fields(text: &str) -> Result<Fields> {
    serde_json::from_str(text).map_err(|e| Error::invalid("", format!("not a command: {e}")))
}

pub(super) fn read<T: DeserializeOwned>(fields: &Fields) -> Result<T> {
    let pairs = fields.0.iter().map(|(name, value)| (name.as_str(), value.as_ref()));
    let map = MapDeserializer::<_, serde_json::Error>::new(pairs);
    serde_path_to_error::deserialize(map)
        .map_err(|e| Error::invalid(e.path().to_string().trim_matches('.'), e.inner().to_string()))
}
