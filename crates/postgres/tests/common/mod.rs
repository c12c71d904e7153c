//! What the tests share: a schema for each store.

use statehold_conformance::postgres::url;
use statehold_core::model::TaskId;
use statehold_postgres::Config;

/// The settings of a store in a schema of its own, whose name its connections bear too.
pub(crate) fn config() -> Config {
    let schema = format!("test_{}", TaskId::generate().0.simple());
    let url = format!("{}?application_name={schema}", url());
    Config::from_url(&url).expect("a good URL").with_schema(schema)
}
