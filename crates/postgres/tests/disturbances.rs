//! What others do beside the load: a transaction that is left open, listeners that are ended, a way for wakes that is
//! shut, another process that writes.

mod common;

use std::collections::BTreeMap;
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::join_all;
use statehold_conformance::process::{self, Process, given, say};
use statehold_conformance::{named, postgres};
use statehold_core::backend::Push;
use statehold_core::call::GroupRead;
use statehold_core::command::{EntrySet, GroupSeek, NewEvent, SeekTo, StreamAppend, TaskCreate};
use statehold_core::model::Source;
use statehold_core::query::{CategoryCursor, CategoryFrom, CategoryRead, ReadFrom, StreamRead};
use statehold_core::wake::Topic;
use statehold_core::{Backend, Batch, Json};
use statehold_postgres::{Config, Postgres};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{Client, NoTls};

/// How long anything may take. It only keeps a broken store from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    postgres::with_server(|| {
        process::run(
            named![
                an_idle_transaction_of_others_neither_stalls_writers_nor_holds_a_category_back,
                a_task_made_in_an_open_transaction_is_not_skipped,
                a_lost_listener_loses_no_wake,
                a_way_that_is_shut_is_told_and_polled,
                two_processes_see_each_others_events_live,
            ],
            named![follow],
        )
    })
}

fn run<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async { timeout(2 * PATIENCE, test).await.expect("it ends") });
}

async fn admin() -> Client {
    let (client, connection) = tokio_postgres::connect(&postgres::url(), NoTls).await.expect("connected");
    tokio::spawn(connection);
    client
}

async fn append(store: &Postgres, name: &str) {
    let events = vec![NewEvent { kind: "said".into(), data: None }];
    let append = StreamAppend { stream: name.parse().expect("a name"), events, expect_seq: None };
    let (batch, _) = Batch::of("n", append);
    store.apply(batch.prepare().expect("good")).await.expect("appended");
}

async fn set(store: &Postgres) {
    let (batch, _) = Batch::of("n", EntrySet::new("e", Json::null()));
    store.apply(batch.prepare().expect("good")).await.expect("set");
}

/// Reads what a category gives now, page by page; answers the numbers of its streams' events.
async fn read(store: &Postgres, cursor: &mut Option<CategoryCursor>) -> Vec<(String, u64)> {
    let from = cursor.clone().map_or(CategoryFrom::Oldest, CategoryFrom::After);
    let read = CategoryRead { category: "s".into(), from, limit: 1000 };
    let page =
        timeout(PATIENCE, store.category_read("n", &read)).await.expect("a reader waits for so long only");
    let page = page.expect("read");
    *cursor = Some(page.cursor);
    page.events.into_iter().map(|event| (event.stream.to_string(), event.seq)).collect()
}

fn an_idle_transaction_of_others_neither_stalls_writers_nor_holds_a_category_back() {
    run(async {
        let config = common::config();
        let stores = join_all((0..2).map(|_| Postgres::open(config.clone()))).await;
        let stores: Vec<_> = stores.into_iter().map(|store| store.expect("it opens")).collect();
        append(&stores[0], "s/before").await;
        // It has a number and does nothing.
        let idle = admin().await;
        idle.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.expect("begun");
        let (mut cursor, mut seen) = (None, Vec::new());
        for round in 0..3 {
            let write = |writer: usize| {
                let store = stores[writer % 2].clone();
                async move {
                    for _ in 0..20 {
                        append(&store, &format!("s/{writer}")).await;
                    }
                }
            };
            join_all((0..6).map(|writer| tokio::spawn(write(writer)))).await;
            seen.extend(read(&stores[round % 2], &mut cursor).await);
        }
        assert_eq!(seen.len(), 361, "somebody else's transaction holds nothing back");
        let group = GroupRead { limit: 1000, ..GroupRead::new("n", "g", Source::Category("s".into()), "c") };
        let given = timeout(PATIENCE, stores[0].group_read(group)).await.expect("it answers").expect("read");
        assert_eq!(given.events.len(), 361);
        let latest =
            GroupSeek { group: "g".into(), source: Source::Category("s".into()), to: SeekTo::Latest };
        stores[1].apply(Batch::of("n", latest).0.prepare().expect("good")).await.expect("sought");
        let group = GroupRead::new("n", "g", Source::Category("s".into()), "c");
        assert_eq!(
            stores[0].group_read(group).await.expect("read").events,
            [],
            "it is behind the last event"
        );
        until("health tells of it", async || {
            let notes = stores[0].health().await.expect("healthy").notes;
            notes.iter().any(|note| note.contains("open for long"))
        })
        .await;
        idle.batch_execute("ROLLBACK").await.expect("ended");
        let mut heads: BTreeMap<String, u64> = BTreeMap::new();
        for (stream, seq) in seen {
            let head = heads.entry(stream.clone()).or_default();
            *head += 1;
            assert_eq!(seq, *head, "{stream} is out of its order");
        }
        assert_eq!(heads.values().sum::<u64>(), 361);
    });
}

