//! Opening a store: its schema, and what the database itself refuses.

mod common;

use std::future::Future;
use std::process::ExitCode;

use futures_util::future::join_all;
use libtest_mimic::{Arguments, Trial};
use statehold_conformance::postgres;
use statehold_core::command::{NewEvent, StreamAppend, TaskCreate};
use statehold_core::query::{CategoryFrom, CategoryRead};
use statehold_core::{Backend, Batch, Result};
use statehold_postgres::{Config, Postgres};
use tokio_postgres::{Client, NoTls};

fn main() -> ExitCode {
    postgres::with_server(|| {
        let trials = vec![
            test(
                "ten_stores_that_open_at_once_make_one_schema",
                ten_stores_that_open_at_once_make_one_schema,
            ),
            test("a_newer_schema_is_refused_with_a_hint", a_newer_schema_is_refused_with_a_hint),
            test("an_old_schema_is_refused_unless_migration_is_allowed", an_old_schema_is_refused),
            test("a_newer_schema_that_needs_no_more_is_worked_with", a_newer_schema_that_needs_no_more),
            test("events_are_neither_changed_nor_deleted", events_are_neither_changed_nor_deleted),
            test("every_statement_can_be_prepared", every_statement_can_be_prepared),
            test("positions_go_on_in_another_cluster", positions_go_on_in_another_cluster),
            test("an_epoch_holds_until_it_changes", an_epoch_holds_until_it_changes),
            test("a_user_without_privileges_is_enough", a_user_without_privileges_is_enough),
        ];
        libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
    })
}

fn test<F: Future<Output = ()> + 'static>(name: &str, run: fn() -> F) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(run());
        Ok(())
    })
}

async fn client() -> Client {
    let (client, connection) = tokio_postgres::connect(&postgres::url(), NoTls).await.expect("connected");
    tokio::spawn(connection);
    client
}

async fn append(store: &Postgres, name: &str) -> Result<()> {
    let events = vec![NewEvent { kind: "said".into(), data: None }];
    let append = StreamAppend { stream: name.parse()?, events, expect_seq: None };
    let (batch, _) = Batch::of("n", append);
    store.apply(batch.prepare()?).await.map(drop)
}

/// The streams of the events of category `s`, in order.
async fn category(store: &Postgres) -> Vec<String> {
    let read = CategoryRead { category: "s".into(), from: CategoryFrom::Oldest, limit: 100 };
    let page = store.category_read("n", &read).await.expect("the category is read");
    page.events.into_iter().map(|event| event.stream.to_string()).collect()
}

async fn ten_stores_that_open_at_once_make_one_schema() {
    for _ in 0..5 {
        let config = common::config();
        let opened = join_all((0..10).map(|_| Postgres::open(config.clone()))).await;
        for store in opened {
            let store = store.expect("it opens");
            append(&store, "s/1").await.expect("it writes");
        }
    }
}

