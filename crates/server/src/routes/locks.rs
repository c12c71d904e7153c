//! Locks: taken, kept, freed.

use std::sync::Arc;

use axum::http::{Method, StatusCode};
use serde_json::json;
use statehold::wait::Wait;
use statehold::{Error, Seconds, taken};
use statehold_core::command::{LockAcquire, LockAcquired, LockForceRelease, LockRelease, LockRenew};
use statehold_core::model::Lock;
use statehold_core::query::Page;
use statehold_core::wake::Topic;

use crate::access::Rule;
use crate::asked::{Asked, Reply, ok};
use crate::problem::{Answer, Problem};
use crate::route::{CURSOR, Kind, LIMIT, PREFIX, Param, Route};

pub(super) fn routes() -> Vec<Route> {
    let token = 1_769_846_400_000_000_i64;
    vec![
        Route::new(
            Method::POST,
            "/locks/{key}/acquire",
            Rule::Work,
            "Takes a lock, or waits for it.",
            acquire,
        )
        .takes_without::<LockAcquire>(&["key"])
        .takes_also::<Seconds>("wait_seconds")
        .example(json!({ "owner": "controller-1", "ttl_seconds": 60, "wait_seconds": 0 }))
        .answers::<LockAcquired>(StatusCode::OK),
        Route::command::<LockRenew>(Method::POST, "/locks/{key}/renew").example(json!({ "token": token })),
        Route::command::<LockRelease>(Method::POST, "/locks/{key}/release")
            .example(json!({ "token": token })),
        Route::command::<LockForceRelease>(Method::POST, "/locks/{key}/force-release"),
        Route::new(Method::GET, "/locks", Rule::Read, "Lists locks that are held.", list)
            .query(const { &[PREFIX, Param::new("key", Kind::Text, "Only the lock of this key."), LIMIT, CURSOR] })
            .lists::<Page<Lock>, Lock>(),
        Route::new(Method::GET, "/locks/{key}", Rule::Read, "A lock that is held.", get)
            .answers::<Lock>(StatusCode::OK),
    ]
}

async fn acquire(asked: Asked) -> Answer {
    let mut fields = asked.fields()?;
    let most = Asked::wait_in(&mut fields)?;
    fields.give("key", asked.path("key"))?;
    let acquire: LockAcquire = fields.read()?;
    let topic = [Topic::Lock(acquire.key.clone())];
    let asked = Arc::new(asked);
    let (own, acquire, topic) = (&asked, &acquire, &topic);
    let taking = |most| async move {
        let mut wait = Wait::begin(&own.hold, topic, Some(most)).await?;
        loop {
            let (expires_at, held) = match take(own, acquire.clone()).await {
                Ok(reply) => return Result::<_, Problem>::Ok(reply),
                Err(problem) => (problem.held_until(), problem),
            };
            // Nobody is woken when a lock runs out, so that is slept for.
            if held.code() != "held" || !wait.sleep(expires_at).await {
                return Err(held);
            }
        }
    };
    let reply = asked.waiting(most, taking).await?;
    reply.answer(StatusCode::OK)
}

/// Tries once. If nobody waits for the answer any more, the lock is freed again.
async fn take(asked: &Arc<Asked>, acquire: LockAcquire) -> Result<Reply<LockAcquired>, Problem> {
    let (taking, returning, key) = (Arc::clone(asked), Arc::clone(asked), acquire.key.clone());
    let give_back = async move |taken: Result<Reply<LockAcquired>, Problem>| {
        if let Ok(taken) = taken {
            // If that fails, it runs out by itself.
            let _ = returning.hold.locks().release(&key, taken.value.token).await;
        }
    };
    taken::take(async move { Ok(taking.run(acquire).await) }, give_back).await?
}

async fn list(asked: Asked) -> Answer {
    let mut page = match asked.query("key") {
        Some(key) => {
            Page { items: asked.hold.locks().get(key).await?.into_iter().collect(), next_cursor: None }
        }
        None => asked.hold.locks().list(&super::key_list(&asked)?).await?,
    };
    page.items.iter_mut().for_each(|lock| asked.caller.hide_lock(lock));
    ok(&page)
}

async fn get(asked: Asked) -> Answer {
    let key = asked.path("key");
    let mut lock = asked.hold.locks().get(key).await?.ok_or_else(|| Error::not_found("lock", key))?;
    asked.caller.hide_lock(&mut lock);
    ok(&lock)
}
