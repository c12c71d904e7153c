//! Dumps and loads. Both go through a file without a name, so that neither a slow reader of a dump nor a slow source of
//! a load keeps a transaction open.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Seek as _, Write as _};

use futures_core::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use statehold_core::dump::{CategoryMark, Record};
use statehold_core::model::{Document, Entry, Event, Position};
use statehold_core::row::{
    AnswerRow, ChoreRow, DeliveryRow, ExclusiveRow, FloorRow, GroupRow, LockRow, PollerRow, QueueRow,
    SignalsRow, StreamRow, TaskRow,
};
use statehold_core::{Error, Result};

use crate::connection::{Call, Connection, sql};
use crate::error::Trouble;
use crate::rows::{Table, Writing, read_first};
use crate::streams;
use crate::tasks;
use crate::values::{Cells, param};

/// How many records a load writes with one statement.
const CHUNK: usize = 500;

/// Records on their way.
pub(crate) struct Spool(BufWriter<File>);

impl Spool {
    /// An empty one; it goes with its handle.
    pub(crate) fn new() -> Result<Self> {
        tempfile::tempfile().map(|file| Self(BufWriter::new(file))).map_err(unwritable)
    }

    /// Takes a record in.
    pub(crate) fn write(&mut self, record: &Record) -> Result<()> {
        serde_json::to_writer(&mut self.0, record).map_err(|e| unwritable(e.into()))?;
        self.0.write_all(b"\n").map_err(unwritable)
    }

    /// The records, from the first on.
    pub(crate) fn records(self) -> Result<impl Iterator<Item = Result<Record>> + Send + use<>> {
        let mut file = self.0.into_inner().map_err(|e| unwritable(e.into_error()))?;
        file.rewind().map_err(unwritable)?;
        Ok(BufReader::new(file).lines().map(|line| {
            let line = line.map_err(unwritable)?;
            serde_json::from_str(&line).map_err(|e| Error::corrupt(format!("a record cannot be read: {e}")))
        }))
    }

    /// The same as a stream, read on a thread that may block.
    pub(crate) fn stream(self) -> Result<BoxStream<'static, Result<Record>>> {
        let records = self.records()?;
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
}

fn unwritable(problem: std::io::Error) -> Error {
    Error::unavailable(format!("no temporary file can be used: {problem}"))
        .hint("check that there is room in the folder for temporary files")
        .caused_by(problem)
}

/// Writes everything in a namespace, in an order in which it can be loaded.
pub(crate) async fn write(db: &Connection, ns: i64) -> crate::error::Result<Spool> {
    let mut all = Spool::new()?;
    let spool = &mut all;
    rows(db, ns, spool, sql!("dump_queues"), |cells| QueueRow::read(cells).map(Record::Queue)).await?;
    rows(db, ns, spool, sql!("dump_pollers"), |cells| PollerRow::read(cells).map(Record::Poller)).await?;
    let task = |cells: &mut Cells<'_>| TaskRow::read(cells).map(|row| Record::Task(Box::new(row)));
    rows(db, ns, spool, sql!("dump_tasks"), task).await?;
    rows(db, ns, spool, sql!("dump_signals"), |cells| SignalsRow::read(cells).map(Record::Signals)).await?;
    let exclusive = |cells: &mut Cells<'_>| ExclusiveRow::read(cells).map(Record::Exclusive);
    rows(db, ns, spool, sql!("dump_exclusives"), exclusive).await?;
    rows(db, ns, spool, sql!("dump_streams"), |cells| StreamRow::read(cells).map(Record::Stream)).await?;
    rows(db, ns, spool, sql!("dump_events"), |cells| streams::read_event(cells).map(Record::Event)).await?;
    let mark = |cells: &mut Cells<'_>| {
        Ok(Record::Category(CategoryMark { category: cells.text()?, trims: cells.value()? }))
    };
    rows(db, ns, spool, sql!("dump_trims"), mark).await?;
    rows(db, ns, spool, sql!("dump_groups"), |cells| GroupRow::read(cells).map(Record::Group)).await?;
    let delivery = |cells: &mut Cells<'_>| DeliveryRow::read(cells).map(Record::Delivery);
    rows(db, ns, spool, sql!("dump_deliveries"), delivery).await?;
    rows(db, ns, spool, sql!("dump_documents"), |cells| Document::read(cells).map(Record::Document)).await?;
    rows(db, ns, spool, sql!("dump_floors"), |cells| FloorRow::read(cells).map(Record::Floor)).await?;
    rows(db, ns, spool, sql!("dump_entries"), |cells| Entry::read(cells).map(Record::Entry)).await?;
    rows(db, ns, spool, sql!("dump_locks"), |cells| LockRow::read(cells).map(Record::Lock)).await?;
    rows(db, ns, spool, sql!("dump_answers"), |cells| AnswerRow::read(cells).map(Record::Answer)).await?;
    rows(db, ns, spool, sql!("dump_chores"), |cells| ChoreRow::read(cells).map(Record::Chore)).await?;
    Ok(all)
}

