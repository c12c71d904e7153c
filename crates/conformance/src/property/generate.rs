//! What is generated, and how often. The universe is small and statuses are aimed at, so that requests
//! collide and most of what can happen does.

use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use statehold_core::Status;
use statehold_core::query::TaskOrder;

use super::ops::{
    Act, BatchOp, Cut, FenceOp, Head, Keep, Must, New, NewId, Op, Src, Str, To, Tok, Wait, Which,
};
use super::questions::{Filter, From, ListOp, Place, Query};

const SECOND: i64 = 1_000_000;
const STATUSES: [Status; 8] = Status::ALL;
const OPEN: [Status; 5] =
    [Status::Backlog, Status::Blocked, Status::Pending, Status::Running, Status::Waiting];

/// A sequence of operations, as many as `length` on average.
pub(crate) fn sequences(length: usize) -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..2 * length)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        50 => batch().prop_map(Op::Batch),
        3 => any::<u8>().prop_map(|nth| Op::Repeat { nth }),
        9 => claim(),
        9 => read(),
        5 => sweep(),
        10 => step().prop_map(Op::Step),
        14 => query().prop_map(Op::Ask),
    ]
}

fn batch() -> impl Strategy<Value = BatchOp> {
    let acts = prop_oneof![6 => vec(act(), 1), 2 => vec(act(), 2), 1 => vec(act(), 3..=4)];
    let fences = prop_oneof![8 => Just(Vec::new()), 2 => vec(fence(), 1..=2)];
    let key = weighted(0.25, (0u8..2, prop_oneof![Just(60u64), Just(900), Just(86_400)]));
    (of(0u8..2), key, fences, acts).prop_map(|(actor, key, fences, acts)| BatchOp {
        actor,
        key,
        fences,
        acts,
    })
}

fn fence() -> impl Strategy<Value = FenceOp> {
    prop_oneof![
        4 => (running(), token()).prop_map(|(task, token)| FenceOp::Task(task, token)),
        2 => (0u8..3, token()).prop_map(|(lock, token)| FenceOp::Lock(lock, token)),
        2 => (0u8..2, source(), token())
            .prop_map(|(group, source, token)| FenceOp::Delivery { group, source, token }),
    ]
}

fn step() -> impl Strategy<Value = i64> {
    prop_oneof![
        2 => Just(1),
        2 => Just(1_000),
        6 => (1..=10i64).prop_map(|s| s * SECOND),
        6 => (1..=12i64).prop_map(|s| s * 5 * SECOND),
        2 => Just(300 * SECOND),
        2 => Just(3600 * SECOND),
        1 => Just(90_000 * SECOND),
        1 => prop_oneof![Just(-1), Just(-SECOND), Just(-7 * SECOND), Just(-600 * SECOND)],
    ]
}

fn claim() -> impl Strategy<Value = Op> {
    let queues = prop_oneof![2 => vec(0u8..3, 1..=2), 3 => Just(vec![0, 1, 2])];
    (queues, 0u8..3, 1u32..=3, lease(), weighted(0.3, 0u8..2))
        .prop_map(|(queues, owner, limit, lease, key)| Op::Claim { queues, owner, limit, lease, key })
}

fn read() -> impl Strategy<Value = Op> {
    (0u8..2, source(), 0u8..2, 1u32..=4, prop_oneof![Just(5u64), Just(30)], 1u32..=3, weighted(0.3, 0u8..2))
        .prop_map(|(group, source, consumer, limit, visibility, most, key)| Op::Read {
            group,
            source,
            consumer,
            limit,
            visibility,
            most,
            key,
        })
}

fn sweep() -> impl Strategy<Value = Op> {
    let keep = || weighted(0.6, prop_oneof![Just(1u64), Just(10), Just(60)]);
    let tasks = (keep(), keep(), keep()).prop_map(|(one, two, three)| [one, two, three]);
    let retention = (tasks, weighted(0.4, 1u64..=3), weighted(0.4, prop_oneof![Just(10u64), Just(300)]))
        .prop_map(|(tasks, rooms, audit)| Keep { tasks, rooms, audit });
    prop_oneof![
        6 => Just(Op::Sweep { limit: 100, retention: None }),
        // Which expired documents go first is not said, so the limit lets all three of them go.
        3 => Just(Op::Sweep { limit: 3, retention: None }),
        2 => retention.prop_map(|keep| Op::Sweep { limit: 100, retention: Some(keep) }),
    ]
}

/// Mostly a task of this status.
fn at(status: Status) -> BoxedStrategy<Which> {
    prop_oneof![
        9 => any::<u8>().prop_map(move |n| Which::At(status, n)),
        1 => any::<u8>().prop_map(Which::Slot),
    ]
    .boxed()
}

