//! Dumps and loads. Both go through a file without a name beside the database, so that neither a slow reader of a
//! dump nor a slow source of a load keeps a transaction open.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, BufWriter, Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use futures_core::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use rusqlite::Result as SqlResult;
use statehold_core::dump::{CategoryMark, Record};
use statehold_core::model::{Event, Position, TaskId};
use statehold_core::plan::Appending;
use statehold_core::row::{Change, TrimMark, Trims};
use statehold_core::{Error, Result};
use tokio::sync::oneshot;

use crate::rows::{Cells, More, Table};
use crate::statements::{Db, sql};
use crate::streams::Origin;
use crate::transaction::{Space, Transaction};
use crate::writer::Job;
use crate::{documents, entries, groups, keys, locks, queues, streams, tasks};

/// Records on their way.
pub(crate) struct Spool(File);

impl Spool {
    /// A file beside the database, of records that `write` gives; it goes with its handle.
    pub(crate) fn beside(database: &Path) -> Result<Self> {
        let mut name = database.as_os_str().to_owned();
        name.push(format!("-spool-{}", TaskId::generate()));
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&name).and_then(|file| fs::remove_file(&name).map(|()| file));
        file.map(Self).map_err(unwritable)
    }

    /// Takes records in.
    pub(crate) fn writer(&mut self) -> SpoolWriter<'_> {
        SpoolWriter(BufWriter::new(&self.0))
    }

    /// The records, from the first on.
    pub(crate) fn records(&mut self) -> Result<impl Iterator<Item = Result<Record>> + Send + use<>> {
        self.0.rewind().map_err(unwritable)?;
        let file = self.0.try_clone().map_err(unwritable)?;
        Ok(BufReader::new(file).lines().map(|line| {
            let line = line.map_err(unwritable)?;
            serde_json::from_str(&line).map_err(|e| Error::corrupt(format!("a record cannot be read: {e}")))
        }))
    }
}

/// Where records go in.
pub(crate) struct SpoolWriter<'s>(BufWriter<&'s File>);

impl SpoolWriter<'_> {
    pub(crate) fn write(&mut self, record: &Record) -> Result<()> {
        serde_json::to_writer(&mut self.0, record).map_err(|e| unwritable(e.into()))?;
        self.0.write_all(b"\n").map_err(unwritable)
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        self.0.flush().map_err(unwritable)
    }
}

fn unwritable(problem: std::io::Error) -> Error {
    Error::unavailable(format!("no temporary file can be used beside the database: {problem}"))
        .hint("check that there is room on the disk of the database")
        .caused_by(problem)
}

/// Writes everything in a namespace, in an order in which it can be loaded.
pub(crate) fn write(
    db: Db<'_, '_>,
    ns: i64,
    origin: Origin,
    write: &mut dyn FnMut(Record) -> Result<()>,
) -> SqlResult<()> {
    let mut write =
        |record| write(record).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()));
    let mut all = |sql, read: &dyn Fn(&mut Cells<'_, '_>) -> SqlResult<Record>| {
        db.each(sql, [ns], |cells| {
            write(read(cells)?)?;
            Ok(More::Please)
        })
    };
    all(sql!("dump_queues"), &|cells| queues::read_queue(cells).map(Record::Queue))?;
    all(sql!("dump_pollers"), &|cells| queues::read_poller(cells).map(Record::Poller))?;
    all(sql!("dump_tasks"), &|cells| tasks::read(cells).map(|row| Record::Task(Box::new(row))))?;
    all(sql!("dump_signals"), &|cells| tasks::read_signals(cells).map(Record::Signals))?;
    all(sql!("dump_exclusives"), &|cells| tasks::read_exclusive(cells).map(Record::Exclusive))?;
    all(sql!("dump_streams"), &|cells| streams::read_stream(cells).map(Record::Stream))?;
    all(sql!("dump_events"), &|cells| streams::read_event(cells, origin, None).map(Record::Event))?;
    for mark in trims(db, ns)? {
        write(Record::Category(mark))?;
    }
    let mut all = |sql, read: &dyn Fn(&mut Cells<'_, '_>) -> SqlResult<Record>| {
        db.each(sql, [ns], |cells| {
            write(read(cells)?)?;
            Ok(More::Please)
        })
    };
    all(sql!("dump_groups"), &|cells| groups::read_group(cells).map(Record::Group))?;
    all(sql!("dump_deliveries"), &|cells| groups::read_delivery(cells).map(Record::Delivery))?;
    all(sql!("dump_documents"), &|cells| documents::read(cells).map(Record::Document))?;
    all(sql!("dump_floors"), &|cells| documents::read_floor(cells).map(Record::Floor))?;
    all(sql!("dump_entries"), &|cells| entries::read(cells).map(Record::Entry))?;
    all(sql!("dump_locks"), &|cells| locks::read(cells).map(Record::Lock))?;
    all(sql!("dump_answers"), &|cells| keys::read_answer(cells).map(Record::Answer))?;
    queues::chores(db, ns)?.into_iter().map(Record::Chore).try_for_each(write)
}

