//! The statements, one a file in `sql/`, and how connections keep them prepared.

use std::cell::{OnceCell, RefCell, RefMut};
use std::ops::{Deref, DerefMut};

use rusqlite::{CachedStatement, Connection, PrepFlags, Result, Statement};
use statehold_core::model::TaskId;
use statehold_core::plan::Map;

macro_rules! statements {
    ($($name:literal,)*) => {
        /// Names and texts.
        const ALL: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../sql/", $name, ".sql")))),*];
    };
}

statements! {
    "answer_delete",
    "answer_get",
    "answer_put",
    "answers_expired",
    "begin_read",
    "begin_write",
    "category_get",
    "category_insert",
    "chore_delete",
    "chore_get",
    "chore_put",
    "chores_list",
    "commit",
    "count_add",
    "count_claimable",
    "count_ended_since",
    "count_pending",
    "counts_list",
    "data_version",
    "deliveries_clear",
    "deliveries_count",
    "deliveries_hidden",
    "deliveries_of_group",
    "deliveries_visible",
    "delivery_delete",
    "delivery_get",
    "delivery_put",
    "doctor_counts",
    "doctor_leases",
    "doctor_stream_events",
    "doctor_task_events",
    "document_delete",
    "document_get",
    "document_get_short",
    "document_list",
    "document_list_desc",
    "document_put",
    "documents_expired",
    "dump_answers",
    "dump_deliveries",
    "dump_documents",
    "dump_entries",
    "dump_events",
    "dump_exclusives",
    "dump_floors",
    "dump_groups",
    "dump_locks",
    "dump_pollers",
    "dump_queues",
    "dump_signals",
    "dump_streams",
    "dump_tasks",
    "dump_trims",
    "entries_expired",
    "entry_delete",
    "entry_get",
    "entry_list",
    "entry_put",
    "entry_update",
    "event_get",
    "event_insert",
    "event_latest",
    "event_loaded_after",
    "event_next",
    "event_since",
    "events_after",
    "events_before",
    "events_of_category",
    "exclusive_delete",
    "exclusive_get",
    "exclusive_put",
    "floor_delete",
    "floor_get",
    "floor_put",
    "group_delete",
    "group_get",
    "group_put",
    "lease_next",
    "leased_queues",
    "lock_delete",
    "lock_get",
    "lock_list",
    "lock_put",
    "lock_update",
    "locks_forgotten",
    "namespace_get",
    "namespace_insert",
    "namespace_loaded",
    "namespace_position",
    "namespace_used",
    "namespaces_list",
    "place_any",
    "place_delete",
    "place_get",
    "place_insert",
    "place_keys",
    "polled",
    "poller_delete",
    "poller_get",
    "poller_put",
    "pollers_expired",
    "pollers_list",
    "queue_delete",
    "queue_get",
    "queue_put",
    "queues_paused",
    "rollback",
    "signals_delete",
    "signals_get",
    "signals_put",
    "stream_delete",
    "stream_get",
    "stream_head",
    "stream_list",
    "stream_list_of_tasks",
    "stream_put",
    "streams_overgrown",
    "task_delete",
    "task_end",
    "task_get",
    "task_head",
    "task_insert",
    "task_insert_plain",
    "task_list_created",
    "task_list_created_desc",
    "task_list_leased",
    "task_list_ready",
    "task_renew",
    "task_step",
    "task_update",
    "tasks_finished",
    "tasks_found",
    "tasks_found_all",
    "tasks_found_desc",
    "tasks_leased",
    "tasks_ready",
    "timer_next",
    "trim_begin",
    "trim_end",
    "trim_events",
    "trim_last",
    "trim_note",
    "trims_get",
    "trims_outdone",
}

/// A statement.
#[derive(Clone, Copy)]
pub(crate) struct Sql(usize);

impl Sql {
    /// The statement of a name; the build fails if there is none.
    pub(crate) const fn named(name: &str) -> Self {
        let mut at = 0;
        while !same(ALL[at].0, name) {
            at += 1;
        }
        Self(at)
    }

    fn text(self) -> &'static str {
        ALL[self.0].1
    }
}

const fn same(one: &str, two: &str) -> bool {
    let (one, two) = (one.as_bytes(), two.as_bytes());
    let mut at = 0;
    while at < one.len() && at < two.len() && one[at] == two[at] {
        at += 1;
    }
    at == one.len() && at == two.len()
}

/// A statement by its name.
macro_rules! sql {
    ($name:literal) => {
        const { $crate::statements::Sql::named($name) }
    };
}
pub(crate) use sql;

/// Of how many tasks it is known where their rows lie.
const KNOWN_ROWS: usize = 1 << 16;

/// What is kept for a connection that lives as long.
pub(crate) struct Kept<'c> {
    /// Each statement is prepared when it is first needed.
    statements: Vec<OnceCell<RefCell<Statement<'c>>>>,
    /// Where rows of tasks lie, which spares the way there by their ids. It may be out of date: who goes by it asks for
    /// the id too.
    rows: RefCell<Map<TaskId, i64>>,
}

impl<'c> Kept<'c> {
    pub(crate) fn new() -> Self {
        Self { statements: ALL.iter().map(|_| OnceCell::new()).collect(), rows: RefCell::default() }
    }