fn running() -> BoxedStrategy<Which> {
    at(Status::Running)
}

/// A task of any of these, or of a slot.
fn among(statuses: &'static [Status]) -> BoxedStrategy<Which> {
    prop_oneof![
        8 => (proptest::sample::select(statuses), any::<u8>()).prop_map(|(status, n)| Which::At(status, n)),
        1 => any::<u8>().prop_map(Which::Slot),
    ]
    .boxed()
}

/// A task of any of these, or one that is first in line.
fn in_line(statuses: &'static [Status]) -> BoxedStrategy<Which> {
    prop_oneof![3 => among(statuses), 2 => (0u8..3).prop_map(Which::First)].boxed()
}

fn anywhere() -> BoxedStrategy<Which> {
    among(&STATUSES)
}

fn token() -> impl Strategy<Value = Tok> {
    prop_oneof![10 => Just(Tok::Current), 1 => Just(Tok::Stale), 1 => Just(Tok::Wrong)]
}

fn lease() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![4 => Just(Some(30)), 3 => Just(Some(5)), 1 => Just(None)]
}

fn source() -> impl Strategy<Value = Src> {
    prop_oneof![4 => Just(Src::Room(0)), 4 => Just(Src::Rooms), 1 => Just(Src::Tasks), 1 => Just(Src::Dead)]
}

fn stream() -> impl Strategy<Value = Str> {
    prop_oneof![
        6 => prop_oneof![3 => Just(0u8), 1 => Just(1), 1 => Just(2)].prop_map(Str::Room),
        3 => anywhere().prop_map(Str::Task),
        1 => (0u8..2).prop_map(Str::Dead),
        1 => Just(Str::Audit),
        1 => Just(Str::Nobody),
    ]
}

fn soon() -> impl Strategy<Value = i64> {
    prop_oneof![Just(-5i64), Just(0), Just(1), Just(5), Just(10), Just(60)]
}

fn new() -> impl Strategy<Value = New> {
    let id = prop_oneof![2 => Just(NewId::Same), 5 => Just(NewId::Fresh), 1 => Just(NewId::Generated)];
    let family =
        weighted(0.35, (among(&[Status::Running, Status::Waiting, Status::Pending]), weighted(0.6, 0u8..2)));
    let depends_on = prop_oneof![5 => Just(Vec::new()), 3 => vec(anywhere(), 1), 2 => vec(anywhere(), 2..=3)];
    let key = prop_oneof![4 => Just(0u8), 1 => 1u8..3];
    let keys = (weighted(0.15, 0u8..3), any::<bool>(), weighted(0.4, key), weighted(0.15, Just(())));
    let times =
        (weighted(0.3, soon()), weighted(0.15, soon()), weighted(0.2, prop_oneof![Just(5u64), Just(20)]));
    let tries = (weighted(0.5, 1u32..=2), weighted(0.5, 1u32..=2), weighted(0.12, Just(())));
    (0u8..8, id, 0u8..3, 0u8..4, family, depends_on, keys, times, tries).prop_map(
        |(slot, id, queue, shape, family, depends_on, keys, times, tries)| New {
            slot,
            id,
            queue,
            shape,
            parent: family.map(|(parent, _)| parent),
            child_key: family.and_then(|(_, key)| key),
            depends_on,
            idempotency_key: keys.0,
            returns: keys.1,
            exclusive_key: keys.2,
            rejects: keys.3.is_some(),
            run_in: times.0,
            expires_in: times.1,
            timeout: times.2,
            tries: tries.0,
            losses: tries.1,
            backlog: tries.2.is_some(),
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        13 => new().prop_map(Act::Create),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(nth, returns)| Act::CreateAgain { nth, returns }),
        18 => leased_act(),
        14 => task_act(),
        11 => stream_act(),
        9 => group_act(),
        7 => document_act(),
        5 => entry_act(),
        8 => lock_act(),
        3 => (0u8..3, any::<bool>()).prop_map(|(queue, paused)| Act::Pause { queue, paused }),
    ]
}

fn leased_act() -> impl Strategy<Value = Act> {
    let wait = prop_oneof![
        3 => (0u8..2).prop_map(Wait::Signal),
        5 => Just(Wait::Children),
        2 => soon().prop_map(Wait::Until),
    ];
    let timeout = weighted(0.4, prop_oneof![Just(5u64), Just(30)]);
    prop_oneof![
        3 => (running(), token(), weighted(0.5, Just(10u64)), any::<bool>())
            .prop_map(|(task, token, lease, progress)| Act::Renew { task, token, lease, progress }),
        5 => (running(), token(), any::<bool>())
            .prop_map(|(task, token, output)| Act::Complete { task, token, output }),
        1 => (at(Status::Completed), token(), any::<bool>())
            .prop_map(|(task, token, output)| Act::Complete { task, token, output }),
        5 => (running(), token(), prop::bool::weighted(0.6))
            .prop_map(|(task, token, retry)| Act::Fail { task, token, retry }),
        2 => (running(), token(), of(soon()))
            .prop_map(|(task, token, run_in)| Act::Release { task, token, run_in }),
        6 => (running(), token(), wait, timeout, any::<bool>()).prop_map(
            |(task, token, wait, timeout, fails)| Act::Suspend { task, token, wait, timeout, fails }
        ),
    ]
}

