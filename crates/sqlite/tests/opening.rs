//! Opening a file: what is wrong with it is told, with what to do, and nothing is changed before.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use common::{
    NAMESPACE, apply, beside, block_on, contents, copy_to, folder, integrity, mount_tmpfs, mounting,
    numbered, open, refused, run_well, whole_batches,
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use statehold_conformance::named;
use statehold_conformance::process::{self, Process, given, say};
use statehold_core::command::DocumentPut;
use statehold_core::dump::Record;
use statehold_core::model::{Content, Document};
use statehold_core::{Backend as _, Batch, Clock, Error, Json, Timestamp, limits};
use statehold_sqlite::{Config, Sqlite};

fn main() -> ExitCode {
    process::run(
        named![
            a_newer_schema_is_refused_and_untouched,
            a_newer_schema_with_a_log_is_refused_and_untouched,
            a_text_file_is_refused_and_untouched,
            the_database_of_another_program_is_refused_and_untouched,
            the_database_of_another_program_with_a_log_is_refused_and_untouched,
            a_path_without_a_folder_or_to_a_folder_is_refused,
            what_may_not_be_written_is_told_and_untouched,
            a_disk_that_is_read_only_is_told,
            all_files_are_for_this_user_only,
            ten_processes_open_a_new_file_at_once,
            a_clean_end_leaves_no_log,
            a_damaged_file_stops_the_start_and_is_untouched,
            a_damaged_file_is_set_aside_as_it_was,
            a_second_recovery_keeps_what_the_first_set_aside,
            an_examination_changes_nothing,
            a_damaged_file_that_another_process_has_open_is_not_set_aside,
            a_namespace_is_copied_from_file_to_file,
            documents_of_sixteen_mebibytes_come_back,
            the_log_does_not_grow_with_what_is_written,
        ],
        named![opener, holder, without_rights, on_a_read_only_disk],
    )
}

/// The error of opening what must be refused, and which must leave every file as it was.
fn refused_untouched(config: Config, code: &str, hint: &str) -> Error {
    let folder = config.path.parent().expect("a folder").to_owned();
    let before = without_locks(&folder);
    let error = refused(block_on(Sqlite::open(config)), code, hint);
    let after = without_locks(&folder);
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after), "no file comes or goes: {error}");
    for (name, bytes) in &before {
        assert!(*bytes == after[name], "{name} was changed, although opening it was refused: {error}");
    }
    error
}

/// Everything in a folder but what holds nothing: `-lock`, an empty log, and `-shm`, which is made anew each time.
fn without_locks(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = contents(folder);
    files.retain(|name, bytes| {
        let empty_log = name.ends_with("-wal") && bytes.is_empty();
        !name.ends_with("-lock") && !name.ends_with("-shm") && !empty_log
    });
    files
}

/// Makes a store with numbered batches in its file, and none in a log.
async fn filled(path: &Path, count: u64) {
    let store = open(path).await;
    for number in 1..=count {
        apply(&store, numbered(number, 2_000)).await.expect("a batch is stored");
    }
}

/// Copies a store while it is open, with its log, as a process that was killed leaves it.
fn left_uncleanly(store: Sqlite, path: &Path, to: &Path) -> PathBuf {
    let copy = copy_to(path, to);
    let log = fs::metadata(beside(&copy, "-wal")).expect("there is a log");
    assert!(log.len() > 32, "something is in the log");
    drop(store);
    copy
}

fn a_newer_schema_is_refused_and_untouched() {
    let folder = folder();
    let path = folder.path().join("state.db");
    block_on(filled(&path, 3));
    say_newer(&path);
    let error = refused_untouched(Config::new(&path), "unsupported", "a later one");
    assert!(error.message().contains("99"), "{error}");
    refused_untouched(Config { recover: true, ..Config::new(&path) }, "unsupported", "a later one");
}

fn say_newer(path: &Path) {
    let connection = rusqlite::Connection::open(path).expect("a connection");
    let newer = "INSERT INTO schema_versions (version, name, applied_at) VALUES (99, 'later', 0)";
    assert_eq!(connection.execute(newer, []).expect("a row is written"), 1);
}

fn a_newer_schema_with_a_log_is_refused_and_untouched() {
    let (folder, killed) = (folder(), folder());
    let path = folder.path().join("state.db");
    let copy = block_on(async {
        let store = open(&path).await;
        apply(&store, numbered(1, 0)).await.expect("a batch is stored");
        say_newer(&path);
        left_uncleanly(store, &path, killed.path())
    });
    refused_untouched(Config::new(&copy), "unsupported", "a later one");
}

