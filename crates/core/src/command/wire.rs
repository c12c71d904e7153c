//! Reading a command's fields. An internally tagged enum would buffer them and lose numbers, so
//! the fields stay raw text until the command's type is known.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;
use serde_json::value::RawValue;

use crate::error::{Error, Result};

pub(super) type Fields = BTreeMap<String, Box<RawValue>>;

pub(super) fn fields(text: &str) -> Result<Fields> {
    serde_json::from_str(text).map_err(|e| Error::invalid("", format!("not a JSON object: {e}")))
}

pub(super) fn read<T: DeserializeOwned>(fields: &Fields) -> Result<T> {
    let pairs = fields.iter().map(|(name, value)| (name.as_str(), value.as_ref()));
    let map = MapDeserializer::<_, serde_json::Error>::new(pairs);
    serde_path_to_error::deserialize(map)
        .map_err(|e| Error::invalid(e.path().to_string().trim_matches('.'), e.inner().to_string()))
}
