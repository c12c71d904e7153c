//! `statehold doc edit`: a document in an editor. What was typed is never lost.

use std::path::Path;
use std::process::Command;

use statehold::{DocumentPut, Error, ErrorKind, Json, Result, Statehold};
use statehold_core::command::Expect;
use statehold_core::model::Document;
use tempfile::NamedTempFile;

use super::Name;
use crate::show::{self, Show};
use crate::trouble;

/// Opens the document, waits for the editor, and saves what changed.
pub(super) async fn run(hold: &Statehold, name: &Name, show: &Show) -> Result<()> {
    let before = hold.documents().get(&name.kind, &name.name).await?;
    if before.as_ref().is_some_and(|document| document.body.is_none()) {
        let hint = "statehold doc get … > FILE, change it, then doc put … @FILE --content-type TYPE";
        return Err(Error::unsupported("it is not JSON, and cannot be edited as text").hint(hint));
    }
    let body = before.as_ref().and_then(|document| document.body.clone());
    let file = written(&body.clone().map_or_else(|| Json::parse("{}"), Ok)?)?;
    edit(file.path())?;
    let edited = read(file.path());
    if edited.as_ref().is_ok_and(|edited| body.as_ref() == Some(edited)) {
        show.note("nothing was changed");
        return Ok(());
    }
    match save(hold, name, before.as_ref(), edited).await {
        Ok(revision) => super::saved(show, name, revision),
        Err(error) => Err(keep(file, name, error)),
    }
}

/// The body in a file that only this user can read.
fn written(body: &Json) -> Result<NamedTempFile> {
    let failed = |e: std::io::Error| trouble::file(&std::env::temp_dir(), &e);
    let file = tempfile::Builder::new().prefix("statehold-").suffix(".json").tempfile().map_err(failed)?;
    std::fs::write(file.path(), show::spread(body) + "\n").map_err(failed)?;
    Ok(file)
}

/// Runs the editor, which may be a command with arguments, as a shell would.
fn edit(path: &Path) -> Result<()> {
    let editor = ["VISUAL", "EDITOR"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|editor| !editor.is_empty()));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    let script = format!("{editor} \"$1\"");
    let ended = Command::new("sh").args(["-c", &script, "sh"]).arg(path).status();
    let hint = "set VISUAL or EDITOR to an editor that waits until the file is closed";
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(Error::invalid("", format!("`{editor}` ended with {status}; nothing was saved")).hint(hint))
        }
        Err(e) => Err(Error::invalid("", format!("`{editor}` cannot be started: {e}")).hint(hint)),
    }
}

fn read(path: &Path) -> Result<Json> {
    let text = std::fs::read_to_string(path).map_err(|e| trouble::file(path, &e))?;
    Json::parse(&text)
}

/// Writes the new body if the document is still what it was; labels, schema version and expiry stay.
async fn save(hold: &Statehold, name: &Name, before: Option<&Document>, edited: Result<Json>) -> Result<u64> {
    let mut put = DocumentPut::json(&name.kind, &name.name, edited?);
    put.expect = before.map_or(Expect::Absent, |document| Expect::Revision(document.revision));
    if let Some(document) = before {
        put.labels.clone_from(&document.labels);
        put.schema_version = document.schema_version;
        put.ttl_seconds = document.expires_at.map(|at| at.since(document.updated_at));
    }
    hold.documents().put_with(put).await
}

/// Keeps what was typed, and tells where.
fn keep(file: NamedTempFile, name: &Name, error: Error) -> Error {
    let Ok((_, path)) = file.keep() else { return error };
    let (kind, name, path) = (show::quoted(&name.kind), show::quoted(&name.name), path.display().to_string());
    let expect = match error.kind() {
        ErrorKind::PreconditionFailed { revision: Some(now) } => format!(" --expect {now}"),
        _ => String::new(),
    };
    let command = format!("statehold doc put {kind} {name} @{}{expect}", show::quoted(&path));
    error.hint(format!("your text is kept in {path}\nlook at what is there now, then: {command}"))
}
