//! Opening a file: what may be wrong with it is told before anything is changed.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use statehold_core::{Clock, Error, ErrorKind, Result};

use crate::config::Config;
use crate::error;
use crate::migrations;
use crate::statements::{Db, sql};

/// The oldest SQLite without the fault that could damage a file when its log began anew.
const OLDEST_SQLITE: i32 = 3_051_003;

/// Marks a file as Statehold's: `SHLD`.
const APPLICATION: i32 = 0x5348_4c44;

/// How many connections read beside the writer: for short reads, and for long ones.
const SHORT: usize = 4;
const LONG: usize = 2;

/// How much of the file the writer keeps in memory at most.
const WRITER_CACHE_KIB: i64 = 16 * 1024;

/// Everything that is open once a file is.
pub(crate) struct Opened {
    pub(crate) writer: Connection,
    /// For the thread that takes the log over.
    pub(crate) helper: Connection,
    pub(crate) short: Vec<Connection>,
    pub(crate) long: Vec<Connection>,
    /// Says that this process has the file open, as long as it is not dropped.
    pub(crate) presence: Presence,
    pub(crate) notes: Vec<String>,
}

/// Opens a file, makes it if it is not there, and brings its schema up to date.
pub(crate) fn open(config: &Config) -> Result<Opened> {
    check_version()?;
    let path = &config.path;
    check_place(path)?;
    let mut presence = Presence::enter(path)?;
    let mut notes = Vec::new();
    let ended_badly = presence.alone && has_log(path);
    create(path)?;
    let writer = match prepare(config, ended_badly) {
        Err(damage) if is_damage(&damage) && config.recover => {
            notes.push(set_aside(path, presence.alone, &config.clock)?);
            create(path)?;
            prepare(config, false)?
        }
        prepared => prepared.map_err(|error| advised(error, path))?,
    };
    let reader = || {
        let connection = connect(path)?;
        connection.pragma_update(None, "query_only", true).map_err(error::from)?;
        Ok(connection)
    };
    let mut readers = (0..SHORT + LONG).map(|_| reader()).collect::<Result<Vec<_>>>()?;
    let long = readers.split_off(SHORT);
    let helper = connect(path)?;
    presence.stay()?;
    notes.extend(mode_note(path));
    Ok(Opened { writer, helper, short: readers, long, presence, notes })
}

fn check_version() -> Result<()> {
    let version = rusqlite::version_number();
    if version >= OLDEST_SQLITE {
        return Ok(());
    }
    let message = format!("SQLite {} can damage a database; 3.51.3 or later is needed", rusqlite::version());
    Err(Error::unsupported(message).hint("build Statehold with its bundled SQLite"))
}

/// The path of a file that stands beside the database.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

fn check_place(path: &Path) -> Result<()> {
    let (shown, folder) = (path.display(), folder_of(path));
    if path.is_dir() {
        let message = format!("`{shown}` is a folder, not a file");
        return Err(Error::invalid("store", message).hint(format!("write sqlite:{shown}/statehold.db")));
    }
    if !folder.is_dir() {
        let message = format!("the folder of `{shown}` does not exist");
        return Err(Error::invalid("store", message).hint(format!("mkdir -p {}", folder.display())));
    }
    if let Some(kind) = network_of(folder) {
        let message =
            format!("`{shown}` is on a network file system ({kind}), where SQLite's locks do not hold");
        return Err(Error::unsupported(message)
            .hint("put the file on a local disk, or use postgres:// for several machines"));
    }
    Ok(())
}

/// The network file system that a folder is on.
#[cfg(target_os = "linux")]
fn network_of(folder: &Path) -> Option<&'static str> {
    rustix::fs::statfs(folder).ok().and_then(|found| network_name(found.f_type))
}

#[cfg(not(target_os = "linux"))]
fn network_of(_: &Path) -> Option<&'static str> {
    None
}

/// Network file systems by the numbers that the kernel gives them.
#[cfg(target_os = "linux")]
fn network_name(kind: i64) -> Option<&'static str> {
    Some(match kind & 0xffff_ffff {
        0x6969 => "NFS",
        0x517b => "SMB",
        0xff53_4d42 => "CIFS",
        0xfe53_4d42 => "SMB2",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x00c3_6400 => "Ceph",
        0x0bd0_0bd0 => "Lustre",
        0x0102_1997 => "9P",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        _ => return None,
    })
}

/// That this process has the file open: a lock on a file beside it, shared by all that have.
pub(crate) struct Presence {
    lock: File,
    /// No other process had the file open when this one came.
    alone: bool,
}

