//! Every route, one file a noun.

mod audit;
mod batch;
mod documents;
mod entries;
mod groups;
mod locks;
mod meta;
mod patch;
mod queues;
mod results;
mod streams;
mod tasks;
mod threads;
mod tokens;
mod work;

use statehold::Result;
use statehold_core::query::KeyList;

use crate::asked::Asked;
use crate::route::Route;

/// Every route of a server that answers requests.
pub(crate) fn all() -> Vec<Route> {
    let mut routes = Vec::new();
    routes.extend(batch::routes());
    routes.extend(tasks::routes());
    routes.extend(work::routes());
    routes.extend(queues::routes());
    routes.extend(threads::routes());
    routes.extend(streams::routes());
    routes.extend(groups::routes());
    routes.extend(documents::routes());
    routes.extend(locks::routes());
    routes.extend(results::routes());
    routes.extend(entries::routes());
    routes.extend(audit::routes());
    routes.extend(tokens::routes());
    routes.extend(health());
    routes
}

/// What a server that only supervises answers.
pub(crate) fn health() -> Vec<Route> {
    meta::routes()
}

/// A list by the prefix of a key, as the query asks for it.
fn key_list(asked: &Asked) -> Result<KeyList> {
    let prefix = asked.query("prefix").unwrap_or_default().to_owned();
    let list = KeyList { prefix, limit: asked.limit()?, cursor: asked.cursor() };
    list.check()?;
    Ok(list)
}