    /// Looks at each statement that was prepared.
    #[cfg(test)]
    pub(crate) fn each(&self, mut look: impl FnMut(&Statement<'c>)) {
        self.statements.iter().filter_map(OnceCell::get).for_each(|statement| look(&statement.borrow()));
    }

    fn get(&self, connection: &'c Connection, sql: Sql) -> Result<Option<RefMut<'_, Statement<'c>>>> {
        let place = &self.statements[sql.0];
        if place.get().is_none() {
            let prepared = connection.prepare_with_flags(sql.text(), PrepFlags::SQLITE_PREPARE_PERSISTENT)?;
            let _ = place.set(RefCell::new(prepared));
        }
        Ok(place.get().and_then(|statement| statement.try_borrow_mut().ok()))
    }
}

/// A connection with its prepared statements: kept beside it, or in a cache of its own where connections are
/// handed around.
#[derive(Clone, Copy)]
pub(crate) struct Db<'a, 'c> {
    connection: &'c Connection,
    kept: Option<&'a Kept<'c>>,
}

impl<'a, 'c> Db<'a, 'c> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        Self { connection, kept: None }
    }

    pub(crate) fn keeping(connection: &'c Connection, kept: &'a Kept<'c>) -> Self {
        Self { connection, kept: Some(kept) }
    }

    pub(crate) fn connection(self) -> &'c Connection {
        self.connection
    }

    /// Where the row of a task lies, if that is known and still true.
    pub(crate) fn row_of(self, task: TaskId) -> Option<i64> {
        self.kept.and_then(|kept| kept.rows.borrow().get(&task).copied())
    }

    /// Takes note of where the row of a task lies.
    pub(crate) fn note_row(self, task: TaskId, row: i64) {
        let Some(kept) = self.kept else { return };
        let mut rows = kept.rows.borrow_mut();
        if rows.len() >= KNOWN_ROWS {
            rows.clear();
        }
        rows.insert(task, row);
    }

    /// A statement, prepared once a connection.
    pub(crate) fn statement(self, sql: Sql) -> Result<Prepared<'a, 'c>> {
        let kept = self.kept.map(|kept| kept.get(self.connection, sql)).transpose()?.flatten();
        match kept {
            Some(statement) => Ok(Prepared::Kept(statement)),
            None => self.connection.prepare_cached(sql.text()).map(Prepared::Cached),
        }
    }
}

/// A prepared statement in use.
pub(crate) enum Prepared<'a, 'c> {
    Kept(RefMut<'a, Statement<'c>>),
    Cached(CachedStatement<'c>),
}

impl<'c> Deref for Prepared<'_, 'c> {
    type Target = Statement<'c>;

    fn deref(&self) -> &Statement<'c> {
        match self {
            Self::Kept(statement) => statement,
            Self::Cached(statement) => statement,
        }
    }
}

impl<'c> DerefMut for Prepared<'_, 'c> {
    fn deref_mut(&mut self) -> &mut Statement<'c> {
        match self {
            Self::Kept(statement) => statement,
            Self::Cached(statement) => statement,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use statehold_core::Timestamp;

    use super::*;

    fn database() -> Connection {
        let connection = Connection::open_in_memory().expect("a database in memory");
        crate::migrations::run(&connection, true, Timestamp::default()).expect("the schema is made");
        connection
    }

    #[test]
    fn every_statement_can_be_prepared_and_is_used() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files = fs::read_dir(folder).expect("the sources are there").flatten();
        let sources: String =
            files.map(|file| fs::read_to_string(file.path()).expect("a source is read")).collect();
        let database = database();
        let listed =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("sql").read_dir().expect("the statements are there");
        assert_eq!(listed.count(), ALL.len());
        for (name, text) in ALL {
            let prepared = database.prepare(text);
            assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
            assert!(sources.contains(&format!("sql!(\"{name}\")")), "{name} is not used");
        }
    }

    /// A statement that reads many rows goes by an index and in its order, however large the tables are.
    #[test]
    fn no_statement_reads_what_it_does_not_answer() {
        // Dumps read everything; namespaces are few.
        let sorts = [
            "tasks_claimed",
            "namespaces_list",
            "dump_events",
            "dump_groups",
            "dump_deliveries",
            "count_ended_since",
        ];
        let scans = ["namespaces_list"];
        let database = database();
        for (name, text) in ALL.iter().filter(|(name, _)| !name.starts_with("doctor_")) {
            let mut explain =
                database.prepare(&format!("EXPLAIN QUERY PLAN {text}")).expect("it is explained");
            // What is asked for does not matter for the plan.
            let mut rows = explain.raw_query();
            while let Some(row) = rows.next().expect("a step of the plan") {
                let step: String = row.get(3).expect("its text");
                // What a statement works out itself may be read as a whole.
                let own = ["SCAN CONSTANT ROW", "SCAN named", "SCAN ordered", "SCAN (subquery"];
                let scan = step.starts_with("SCAN ") && !own.iter().any(|own| step.starts_with(own));
                assert!(!scan || scans.contains(name), "{name}: {step}");
                let sort = step.contains("TEMP B-TREE");
                assert!(!sort || sorts.contains(name), "{name}: {step}");
            }
        }
    }

    #[test]
    fn events_can_neither_be_changed_nor_removed_by_hand() {
        let database = database();
        let insert = "INSERT INTO events (ns, stream, seq, at, type) VALUES (1, 'thread/1', ?1, 0, 'said')";
        for seq in 1..=3 {
            database.execute(insert, [seq]).expect("an event is written");
        }
        let refused = |sql: &str, word: &str| {
            let problem = database.execute(sql, []).expect_err("refused").to_string();
            assert!(problem.contains(word), "{problem}");
        };
        refused("UPDATE events SET type = 'unsaid' WHERE seq = 1", "never changed");
        refused("DELETE FROM events WHERE seq = 1", "trim");
        database.execute("INSERT INTO trimming VALUES (1, 'thread/1', 2)", []).expect("a trim begins");
        refused("DELETE FROM events WHERE seq = 3", "trim");
        assert_eq!(database.execute("DELETE FROM events WHERE seq <= 2", []).expect("they go"), 2);
    }
}
