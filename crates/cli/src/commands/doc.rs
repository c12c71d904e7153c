//! `statehold doc`: bodies with a revision.

mod edit;

use std::io::IsTerminal as _;
use std::sync::Arc;

use clap::{Args, Subcommand};
use statehold::{DocumentPut, Error, Result, Seconds, Statehold};
use statehold_core::command::{DocumentDelete, DocumentRevision, Existed, Expect};
use statehold_core::model::{Content, Document};
use statehold_core::query::DocumentList;

use super::paging::{Paging, each_page};
use crate::args::{self, Body};
use crate::show::{self, Show, Table};
use crate::trouble::Exit;

/// What can be done with documents.
#[derive(Subcommand, Debug)]
pub(crate) enum Doc {
    /// Shows the body of a document; with -o json everything about it
    #[command(after_help = "\
Examples:
  statehold doc get project 1
  statehold doc get project 1 -o json")]
    Get(Name),
    /// Writes a document
    #[command(after_help = "\
Examples:
  statehold doc put project 1 '{\"state\": \"new\"}' --expect absent
  statehold doc put project 1 @body.json --expect any --label team=a --ttl 30d
  statehold doc put picture 1 @picture.png --content-type image/png")]
    Put(Put),
    /// Opens a document in an editor, and saves it unless someone else has changed it meanwhile
    ///
    /// The editor is the one that VISUAL or EDITOR names. A document that is not there is begun.
    #[command(after_help = "\
Examples:
  statehold doc edit project 1
  EDITOR='sed -i s/new/old/' statehold doc edit project 1")]
    Edit(Name),
    /// Removes a document
    #[command(after_help = "\
Examples:
  statehold doc delete project 1")]
    Delete {
        #[command(flatten)]
        name: Name,
        /// What must be there: any, absent, or a revision
        #[arg(long, default_value = "any", value_parser = expect)]
        expect: Expect,
    },
    /// Lists documents of a kind
    #[command(after_help = "\
Examples:
  statehold doc list project --label team=a
  statehold doc list project --prefix 2026- --descending --all -o json")]
    List(List),
}

/// A document by its name.
#[derive(Args, Debug)]
pub(crate) struct Name {
    /// What kind of document
    kind: String,
    /// Its name within the kind
    name: String,
}

impl Name {
    fn not_found(&self) -> Error {
        let hint = format!("statehold doc list {} shows what is there", show::quoted(&self.kind));
        Error::not_found("document", format_args!("{}/{}", self.kind, self.name)).hint(hint)
    }
}

/// The arguments of `statehold doc put`.
#[derive(Args, Debug)]
pub(crate) struct Put {
    #[command(flatten)]
    name: Name,
    /// The body: JSON, @FILE, or - for standard input
    #[arg(allow_negative_numbers = true)]
    body: Body,
    /// What must be there: any, absent, or a revision
    #[arg(long, default_value = "any", value_parser = expect)]
    expect: Expect,
    /// Text to find it by; can be said several times
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = args::label)]
    labels: Vec<(String, String)>,
    /// When it goes by itself, such as 30d; never if left out
    #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
    ttl: Option<Seconds>,
    /// The version of the schema that the body follows
    #[arg(long, value_name = "NUMBER")]
    schema_version: Option<u32>,
    /// The body is bytes of this type, not JSON
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
}

fn expect(text: &str) -> Result<Expect, String> {
    match text {
        "any" => Ok(Expect::Any),
        "absent" => Ok(Expect::Absent),
        number => number.parse().map(Expect::Revision).map_err(|_| "write any, absent, or a revision".into()),
    }
}

/// The arguments of `statehold doc list`.
#[derive(Args, Debug)]
pub(crate) struct List {
    /// Which kind
    kind: String,
    /// Only names that begin with this
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    /// With this label; can be said several times
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = args::label)]
    labels: Vec<(String, String)>,
    /// The other way round
    #[arg(short, long)]
    descending: bool,
    #[command(flatten)]
    paging: Paging,
}

/// Does it.
pub(crate) async fn run(hold: &Statehold, doc: &Doc, show: &Show) -> Result<Exit> {
    match doc {
        Doc::Get(name) => get(hold, name, show).await?,
        Doc::Put(args) => put(hold, args, show).await?,
        Doc::Edit(name) => edit::run(hold, name, show).await?,
        Doc::Delete { name: Name { kind, name }, expect } => {
            let delete = DocumentDelete { kind: kind.clone(), name: name.clone(), expect: *expect };
            let Existed { existed } = hold.run(delete).await?;
            show.answer(&Existed { existed }, || {
                format!("{kind} {name} {}", if existed { "is gone" } else { "was not there" })
            })?;
        }
        Doc::List(args) => return list(hold, args, show).await,
    }
    Ok(Exit::Success)
}

async fn get(hold: &Statehold, name: &Name, show: &Show) -> Result<()> {
    let found = hold.documents().get(&name.kind, &name.name).await?;
    let document = found.ok_or_else(|| name.not_found())?;
    match &document.content {
        Some(_) if show.is_json() => show.json(&document),
        Some(content) if std::io::stdout().is_terminal() => {
            let message = format!("it is {} bytes of {}", content.data.len(), content.content_type);
            Err(Error::unsupported(message).hint("send it to a file: statehold doc get … > FILE"))
        }
        Some(content) => show.bytes(&content.data),
        None => show.answer(&document, || document.body.as_ref().map(show::pretty).unwrap_or_default()),
    }
}

async fn put(hold: &Statehold, args: &Put, show: &Show) -> Result<()> {
    let Name { kind, name } = &args.name;
    let mut put = match &args.content_type {
        None => DocumentPut::json(kind, name, args.body.read("body")?),
        Some(content_type) => {
            let data: Arc<[u8]> = args.body.bytes("body")?.into();
            DocumentPut::binary(kind, name, Content { content_type: content_type.clone(), data })
        }
    };
    put.expect = args.expect;
    put.labels = args::labels(&args.labels);
    put.ttl_seconds = args.ttl;
    put.schema_version = args.schema_version;
    saved(show, &args.name, hold.documents().put_with(put).await?)
}

fn saved(show: &Show, name: &Name, revision: u64) -> Result<()> {
    show.answer(&DocumentRevision { revision }, || {
        format!("{} {} is at revision {revision}", name.kind, name.name)
    })
}

async fn list(hold: &Statehold, args: &List, show: &Show) -> Result<Exit> {
    let list = DocumentList {
        prefix: args.prefix.clone(),
        labels: args::labels(&args.labels),
        descending: args.descending,
        ..DocumentList::new(&args.kind)
    };
    let page =
        async |cursor, limit| hold.documents().list(&DocumentList { cursor, limit, ..list.clone() }).await;
    each_page(&args.paging, show, page, table).await
}

fn table(documents: &[Document]) -> Table {
    let mut table = Table::new(&["NAME", "REVISION", "UPDATED", "EXPIRES", "TYPE", "SIZE", "LABELS"]);
    for document in documents {
        let (kind, size) = match (&document.content, &document.body) {
            (Some(content), _) => (content.content_type.as_str(), content.data.len()),
            (None, body) => ("json", body.as_ref().map_or(0, statehold::Json::size)),
        };
        table.row([
            (&document.name).into(),
            document.revision.into(),
            show::relative(document.updated_at).into(),
            document.expires_at.map(show::relative).unwrap_or_default().into(),
            kind.into(),
            size.into(),
            show::labels(&document.labels).into(),
        ]);
    }
    table
}