fn a_text_file_is_refused_and_untouched() {
    for length in [1, 15, 100, 5_000, 100_000] {
        let folder = folder();
        let path = folder.path().join("notes.txt");
        fs::write(&path, "Dear diary, ".repeat(length).split_at(length).0).expect("a file is written");
        let error = refused_untouched(Config::new(&path), "corrupt", "nothing was changed");
        assert!(error.message().contains("is not a SQLite database"), "{length} bytes: {error}");
    }
}

/// The database of another program, in the mode of journal that it has chosen.
fn foreign(path: &Path, mode: &str) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).expect("a connection");
    connection.pragma_update(None, "journal_mode", mode).expect("a mode is chosen");
    let songs = "CREATE TABLE songs (title TEXT); INSERT INTO songs VALUES ('Imagine'), ('Help!')";
    connection.execute_batch(songs).expect("a table is made");
    connection
}

fn the_database_of_another_program_is_refused_and_untouched() {
    for mode in ["DELETE", "WAL"] {
        let folder = folder();
        let path = folder.path().join("songs.db");
        drop(foreign(&path, mode));
        for recover in [false, true] {
            let config = Config { recover, ..Config::new(&path) };
            let error = refused_untouched(config, "invalid", "does not exist yet");
            assert!(error.message().contains("another program"), "{error}");
        }
    }
    let folder = folder();
    let path = folder.path().join("marked.db");
    let marked = rusqlite::Connection::open(&path).expect("a connection");
    marked.pragma_update(None, "application_id", 7).expect("it is marked");
    drop(marked);
    refused_untouched(Config::new(&path), "invalid", "does not exist yet");
}

fn the_database_of_another_program_with_a_log_is_refused_and_untouched() {
    let (folder, killed) = (folder(), folder());
    let path = folder.path().join("songs.db");
    let connection = foreign(&path, "WAL");
    let copy = copy_to(&path, killed.path());
    assert!(fs::metadata(beside(&copy, "-wal")).expect("there is a log").len() > 32);
    drop(connection);
    refused_untouched(Config::new(&copy), "invalid", "does not exist yet");
}

fn a_path_without_a_folder_or_to_a_folder_is_refused() {
    let folder = folder();
    let missing = folder.path().join("not").join("there");
    let error = refused(block_on(Sqlite::open(Config::new(missing.join("state.db")))), "invalid", "mkdir -p");
    assert!(error.hint_text().is_some_and(|hint| hint.ends_with("not/there")), "{error}");
    let error = refused(block_on(Sqlite::open(Config::new(folder.path()))), "invalid", "statehold.db");
    assert!(error.message().contains("is a folder"), "{error}");
    assert!(contents(folder.path()).is_empty(), "nothing was made");
}

/// A process whose rights are those of the modes, also when it belongs to root.
fn bound_by_modes() -> &'static [&'static str] {
    let root = fs::metadata("/proc/self").expect("this process").uid() == 0;
    if root { &["setpriv", "--bounding-set=-all", "--inh-caps=-all"] } else { &["env"] }
}

fn what_may_not_be_written_is_told_and_untouched() {
    let folder = folder();
    let process =
        Process::start_behind(bound_by_modes(), "without_rights", &[("FOLDER", folder.path().as_os_str())]);
    assert_eq!(process.finish(), ["4 refused"]);
}

fn without_rights() {
    let folder = PathBuf::from(given("FOLDER"));
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode is set");
    };
    let closed = folder.join("closed");
    fs::create_dir(&closed).expect("a folder");
    mode(&closed, 0o500);
    assert!(fs::write(closed.join("probe"), "").is_err(), "modes bind this process");
    refused_untouched(Config::new(closed.join("state.db")), "unavailable", "mode");

    for (at, file_mode, folder_mode) in [(1, 0o400, 0o700), (2, 0o600, 0o500), (3, 0o000, 0o700)] {
        let place = folder.join(at.to_string());
        fs::create_dir(&place).expect("a folder");
        let path = place.join("state.db");
        block_on(filled(&path, 3));
        let before = fs::read(&path).expect("the file is read");
        mode(&path, file_mode);
        mode(&place, folder_mode);
        let error = refused(block_on(Sqlite::open(Config::new(&path))), "unavailable", "");
        let hint = error.hint_text().expect("a hint");
        assert!(
            hint.contains("mode") || hint.contains("may write"),
            "{file_mode:o} in {folder_mode:o}: {error}"
        );
        mode(&place, 0o700);
        mode(&path, 0o600);
        assert!(fs::read(&path).expect("the file is read") == before, "untouched");
        let there = block_on(async { whole_batches(&open(&path).await).await });
        assert_eq!(there.len(), 3, "with the rights back, it opens");
    }
    mode(&closed, 0o700);
    say("4 refused");
}

