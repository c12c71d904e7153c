//! The schema, step by step. Each step is a transaction of its own under a lock, and looks first what is there, so that
//! processes that start at once do not meet.

use statehold_core::backend::Migration;
use statehold_core::{Error, Result};
use tokio_postgres::NoTls;

use crate::config::Config;
use crate::error::Trouble;

/// The steps, in order; the version of the schema is how many there are.
const STEPS: &[(&str, &str)] = &[("initial", include_str!("../migrations/0001_initial.sql"))];

const VERSIONS: &str = "CREATE TABLE IF NOT EXISTS schema_versions (
    version    bigint PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)";

/// The version that this release knows.
pub(crate) fn latest() -> u32 {
    u32::try_from(STEPS.len()).unwrap_or(u32::MAX)
}

/// Brings a schema up to date, if that is allowed.
pub(crate) async fn run(config: &Config, allowed: bool, dry_run: bool) -> Result<Migration> {
    run_steps(config, allowed, dry_run).await.map_err(Trouble::into_error)
}

async fn run_steps(config: &Config, allowed: bool, dry_run: bool) -> crate::error::Result<Migration> {
    let (mut client, connection) = config.server.connect(NoTls).await?;
    let connection = tokio::spawn(connection);
    let from = version(&client, &config.schema).await?;
    check(from, allowed || dry_run)?;
    let mut steps = Vec::new();
    for (number, (name, sql)) in (1..).zip(STEPS) {
        if number > from && (dry_run || step(&mut client, config, number, name, sql).await?) {
            steps.push((*name).to_owned());
        }
    }
    if !dry_run {
        settle_in(&mut client, config).await?;
    }
    drop(client);
    let _ = connection.await;
    Ok(Migration { from, to: from.max(latest()), steps })
}

/// Begins a new epoch if the tables came from another cluster, whose transactions may be ahead of this one's.
async fn settle_in(client: &mut tokio_postgres::Client, config: &Config) -> crate::error::Result<()> {
    let schema = &config.schema;
    let known = format!(
        "SELECT EXISTS (SELECT 1 FROM {schema}.cluster WHERE identifier = (SELECT system_identifier FROM pg_control_system()))"
    );
    if client.query_one(&known, &[]).await?.get(0) {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&lock_key(schema)]).await?;
    if !transaction.query_one(&known, &[]).await?.get::<_, bool>(0) {
        let settle = format!(
            "UPDATE {schema}.namespaces SET epoch = epoch + 1; DELETE FROM {schema}.cluster; \
             INSERT INTO {schema}.cluster SELECT system_identifier FROM pg_control_system()"
        );
        transaction.batch_execute(&settle).await?;
    }
    Ok(transaction.commit().await?)
}

/// The number of the lock that changes of a schema are made under.
fn lock_key(schema: &str) -> i64 {
    let hash = blake3::hash(format!("statehold migration of {schema}").as_bytes());
    hash.as_bytes().iter().take(8).fold(0, |key, byte| key << 8 | i64::from(*byte))
}

/// Refuses a schema of a later release, and an older one that may not be changed.
fn check(from: u32, allowed: bool) -> Result<()> {
    let latest = latest();
    if from > latest {
        let message = format!("the database has schema version {from}; this release knows {latest}");
        return Err(Error::unsupported(message)
            .hint("run the release that wrote it, or a later one; nothing was changed"));
    }
    if from < latest && !allowed {
        let message = format!("the database has schema version {from}; this release needs {latest}");
        return Err(Error::unsupported(message).hint("run `statehold migrate`"));
    }
    Ok(())
}

/// Whether a schema has its table of versions. A question to the catalog's tables: what looks names up would answer from
/// what it saw before it waited for the lock.
const HAS_VERSIONS: &str = "SELECT EXISTS (
    SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname = 'schema_versions'
)";

const HAS_SCHEMA: &str = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1)";

/// The version that a schema has; 0 if it is empty or not there.
pub(crate) async fn version(
    client: &impl tokio_postgres::GenericClient,
    schema: &str,
) -> crate::error::Result<u32> {
    if !client.query_one(HAS_VERSIONS, &[&schema]).await?.get::<_, bool>(0) {
        return Ok(0);
    }
    let highest = format!("SELECT coalesce(max(version), 0) FROM {schema}.schema_versions");
    let version: i64 = client.query_one(&highest, &[]).await?.get(0);
    Ok(u32::try_from(version).unwrap_or(u32::MAX))
}

/// Takes one step, unless another process has; true if it was this one.
async fn step(
    client: &mut tokio_postgres::Client,
    config: &Config,
    number: u32,
    name: &str,
    sql: &str,
) -> crate::error::Result<bool> {
    let schema = &config.schema;
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&lock_key(schema)]).await?;
    if version(&transaction, schema).await? >= number {
        return Ok(false);
    }
    if !transaction.query_one(HAS_SCHEMA, &[schema]).await?.get::<_, bool>(0) {
        transaction.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    }
    transaction.batch_execute(&format!("SET LOCAL search_path = {schema}")).await?;
    transaction.batch_execute(VERSIONS).await?;
    transaction.batch_execute(sql).await?;
    let note = "INSERT INTO schema_versions (version, name) VALUES ($1, $2)";
    transaction.execute(note, &[&i64::from(number), &name]).await?;
    transaction.commit().await?;
    Ok(true)
}