async fn a_newer_schema_is_refused_with_a_hint() {
    let config = common::config();
    drop(Postgres::open(config.clone()).await.expect("it opens"));
    let later =
        format!("INSERT INTO {}.schema_versions (version, name) VALUES (999, 'later')", config.schema);
    client().await.batch_execute(&later).await.expect("noted");
    let error = Postgres::open(config).await.expect_err("refused");
    assert_eq!(error.code(), "unsupported", "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("release")), "{error}");
}

async fn a_newer_schema_that_needs_no_more() {
    let config = common::config();
    drop(Postgres::open(config.clone()).await.expect("it opens"));
    let known: i64 = client()
        .await
        .query_one(&format!("SELECT max(version) FROM {}.schema_versions", config.schema), &[])
        .await
        .expect("asked")
        .get(0);
    let later = |version: i64, needs: i64| {
        format!(
            "INSERT INTO {}.schema_versions (version, name, needs) VALUES ({version}, 'later', {needs})",
            config.schema
        )
    };
    client().await.batch_execute(&later(known + 1, known)).await.expect("noted");
    let store = Postgres::open(config.clone()).await.expect("it opens");
    append(&store, "s/1").await.expect("it writes");
    let migration = store.migrate(false).await.expect("nothing is to be done");
    assert!(migration.steps.is_empty() && i64::from(migration.to) == known + 1, "{migration:?}");
    client().await.batch_execute(&later(known + 2, known + 2)).await.expect("noted");
    let error = Postgres::open(config.clone()).await.expect_err("refused");
    assert_eq!(error.code(), "unsupported", "{error}");
}

async fn an_old_schema_is_refused() {
    let config = common::config();
    let mut unchanged = config.clone();
    unchanged.migrate = false;
    let error = Postgres::open(unchanged.clone()).await.expect_err("refused");
    assert_eq!(error.code(), "unsupported", "{error}");
    assert!(error.to_string().contains("initial"), "it tells what is to be done: {error}");
    let made = "SELECT count(*) FROM pg_namespace WHERE nspname = $1";
    let made: i64 = client().await.query_one(made, &[&config.schema]).await.expect("asked").get(0);
    assert_eq!(made, 0, "nothing was made");
    drop(Postgres::open(config).await.expect("it opens"));
    Postgres::open(unchanged).await.expect("it opens now");
}

async fn events_are_neither_changed_nor_deleted() {
    let config = common::config();
    let store = Postgres::open(config.clone()).await.expect("it opens");
    append(&store, "s/1").await.expect("appended");
    let client = client().await;
    for statement in ["UPDATE", "DELETE FROM", "TRUNCATE"] {
        let rest = if statement == "UPDATE" { " SET type = 'x'" } else { "" };
        let error = client.batch_execute(&format!("{statement} {}.events{rest}", config.schema)).await;
        let error = error.expect_err("refused");
        let message = error.as_db_error().map(|error| error.message().to_owned()).unwrap_or_default();
        assert!(message.starts_with("events "), "{statement}: {message}");
    }
    assert_eq!(category(&store).await, ["s/1"]);
}

async fn every_statement_can_be_prepared() {
    let config = common::config();
    drop(Postgres::open(config.clone()).await.expect("it opens"));
    let client = client().await;
    client.batch_execute(&format!("SET search_path = {}", config.schema)).await.expect("set");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/sql");
    let part =
        |name: &str| std::fs::read_to_string(format!("{folder}/{name}.sql")).expect("a part of others");
    let parts = ["task_columns", "entered", "claim_asked"].map(|name| (name, part(name)));
    let mut count = 0;
    for file in std::fs::read_dir(folder).expect("the statements") {
        let path = file.expect("a file").path();
        if parts.iter().any(|(name, _)| path.ends_with(format!("{name}.sql"))) {
            continue;
        }
        let sql = std::fs::read_to_string(&path).expect("its text");
        let [task, entered, asked] = parts.each_ref().map(|(_, part)| part);
        let sql = sql.replace("{task}", task).replace("{entered}", entered).replace("{asked}", asked);
        let prepared = client.prepare(&sql).await;
        prepared.unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
        count += 1;
    }
    assert!(count > 100, "{count} statements");
}

async fn positions_go_on_in_another_cluster() {
    let config = common::config();
    let store = Postgres::open(config.clone()).await.expect("it opens");
    append(&store, "s/1").await.expect("appended");
    append(&store, "s/2").await.expect("appended");
    drop(store);
    // As if the tables had been restored from a cluster that was far ahead.
    let ahead = format!(
        "SET search_path = {}; UPDATE streams SET ord = ord + (1::bigint << 40); \
         ALTER TABLE events DISABLE TRIGGER ALL; \
         UPDATE events SET position = '00000100' || substr(position, 9); \
         ALTER TABLE events ENABLE TRIGGER ALL; UPDATE cluster SET identifier = 1",
        config.schema
    );
    client().await.batch_execute(&ahead).await.expect("moved");
    let store = Postgres::open(config).await.expect("it opens");
    append(&store, "s/1").await.expect("appended");
    append(&store, "s/3").await.expect("appended");
    assert_eq!(category(&store).await, ["s/1", "s/2", "s/1", "s/3"]);
}

async fn an_epoch_holds_until_it_changes() {
    let config = common::config();
    let store = Postgres::open(config.clone()).await.expect("it opens");
    let client = client().await;
    client.batch_execute(&format!("SET search_path = {}", config.schema)).await.expect("set");
    for epoch in 0..3_i64 {
        // The first finds out about the epoch, the others go by what is known of it.
        for _ in 0..3 {
            append(&store, "s/1").await.expect("appended");
        }
        let given = "SELECT position FROM events WHERE stream = 's/1' ORDER BY seq DESC LIMIT 3";
        for row in client.query(given, &[]).await.expect("the events are there") {
            let position: &str = row.get(0);
            assert_eq!(position[..4], format!("{epoch:04x}"));
        }
        let next = client.execute("UPDATE namespaces SET epoch = epoch + 1", &[]).await;
        assert_eq!(next.expect("changed"), 1);
    }
    assert_eq!(category(&store).await, ["s/1"; 9]);
}

async fn a_user_without_privileges_is_enough() {
    let client = client().await;
    client.batch_execute("CREATE ROLE plain LOGIN").await.expect("a role");
    client.batch_execute("CREATE DATABASE plain OWNER plain").await.expect("a database of its own");
    let url = postgres::url().replace("statehold@", "plain@");
    let url = format!("{}/plain", url.trim_end_matches("/postgres"));
    let store = Postgres::open(Config::from_url(&url).expect("a good URL")).await.expect("it opens");
    let (batch, _) = Batch::of("n", TaskCreate::new("send"));
    store.apply(batch.prepare().expect("good")).await.expect("created");
}
