//! Several stores on one schema, as several processes have them: joins, lock order, category order, lost connections.

mod common;

use std::collections::BTreeMap;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use libtest_mimic::{Arguments, Trial};
use statehold_conformance::postgres;
use statehold_core::batch::BatchKey;
use statehold_core::call::Claim;
use statehold_core::command::{
    DocumentPut, EntrySet, Expect, LockAcquire, LockForceRelease, LockRelease, NewEvent, Op, StreamAppend,
    TaskCancel, TaskComplete, TaskCreate, TaskSignal, TaskStart,
};
use statehold_core::model::{Task, TaskId, Token};
use statehold_core::query::{CategoryCursor, CategoryFrom, CategoryRead, ReadFrom, StreamRead};
use statehold_core::{Backend, Batch, Error, Json, Result, Status};
use statehold_postgres::{Config, Postgres};
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, NoTls};

/// How long anything may take. It only keeps a broken store from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    postgres::with_server(|| {
        let trials = vec![
            test("nobody_stays_blocked_whose_dependencies_end_meanwhile", lost_joins),
            test("no_deadlock_reaches_a_caller", mixed_batches),
            test("a_category_skips_nothing_and_turns_no_stream_around", category_order),
            test("what_was_acknowledged_survives_lost_connections", lost_connections),
            test("each_task_goes_to_one_of_several_processes", claims),
            test("what_another_process_changed_is_not_decided_from_memory", memories),
            test("a_namespace_is_not_written_to_before_its_number_is_known", new_namespaces),
        ];
        libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
    })
}

fn test<F: Future<Output = ()> + 'static>(name: &str, run: fn() -> F) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let judged = runtime.block_on(async { timeout(2 * PATIENCE, run()).await });
        judged.map_err(|_| "it does not end".into())
    })
}

async fn several(count: usize) -> (Config, Vec<Postgres>) {
    let config = common::config();
    let opened = join_all((0..count).map(|_| Postgres::open(config.clone()))).await;
    (config, opened.into_iter().map(|store| store.expect("it opens")).collect())
}

async fn run<O: Op>(store: &Postgres, command: O) -> Result<O::Reply> {
    let (batch, reply) = Batch::of("n", command);
    store.apply(batch.prepare()?).await?.take(reply)
}

async fn create(store: &Postgres, create: TaskCreate) -> Task {
    run(store, create).await.expect("created").task
}

async fn start(store: &Postgres, id: TaskId) -> Token {
    let start = TaskStart { id, owner: "w".into(), lease_seconds: Some(600.into()) };
    let task = run(store, start).await.expect("started");
    task.lease.expect("a lease").token
}

async fn admin() -> Client {
    let (client, connection) = tokio_postgres::connect(&postgres::url(), NoTls).await.expect("connected");
    tokio::spawn(connection);
    client
}

/// Callers come to many namespaces that are not there yet, so that some look for a number while others make it.
async fn new_namespaces() {
    let (_, stores) = several(1).await;
    for round in 0..150 {
        let call = |caller: usize| {
            let (store, namespace) = (stores[0].clone(), format!("new-{round}-{}", caller % 10));
            tokio::spawn(async move {
                let (batch, _) = Batch::of(&namespace, TaskCreate::new("k"));
                store.apply(batch.prepare()?).await
            })
        };
        for caller in (0..200).map(call).collect::<Vec<_>>() {
            caller.await.expect("it ends").expect("created");
        }
        for namespace in 0..10 {
            let counts =
                stores[0].task_count(&format!("new-{round}-{namespace}"), None).await.expect("counted");
            assert_eq!(
                counts.counts.get(&Status::Pending),
                Some(&20),
                "round {round}, namespace {namespace}"
            );
        }
    }
}