fn a_disk_that_is_read_only_is_told() {
    let folder = folder();
    let process =
        Process::start_behind(mounting(), "on_a_read_only_disk", &[("FOLDER", folder.path().as_os_str())]);
    assert_eq!(process.finish(), ["2 refused"]);
}

fn on_a_read_only_disk() {
    let folder = PathBuf::from(given("FOLDER"));
    mount_tmpfs(&folder, "8m");
    let path = folder.join("state.db");
    block_on(filled(&path, 3));
    run_well(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&folder));
    assert!(fs::write(folder.join("probe"), "").is_err(), "the disk is read-only");
    refused_untouched(Config::new(&path), "unavailable", "mounted");
    refused_untouched(Config::new(folder.join("new.db")), "unavailable", "mounted");
    run_well(Command::new("mount").args(["-o", "remount,bind,rw"]).arg(&folder));
    let there = block_on(async { whole_batches(&open(&path).await).await });
    assert_eq!(there.len(), 3, "once it can be written, it opens");
    say("2 refused");
}

fn all_files_are_for_this_user_only() {
    let folder = folder();
    let path = folder.path().join("state.db");
    block_on(async {
        let store = open(&path).await;
        apply(&store, numbered(1, 0)).await.expect("a batch is stored");
        assert!(store.health().await.expect("health").notes.is_empty(), "there is nothing to note");
        let mut seen = Vec::new();
        for entry in fs::read_dir(folder.path()).expect("the folder is read") {
            let entry = entry.expect("an entry");
            let mode = entry.metadata().expect("its mode").mode() & 0o777;
            let name = entry.file_name().into_string().expect("a name");
            assert_eq!(mode, 0o600, "{name} has mode {mode:o}");
            seen.push(
                name.replace("state.db", "").split_inclusive("peer").next().unwrap_or_default().to_owned(),
            );
        }
        seen.sort();
        assert_eq!(seen, ["", "-lock", "-peer", "-shm", "-wal"]);
    });
}

/// Opens the file when told to, writes a batch, and stays until its input ends.
fn opener() {
    let path = PathBuf::from(given("DATABASE"));
    let number: u64 = given("NUMBER").to_str().and_then(|text| text.parse().ok()).expect("a number");
    say("ready");
    wait_for_line();
    block_on(async {
        let store = open(&path).await;
        apply(&store, numbered(number, 0)).await.expect("a batch is stored");
        say("opened");
        wait_for_line();
        drop(store);
    });
}

fn wait_for_line() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line, or the end");
}

fn ten_processes_open_a_new_file_at_once() {
    const ROUNDS: usize = 5;
    for _ in 0..ROUNDS {
        let folder = folder();
        let path = folder.path().join("state.db");
        let start = |number: u64| {
            let number = number.to_string();
            Process::start("opener", &[("DATABASE", path.as_os_str()), ("NUMBER", number.as_ref())])
        };
        let mut processes: Vec<_> = (1..=10).map(start).collect();
        for process in &mut processes {
            process.expect("ready");
        }
        assert!(!path.exists(), "the file is new");
        for process in &mut processes {
            process.tell("go");
        }
        for process in &mut processes {
            process.expect("opened");
        }
        let connection = rusqlite::Connection::open(&path).expect("a connection");
        let steps = "SELECT group_concat(version || ' ' || name) FROM schema_versions";
        let steps: String = connection.query_row(steps, [], |row| row.get(0)).expect("the versions");
        assert_eq!(steps, "1 initial", "each step was taken once");
        drop(connection);
        for process in processes {
            process.finish();
        }
        assert!(!beside(&path, "-wal").exists(), "the last to leave takes the log with it");
        let there = block_on(async { whole_batches(&open(&path).await).await });
        assert_eq!(there, (1..=10).collect(), "each wrote its batch");
    }
}

