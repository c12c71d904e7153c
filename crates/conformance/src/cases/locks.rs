//! Locks: one holder at a time, and tokens that only grow.

use statehold_core::batch::Fence;
use statehold_core::command::{
    Done, LockAcquire, LockAcquired, LockForceRelease, LockFreed, LockRelease, LockRenew, LockRenewed,
};
use statehold_core::dump::Record;
use statehold_core::error::Place;
use statehold_core::model::{Lock, Token};
use statehold_core::query::KeyList;
use statehold_core::session::{Session, SessionId};
use statehold_core::{Batch, ErrorKind, Result};

use crate::harness::{Store, at_once, json, refused, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_lock_that_is_free_is_acquired,
    a_lock_is_held_for_a_minute_unless_said_otherwise,
    a_held_lock_is_refused_with_who_has_it,
    a_lock_can_be_acquired_again_when_it_expires,
    renewing_keeps_a_lock,
    renewing_a_lost_lock_is_fenced,
    releasing_frees_a_lock,
    releasing_twice_is_no_error,
    an_expired_lock_that_nobody_took_is_released_gladly,
    releasing_what_another_took_is_fenced,
    releasing_what_one_never_held_is_fenced,
    force_release_frees_a_lock_whoever_holds_it,
    force_release_is_audited_also_when_nobody_held_it,
    tokens_grow_from_one_holder_to_the_next,
    tokens_grow_when_the_clock_goes_back,
    a_free_lock_is_remembered_for_24_hours,
    a_held_lock_is_never_forgotten,
    a_lock_is_forgotten_a_day_after_its_end_swept_or_not,
    a_forgotten_lock_still_gives_larger_tokens,
    locks_are_listed_while_they_are_held,
    locks_are_listed_page_by_page,
    of_many_contenders_one_wins,
    nobody_gets_in_between,
    a_lock_of_a_session_is_held_like_any_other_while_the_session_lasts,
    a_lock_of_a_session_that_has_ended_is_free,
    no_dump_knows_of_sessions,
];

async fn acquire(store: &Store, owner: &str) -> Result<LockAcquired> {
    store.run(LockAcquire::new("l", owner)).await
}

async fn acquired(store: &Store, owner: &str) -> Token {
    acquire(store, owner).await.expect("the lock is free").token
}

async fn renew(store: &Store, token: Token) -> Result<LockRenewed> {
    store.run(LockRenew { key: "l".into(), token, ttl_seconds: 60.into() }).await
}

async fn release(store: &Store, token: Token) -> Result<Done> {
    store.run(LockRelease { key: "l".into(), token }).await
}

async fn get(store: &Store) -> Option<Lock> {
    store.backend.lock_get(&store.namespace, "l").await.expect("the lock is read")
}

async fn remembered(store: &Store) -> usize {
    store.dump().await.iter().filter(|record| matches!(record, Record::Lock(_))).count()
}

async fn a_lock_that_is_free_is_acquired(store: Store) {
    assert_eq!(get(&store).await, None);
    let lock = LockAcquire { ttl_seconds: 5.into(), ..LockAcquire::new("l", "a") };
    let lock = store.run(lock).await.expect("acquired");
    assert_eq!(lock.expires_at, store.now() + 5.into());
    assert_eq!(lock.token, Token(store.now().as_micros()));
    let (key, owner) = ("l".into(), "a".into());
    let (token, acquired_at, expires_at) = (lock.token, store.now(), lock.expires_at);
    assert_eq!(get(&store).await, Some(Lock { key, owner, token, acquired_at, expires_at }));
    store.run(LockAcquire::new("other", "b")).await.expect("another lock is another lock");
}

async fn a_lock_is_held_for_a_minute_unless_said_otherwise(store: Store) {
    let text = r#"{"commands": [{"op": "lock.acquire", "key": "l", "owner": "a"}]}"#;
    let batch = Batch::from_json(&store.namespace, text).expect("a good batch");
    store.apply(batch).await.expect("acquired");
    assert_eq!(get(&store).await.expect("held").expires_at, store.now() + 60.into());
}