fn task_act() -> impl Strategy<Value = Act> {
    let ended = || among(&[Status::Failed, Status::Cancelled]);
    let idle = || in_line(&[Status::Pending, Status::Blocked]);
    let all_ended = || among(&[Status::Completed, Status::Failed, Status::Cancelled]);
    prop_oneof![
        6 => (at(Status::Pending), 0u8..3, lease())
            .prop_map(|(task, owner, lease)| Act::Start { task, owner, lease }),
        3 => (among(&[Status::Waiting, Status::Running, Status::Pending, Status::Failed]), 0u8..2)
            .prop_map(|(task, name)| Act::Signal { task, name }),
        2 => (at(Status::Waiting), 0u8..2).prop_map(|(task, name)| Act::Signal { task, name }),
        5 => (in_line(&OPEN), any::<bool>(), any::<bool>())
            .prop_map(|(task, force, children)| Act::Cancel { task, force, children }),
        1 => anywhere().prop_map(|task| Act::Cancel { task, force: false, children: false }),
        2 => running().prop_map(|task| Act::Evict { task }),
        4 => (ended(), any::<bool>()).prop_map(|(task, deep)| Act::Retry { task, deep }),
        2 => at(Status::Backlog).prop_map(|task| Act::Promote { task }),
        2 => (idle(), of(-2i64..=2)).prop_map(|(task, rank)| Act::Park { task, rank }),
        4 => amend(),
        3 => all_ended().prop_map(|task| Act::Purge { task }),
    ]
}

fn amend() -> impl Strategy<Value = Act> {
    (in_line(&OPEN), weighted(0.2, 0u64..=2), 0u8..4, weighted(0.4, soon()), weighted(0.1, soon())).prop_map(
        |(task, revision, shape, run_in, expires_in)| Act::Amend {
            task,
            revision,
            shape,
            run_in,
            expires_in,
        },
    )
}

fn stream_act() -> impl Strategy<Value = Act> {
    let cut = prop_oneof![
        (0u64..=3).prop_map(Cut::Length),
        prop_oneof![Just(1u64), Just(10), Just(60)].prop_map(Cut::Age),
        (0u64..=3).prop_map(Cut::Behind),
    ];
    let head = weighted(0.3, prop_oneof![2 => Just(Head::Right), 1 => Just(Head::Wrong)]);
    prop_oneof![
        8 => (stream(), 1u8..=3, head).prop_map(|(stream, events, head)| Act::Append { stream, events, head }),
        3 => (stream(), cut).prop_map(|(stream, to)| Act::Trim { stream, to }),
        1 => stream().prop_map(|stream| Act::PurgeStream { stream }),
    ]
}

fn group_act() -> impl Strategy<Value = Act> {
    let token = || prop_oneof![6 => Just(Tok::Current), 1 => Just(Tok::Stale), 1 => Just(Tok::Wrong)];
    let to = prop_oneof![
        2 => Just(To::Oldest),
        2 => Just(To::Latest),
        2 => any::<u8>().prop_map(To::Nth),
        1 => Just(To::Start),
    ];
    prop_oneof![
        4 => (0u8..2, source(), token(), 1u8..=2)
            .prop_map(|(group, source, token, count)| Act::Ack { group, source, token, count }),
        4 => (0u8..2, source(), token(), 1u8..=2, of(prop_oneof![Just(0u64), Just(5)])).prop_map(
            |(group, source, token, count, delay)| Act::Nack { group, source, token, count, delay }
        ),
        2 => (0u8..2, source(), to).prop_map(|(group, source, to)| Act::Seek { group, source, to }),
    ]
}

fn document_act() -> impl Strategy<Value = Act> {
    let must = || {
        prop_oneof![
            3 => Just(Must::Any),
            1 => Just(Must::Absent),
            3 => prop_oneof![4 => Just(0u64), 1 => Just(1)].prop_map(Must::At),
        ]
    };
    let ttl = weighted(0.5, prop_oneof![Just(1u64), Just(5), Just(60)]);
    prop_oneof![
        5 => (0u8..3, must(), ttl, any::<bool>())
            .prop_map(|(document, must, ttl, binary)| Act::Put { document, must, ttl, binary }),
        2 => (0u8..3, must()).prop_map(|(document, must)| Act::Delete { document, must }),
    ]
}