async fn rows(
    db: &Connection,
    ns: i64,
    spool: &mut Spool,
    sql: &'static str,
    read: impl Fn(&mut Cells<'_>) -> crate::error::Result<Record>,
) -> crate::error::Result<()> {
    let mut rows = std::pin::pin!(db.client().query_raw(&*Call::bare(sql).text(), [ns]).await?);
    while let Some(row) = rows.try_next().await? {
        spool.write(&read(&mut Cells::new(&row))?)?;
    }
    Ok(())
}

/// Fills a namespace that must be empty, in a transaction that is open. Answers how many records there were.
pub(crate) async fn fill(
    db: &Connection,
    namespace: &str,
    records: impl Iterator<Item = Result<Record>>,
) -> crate::error::Result<u64> {
    let mut records = records.peekable();
    let name = || vec![param(namespace.to_owned())];
    let there = db.query(sql!("namespace_lock"), name()).await?;
    let mut ns: Option<i64> = read_first(&there, Cells::get)?;
    if let Some(ns) = ns {
        let used = db.query(sql!("namespace_used"), vec![param(ns)]).await?;
        if read_first(&used, Cells::get)?.unwrap_or(false) {
            let message = format!("namespace `{namespace}` is not empty");
            let error = Error::conflict(namespace, message).hint("load into a namespace with nothing in it");
            return Err(error.into());
        }
    }
    if records.peek().is_none() {
        return Ok(0);
    }
    if ns.is_none() {
        let given = db.query(sql!("namespace_insert"), name()).await?;
        ns = read_first(&given, Cells::get)?;
    }
    let ns = ns.ok_or(Trouble::Again)?;
    let mut load = Load { db, ns, highest: None, chunk: Vec::new(), count: 0 };
    for record in records {
        load.take(record?).await?;
    }
    load.finish().await
}

/// A load on its way.
struct Load<'a> {
    db: &'a Connection,
    ns: i64,
    /// The number at the front of the highest position.
    highest: Option<u64>,
    /// Records of one kind that are not written yet.
    chunk: Vec<Record>,
    count: u64,
}

impl Load<'_> {
    async fn take(&mut self, record: Record) -> crate::error::Result<()> {
        self.count += 1;
        match &record {
            Record::Event(event) => self.note(&event.position),
            Record::Category(mark) => self.note(&mark.trims.oldest()),
            _ => {}
        }
        let other = |one: &Record| std::mem::discriminant(one) != std::mem::discriminant(&record);
        if self.chunk.len() >= CHUNK || self.chunk.first().is_some_and(other) {
            self.flush().await?;
        }
        self.chunk.push(record);
        Ok(())
    }

    fn note(&mut self, position: &Position) {
        self.highest = self.highest.max(Some(position.number().unwrap_or_default()));
    }

    /// Positions go on above everything that was loaded.
    async fn finish(mut self) -> crate::error::Result<u64> {
        self.flush().await?;
        if let Some(highest) = self.highest {
            let epoch = i64::try_from(highest >> 48).unwrap_or_default() + 1;
            self.db.run(sql!("namespace_epoch"), vec![param(self.ns), param(epoch)]).await?;
        }
        Ok(self.count)
    }

    async fn flush(&mut self) -> crate::error::Result<()> {
        let chunk = std::mem::take(&mut self.chunk);
        macro_rules! rows {
            ($($variant:ident),*) => {
                match chunk.first() {
                    None => Ok(()),
                    Some(Record::Task(_)) => self.tasks(chunk).await,
                    Some(Record::Event(_)) => self.events(chunk).await,
                    Some(Record::Category(_)) => self.categories(chunk).await,
                    $(Some(Record::$variant(_)) => {
                        let rows = chunk.into_iter();
                        let rows = rows.filter_map(|record| if let Record::$variant(row) = record { Some(row) } else { None });
                        self.insert(&rows.collect::<Vec<_>>()).await
                    })*
                }
            };
        }
        rows!(
            Queue, Poller, Signals, Exclusive, Stream, Group, Delivery, Document, Floor, Entry, Lock, Answer,
            Chore
        )
    }

    async fn insert<R: Table>(&self, rows: &[R]) -> crate::error::Result<()> {
        let mut params = vec![param(self.ns)];
        params.extend(R::columns(&rows.iter().collect::<Vec<_>>()));
        self.db.run(R::INSERT, params).await?;
        Ok(())
    }

    async fn tasks(&self, chunk: Vec<Record>) -> crate::error::Result<()> {
        let rows = chunk
            .into_iter()
            .filter_map(|record| if let Record::Task(row) = record { Some(*row) } else { None });
        let rows: Vec<_> = rows.collect();
        let mut writing = Writing::default();
        tasks::insert_beside(&rows.iter().collect::<Vec<_>>(), self.ns, &mut writing);
        self.db.run_all(&writing.calls).await?;
        self.insert(&rows).await
    }

    async fn events(&self, chunk: Vec<Record>) -> crate::error::Result<()> {
        let events = chunk
            .into_iter()
            .filter_map(|record| if let Record::Event(event) = record { Some(event) } else { None });
        let events: Vec<Event> = events.collect();
        let (sql, params) = streams::restore(self.ns, &events);
        self.db.run(sql, params).await?;
        Ok(())
    }

    async fn categories(&self, chunk: Vec<Record>) -> crate::error::Result<()> {
        for record in chunk {
            if let Record::Category(mark) = record {
                streams::restore_trims(self.db, self.ns, &mark.category, &mark.trims).await?;
            }
        }
        Ok(())
    }
}
