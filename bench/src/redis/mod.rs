//! Rivals on Redis: each under a prefix of its own beside ours, on the same server.

mod limit;
mod naive;
mod script;
mod space;

use std::sync::Arc;

use statehold_core::{Error, Result};
use statehold_redis::Config;

use crate::rival::Rival;
use crate::store::Rivals;
use limit::Limit;
use naive::Naive;
use space::Space;

pub(crate) async fn rivals(store: &Config) -> Result<Rivals> {
    let limit = Limit::open(Space::create(store, "limit").await?).await?;
    let naive = Naive::open(Space::create(store, "naive").await?).await?;
    Ok(Rivals { limit: Arc::new(Rival::new(limit)), naive: Arc::new(Rival::new(naive)) })
}

/// What a command of the server answers.
type Done<T> = redis::RedisResult<T>;

fn broken(error: redis::RedisError) -> Error {
    Error::unavailable(format!("a rival's command failed: {error}")).caused_by(error)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use statehold_conformance::redis::Server;
    use statehold_redis::Redis;

    use super::*;
    use crate::ops::Op;
    use crate::{Options, Store};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn both_rivals_do_every_operation_leave_their_traces_and_are_gone_afterwards() {
        let server = Server::start(&[]);
        let store = Config::from_url(&server.url()).expect("a good URL");
        let rivals = rivals(&store).await.expect("the rivals open");
        for contender in [&rivals.limit, &rivals.naive] {
            for op in Op::ALL {
                crate::rival::tests::every_call_leaves_a_trace(contender.as_ref(), op).await;
            }
        }
        drop(rivals);
        let mut db =
            store.client().expect("a client").get_multiplexed_async_connection().await.expect("connected");
        let keys: usize = redis::cmd("DBSIZE").query_async(&mut db).await.expect("counted");
        assert_eq!(keys, 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ours_is_measured_beside_them() {
        let server = Server::start(&[]);
        let config = Config::from_url(&server.url()).expect("a good URL");
        let backend = Arc::new(Redis::open(config.clone()).await.expect("the store opens"));
        let options = Options {
            ops: vec![Op::TaskClaim, Op::EntryGet],
            concurrency: vec![4],
            rounds: 1,
            slice: Duration::from_millis(50),
            present: 100,
            ..Options::default()
        };
        let store = Store::Redis(Box::new(config));
        let report = crate::run(backend, &store, &options, |_| {}).await.expect("it is measured");
        for row in &report.results {
            assert!(row.ratio_limit.is_some() && row.ratio_naive.is_some(), "{row:?}");
        }
    }
}