fn trims(db: Db<'_, '_>, ns: i64) -> SqlResult<Vec<CategoryMark>> {
    let mut marks: Vec<CategoryMark> = Vec::new();
    db.each(sql!("dump_trims"), [ns], |cells| {
        let category = cells.text()?;
        let trim = TrimMark { number: cells.get()?, position: Position(cells.text()?) };
        match marks.last_mut().filter(|mark| mark.category == category) {
            Some(mark) => mark.trims.0.push(trim),
            None => marks.push(CategoryMark { category, trims: Trims(vec![trim]) }),
        }
        Ok(More::Please)
    })?;
    Ok(marks)
}

/// A spool as a stream, read on a thread that may block.
pub(crate) fn stream(mut spool: Spool) -> Result<BoxStream<'static, Result<Record>>> {
    let records = spool.records()?;
    let (sender, receiver) = tokio::sync::mpsc::channel(64);
    tokio::task::spawn_blocking(move || {
        for record in records {
            if sender.blocking_send(record).is_err() {
                break;
            }
        }
    });
    Ok(stream::unfold(receiver, |mut receiver| async move {
        let record = receiver.recv().await?;
        Some((record, receiver))
    })
    .boxed())
}

/// A load, for the writer: all records in one transaction.
pub(crate) struct Load {
    pub(crate) namespace: String,
    pub(crate) records: Spool,
    pub(crate) reply: oneshot::Sender<Result<u64>>,
    pub(crate) decided: Option<Result<u64>>,
}

impl Job for Load {
    fn decide(&mut self, transaction: &mut Transaction<'_, '_>) -> SqlResult<()> {
        let failed = |error: Error| rusqlite::Error::ToSqlConversionFailure(error.into());
        let records = self.records.records().map_err(failed)?;
        self.decided = Some(transaction.fill(&self.namespace, |db, space, ns| {
            let mut count = 0;
            for record in records {
                restore(db, space, ns, &record.map_err(failed)?)?;
                count += 1;
            }
            Ok(count)
        })?);
        Ok(())
    }

    fn answer(self: Box<Self>) {
        if let Some(decided) = self.decided {
            let _ = self.reply.send(decided);
        }
    }

    fn fail(self: Box<Self>, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}

fn restore(db: Db<'_, '_>, space: &mut Space, ns: i64, record: &Record) -> SqlResult<()> {
    match record {
        Record::Queue(row) => row.put(db, ns, None),
        Record::Poller(row) => row.put(db, ns, None),
        Record::Task(row) => {
            let after = Some(Arc::new((**row).clone()));
            space.counts().note(&[Change { key: row.task.id, before: None, after }]);
            row.put(db, ns, None)
        }
        Record::Signals(row) => row.put(db, ns, None),
        Record::Exclusive(row) => row.put(db, ns, None),
        Record::Stream(row) => row.put(db, ns, None),
        Record::Event(event) => space.restore(db, &appending(event), &event.position),
        Record::Category(mark) => {
            space.note_position(&mark.trims.oldest());
            streams::restore_trims(db, ns, &mark.category, &mark.trims)
        }
        Record::Group(row) => row.put(db, ns, None),
        Record::Delivery(row) => row.put(db, ns, None),
        Record::Document(row) => row.put(db, ns, None),
        Record::Floor(row) => row.put(db, ns, None),
        Record::Entry(row) => row.put(db, ns, None),
        Record::Lock(row) => row.put(db, ns, None),
        Record::Answer(row) => row.put(db, ns, None),
        Record::Chore(row) => row.put(db, ns, None),
    }
}

fn appending(event: &Event) -> Appending {
    Appending {
        stream: event.stream.clone(),
        seq: event.seq,
        kind: event.kind.clone(),
        data: event.data.clone(),
        at: event.at,
        actor: event.actor.clone(),
    }
}