/// The kinds of the tasks that the category of tasks tells of, from where the last look ended.
async fn created(store: &Postgres, cursor: &mut Option<CategoryCursor>) -> Vec<String> {
    let from = cursor.clone().map_or(CategoryFrom::Oldest, CategoryFrom::After);
    let read = CategoryRead { category: "task".into(), from, limit: 1000 };
    let page = timeout(PATIENCE, store.category_read("n", &read)).await.expect("it answers").expect("read");
    *cursor = Some(page.cursor);
    let data = page.events.into_iter().filter_map(|event| event.data);
    let kind = |data: Json| data.to::<BTreeMap<String, String>>().expect("data")["kind"].clone();
    data.map(kind).collect()
}

fn a_task_made_in_an_open_transaction_is_not_skipped() {
    run(async {
        let config = common::config();
        let store = Postgres::open(config.clone()).await.expect("it opens");
        let create = async |kind: &str| {
            let (batch, _) = Batch::of("n", TaskCreate::new(kind));
            store.apply(batch.prepare().expect("good")).await.expect("created");
        };
        let open = admin().await;
        let sql = format!("SELECT {}.create_task('open', namespace => 'n')", config.schema);
        let mut cursor = None;
        // The transaction has its number long before it makes a task.
        open.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.expect("begun");
        create("first").await;
        assert_eq!(created(&store, &mut cursor).await, ["first"]);
        open.batch_execute(&sql).await.expect("created");
        create("second").await;
        let none: [String; 0] = [];
        assert_eq!(created(&store, &mut cursor).await, none, "what may still be preceded is held back");
        open.batch_execute("COMMIT").await.expect("committed");
        let mut seen = Vec::new();
        while seen.len() < 2 {
            seen.extend(created(&store, &mut cursor).await);
        }
        seen.sort();
        assert_eq!(seen, ["open", "second"]);
        let late = format!("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id(); {sql}");
        let refused = open.batch_execute(&late).await.expect_err("its place cannot be told");
        assert_eq!(refused.code().map(|code| code.code().to_owned()).as_deref(), Some("25001"));
    });
}