/// Two tasks complete in two processes while a third process makes a task that depends on both.
async fn lost_joins() {
    let (_, stores) = several(3).await;
    let mut blocked = 0;
    for round in 0..300 {
        let (a, b) = (
            create(&stores[0], TaskCreate::new("a")).await.id,
            create(&stores[1], TaskCreate::new("b")).await.id,
        );
        let parent = create(&stores[0], TaskCreate::new("p")).await.id;
        let (token_a, token_b) = (start(&stores[0], a).await, start(&stores[1], b).await);
        let complete = |id, token| TaskComplete { id, token, output: None };
        let joined = TaskCreate {
            depends_on: vec![b, a],
            parent: Some(parent),
            child_key: Some("c".into()),
            ..TaskCreate::new("joined")
        };
        let (one, two, join) = tokio::join!(
            run(&stores[0], complete(a, token_a)),
            run(&stores[1], complete(b, token_b)),
            run(&stores[2], joined)
        );
        one.expect("completed");
        two.expect("completed");
        let joined = join.expect("created").task;
        blocked += usize::from(joined.status == Status::Blocked);
        let now = stores[0].task_get("n", &[joined.id]).await.expect("read").remove(0).expect("it is there");
        assert_eq!(now.status, Status::Pending, "round {round}: it was created {}", joined.status);
    }
    assert!(blocked > 10, "the race never happened: {blocked} were blocked");
}

/// One process writes rows, another changes them, and the first, which remembers them as it left them, goes on.
async fn memories() {
    let event = || vec![NewEvent { kind: "said".into(), data: None }];
    let append =
        || StreamAppend { stream: "s/1".parse().expect("a name"), events: event(), expect_seq: None };
    let (_, stores) = several(2).await;
    for (seq, store) in (1..).zip([0, 0, 1, 0, 1, 1, 0]) {
        let appended = run(&stores[store], append()).await.expect("appended");
        assert_eq!(appended.last_seq, seq);
    }

    let (_, stores) = several(2).await;
    let put = |expect| DocumentPut { expect, ..DocumentPut::json("d", "1", Json::null()) };
    let first = run(&stores[0], put(Expect::Any)).await.expect("put").revision;
    let second = run(&stores[1], put(Expect::Revision(first))).await.expect("put").revision;
    run(&stores[0], put(Expect::Revision(first))).await.expect_err("another one was faster");
    run(&stores[0], put(Expect::Revision(second))).await.expect("put");

    let (_, stores) = several(2).await;
    let lock = run(&stores[0], LockAcquire::new("l", "a")).await.expect("acquired");
    run(&stores[0], LockRelease { key: "l".into(), token: lock.token }).await.expect("released");
    let other = run(&stores[1], LockAcquire::new("l", "b")).await.expect("acquired");
    assert!(other.token > lock.token);
    run(&stores[0], LockAcquire::new("l", "a")).await.expect_err("it is held");

    let (_, stores) = several(2).await;
    let complete = |id, token| TaskComplete { id, token, output: None };
    let id = create(&stores[0], TaskCreate::new("k")).await.id;
    let token = start(&stores[0], id).await;
    run(&stores[1], TaskCancel { id, force: true, children: false }).await.expect("cancelled");
    run(&stores[0], complete(id, token)).await.expect_err("it was cancelled");

    // The row of a task does not change when another comes to depend on it.
    let (_, stores) = several(2).await;
    let id = create(&stores[0], TaskCreate::new("k")).await.id;
    let token = start(&stores[0], id).await;
    let dependent = TaskCreate { depends_on: vec![id], ..TaskCreate::new("k") };
    let dependent = create(&stores[1], dependent).await;
    assert_eq!(dependent.status, Status::Blocked);
    run(&stores[0], complete(id, token)).await.expect("completed");
    let now = stores[0].task_get("n", &[dependent.id]).await.expect("read").remove(0).expect("it is there");
    assert_eq!(now.status, Status::Pending);
}

