//! What heartbeats cost: how many of them touch an index, and how much log they write, with small and large inputs; and
//! beside it the same heartbeats on a narrow table that has nothing but leases.

use std::sync::Arc;
use std::time::Duration;

use statehold::core::call::Claim;
use statehold::core::command::TaskRenew;
use statehold::{Clock, Json, Seconds, Statehold, TaskCreate, TaskId, Token};
use statehold_postgres::{Config, Postgres};
use tokio::time::sleep;

use super::{Anything, number};

const TASKS: usize = 1000;
const BULK: usize = 100;
/// Ten minutes of heartbeats at a third of a lease of 30 seconds.
const ROUNDS: u64 = 60;
const STEP: u64 = 10;

pub(super) async fn measure(url: &str) -> Anything<()> {
    println!("{:<28} {:>9} {:>7} {:>14} {:>11}", "", "renewals", "HOT", "log bytes each", "table, MB");
    for input in [0, 1_000, 2_000, 20_000] {
        let schema = format!("renewals_{input}");
        let clock = Clock::real();
        let config = Config::from_url(url)?.with_schema(schema.clone()).with_clock(clock.clone());
        let hold = Statehold::on(Arc::new(Postgres::open(config).await?));
        let leases = lease(&hold, input).await?;
        let name = format!("tasks, input of {input} bytes");
        heartbeats(url, &name, &format!("{schema}.tasks"), async || {
            clock.advance(STEP);
            for some in leases.chunks(BULK) {
                renew(&hold, some).await?;
            }
            Ok(())
        })
        .await?;
    }
    narrow(url, "no index", "").await?;
    narrow(url, "an index on the minute", "CREATE INDEX ON narrow.leases (minute)").await
}

/// Letters that no compression makes shorter.
fn noise(length: usize, mut seed: u64) -> String {
    let mut letter = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + u8::try_from((seed >> 33) % 74).unwrap_or_default()).to_string().replace('\\', "~")
    };
    (0..length).map(|_| letter()).collect()
}

/// Makes tasks and claims them.
async fn lease(hold: &Statehold, input: usize) -> Anything<Vec<(TaskId, Token)>> {
    for first in (0..TASKS).step_by(BULK) {
        let mut batch = hold.batch();
        for number in first..first + BULK {
            let input = Some(Json::of(&noise(input, number as u64))?);
            let _ = batch.add(TaskCreate { input, ..TaskCreate::new("answer") });
        }
        hold.apply(batch).await?;
    }
    let claim = Claim { limit: 1000, ..Claim::new(hold.namespace(), "default", "worker") };
    let tasks = hold.backend().claim(claim).await?.tasks;
    Ok(tasks.into_iter().filter_map(|task| Some((task.id, task.lease?.token))).collect())
}

async fn renew(hold: &Statehold, leases: &[(TaskId, Token)]) -> Anything<()> {
    let mut batch = hold.batch();
    for (id, token) in leases {
        batch.add(TaskRenew {
            id: *id,
            token: *token,
            lease_seconds: Some(Seconds::new(30)),
            progress: None,
        });
    }
    hold.apply(batch).await?;
    Ok(())
}

/// Lets all hearts beat, and tells what the server counted.
async fn heartbeats(
    url: &str,
    name: &str,
    table: &str,
    round: impl AsyncFn() -> Anything<()>,
) -> Anything<()> {
    let count =
        |what: &str| format!("SELECT {what} FROM pg_stat_all_tables WHERE relid = '{table}'::regclass");
    let position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    // Numbers of before are in the statistics, and pages need no copy in the log, once all is written.
    let client = Config::from_url(url)?.client().await?;
    client.batch_execute(&format!("VACUUM {table}")).await?;
    client.batch_execute("CHECKPOINT").await?;
    for _ in 0..2 {
        round().await?;
    }
    sleep(Duration::from_secs(2)).await;
    let (updates, hot) =
        (number(url, &count("n_tup_upd")).await?, number(url, &count("n_tup_hot_upd")).await?);
    let log = number(url, position).await?;
    for _ in 0..ROUNDS {
        round().await?;
    }
    let log = number(url, position).await? - log;
    sleep(Duration::from_secs(2)).await;
    let updates = number(url, &count("n_tup_upd")).await? - updates;
    let hot = number(url, &count("n_tup_hot_upd")).await? - hot;
    let size = number(url, &format!("SELECT pg_total_relation_size('{table}') / 1048576")).await?;
    println!(
        "{name:<28} {updates:>9} {:>5} % {:>14} {size:>11}",
        hot * 100 / updates.max(1),
        log / updates.max(1)
    );
    Ok(())
}

/// The same heartbeats where the lease is a row of its own.
async fn narrow(url: &str, name: &str, index: &str) -> Anything<()> {
    let client = Config::from_url(url)?.client().await?;
    let table = "DROP SCHEMA IF EXISTS narrow CASCADE; CREATE SCHEMA narrow;
        CREATE TABLE narrow.leases (ns bigint, id uuid, owner text, token bigint, expires_at timestamptz,
            heartbeat_at timestamptz, minute bigint, PRIMARY KEY (ns, id)) WITH (fillfactor = 50);
        INSERT INTO narrow.leases SELECT 1, gen_random_uuid(), 'worker', 1, now(), now(), 0
            FROM generate_series(1, 1000)";
    client.batch_execute(&format!("{table}; {index}")).await?;
    let ids =
        client.query("SELECT array_agg(id) FROM narrow.leases GROUP BY hashtext(id::text) % 10", &[]).await?;
    let beat = "UPDATE narrow.leases SET heartbeat_at = clock_timestamp(),
            expires_at = to_timestamp($3), minute = floor($3 / 60)::bigint
        FROM unnest($2::uuid[]) AS u(one) WHERE ns = $1 AND id = u.one";
    let beat = client.prepare(beat).await?;
    let seconds = std::sync::atomic::AtomicU64::new(0);
    heartbeats(url, &format!("narrow table, {name}"), "narrow.leases", async || {
        let now = seconds.fetch_add(STEP, std::sync::atomic::Ordering::Relaxed);
        for some in &ids {
            let ids: Vec<uuid::Uuid> = some.get(0);
            client.execute(&beat, &[&1_i64, &ids, &f64::from(u32::try_from(now)?)]).await?;
        }
        Ok(())
    })
    .await
}