fn a_clean_end_leaves_no_log() {
    let folder = folder();
    let path = folder.path().join("state.db");
    block_on(async {
        let store = open(&path).await;
        apply(&store, numbered(1, 0)).await.expect("a batch is stored");
        // Readers of every kind have read, and a waiter is still there.
        assert_eq!(whole_batches(&store).await.len(), 1);
        let waiter = store.register(NAMESPACE, &[]).await.expect("a waiter");
        let second = store.clone();
        assert!(beside(&path, "-wal").exists(), "there is a log");
        drop(store);
        assert!(beside(&path, "-wal").exists(), "a clone keeps it open");
        drop(second);
        drop(waiter);
    });
    let left: Vec<_> =
        fs::read_dir(folder.path()).expect("the folder").map(|e| e.expect("an entry").file_name()).collect();
    assert!(left.iter().all(|name| name == "state.db" || name == "state.db-lock"), "{left:?}");
    // All of it is in the file itself.
    let moved = folder.path().join("moved.db");
    fs::rename(&path, &moved).expect("the file is moved");
    assert_eq!(block_on(async { whole_batches(&open(&moved).await).await }).len(), 1);
}

/// What a bad disk does to a file.
type Damage = fn(&Path);

const DAMAGES: &[(&str, Damage)] =
    &[("pages in the middle", flip_pages), ("heads of pages", flip_heads), ("the second half", cut_in_half)];

fn flip(file: &mut fs::File, at: u64, length: usize) {
    let mut bytes = vec![0; length];
    file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut bytes)).expect("bytes are read");
    for byte in &mut bytes {
        *byte ^= 0x5a;
    }
    file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&bytes)).expect("bytes are written");
}

fn editable(path: &Path) -> fs::File {
    fs::File::options().read(true).write(true).open(path).expect("the file is opened")
}

/// The middle of every second page, from the third on.
fn flip_pages(path: &Path) {
    let pages = fs::metadata(path).expect("its length").len() / 4096;
    assert!(pages > 50, "there is data to damage: {pages} pages");
    let mut file = editable(path);
    (2..pages).step_by(2).for_each(|page| flip(&mut file, page * 4096 + 1_024, 2_048));
}

/// What the head of every third page says of the rest of it.
fn flip_heads(path: &Path) {
    let pages = fs::metadata(path).expect("its length").len() / 4096;
    let mut file = editable(path);
    (1..pages).step_by(3).for_each(|page| flip(&mut file, page * 4096, 8));
}

fn cut_in_half(path: &Path) {
    let length = fs::metadata(path).expect("its length").len();
    editable(path).set_len(length / 2 / 4096 * 4096).expect("it is cut");
}

/// No damage: a page that nobody looks at.
fn add_a_page(path: &Path) {
    let mut file = fs::File::options().append(true).open(path).expect("the file is opened");
    file.write_all(&[0; 4096]).expect("a page is added");
}

/// A store whose process was killed, and whose file was damaged then.
fn damaged(to: &Path, damage: Damage) -> PathBuf {
    let folder = folder();
    let path = folder.path().join("state.db");
    let copy = block_on(async {
        filled(&path, 60).await;
        let store = open(&path).await;
        apply(&store, numbered(61, 0)).await.expect("a batch is stored");
        left_uncleanly(store, &path, to)
    });
    let before = fs::read(&copy).expect("the file is read");
    damage(&copy);
    assert!(fs::read(&copy).expect("the file is read") != before, "it is damaged");
    copy
}

fn a_damaged_file_stops_the_start_and_is_untouched() {
    for (name, damage) in DAMAGES {
        let folder = folder();
        let path = damaged(folder.path(), *damage);
        for _ in 0..2 {
            let error = refused_untouched(Config::new(&path), "corrupt", "--recover");
            assert!(error.message().contains("is damaged"), "{name}: {error}");
            assert!(error.hint_text().is_some_and(|hint| hint.contains("nothing was changed")), "{error}");
        }
    }
    // The same file without damage opens: it was the damage that was refused.
    let folder = folder();
    let path = damaged(folder.path(), add_a_page);
    assert_eq!(block_on(async { whole_batches(&open(&path).await).await }).len(), 61);
}