/// Batches that name the same rows in different orders, from three processes.
async fn mixed_batches() {
    let (_, stores) = several(3).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(create(&stores[0], TaskCreate::new("k")).await.id);
    }
    let ids = Arc::new(ids);
    let work = |worker: usize| {
        let (store, ids) = (stores[worker % 3].clone(), Arc::clone(&ids));
        async move {
            for round in 0..60 {
                let mut batch = Batch::new("n");
                let order: Vec<_> =
                    if (worker + round).is_multiple_of(2) { vec![0, 1, 2, 3] } else { vec![3, 2, 1, 0] };
                for place in order {
                    batch.add(TaskSignal { id: ids[place], name: format!("s{}", round % 2), data: None });
                    batch.add(EntrySet::new(format!("e{place}"), Json::null()));
                    batch.add(DocumentPut::json("d", format!("{}", (place + round) % 7), Json::null()));
                    let events = vec![NewEvent { kind: "said".into(), data: None }];
                    let stream = format!("s/{}", (place + worker) % 5).parse().expect("a name");
                    batch.add(StreamAppend { stream, events, expect_seq: None });
                }
                batch.add(TaskCreate {
                    exclusive_key: Some(format!("x{}", round % 3)),
                    ..TaskCreate::new("k")
                });
                if round % 10 == worker % 10 {
                    batch.add(LockAcquire::new(format!("l{worker}"), "me"));
                    batch.add(LockForceRelease { key: format!("l{}", (worker + 1) % 9) });
                }
                match store.apply(batch.prepare().expect("a good batch")).await {
                    Ok(_) => {}
                    // A task keeps a hundred signals, and a lock may be held or not be there.
                    Err(error) => assert!(
                        ["too_large", "held", "not_found"].contains(&error.code()),
                        "round {round} of {worker}: {error}"
                    ),
                }
            }
        }
    };
    join_all((0..9).map(|worker| tokio::spawn(work(worker))))
        .await
        .into_iter()
        .for_each(|done| done.expect("done"));
    for place in 0..5 {
        let read = StreamRead {
            stream: format!("s/{place}").parse().expect("a name"),
            from: ReadFrom::Oldest,
            limit: 1000,
        };
        let page = stores[1].stream_read("n", &read).await.expect("read");
        let numbers: Vec<_> = page.events.iter().map(|event| event.seq).collect();
        assert_eq!(numbers, (1..=page.last_seq).take(1000).collect::<Vec<_>>(), "no gap in s/{place}");
    }
}

/// Writers in three processes, and a reader that follows the category page by page.
async fn category_order() {
    const WRITERS: usize = 6;
    const ROUNDS: usize = 150;
    let (config, stores) = several(3).await;
    let done = Arc::new(AtomicBool::new(false));
    let write = |writer: usize| {
        let store = stores[writer % 3].clone();
        async move {
            for round in 0..ROUNDS {
                let mut batch = Batch::new("n");
                // Some streams are shared by all, so that heads are ahead of transactions.
                for name in [format!("s/own-{writer}"), format!("s/shared-{}", round % 3)] {
                    let events = vec![NewEvent { kind: "said".into(), data: None }];
                    batch.add(StreamAppend {
                        stream: name.parse().expect("a name"),
                        events,
                        expect_seq: None,
                    });
                }
                store.apply(batch.prepare().expect("good")).await.expect("appended");
            }
        }
    };
    // Transactions of others that take their time between their number and their end.
    let (stop, schema) = (Arc::clone(&done), config.schema.clone());
    let slow = tokio::spawn(async move {
        let client = admin().await;
        let sql = format!(
            "BEGIN; INSERT INTO {schema}.locks (ns, key, token, forget_at, forget_hour) \
             VALUES (0, 'slow', 0, now(), 0); SELECT pg_sleep(0.01); ROLLBACK"
        );
        while !stop.load(Ordering::Relaxed) {
            client.batch_execute(&sql).await.expect("slept");
        }
    });
    let (store, stop) = (stores[1].clone(), Arc::clone(&done));
    let reader = tokio::spawn(async move { follow(&store, &stop).await });
    join_all((0..WRITERS).map(|writer| tokio::spawn(write(writer))))
        .await
        .into_iter()
        .for_each(|done| done.expect("done"));
    done.store(true, Ordering::Relaxed);
    slow.await.expect("it ends");
    let (events, pages) = reader.await.expect("the reader ends");
    assert_eq!(events, WRITERS * ROUNDS * 2, "nothing is skipped");
    assert!(pages > 10, "the reader was not beside the writers: {pages} pages");
}

/// Reads a category to its end; answers how many events and pages there were.
async fn follow(store: &Postgres, stop: &AtomicBool) -> (usize, usize) {
    let (mut heads, mut events, mut pages): (BTreeMap<String, u64>, _, _) = (BTreeMap::new(), 0, 0);
    let mut from = CategoryFrom::Oldest;
    loop {
        let last = stop.load(Ordering::Relaxed);
        let read = CategoryRead { category: "s".into(), from: from.clone(), limit: 20 };
        let page = store.category_read("n", &read).await.expect("the category is read");
        for event in &page.events {
            let head = heads.entry(event.stream.to_string()).or_default();
            *head += 1;
            assert_eq!(event.seq, *head, "{} is out of its order", event.stream);
        }
        events += page.events.len();
        pages += usize::from(!page.events.is_empty());
        if page.events.is_empty() && last {
            return (events, pages);
        }
        let CategoryCursor { position, trims } = page.cursor;
        from = CategoryFrom::After(CategoryCursor { position, trims });
    }
}