impl Presence {
    fn enter(path: &Path) -> Result<Self> {
        let name = beside(path, "-lock");
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        private(&mut options);
        let lock = options.open(&name).map_err(|e| unusable(path, e))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { lock, alone: true }),
            Err(TryLockError::WouldBlock) => {
                // Someone who has just come may still be looking at the file; it lets go in the end.
                lock.lock_shared().map_err(|e| unusable(path, e))?;
                Ok(Self { lock, alone: false })
            }
            Err(TryLockError::Error(problem)) => Err(unusable(path, problem)),
        }
    }

    /// Lets others in.
    fn stay(&mut self) -> Result<()> {
        if self.alone {
            let failed = |e: io::Error| Error::unavailable(format!("the file's lock fails: {e}"));
            self.lock.unlock().map_err(failed)?;
            self.lock.lock_shared().map_err(failed)?;
        }
        Ok(())
    }
}

/// Only for this user.
fn private(options: &mut fs::OpenOptions) {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
}

fn unusable(path: &Path, problem: io::Error) -> Error {
    let hint = match problem.kind() {
        io::ErrorKind::PermissionDenied => "check the owner and mode of the folder and of the files in it",
        io::ErrorKind::ReadOnlyFilesystem => {
            "the disk is mounted read-only; put the file where it can be written"
        }
        io::ErrorKind::StorageFull => "make room on the disk",
        _ => "check that the folder can be written",
    };
    let message = format!("`{}` cannot be opened: {problem}", path.display());
    Error::unavailable(message).hint(hint).caused_by(problem)
}

/// Whether there is a log, which a process that ends well takes with it.
fn has_log(path: &Path) -> bool {
    fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0)
}

/// Makes the file, unless it is there. The log beside it gets the same mode from SQLite.
fn create(path: &Path) -> Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    private(&mut options);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(problem) => Err(unusable(path, problem)),
    }
}

#[cfg(unix)]
fn mode_note(path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let wide = mode & 0o077 != 0;
    wide.then(|| format!("others may read the file (mode {mode:03o}); chmod 600 {}", path.display()))
}

#[cfg(not(unix))]
fn mode_note(_: &Path) -> Option<String> {
    None
}

/// A connection as all of ours are.
fn connect(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(error::from)?;
    // A file that is refused is left as it is: whoever closes it last would take its log over into it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(error::from)?;
    configure(&mut connection).map_err(error::from)?;
    Ok(connection)
}

/// The settings of a connection that do not touch the file.
pub(crate) fn configure(connection: &mut Connection) -> rusqlite::Result<()> {
    // Without this, SQLite compares values with the conditions of partial indexes, and prepares a statement anew for
    // each of them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.busy_handler(Some(wait_for_turn))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(256);
    Ok(())
}

/// Asks again soon, for about half a minute: other writers keep their transactions short, and SQLite's own way of
/// waiting ever longer would let a busy process keep out the others.
fn wait_for_turn(tries: i32) -> bool {
    let pause = if tries < 20 { Duration::from_micros(250) } else { Duration::from_millis(1) };
    std::thread::sleep(pause);
    tries < 30_000
}

/// The writer's connection, once the file is known to be sound, ours, and up to date.
fn prepare(config: &Config, ended_badly: bool) -> Result<Connection> {
    let path = &config.path;
    check_head(path)?;
    let connection = connect(path)?;
    if connection.is_readonly(rusqlite::MAIN_DB).map_err(error::from)? {
        return Err(Error::unavailable("the database cannot be written: it is read-only")
            .hint("check the mode and owner of the file, of its folder, and how the disk is mounted"));
    }
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB).map_err(error::from)?;
    identify(&connection, path)?;
    if config.recover {
        refuse_damage(&connection, "PRAGMA integrity_check(10)")?;
    } else if ended_badly {
        refuse_damage(&connection, "PRAGMA quick_check(10)")?;
    }
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        .map_err(error::from)?;
    if mode != "wal" {
        let message = format!("`{}` cannot be kept with a write-ahead log here", path.display());
        return Err(Error::unsupported(message).hint("put the file on a local disk"));
    }
    migrations::run(&connection, config.migrate, config.clock.now())?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(error::from)?;
    Ok(connection)
}

/// SQLite takes a file of one byte for an empty one.
fn check_head(path: &Path) -> Result<()> {
    let one = fs::metadata(path).map_err(|e| unusable(path, e))?.len() == 1;
    let not_a_database = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_NOTADB);
    if one { Err(error::from(rusqlite::Error::SqliteFailure(not_a_database, None))) } else { Ok(()) }
}

/// Refuses what is not Statehold's, and what is of a later release.
fn identify(connection: &Connection, path: &Path) -> Result<()> {
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(error::from)?;
    let application: i32 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(error::from)?;
    if application == APPLICATION {
        return migrations::check_known(connection);
    }
    if tables > 0 || application != 0 {
        let message = format!("`{}` is the SQLite database of another program", path.display());
        return Err(Error::invalid("store", message).hint("give the path of a file that does not exist yet"));
    }
    Ok(())
}

/// Marks an empty file as ours; within the first migration.
pub(crate) fn mark(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", APPLICATION)
}