async fn a_held_lock_is_refused_with_who_has_it(store: Store) {
    acquired(&store, "a").await;
    let before = get(&store).await;
    store.clock.advance(59);
    for owner in ["b", "a"] {
        let error = refused(acquire(&store, owner).await, "held");
        let expires_at = Some(store.now() + 1.into());
        assert_eq!(error.kind(), &ErrorKind::Held { owner: Some("a".into()), expires_at });
        assert_eq!((error.place(), error.key()), (Some(Place::Command(0)), Some("l")));
        assert!(error.is_retryable());
    }
    assert_eq!(get(&store).await, before);
}

async fn a_lock_can_be_acquired_again_when_it_expires(store: Store) {
    acquired(&store, "a").await;
    store.clock.advance(60);
    assert_eq!(get(&store).await, None, "it is over, though nobody swept");
    acquired(&store, "b").await;
    let lock = get(&store).await.expect("held");
    assert_eq!((lock.owner.as_str(), lock.acquired_at), ("b", store.now()));
}

async fn renewing_keeps_a_lock(store: Store) {
    let token = acquired(&store, "a").await;
    let acquired_at = store.now();
    for _ in 0..3 {
        store.clock.advance(59);
        let renewed = renew(&store, token).await.expect("it is held");
        assert_eq!(renewed.expires_at, store.now() + 60.into());
    }
    let lock = get(&store).await.expect("held");
    assert_eq!((lock.token, lock.acquired_at), (token, acquired_at));
    let short = LockRenew { key: "l".into(), token, ttl_seconds: 1.into() };
    assert_eq!(store.run(short).await.expect("held").expires_at, store.now() + 1.into());
    store.clock.advance(1);
    assert_eq!(get(&store).await, None);
}

async fn renewing_a_lost_lock_is_fenced(store: Store) {
    refused(renew(&store, Token(1)).await, "fenced");
    let token = acquired(&store, "a").await;
    let error = refused(renew(&store, Token(token.0 + 1)).await, "fenced");
    let lost_at = Some(store.now());
    assert_eq!(error.kind(), &ErrorKind::Fenced { lost_at, owner: Some("a".into()) });
    store.clock.advance(60);
    let error = refused(renew(&store, token).await, "fenced");
    assert_eq!(error.kind(), &ErrorKind::Fenced { lost_at: Some(store.now()), owner: None });
    let next = acquired(&store, "b").await;
    store.clock.advance(1);
    let error = refused(renew(&store, token).await, "fenced");
    let lost_at = Some(store.now() - 1.into());
    assert_eq!(error.kind(), &ErrorKind::Fenced { lost_at, owner: Some("b".into()) });
    release(&store, next).await.expect("released");
    refused(renew(&store, next).await, "fenced");
}

async fn releasing_frees_a_lock(store: Store) {
    let token = acquired(&store, "a").await;
    assert_eq!(release(&store, token).await, Ok(Done {}));
    assert_eq!(get(&store).await, None);
    acquired(&store, "b").await;
}

async fn releasing_twice_is_no_error(store: Store) {
    let token = acquired(&store, "a").await;
    release(&store, token).await.expect("released");
    release(&store, token).await.expect("nobody took it since");
    store.clock.advance(3600);
    release(&store, token).await.expect("nobody took it since");
}

async fn an_expired_lock_that_nobody_took_is_released_gladly(store: Store) {
    let token = acquired(&store, "a").await;
    store.clock.advance(3600);
    store.sweep().await;
    release(&store, token).await.expect("nobody took it since");
}