fn entry_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0u8..3, prop_oneof![Just(1u64), Just(10), Just(3600)], any::<bool>())
            .prop_map(|(entry, ttl, if_absent)| Act::SetEntry { entry, ttl, if_absent }),
        2 => (0u8..3).prop_map(|entry| Act::TakeEntry { entry }),
        1 => (0u8..3).prop_map(|entry| Act::DeleteEntry { entry }),
    ]
}

fn lock_act() -> impl Strategy<Value = Act> {
    let ttl = || prop_oneof![Just(5u64), Just(60)];
    let token = || prop_oneof![6 => Just(Tok::Current), 1 => Just(Tok::Stale), 1 => Just(Tok::Wrong)];
    prop_oneof![
        5 => (0u8..3, 0u8..3, ttl()).prop_map(|(lock, owner, ttl)| Act::Acquire { lock, owner, ttl }),
        2 => (0u8..3, token(), ttl()).prop_map(|(lock, token, ttl)| Act::RenewLock { lock, token, ttl }),
        3 => (0u8..3, token()).prop_map(|(lock, token)| Act::ReleaseLock { lock, token }),
        1 => (0u8..3).prop_map(|lock| Act::ForceRelease { lock }),
    ]
}

fn query() -> impl Strategy<Value = Query> {
    let from = prop_oneof![
        Just(From::Oldest),
        (0u64..=6).prop_map(From::After),
        (0u64..=6).prop_map(From::Before),
        Just(From::Last),
    ];
    let place = prop_oneof![
        2 => Just(Place::Oldest),
        1 => any::<u8>().prop_map(Place::After),
        3 => (0u8..4).prop_map(Place::Page),
        1 => Just(Place::Latest),
    ];
    let documents = (0u8..2, any::<bool>(), any::<bool>(), any::<bool>(), 1u32..=3);
    prop_oneof![
        2 => vec(anywhere(), 1..=3).prop_map(Query::Tasks),
        4 => list().prop_map(Query::List),
        2 => Just(Query::NextPage),
        2 => of(0u8..3).prop_map(Query::Count),
        3 => (stream(), from, 1u32..=4).prop_map(|(stream, from, limit)| Query::Stream { stream, from, limit }),
        3 => (0u8..4, place, 1u32..=5).prop_map(|(category, from, limit)| Query::Category { category, from, limit }),
        1 => (any::<bool>(), 1u32..=5).prop_map(|(tasks, limit)| Query::Streams { tasks, limit }),
        2 => (0u8..2, source()).prop_map(|(group, source)| Query::Group { group, source }),
        1 => (0u8..3).prop_map(Query::Document),
        1 => documents.prop_map(|(kind, prefix, label, descending, limit)| {
            Query::Documents { kind, prefix, label, descending, limit }
        }),
        1 => (0u8..3).prop_map(Query::Entry),
        1 => (1u32..=2).prop_map(|limit| Query::Entries { limit }),
        1 => (0u8..3).prop_map(Query::Lock),
        1 => (1u32..=2).prop_map(|limit| Query::Locks { limit }),
        2 => Just(Query::Queues),
    ]
}

fn list() -> impl Strategy<Value = ListOp> {
    let seconds = || prop_oneof![Just(0u64), Just(5), Just(60)];
    let filter = prop_oneof![
        3 => Just(Filter::All),
        3 => proptest::sample::select(&STATUSES[..]).prop_map(Filter::Status),
        1 => (0u8..3).prop_map(Filter::Queue),
        1 => (0u8..4).prop_map(Filter::Kind),
        1 => Just(Filter::Thread),
        1 => anywhere().prop_map(Filter::Parent),
        1 => anywhere().prop_map(Filter::Root),
        1 => (0u8..3).prop_map(Filter::Owner),
        1 => (0u8..4).prop_map(Filter::Label),
        1 => (0u8..3).prop_map(Filter::Idempotency),
        1 => (0u8..3).prop_map(Filter::Exclusive),
        1 => (seconds(), any::<bool>()).prop_map(|(seconds, before)| Filter::Created { seconds, before }),
        1 => (seconds(), any::<bool>()).prop_map(|(seconds, before)| Filter::Heartbeat { seconds, before }),
    ];
    let order = prop_oneof![Just(TaskOrder::Created), Just(TaskOrder::Rank), Just(TaskOrder::Claim)];
    (filter, order, any::<bool>(), 1u32..=4, any::<bool>()).prop_map(
        |(filter, order, descending, limit, whole)| ListOp { filter, order, descending, limit, whole },
    )
}