fn refuse_damage(connection: &Connection, pragma: &str) -> Result<()> {
    let found = check(connection, pragma)?;
    if found.is_empty() { Ok(()) } else { Err(Error::corrupt(found.join("; "))) }
}

/// What a check of SQLite's finds.
fn check(connection: &Connection, pragma: &str) -> Result<Vec<String>> {
    let mut statement = connection.prepare(pragma).map_err(error::from)?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0)).map_err(error::from)?;
    let lines = lines.collect::<rusqlite::Result<Vec<_>>>().map_err(error::from)?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// What `doctor` finds out about a file, without changing it.
#[derive(Clone, Debug)]
pub struct Examination {
    /// What is worth knowing.
    pub facts: Vec<String>,
    /// What is wrong; nothing if the file is sound.
    pub damage: Vec<String>,
}

/// Examines a file that exists.
pub(crate) fn examine(path: &Path) -> Result<Examination> {
    check_version()?;
    check_place(path)?;
    if !path.exists() {
        let message = format!("`{}` does not exist", path.display());
        return Err(Error::new(ErrorKind::NotFound, message).hint("check the path"));
    }
    let had_log = beside(path, "-wal").exists();
    let connection = connect(path).map_err(|e| advised(e, path))?;
    identify(&connection, path).map_err(|e| advised(e, path))?;
    if !had_log {
        // There is nothing to take over into the file, and the empty log goes with the connection.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(error::from)?;
    }
    let version = migrations::version(&connection).map_err(error::from)?;
    let size = |suffix| fs::metadata(beside(path, suffix)).map_or(0, |file| file.len());
    let mut facts = vec![
        format!("SQLite {}, schema version {version}", rusqlite::version()),
        format!("{} bytes, and {} in the log", size(""), size("-wal")),
    ];
    facts.extend(mode_note(path));
    let mut damage = match check(&connection, "PRAGMA integrity_check(100)") {
        // Too badly damaged for the check to come to its end.
        Err(error) if is_damage(&error) => vec![error.message().to_owned()],
        checked => checked?,
    };
    if damage.is_empty() && version > 0 {
        damage = contradictions(Db::new(&connection)).map_err(error::from)?;
    }
    Ok(Examination { facts, damage })
}

/// Rows that contradict each other although each can be read.
fn contradictions(db: Db<'_, '_>) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    for sql in [
        sql!("doctor_counts"),
        sql!("doctor_task_events"),
        sql!("doctor_stream_events"),
        sql!("doctor_leases"),
    ] {
        found.extend(db.all(sql, [], |cells| cells.text())?);
    }
    Ok(found)
}

fn advised(error: Error, path: &Path) -> Error {
    if is_damage(&error) { with_advice(&error, path) } else { error }
}

fn is_damage(error: &Error) -> bool {
    error.code() == "corrupt"
}

fn with_advice(damage: &Error, path: &Path) -> Error {
    let shown = path.display();
    let not_a_database = std::error::Error::source(damage)
        .and_then(|source| source.downcast_ref::<rusqlite::Error>())
        .and_then(rusqlite::Error::sqlite_error_code)
        == Some(ErrorCode::NotADatabase);
    if not_a_database {
        let message = format!("`{shown}` is not a SQLite database");
        return Error::corrupt(message).hint(
            "check the path; nothing was changed. If it was Statehold's, restore a backup, or `statehold doctor \
             --recover` sets the file aside and begins a new one",
        );
    }
    let message = format!("`{shown}` is damaged: {}", damage.message());
    Error::corrupt(message).hint(format!(
        "nothing was changed; `statehold doctor --store sqlite:{shown}` tells more; restore a backup, or add \
         --recover to that, which sets the file aside and begins a new one"
    ))
}

/// Moves a damaged file and what belongs to it out of the way.
fn set_aside(path: &Path, alone: bool, clock: &Clock) -> Result<String> {
    if !alone {
        let message = format!("`{}` is damaged, and another process has it open", path.display());
        return Err(Error::corrupt(message).hint("stop the other process first, then recover"));
    }
    let date: String = clock.now().to_string().chars().filter(char::is_ascii_alphanumeric).take(15).collect();
    let mut aside = beside(path, &format!(".damaged-{date}"));
    for number in 2.. {
        if !aside.exists() {
            break;
        }
        aside = beside(path, &format!(".damaged-{date}-{number}"));
    }
    for suffix in ["-wal", "-shm", ""] {
        match fs::rename(beside(path, suffix), beside(&aside, suffix)) {
            Err(problem) if problem.kind() != io::ErrorKind::NotFound => return Err(unusable(path, problem)),
            _ => {}
        }
    }
    Ok(format!("the damaged file was set aside as {}", aside.display()))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_told_from_local_ones() {
        assert_eq!(network_name(0x6969), Some("NFS"));
        assert_eq!(network_name(i64::from(0xff53_4d42_u32.cast_signed())), Some("CIFS"));
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(network_name(local), None);
        }
        assert_eq!(network_of(Path::new("/")), None);
    }
}