/// Callers repeat what they do not know the outcome of, while someone ends their connections.
async fn lost_connections() {
    let (config, stores) = several(2).await;
    let done = Arc::new(AtomicBool::new(false));
    let (stop, schema) = (Arc::clone(&done), config.schema.clone());
    let killed = tokio::spawn(async move {
        let client = admin().await;
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
            WHERE pid <> pg_backend_pid() AND application_name = $1";
        let mut killed = 0;
        while !stop.load(Ordering::Relaxed) {
            killed += client.query_one(kill, &[&schema]).await.expect("killed").get::<_, i64>(0);
            sleep(Duration::from_millis(100)).await;
        }
        killed
    });
    let unknown = Arc::new(AtomicUsize::new(0));
    let write = |writer: usize| {
        let (store, unknown) = (stores[writer % 2].clone(), Arc::clone(&unknown));
        async move {
            for _ in 0..100 {
                append_once(&store, &format!("s/{writer}"), &unknown).await;
            }
        }
    };
    join_all((0..6).map(|writer| tokio::spawn(write(writer))))
        .await
        .into_iter()
        .for_each(|done| done.expect("done"));
    done.store(true, Ordering::Relaxed);
    assert!(killed.await.expect("the killer ends") > 10, "too few connections were killed");
    for writer in 0..6 {
        let read = StreamRead {
            stream: format!("s/{writer}").parse().expect("a name"),
            from: ReadFrom::Oldest,
            limit: 1000,
        };
        let page = stores[0].stream_read("n", &read).await;
        let page = match page {
            Err(error) if error.is_retryable() => stores[0].stream_read("n", &read).await,
            page => page,
        };
        assert_eq!(page.expect("read").events.len(), 100, "each append was done once");
    }
}

/// Appends an event, again and again with the same key until it is known to be done.
async fn append_once(store: &Postgres, name: &str, unknown: &AtomicUsize) {
    let events = vec![NewEvent { kind: "said".into(), data: None }];
    let (mut batch, _) =
        Batch::of("n", StreamAppend { stream: name.parse().expect("a name"), events, expect_seq: None });
    batch.key = Some(BatchKey::for_retry());
    loop {
        let error: Error = match store.apply(batch.clone().prepare().expect("good")).await {
            Ok(_) => return,
            Err(error) => error,
        };
        assert!(["timeout", "unavailable"].contains(&error.code()), "{error}");
        unknown.fetch_add(usize::from(error.code() == "timeout"), Ordering::Relaxed);
        sleep(Duration::from_millis(20)).await;
    }
}

/// Workers in three processes take tasks until there are none.
async fn claims() {
    let (_, stores) = several(3).await;
    let creates = (0..400).map(|number: usize| {
        let exclusive_key = number.is_multiple_of(4).then(|| format!("x{}", number % 16));
        create(&stores[number % 3], TaskCreate { exclusive_key, ..TaskCreate::new("k") })
    });
    join_all(creates).await;
    let work = |worker: usize| {
        let store = stores[worker % 3].clone();
        async move {
            let mut done = Vec::new();
            let mut idle = 0;
            while idle < 20 {
                let claim = Claim { limit: 3, ..Claim::new("n", "default", format!("w{worker}")) };
                let tasks = store.claim(claim).await.expect("answered").tasks;
                idle = if tasks.is_empty() { idle + 1 } else { 0 };
                for task in tasks {
                    let token = task.lease.as_ref().expect("a lease").token;
                    run(&store, TaskComplete { id: task.id, token, output: None }).await.expect("completed");
                    done.push(task.id);
                }
                if idle > 0 {
                    sleep(Duration::from_millis(20)).await;
                }
            }
            done
        }
    };
    let taken = join_all((0..9).map(|worker| tokio::spawn(work(worker)))).await;
    let mut taken: Vec<_> = taken.into_iter().flat_map(|taken| taken.expect("done")).collect();
    let count = taken.len();
    taken.sort();
    taken.dedup();
    assert_eq!((count, taken.len()), (400, 400), "each task was taken once");
}