/// Waits until something holds.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Ends the listeners whose connections bear a name.
async fn end_listeners(admin: &Client, name: &str) -> i64 {
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
        WHERE application_name = $1 AND pid IN (SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN %' \
        OR query LIKE '%pg_notify%')";
    admin.query_one(end, &[&name]).await.expect("ended").get(0)
}

fn a_lost_listener_loses_no_wake() {
    run(async {
        let config = common::config();
        let one = Postgres::open(config.clone()).await.expect("it opens");
        let two = Postgres::open(config.clone()).await.expect("it opens");
        let admin = admin().await;
        let mut ended = 0;
        for round in 0..20 {
            let topic = Topic::Entry("e".into());
            let waiter = two.register("n", &[topic]).await.expect("registered");
            let (count, ()) = tokio::join!(end_listeners(&admin, &config.schema), async {
                sleep(Duration::from_millis(round * 7)).await;
                set(&one).await;
            });
            ended += count;
            let woken = timeout(PATIENCE, waiter.wait()).await;
            woken.unwrap_or_else(|_| panic!("round {round}: nothing was heard"));
        }
        assert!(ended >= 20, "too few listeners were ended: {ended}");
        for store in [&one, &two] {
            until("the way is open again", async || store.health().await.expect("healthy").push == Push::Ok)
                .await;
        }
    });
}

fn a_way_that_is_shut_is_told_and_polled() {
    run(async {
        let admin = admin().await;
        admin.batch_execute("CREATE ROLE limited LOGIN SUPERUSER").await.expect("a role");
        let config = common::config();
        let one = Postgres::open(config.clone()).await.expect("it opens");
        let url = postgres::url().replace("statehold@", "limited@");
        let url = format!("{url}?application_name=limited&schema={}", config.schema);
        let limited = Postgres::open(Config::from_url(&url).expect("a good URL")).await.expect("it opens");
        until("the way is open", async || limited.health().await.expect("healthy").push == Push::Ok).await;
        // Superusers are not limited, so it is made a plain one that may do the same.
        let shut = format!(
            "ALTER ROLE limited NOSUPERUSER CONNECTION LIMIT 0; GRANT USAGE ON SCHEMA {0} TO limited; \
             GRANT ALL ON ALL TABLES IN SCHEMA {0} TO limited",
            config.schema
        );
        admin.batch_execute(&shut).await.expect("shut");
        assert!(end_listeners(&admin, "limited").await > 0, "there was no listener to end");
        until("health tells of it", async || limited.health().await.expect("healthy").push == Push::Broken)
            .await;
        for _ in 0..3 {
            let waiter = limited.register("n", &[Topic::Entry("e".into())]).await.expect("registered");
            set(&one).await;
            timeout(PATIENCE, waiter.wait()).await.expect("it is woken by looking");
        }
        assert_eq!(limited.health().await.expect("healthy").push, Push::Broken);
        admin.batch_execute("ALTER ROLE limited CONNECTION LIMIT -1").await.expect("opened");
        until("the way is open again", async || limited.health().await.expect("healthy").push == Push::Ok)
            .await;
    });
}

/// The schema that another process opens.
const SCHEMA: &str = "STATEHOLD_TEST_SCHEMA";

/// Follows a category and answers each event by one of its own.
fn follow() {
    run(async {
        let schema = given(SCHEMA).to_string_lossy().into_owned();
        let store = Postgres::open(common::config().with_schema(schema)).await.expect("it opens");
        let mut cursor = None;
        say("ready");
        for _ in 0..20 {
            loop {
                let waiter = store.register("n", &[Topic::Category("s".into())]).await.expect("registered");
                if !read(&store, &mut cursor).await.is_empty() {
                    break;
                }
                timeout(PATIENCE, waiter.wait()).await.expect("something is heard");
            }
            append(&store, "answers/1").await;
        }
        say("done");
    });
}

fn two_processes_see_each_others_events_live() {
    run(async {
        let config = common::config();
        let store = Postgres::open(config.clone()).await.expect("it opens");
        let mut other = Process::start("follow", &[(SCHEMA, config.schema.as_ref())]);
        other.expect("ready");
        let stream =
            StreamRead { stream: "answers/1".parse().expect("a name"), from: ReadFrom::Last, limit: 1 };
        for round in 1..=20 {
            append(&store, "s/1").await;
            loop {
                let topic = Topic::Stream(stream.stream.clone());
                let waiter = store.register("n", &[topic]).await.expect("registered");
                if store.stream_read("n", &stream).await.expect("read").last_seq == round {
                    break;
                }
                timeout(PATIENCE, waiter.wait()).await.expect("something is heard");
            }
        }
        other.expect("done");
        assert_eq!(store.health().await.expect("healthy").push, Push::Ok, "it was not by looking");
    });
}
