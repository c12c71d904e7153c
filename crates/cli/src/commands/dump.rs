//! `statehold dump` and `statehold load`: a namespace as lines of JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::{StreamExt as _, stream};
use statehold::{Error, Result, Statehold};
use statehold_core::dump::Record;

use crate::show::Show;
use crate::trouble::{self, Exit};

/// The arguments of `statehold dump`.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Dump {
    /// A file to make, which must not be there; standard output if left out
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// Writes everything in the namespace.
pub(crate) async fn dump(hold: &Statehold, args: &Dump, show: &Show) -> Result<Exit> {
    let Some(path) = &args.to else {
        // Whoever reads it has seen enough.
        if let Err(broken) = write(hold, io::stdout().lock()).await?
            && broken.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(Error::unavailable(format!("the dump cannot be written: {broken}")));
        }
        return Ok(Exit::Success);
    };
    let failed = |e: io::Error| trouble::file(path, &e);
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    // It has its name when it is whole, so that half of it is never taken for a dump.
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    let count = write(hold, &mut file).await?.map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist_noclobber(path).map_err(|e| failed(e.error))?;
    show.answer(&serde_json::json!({ "records": count }), || {
        format!("{count} records in {}", path.display())
    })?;
    Ok(Exit::Success)
}

async fn write(hold: &Statehold, to: impl Write) -> Result<io::Result<u64>> {
    let mut records = hold.backend().dump(hold.namespace()).await?;
    let (mut to, mut progress) = (BufWriter::new(to), Progress::new());
    while let Some(record) = records.next().await.transpose()? {
        let line = serde_json::to_string(&record).map_err(|e| Error::corrupt(format!("a record: {e}")))?;
        if let Err(e) = writeln!(to, "{line}") {
            return Ok(Err(e));
        }
        progress.one_more();
    }
    Ok(to.flush().map(|()| progress.count))
}

/// The arguments of `statehold load`.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Load {
    /// A file that dump wrote; standard input if left out
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// Fills the namespace, which must be empty: all of it or nothing.
pub(crate) async fn load(hold: &Statehold, args: &Load, show: &Show) -> Result<Exit> {
    let lines: Box<dyn BufRead + Send> = match &args.from {
        Some(path) => Box::new(BufReader::new(File::open(path).map_err(|e| trouble::file(path, &e))?)),
        None => Box::new(BufReader::new(io::stdin())),
    };
    let mut progress = Progress::new();
    let records = (1_u64..).zip(lines.lines()).map(move |(number, line)| {
        progress.one_more();
        read(number, line)
    });
    let count = hold.backend().load(hold.namespace(), stream::iter(records).boxed()).await?;
    show.answer(&serde_json::json!({ "records": count }), || {
        format!("{count} records in namespace {}", hold.namespace())
    })?;
    Ok(Exit::Success)
}

fn read(number: u64, line: io::Result<String>) -> Result<Record> {
    let wrong = |problem: String| {
        Error::invalid(format!("line {number}"), problem)
            .hint("load what statehold dump wrote; nothing was changed")
    };
    let line = line.map_err(|e| wrong(e.to_string()))?;
    serde_json::from_str(&line).map_err(|e| wrong(format!("is not a record: {e}")))
}

/// How far it is, on a terminal.
struct Progress {
    count: u64,
    told: Option<Instant>,
}

impl Progress {
    fn new() -> Self {
        Self { count: 0, told: io::stderr().is_terminal().then(Instant::now) }
    }

    fn one_more(&mut self) {
        self.count += 1;
        if self.told.is_some_and(|told| told.elapsed() > Duration::from_millis(200)) {
            self.told = Some(Instant::now());
            let _ = write!(io::stderr(), "\r{} records", self.count);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.told.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