fn a_damaged_file_is_set_aside_as_it_was() {
    for (name, damage) in DAMAGES {
        let folder = folder();
        let path = damaged(folder.path(), *damage);
        let before = without_locks(folder.path());
        let config = Config { recover: true, ..Config::new(&path) };
        block_on(async {
            let store = Sqlite::open(config.clone()).await.unwrap_or_else(|e| panic!("{name}: {e}"));
            let notes = store.health().await.expect("health").notes;
            let aside = aside(folder.path());
            assert!(notes.iter().any(|note| note.contains(&aside)), "{name}: {aside} is told: {notes:?}");
            let after = contents(folder.path());
            for suffix in ["", "-wal"] {
                let (old, new) = (&before[&format!("state.db{suffix}")], &after[&format!("{aside}{suffix}")]);
                assert!(
                    old == new,
                    "{name}: {aside}{suffix} is as it was, {} and {} bytes",
                    old.len(),
                    new.len()
                );
            }
            assert!(whole_batches(&store).await.is_empty(), "the new one is empty");
            apply(&store, numbered(1, 0)).await.expect("and can be written");
        });
        let store = block_on(Sqlite::open(config)).expect("nothing is to be recovered now");
        assert_eq!(block_on(whole_batches(&store)).len(), 1, "what is sound is not set aside");
        drop(store);
        assert_eq!(integrity(&path), "ok");
    }
}

/// By a clock that stands still, as two within one second do.
fn a_second_recovery_keeps_what_the_first_set_aside() {
    let (folder, clock) = (folder(), Clock::manual(Timestamp::from_micros(1_800_000_000_000_000)));
    let mut set_aside = Vec::new();
    for _ in 0..2 {
        let path = damaged(folder.path(), flip_heads);
        set_aside.push(fs::read(&path).expect("the damaged file"));
        let config = Config { recover: true, ..Config::new(&path) }.with_clock(clock.clone());
        drop(block_on(Sqlite::open(config)).expect("it recovers"));
    }
    assert!(set_aside[0] != set_aside[1], "two files that differ");
    let kept = contents(folder.path());
    let is_kept = |bytes: &Vec<u8>| kept.values().any(|file| file == bytes);
    assert!(set_aside.iter().all(is_kept), "both are kept: {:?}", kept.keys());
}

fn an_examination_changes_nothing() {
    let sound: (&str, Damage) = ("nothing", add_a_page);
    for (name, damage) in DAMAGES.iter().chain([&sound]) {
        let folder = folder();
        let path = damaged(folder.path(), *damage);
        let before = without_locks(folder.path());
        let found = match block_on(Sqlite::examine(&path)) {
            Ok(examined) => examined.damage,
            Err(error) => vec![error.to_string()],
        };
        assert_eq!(found.is_empty(), *name == sound.0, "{name} is damaged: {found:?}");
        assert!(without_locks(folder.path()) == before, "damaged: {name}; the examination changed a file");
    }
}

/// The name that the damaged file has now.
fn aside(folder: &Path) -> String {
    let names: Vec<_> =
        contents(folder).into_keys().filter(|name| name.starts_with("state.db.damaged-")).collect();
    let found = names.iter().find(|name| !name.ends_with("-wal") && !name.ends_with("-shm"));
    let found = found.unwrap_or_else(|| panic!("a file was set aside: {names:?}")).clone();
    let date = found.trim_start_matches("state.db.damaged-");
    assert!(date.len() == 15 && date.starts_with("20") && date.contains('T'), "the name has a date: {found}");
    found
}

/// Keeps the file open until its input ends.
fn holder() {
    let path = PathBuf::from(given("DATABASE"));
    block_on(async {
        let store = open(&path).await;
        say("open");
        wait_for_line();
        drop(store);
    });
}

fn a_damaged_file_that_another_process_has_open_is_not_set_aside() {
    let folder = folder();
    let path = folder.path().join("state.db");
    block_on(filled(&path, 30));
    let mut other = Process::start("holder", &[("DATABASE", path.as_os_str())]);
    other.expect("open");
    let mut file = editable(&path);
    flip(&mut file, 0, 16);
    let config = Config { recover: true, ..Config::new(&path) };
    let error = refused_untouched(config.clone(), "corrupt", "stop the other process");
    assert!(error.message().contains("another process"), "{error}");
    refused_untouched(Config::new(&path), "corrupt", "--recover");
    other.kill();
    let store = block_on(Sqlite::open(config)).expect("alone, it recovers");
    let _ = aside(folder.path());
    assert!(block_on(whole_batches(&store)).is_empty());
}

async fn dump(store: &Sqlite) -> Vec<Record> {
    let records = store.dump(NAMESPACE).await.expect("the dump begins");
    records.try_collect().await.expect("the dump ends")
}