async fn releasing_what_another_took_is_fenced(store: Store) {
    let first = acquired(&store, "a").await;
    release(&store, first).await.expect("released");
    let second = acquired(&store, "b").await;
    let error = refused(release(&store, first).await, "fenced");
    let lost_at = Some(store.now());
    assert_eq!(error.kind(), &ErrorKind::Fenced { lost_at, owner: Some("b".into()) });
    assert_eq!(get(&store).await.expect("still held").owner, "b");
    release(&store, second).await.expect("released");
    refused(release(&store, first).await, "fenced");
    store.clock.advance(3600);
    acquired(&store, "c").await;
    refused(release(&store, second).await, "fenced");
}

async fn releasing_what_one_never_held_is_fenced(store: Store) {
    let error = refused(release(&store, Token(1)).await, "fenced");
    assert_eq!(error.place(), Some(Place::Command(0)));
    let token = acquired(&store, "a").await;
    for wrong in [Token(token.0 - 1), Token(token.0 + 1)] {
        refused(release(&store, wrong).await, "fenced");
    }
    release(&store, token).await.expect("it is still held");
    refused(release(&store, Token(token.0 + 1)).await, "fenced");
}

async fn force_release_frees_a_lock_whoever_holds_it(store: Store) {
    let token = acquired(&store, "a").await;
    let held = get(&store).await;
    let force = || LockForceRelease { key: "l".into() };
    assert_eq!(store.run(force()).await, Ok(LockFreed { previous: held }));
    assert_eq!(get(&store).await, None);
    refused(renew(&store, token).await, "fenced");
    assert!(acquired(&store, "b").await > token);
    store.clock.advance(60);
    assert_eq!(store.run(force()).await, Ok(LockFreed { previous: None }), "it had expired");
}

