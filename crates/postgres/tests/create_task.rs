//! `create_task`, the function in SQL that makes a task within the transaction of whoever calls it.

mod common;

use std::collections::HashSet;
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};
use statehold_conformance::postgres;
use statehold_core::call::Claim;
use statehold_core::command::{Created, TaskCancel, TaskComplete, TaskCreate, TaskPurge};
use statehold_core::model::TaskId;
use statehold_core::query::{CategoryFrom, CategoryRead, TaskList};
use statehold_core::wake::Topic;
use statehold_core::{Backend, Batch, Json, Result, Status};
use statehold_postgres::{Config, Postgres};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, NoTls};
use uuid::Uuid;

/// How long anything may take. It only keeps a broken store from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    postgres::with_server(|| {
        let trials = vec![
            test("a_task_made_in_sql_is_as_one_made_by_the_library", equal),
            test("tasks_are_listed_as_they_were_made_and_leave_no_place_behind", places),
            test("a_caller_needs_no_more_rights_than_are_documented", rights),
            test("a_rollback_leaves_nothing", rollback),
            test("an_idempotency_key_joins_sql_and_library", keys),
            test("a_task_made_in_sql_wakes_who_waits", wakes),
            test("what_the_library_refuses_sql_refuses_too", refusals),
            test("events_made_in_sql_are_in_the_order_of_their_category", order),
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

async fn open() -> (Config, Postgres, Client) {
    let config = common::config();
    let store = Postgres::open(config.clone()).await.expect("it opens");
    (config.clone(), store, client(&config).await)
}

async fn client(config: &Config) -> Client {
    let (client, connection) = tokio_postgres::connect(&postgres::url(), NoTls).await.expect("connected");
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = {}", config.schema)).await.expect("set");
    client
}

async fn create(store: &Postgres, create: TaskCreate) -> Result<Created> {
    let (batch, reply) = Batch::of("n", create);
    store.apply(batch.prepare()?).await?.take(reply)
}

/// Makes a task with these arguments.
async fn made(client: &Client, arguments: &str) -> std::result::Result<TaskId, tokio_postgres::Error> {
    let sql = format!("SELECT create_task({arguments}, namespace => 'n')");
    Ok(TaskId(client.query_one(&sql, &[]).await?.get::<_, Uuid>(0)))
}

/// The row of a task and its events, as the database has them.
async fn stored(client: &Client, id: TaskId) -> (Value, Vec<Value>) {
    let row = "SELECT to_jsonb(t)::text FROM tasks t WHERE id = $1";
    let row: String = client.query_one(row, &[&id.0]).await.expect("its row").get(0);
    let listed = "SELECT count(*) FROM task_ages a JOIN tasks t USING (ns, created_at, id) WHERE id = $1";
    let listed: i64 = client.query_one(listed, &[&id.0]).await.expect("its place").get(0);
    assert_eq!(listed, 1, "it has a place in the order of creation, whoever made it");
    let events = "SELECT to_jsonb(e)::text FROM events e WHERE stream = 'task/' || $1::text ORDER BY seq";
    let events = client.query(events, &[&id.to_string()]).await.expect("its events");
    let parse = |text: &str| serde_json::from_str(text).expect("JSON");
    (parse(&row), events.iter().map(|row| parse(row.get(0))).collect())
}

/// What differs between any two tasks, checked and left out.
fn alike((mut row, mut events): (Value, Vec<Value>), id: TaskId, runs_at_once: bool) -> (Value, Vec<Value>) {
    let made_at = row["created_at"].clone();
    assert_eq!((&row["updated_at"], &row["oldest_at"], &events[0]["at"]), (&made_at, &made_at, &made_at));
    assert_eq!(row["root"], json!(id.to_string()));
    assert_eq!(id.0.get_version_num(), 7, "the id begins with the time");
    let position = events[0]["position"].as_str().expect("a position").to_owned();
    let order = row["ord"].as_i64().expect("an order");
    assert_eq!(position[..16], format!("{order:016x}"), "the event is as old as its transaction");
    assert_eq!(position.len(), 32);
    if runs_at_once {
        assert_eq!(row["run_at"], made_at);
        row["run_at"] = Value::Null;
    }
    // Who put it in its place, the maker or a trigger, is no part of it.
    let own =
        ["id", "root", "created_at", "updated_at", "oldest_at", "ord", "request", "idempotency_key", "aged"];
    for field in own {
        row[field] = Value::Null;
    }
    for event in &mut events {
        for field in ["stream", "position", "at"] {
            event[field] = Value::Null;
        }
    }
    (row, events)
}

async fn equal() {
    let (_, store, client) = open().await;
    let full = TaskCreate {
        queue: Some("mail".into()),
        input: Some(Json::parse(r#"{"to": [1.0, {}], "b": "ü\"\\"}"#).expect("JSON")),
        metadata: Some(Json::parse(r#"{"m": 1}"#).expect("JSON")),
        priority: Some(-5),
        rank: Some(7),
        thread: Some("t".into()),
        idempotency_key: Some("library".into()),
        run_at: Some("2031-01-01T00:00:00Z".parse().expect("a time")),
        expires_at: Some("2030-01-01T00:00:00Z".parse().expect("a time")),
        timeout_seconds: Some(90.into()),
        max_attempts: Some(5),
        max_lease_losses: Some(2),
        traceparent: Some("00-ab-cd-01".into()),
        ..TaskCreate::new("send \"it\"").label("a", "1").label("b", "2")
    };
    let full_sql = r#"'send "it"', 'mail', '{"to": [1.0, {}], "b": "ü\"\\"}', metadata => '{"m": 1}',
        priority => -5, rank => 7, thread => 't', idempotency_key => 'sql', run_at => '2031-01-01 00:00:00Z',
        expires_at => '2030-01-01 00:00:00Z', timeout => '90 seconds', max_attempts => 5, max_lease_losses => 2,
        traceparent => '00-ab-cd-01', labels => '{"b": "2", "a": "1"}'"#;
    let cases = [
        (TaskCreate::new("send"), "'send'", true),
        (TaskCreate { backlog: true, ..TaskCreate::new("send") }, "'send', backlog => true", true),
        (full.clone(), full_sql, false),
        (
            TaskCreate {
                run_at: Some("2020-01-01T00:00:00Z".parse().expect("a time")),
                ..TaskCreate::new("k")
            },
            "'k', run_at => '2020-01-01 00:00:00Z'",
            false,
        ),
    ];
    for (request, arguments, runs_at_once) in cases {
        let library = create(&store, request).await.expect("created").task.id;
        let sql = made(&client, arguments).await.expect("made");
        let (one, two) = (stored(&client, library).await, stored(&client, sql).await);
        assert_eq!(
            alike(two, sql, runs_at_once),
            alike(one, library, runs_at_once),
            "SQL made the left one with {arguments}"
        );
        let read = store.task_get("n", &[sql, library]).await.expect("read");
        assert_eq!(
            read[0].as_ref().map(|task| (&task.input, &task.backoff, task.status)),
            read[1].as_ref().map(|task| (&task.input, &task.backoff, task.status))
        );
    }
}

async fn places() {
    let (_, store, client) = open().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(made(&client, "'sql'").await.expect("made"));
        ids.push(create(&store, TaskCreate::new("library")).await.expect("created").task.id);
    }
    // By the time at which they were made: that of a library is what it takes the server's clock for, to the millisecond.
    let listed = async |descending: bool| {
        let list = TaskList { descending, limit: 50, ..TaskList::default() };
        let page = store.task_list("n", &list).await.expect("listed");
        page.items.into_iter().map(|task| (task.created_at, task.id)).collect::<Vec<_>>()
    };
    let mut made = listed(false).await;
    assert!(made.is_sorted(), "{made:?}");
    assert_eq!(made.iter().map(|(_, id)| *id).collect::<HashSet<_>>(), ids.iter().copied().collect());
    made.reverse();
    assert_eq!(listed(true).await, made);
    for id in ids {
        let cancel = Batch::of("n", TaskCancel { id, force: false, children: false }).0;
        store.apply(cancel.prepare().expect("good")).await.expect("cancelled");
        let purge = Batch::of("n", TaskPurge { id }).0;
        store.apply(purge.prepare().expect("good")).await.expect("purged");
    }
    assert_eq!(listed(false).await, []);
    let left: i64 = client.query_one("SELECT count(*) FROM task_ages", &[]).await.expect("counted").get(0);
    assert_eq!(left, 0);
}

async fn rights() {
    let (config, store, client) = open().await;
    let schema = &config.schema;
    let role = format!("caller_of_{schema}");
    let grants = format!(
        "CREATE ROLE {role}; GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT USAGE ON SEQUENCE event_numbers TO {role};
         GRANT SELECT, INSERT, UPDATE ON namespaces, tasks TO {role}; GRANT INSERT ON events TO {role};
         SET ROLE {role}; CREATE TEMP TABLE task_ages (ns bigint, created_at timestamptz, id uuid)"
    );
    client.batch_execute(&grants).await.expect("granted");
    let id = made(&client, "'sql'").await.expect("made");
    let theirs: i64 =
        client.query_one("SELECT count(*) FROM pg_temp.task_ages", &[]).await.expect("counted").get(0);
    assert_eq!(theirs, 0, "nobody's own table is taken for the one of the schema");
    let page = store.task_list("n", &TaskList { limit: 50, ..TaskList::default() }).await.expect("listed");
    assert_eq!(page.items.into_iter().map(|task| task.id).collect::<Vec<_>>(), [id]);
}

async fn rollback() {
    let (_, store, mut client) = open().await;
    let transaction = client.transaction().await.expect("begun");
    let sql = "SELECT create_task('k', namespace => 'fresh', idempotency_key => 'x')";
    let id = TaskId(transaction.query_one(sql, &[]).await.expect("made").get::<_, Uuid>(0));
    let seen = transaction.query_one("SELECT count(*) FROM tasks", &[]).await.expect("counted");
    assert_eq!(seen.get::<_, i64>(0), 1, "whoever makes it sees it");
    assert!(store.task_get("fresh", &[id]).await.expect("read")[0].is_none(), "nobody else does");
    transaction.rollback().await.expect("rolled back");
    for table in ["tasks", "events", "namespaces"] {
        let count = format!("SELECT count(*) FROM {table}");
        assert_eq!(client.query_one(&count, &[]).await.expect("counted").get::<_, i64>(0), 0, "{table}");
    }
}

async fn keys() {
    let (config, store, client_a) = open().await;
    let keyed = |key: &str| TaskCreate::new("k").idempotency_key(key);
    let first = made(&client_a, "'k', idempotency_key => 'a'").await.expect("made");
    assert_eq!(made(&client_a, "'other', idempotency_key => 'a'").await.expect("known"), first);
    let joined = create(&store, keyed("a").queue("elsewhere")).await.expect("known");
    assert_eq!((joined.task.id, joined.created), (first, false));
    let second = create(&store, keyed("b")).await.expect("created").task.id;
    assert_eq!(made(&client_a, "'k', idempotency_key => 'b'").await.expect("known"), second);

    // Two transactions at once: the second waits for the first, and joins it or takes its place.
    for commits in [true, false] {
        let key = format!("'k', idempotency_key => 'at-once-{commits}'");
        let client_b = client(&config).await;
        client_a.batch_execute("BEGIN").await.expect("begun");
        let one = made(&client_a, &key).await.expect("made");
        let end = if commits { "COMMIT" } else { "ROLLBACK" };
        let (two, ()) = tokio::join!(made(&client_b, &key), async {
            client_a.batch_execute("SELECT pg_sleep(0.2)").await.expect("slept");
            client_a.batch_execute(end).await.expect("ended");
        });
        assert_eq!(two.expect("made") == one, commits);
    }
    let count = client_a.query_one("SELECT count(*) FROM tasks WHERE idempotency_key IS NOT NULL", &[]).await;
    assert_eq!(count.expect("counted").get::<_, i64>(0), 4);
}

/// What SQL tells on the channel of wakes, for as long as the client is there.
async fn listen(config: &Config) -> (Client, mpsc::UnboundedReceiver<String>) {
    let (client, mut connection) = tokio_postgres::connect(&postgres::url(), NoTls).await.expect("connected");
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(note) = message
                && note.payload().starts_with("sql:")
            {
                let _ = tell.send(note.payload().to_owned());
            }
        }
    });
    client.batch_execute(&format!("LISTEN {}_wakes", config.schema)).await.expect("listening");
    (client, told)
}

async fn wakes() {
    let (mut config, store, mut client) = open().await;
    config.poll_only = true;
    let polling = Postgres::open(config.clone()).await.expect("it opens");
    let (_listener, mut told) = listen(&config).await;
    for store in [&store, &polling] {
        let waiter = store.register("n", &[Topic::Queue("q".into())]).await.expect("registered");
        let claim = Claim::new("n", "q", "w");
        assert!(store.claim(claim.clone()).await.expect("answered").tasks.is_empty());
        let transaction = client.transaction().await.expect("begun");
        for _ in 0..3 {
            let make = "SELECT create_task('k', 'q', namespace => 'n')";
            transaction.execute(make, &[]).await.expect("made");
        }
        transaction.commit().await.expect("committed");
        let message =
            timeout(PATIENCE, told.recv()).await.expect("it is told").expect("the listener is there");
        assert_eq!(message, "sql:+n\nq");
        timeout(PATIENCE, waiter.wait()).await.expect("it wakes");
        for _ in 0..3 {
            let task = store.claim(claim.clone()).await.expect("answered").tasks.remove(0);
            let complete =
                TaskComplete { id: task.id, token: task.lease.expect("a lease").token, output: None };
            let (batch, reply) = Batch::of("n", complete);
            let mut done = store.apply(batch.prepare().expect("good")).await.expect("completed");
            assert_eq!(done.take(reply).expect("a task").status, Status::Completed);
        }
    }
    assert!(told.try_recv().is_err(), "a transaction tells of a queue once");
}

async fn refusals() {
    let (_, _, client) = open().await;
    let long = "x".repeat(257);
    let cases = [
        "''".to_owned(),
        "NULL".to_owned(),
        format!("'{long}'"),
        "'k', ''".to_owned(),
        r"'k', E'a\nb'".to_owned(),
        "'k', idempotency_key => ''".to_owned(),
        r#"'k', input => '"\u0000"'"#.to_owned(),
        "'k', metadata => '[]'".to_owned(),
        r#"'k', labels => '{"a": 1}'"#.to_owned(),
        "'k', labels => '[]'".to_owned(),
        "'k', max_attempts => 0".to_owned(),
        "'k', timeout => '0 seconds'".to_owned(),
        "'k', priority => 40000".to_owned(),
        format!("'k', input => '\"{}\"'", "x".repeat(1 << 20)),
    ];
    for arguments in cases {
        let error = made(&client, &arguments).await.expect_err("refused");
        let code = error.code().map(|code| code.code().to_owned()).unwrap_or_default();
        let start: String = arguments.chars().take(60).collect();
        assert!(code.starts_with("22"), "{start}: {error:?}");
    }
    let count = client.query_one("SELECT count(*) FROM tasks", &[]).await.expect("counted");
    assert_eq!(count.get::<_, i64>(0), 0);
}

async fn order() {
    let (_, store, client) = open().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(create(&store, TaskCreate::new("k")).await.expect("created").task.id);
        ids.push(made(&client, "'k'").await.expect("made"));
    }
    let read = CategoryRead { category: "task".into(), from: CategoryFrom::Oldest, limit: 100 };
    let page = store.category_read("n", &read).await.expect("read");
    let streams: Vec<_> = page.events.iter().map(|event| event.stream.to_string()).collect();
    assert_eq!(streams, ids.iter().map(|id| format!("task/{id}")).collect::<Vec<_>>());
}