fn a_namespace_is_copied_from_file_to_file() {
    let folder = folder();
    let paths = ["from.db", "to.db"].map(|name| folder.path().join(name));
    block_on(async {
        let [from, to] = [open(&paths[0]).await, open(&paths[1]).await];
        for number in 1..=40 {
            apply(&from, numbered(number, 500)).await.expect("a batch is stored");
        }
        let dumped = dump(&from).await;
        assert!(dumped.len() > 40 * 6, "{} records", dumped.len());
        let records = from.dump(NAMESPACE).await.expect("the dump begins");
        assert_eq!(to.load(NAMESPACE, records).await.expect("it is loaded"), dumped.len() as u64);
        assert!(dump(&to).await == dumped, "equal dumps");
        assert_eq!(whole_batches(&to).await, (1..=40).collect());
        let again = from.dump(NAMESPACE).await.expect("the dump begins");
        refused(to.load(NAMESPACE, again).await, "conflict", "nothing in it");
        assert!(dump(&to).await == dumped, "a refused load leaves all as it was");

        let broken = from.dump(NAMESPACE).await.expect("the dump begins").take(100);
        let broken =
            broken.chain(futures_util::stream::once(async { Err(Error::unavailable("it breaks off")) }));
        let (missing, namespace) = (to.load("broken", broken.boxed()).await, to.namespaces().await);
        assert_eq!(missing.expect_err("it breaks off").code(), "unavailable");
        assert_eq!(namespace.expect("namespaces"), [NAMESPACE], "a load that breaks off leaves nothing");

        let dumped = dump(&to).await;
        drop(to);
        assert!(dump(&open(&paths[1]).await).await == dumped, "the same after it was opened again");
    });
}

fn documents_of_sixteen_mebibytes_come_back() {
    let folder = folder();
    let path = folder.path().join("state.db");
    // A batch has the same bound, and names count.
    let size = limits::DOCUMENT - 1_024;
    let noise: Vec<u8> = (0..size).map(|at| u8::try_from(at * at % 251).expect("small")).collect();
    let text = Json::of(&"ü€x".repeat(size / 6 - 1)).expect("valid JSON");
    assert!(text.size() > 15 << 20, "{} bytes", text.size());
    let content = Content { content_type: "application/octet-stream".into(), data: noise.into() };
    let (binary, json) = (
        DocumentPut::binary("big", "binary", content.clone()),
        DocumentPut::json("big", "json", text.clone()),
    );
    block_on(async {
        let store = open(&path).await;
        for put in [binary, json] {
            apply(&store, Batch::of(NAMESPACE, put).0).await.expect("it is stored");
        }
        let read = async |store: &Sqlite, name: &str| -> Document {
            store.document_get(NAMESPACE, "big", name).await.expect("it is read").expect("it is there")
        };
        for _ in 0..2 {
            let store = open(&path).await;
            assert!(read(&store, "binary").await.content.as_ref() == Some(&content), "byte for byte");
            assert!(read(&store, "json").await.body.as_ref() == Some(&text), "letter for letter");
        }
        let to = open(&folder.path().join("to.db")).await;
        let records = store.dump(NAMESPACE).await.expect("the dump begins");
        to.load(NAMESPACE, records).await.expect("it is loaded");
        assert!(read(&to, "binary").await.content == Some(content), "byte for byte");
        assert!(read(&to, "json").await.body == Some(text), "letter for letter");
    });
}

/// The log is taken over into the file while it is written to, so that it stays a few times as long as it may become
/// before that begins.
fn the_log_does_not_grow_with_what_is_written() {
    let folder = folder();
    let path = folder.path().join("state.db");
    let (batches, size) = (1_600, 128 << 10);
    // What is there already would not be written again.
    let body = |number: usize| Json::of(&["x", "y"][number / 100 % 2].repeat(size)).expect("valid JSON");
    let longest = block_on(async {
        let store = open(&path).await;
        let mut longest = 0;
        for number in 0..batches {
            let put = DocumentPut::json("long", (number % 100).to_string(), body(number));
            apply(&store, Batch::of(NAMESPACE, put).0).await.expect("it is stored");
            longest = longest.max(fs::metadata(beside(&path, "-wal")).expect("a log").len());
        }
        longest
    });
    let written = u64::try_from(batches * size).expect("a length");
    assert!(
        written >= 200 << 20 && longest < 64 << 20,
        "the log had {longest} bytes after {written} written"
    );
}
