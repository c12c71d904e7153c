//! The schema, step by step. Each step is a transaction of its own under a lock, and looks first what is there, so that
//! processes that start at once do not meet.

use statehold_core::backend::Migration;
use statehold_core::{Error, Result};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient};

use crate::config::Config;
use crate::dial::dial;
use crate::error::Trouble;

/// One step of the schema.
struct Step {
    name: &'static str,
    sql: &'static str,
    /// The version that a release must know to work with the schema after this step. A step that only adds what older
    /// releases need not know leaves it as it was, so that they keep working while replicas are replaced one by one.
    needs: i64,
}

/// The steps, in order; the version of the schema is how many there are.
const STEPS: &[Step] = &[
    Step { name: "initial", sql: include_str!("../migrations/0001_initial.sql"), needs: 1 },
    Step { name: "create_task", sql: include_str!("../migrations/0002_create_task.sql"), needs: 1 },
    Step { name: "session_locks", sql: include_str!("../migrations/0003_session_locks.sql"), needs: 1 },
    Step { name: "at_once", sql: include_str!("../migrations/0004_at_once.sql"), needs: 1 },
    Step { name: "claims", sql: include_str!("../migrations/0005_claims.sql"), needs: 1 },
    Step { name: "entering", sql: include_str!("../migrations/0006_entering.sql"), needs: 1 },
    Step { name: "strokes", sql: include_str!("../migrations/0007_strokes.sql"), needs: 1 },
    Step { name: "fewer_indexes", sql: include_str!("../migrations/0008_fewer_indexes.sql"), needs: 1 },
    Step { name: "task_ages", sql: include_str!("../migrations/0009_task_ages.sql"), needs: 1 },
];

const VERSIONS: &str = "CREATE TABLE IF NOT EXISTS schema_versions (
    version    bigint PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    -- The version that a release must know to work with this one; itself if it is not said.
    needs      bigint
)";

/// The version that this release knows.
pub(crate) fn latest() -> u32 {
    u32::try_from(STEPS.len()).unwrap_or(u32::MAX)
}

/// Brings a schema up to date, if that is allowed. Answers what that was, and the connection by which it was done.
pub(crate) async fn run(config: &Config, allowed: bool, dry_run: bool) -> Result<(Migration, Client)> {
    run_steps(config, allowed, dry_run).await.map_err(Trouble::into_error)
}

async fn run_steps(
    config: &Config,
    allowed: bool,
    dry_run: bool,
) -> crate::error::Result<(Migration, Client)> {
    let (mut client, connection) = dial(config).await?;
    tokio::spawn(connection);
    let found = version(&client, &config.schema).await?;
    check(&found, allowed || dry_run)?;
    let from = found.version;
    let mut steps = Vec::new();
    for (number, step) in (1..).zip(STEPS) {
        if number > from && (dry_run || take(&mut client, config, number, step).await?) {
            steps.push(step.name.to_owned());
        }
    }
    if !dry_run {
        settle_in(&mut client, config).await?;
    }
    Ok((Migration { from, to: from.max(latest()), steps }, client))
}

/// Begins a new epoch if the tables came from another cluster, whose transactions may be ahead of this one's.
async fn settle_in(client: &mut Client, config: &Config) -> crate::error::Result<()> {
    let schema = &config.schema;
    let known = format!(
        "SELECT EXISTS (SELECT 1 FROM {schema}.cluster WHERE identifier = (SELECT system_identifier FROM pg_control_system()))"
    );
    if client.query_typed_one(&known, &[]).await?.get(0) {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    hold(&transaction, schema).await?;
    if !transaction.query_typed_one(&known, &[]).await?.get::<_, bool>(0) {
        let settle = format!(
            "LOCK TABLE {schema}.namespaces; UPDATE {schema}.namespaces SET epoch = epoch + 1; DELETE FROM {schema}.cluster; \
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

/// Changes of the schema happen one after the other.
async fn hold(client: &impl GenericClient, schema: &str) -> crate::error::Result<()> {
    let key = lock_key(schema);
    client.execute_typed("SELECT pg_advisory_xact_lock($1)", &[(&key, Type::INT8)]).await?;
    Ok(())
}

/// Refuses a schema of a later release that this one cannot work with, and an older one that may not be changed.
fn check(found: &Version, allowed: bool) -> Result<()> {
    let (version, latest) = (found.version, latest());
    if found.needs > latest {
        let message = format!("the database has schema version {version}; this release knows {latest}");
        return Err(Error::unsupported(message)
            .hint("run the release that wrote it, or a later one; nothing was changed"));
    }
    if version < latest && !allowed {
        let missing: Vec<_> = STEPS.iter().skip(version as usize).map(|step| step.name).collect();
        let message = format!(
            "the database has schema version {version}; this release needs {latest}: {}",
            missing.join(", ")
        );
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

/// How far a schema is.
#[derive(Default)]
pub(crate) struct Version {
    /// How many steps were taken; 0 if it is empty or not there.
    pub(crate) version: u32,
    /// The version that a release must know.
    needs: u32,
}

/// How far a schema is.
pub(crate) async fn version(client: &impl GenericClient, schema: &str) -> crate::error::Result<Version> {
    if !client.query_typed_one(HAS_VERSIONS, &[(&schema, Type::NAME)]).await?.get::<_, bool>(0) {
        return Ok(Version::default());
    }
    let highest = format!(
        "SELECT coalesce(max(version), 0), coalesce(max(coalesce(needs, version)), 0) FROM {schema}.schema_versions"
    );
    let found = client.query_typed_one(&highest, &[]).await?;
    let number = |place| u32::try_from(found.get::<_, i64>(place)).unwrap_or(u32::MAX);
    Ok(Version { version: number(0), needs: number(1) })
}

/// Takes one step, unless another process has; true if it was this one.
async fn take(client: &mut Client, config: &Config, number: u32, step: &Step) -> crate::error::Result<bool> {
    let schema = &config.schema;
    let transaction = client.transaction().await?;
    hold(&transaction, schema).await?;
    if version(&transaction, schema).await?.version >= number {
        return Ok(false);
    }
    if !transaction.query_typed_one(HAS_SCHEMA, &[(schema, Type::NAME)]).await?.get::<_, bool>(0) {
        transaction.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    }
    transaction.batch_execute(&format!("SET LOCAL search_path = {schema}")).await?;
    transaction.batch_execute(VERSIONS).await?;
    transaction.batch_execute(step.sql).await?;
    let note = "INSERT INTO schema_versions (version, name, needs) VALUES ($1, $2, $3)";
    let params: [(&(dyn ToSql + Sync), Type); 3] =
        [(&i64::from(number), Type::INT8), (&step.name, Type::TEXT), (&step.needs, Type::INT8)];
    transaction.execute_typed(note, &params).await?;
    transaction.commit().await?;
    Ok(true)
}