async fn force_release_is_audited_also_when_nobody_held_it(store: Store) {
    acquired(&store, "a").await;
    for _ in 0..2 {
        store.clock.advance(1);
        let mut batch = store.batch().actor("admin");
        batch.add(LockForceRelease { key: "l".into() });
        store.apply(batch).await.expect("freed");
    }
    let audit = store.events(&stream("audit/local")).await;
    assert_eq!(audit.len(), 2);
    for event in &audit {
        assert_eq!((event.kind.as_str(), event.actor.as_deref()), ("lock.force_released", Some("admin")));
    }
    assert_eq!(audit[0].data, Some(json(r#"{"key":"l","owner":"a"}"#)));
    assert_eq!(audit[1].data, Some(json(r#"{"key":"l","owner":null}"#)));
    assert_eq!(audit[1].at, store.now());
}

async fn tokens_grow_from_one_holder_to_the_next(store: Store) {
    let mut last = Token(0);
    for owner in ["a", "b", "c"] {
        let token = acquired(&store, owner).await;
        assert!(token > last, "after a release at the same instant");
        release(&store, token).await.expect("released");
        let token = acquired(&store, owner).await;
        store.clock.advance(60);
        last = acquired(&store, owner).await;
        assert!(last > token, "after an expiry");
        assert_eq!(last, Token(store.now().as_micros()));
        store.run(LockForceRelease { key: "l".into() }).await.expect("freed");
    }
}

async fn tokens_grow_when_the_clock_goes_back(store: Store) {
    let first = acquired(&store, "a").await;
    store.clock.advance(60);
    let second = acquired(&store, "b").await;
    store.clock.rewind(7200);
    refused(acquire(&store, "c").await, "held");
    release(&store, second).await.expect("released");
    let third = acquired(&store, "c").await;
    assert!(first < second && second < third);
    assert_eq!(third, Token(second.0 + 1));
}

async fn a_free_lock_is_remembered_for_24_hours(store: Store) {
    let token = acquired(&store, "a").await;
    store.clock.advance(10);
    release(&store, token).await.expect("released");
    store.clock.advance(50 + 86_399);
    assert_eq!(store.sweep().await.locks, 0, "the day begins when it would have expired");
    assert_eq!(remembered(&store).await, 1);
    store.clock.advance(1);
    assert_eq!(store.sweep().await.locks, 1);
    assert_eq!(remembered(&store).await, 0);

    acquired(&store, "b").await;
    store.clock.advance(60 + 86_399);
    assert_eq!(store.sweep().await.locks, 0, "the day begins when it expires");
    let late = acquired(&store, "c").await;
    store.clock.rewind(86_400);
    release(&store, late).await.expect("released");
    assert!(acquired(&store, "d").await > late, "the row remembers what the clock forgot");
}

async fn a_held_lock_is_never_forgotten(store: Store) {
    let week = || 604_800.into();
    let long = LockAcquire { ttl_seconds: week(), ..LockAcquire::new("long", "a") };
    store.run(long).await.expect("acquired");
    let token = acquired(&store, "a").await;
    let renew = LockRenew { key: "l".into(), token, ttl_seconds: week() };
    store.run(renew).await.expect("renewed");
    store.clock.advance(604_799);
    assert_eq!(store.sweep().await.locks, 0);
    assert_eq!(get(&store).await.expect("held").token, token);
    refused(store.run(LockAcquire::new("long", "b")).await, "held");
}

async fn a_lock_is_forgotten_a_day_after_its_end_swept_or_not(store: Store) {
    for swept in [false, true] {
        let token = acquired(&store, "a").await;
        store.clock.advance(60 + 86_400);
        if swept {
            store.sweep().await;
        }
        refused(store.run(LockRelease { key: "l".into(), token }).await, "fenced");
    }
}

async fn a_forgotten_lock_still_gives_larger_tokens(store: Store) {
    let token = acquired(&store, "a").await;
    store.clock.advance(60 + 86_400);
    assert_eq!(store.sweep().await.locks, 1);
    assert!(acquired(&store, "b").await > token);
}

async fn listed(store: &Store, list: &KeyList) -> (Vec<String>, Option<String>) {
    let page = store.backend.lock_list(&store.namespace, list).await.expect("listed");
    (page.items.into_iter().map(|lock| lock.key).collect(), page.next_cursor)
}

async fn locks_are_listed_while_they_are_held(store: Store) {
    for key in ["t/b", "t/B", "T/b", "t/ä", "t_", "u/1"] {
        store.run(LockAcquire::new(key, "a")).await.expect("acquired");
    }
    store
        .run(LockAcquire { ttl_seconds: 5.into(), ..LockAcquire::new("t/short", "a") })
        .await
        .expect("acquired");
    let freed = store.run(LockAcquire::new("t/freed", "a")).await.expect("acquired").token;
    store.run(LockRelease { key: "t/freed".into(), token: freed }).await.expect("released");
    store.clock.advance(5);
    let prefixed = |prefix: &str| KeyList { prefix: prefix.into(), ..KeyList::default() };
    assert_eq!(listed(&store, &prefixed("t/")).await.0, ["t/B", "t/b", "t/ä"]);
    assert_eq!(listed(&store, &prefixed("t_")).await.0, ["t_"], "a prefix is no pattern");
    assert_eq!(listed(&store, &prefixed("")).await.0.len(), 6);
    let page = store.backend.lock_list(&store.namespace, &prefixed("u/")).await.expect("listed");
    let expected = store.backend.lock_get(&store.namespace, "u/1").await.expect("read");
    assert_eq!(page.items.first(), expected.as_ref());
}

async fn locks_are_listed_page_by_page(store: Store) {
    for n in 0..5 {
        store.run(LockAcquire::new(format!("t/{n}"), "a")).await.expect("acquired");
    }
    let mut list = KeyList { prefix: "t/".into(), limit: 2, cursor: None };
    let mut pages = Vec::new();
    loop {
        let (keys, next) = listed(&store, &list).await;
        pages.push(keys);
        if next.is_none() {
            break;
        }
        list.cursor = next;
    }
    assert_eq!(pages, [vec!["t/0", "t/1"], vec!["t/2", "t/3"], vec!["t/4"]]);
}

async fn of_many_contenders_one_wins(store: Store) {
    let results = at_once(100, |n| {
        let store = store.clone();
        async move { acquire(&store, &format!("w{n}")).await.map(|lock| (n, lock)) }
    })
    .await;
    let winners: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    assert_eq!(winners.len(), 1);
    let (winner, lock) = winners[0];
    let held = get(&store).await.expect("held");
    assert_eq!((held.owner, held.token), (format!("w{winner}"), lock.token));
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        let ErrorKind::Held { owner, .. } = error.kind() else { panic!("{error}") };
        assert_eq!(owner.as_ref(), Some(&format!("w{winner}")));
    }
}

async fn nobody_gets_in_between(store: Store) {
    let rounds = at_once(8, |n| {
        let store = store.clone();
        async move {
            let mut tokens = Vec::new();
            while tokens.len() < 5 {
                match acquire(&store, &format!("w{n}")).await {
                    Ok(lock) => {
                        assert_eq!(get(&store).await.expect("held").token, lock.token);
                        tokens.push(lock.token);
                        release(&store, lock.token).await.expect("released");
                    }
                    Err(error) => assert_eq!(error.code(), "held"),
                }
                tokio::task::yield_now().await;
            }
            tokens
        }
    })
    .await;
    let mut tokens: Vec<_> = rounds.into_iter().flatten().collect();
    let all = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), all, "no token was given twice");
}

/// The session of this process with the store; none if it says that it has no sessions, and what to do instead.
async fn session(store: &Store) -> Option<Session> {
    match store.backend.session().await {
        Ok(session) => Some(session),
        Err(error) => {
            assert!(error.code() == "unsupported" && error.hint_text().is_some(), "{error:?}");
            None
        }
    }
}

fn of(session: SessionId, owner: &str) -> LockAcquire {
    LockAcquire { session: Some(session), ..LockAcquire::new("l", owner) }
}

async fn a_lock_of_a_session_is_held_like_any_other_while_the_session_lasts(store: Store) {
    let Some(session) = session(&store).await else { return };
    let first = store.run(of(session.id(), "a")).await.expect("the lock is free").token;
    refused(acquire(&store, "b").await, "held");
    refused(store.run(of(session.id(), "a")).await, "held");
    renew(&store, first).await.expect("it is held");
    assert_eq!(get(&store).await.expect("it is held").owner, "a");
    assert!(!session.has_ended());
    release(&store, first).await.expect("it is held");
    assert!(acquired(&store, "b").await > first, "tokens grow");
    assert_eq!(get(&store).await.expect("it is held").owner, "b");
}

async fn a_lock_of_a_session_that_has_ended_is_free(store: Store) {
    let Some(session) = session(&store).await else { return };
    // Nobody has this one, as if it had ended just after it was asked for.
    let gone = SessionId(session.id().0 ^ 1);
    let first = store.run(of(gone, "a")).await.expect("the lock is free").token;
    assert_eq!(get(&store).await, None);
    let list = KeyList { prefix: String::new(), limit: 10, cursor: None };
    let listed = store.backend.lock_list(&store.namespace, &list).await.expect("locks are listed");
    assert_eq!(listed.items, []);
    refused(renew(&store, first).await, "fenced");
    let mut batch = Batch::new(&store.namespace).fence(Fence::Lock { lock: "l".into(), token: first });
    batch.add(LockAcquire::new("other", "a"));
    refused(store.apply(batch).await, "fenced");
    assert!(acquired(&store, "b").await > first, "tokens grow");
    refused(release(&store, first).await, "fenced");
    assert_eq!(get(&store).await.expect("it is held").owner, "b");
}

async fn no_dump_knows_of_sessions(store: Store) {
    let Some(session) = session(&store).await else { return };
    store.run(of(session.id(), "a")).await.expect("the lock is free");
    let records: Vec<Record> = store.dump().await;
    let held = records.iter().find_map(|record| match record {
        Record::Lock(row) => row.holder.clone(),
        _ => None,
    });
    assert_eq!(held.expect("the lock is in it").session, None);
}
