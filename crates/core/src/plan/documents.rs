//! Documents: bodies with a revision, written by compare and set.

use std::sync::Arc;

use super::tx::{Planned, Tx};
use crate::command::{DocumentDelete, DocumentPut, DocumentRevision, Existed, Expect};
use crate::error::{Error, ErrorKind};
use crate::model::Document;
use crate::row::{DocumentKey, FloorRow};

fn key(kind: &str, name: &str) -> DocumentKey {
    DocumentKey { kind: kind.to_owned(), name: name.to_owned() }
}

/// A document that has not expired.
fn live(tx: &mut Tx<'_>, key: &DocumentKey) -> Planned<Option<Arc<Document>>> {
    let now = tx.now;
    Ok(tx.get::<Document>(key)?.filter(|document| document.expires_at.is_none_or(|at| at > now)))
}

pub(super) fn judge_delete(tx: &mut Tx<'_>, delete: &DocumentDelete) -> Planned<()> {
    tx.want::<FloorRow>(&delete.kind);
    judge(tx, &delete.kind, &delete.name, delete.expect)
}

pub(super) fn judge_put(tx: &mut Tx<'_>, put: &DocumentPut) -> Planned<()> {
    judge(tx, &put.kind, &put.name, put.expect)
}

fn judge(tx: &mut Tx<'_>, kind: &str, name: &str, expect: Expect) -> Planned<()> {
    let document = live(tx, &key(kind, name));
    // Where one is there, a put goes by its revision alone.
    if !matches!(expect, Expect::Revision(_)) && !matches!(document, Ok(Some(_))) {
        tx.want::<FloorRow>(&kind.to_owned());
    }
    let revision = document?.map(|document| document.revision);
    let holds = match expect {
        Expect::Any => true,
        Expect::Absent => revision.is_none(),
        Expect::Revision(wanted) => revision == Some(wanted),
    };
    if holds {
        return Ok(());
    }
    let is =
        revision.map_or_else(|| "is not there".to_owned(), |revision| format!("is at revision {revision}"));
    let error =
        Error::new(ErrorKind::PreconditionFailed { revision }, format!("document `{kind}/{name}` {is}"));
    Err(error.about(format!("{kind}/{name}")).into())
}

pub(super) fn put(tx: &mut Tx<'_>, put: &DocumentPut) -> Planned<DocumentRevision> {
    let key = key(&put.kind, &put.name);
    let revision = 1 + match live(tx, &key)? {
        Some(document) => document.revision,
        None => floor(tx, &put.kind)?.max(tx.get::<Document>(&key)?.map_or(0, |expired| expired.revision)),
    };
    tx.put(Document {
        kind: put.kind.clone(),
        name: put.name.clone(),
        revision,
        schema_version: put.schema_version,
        labels: put.labels.clone(),
        body: put.body.clone(),
        content: put.content.clone(),
        updated_at: tx.now,
        expires_at: put.ttl_seconds.map(|ttl| tx.now + ttl),
    });
    Ok(DocumentRevision { revision })
}

pub(super) fn delete(tx: &mut Tx<'_>, delete: &DocumentDelete) -> Planned<Existed> {
    let key = key(&delete.kind, &delete.name);
    let existed = live(tx, &key)?.is_some();
    remove(tx, &key)?;
    Ok(Existed { existed })
}

fn floor(tx: &mut Tx<'_>, kind: &str) -> Planned<u64> {
    Ok(tx.get::<FloorRow>(&kind.to_owned())?.map_or(0, |row| row.revision))
}

/// Removes a document and raises its kind's floor, so that a late writer never matches.
fn remove(tx: &mut Tx<'_>, key: &DocumentKey) -> Planned<()> {
    let Some(document) = tx.get::<Document>(key)? else { return Ok(()) };
    if floor(tx, &key.kind)? < document.revision {
        tx.put(FloorRow { kind: key.kind.clone(), revision: document.revision });
    }
    tx.delete::<Document>(key);
    Ok(())
}

/// Removes a document if it has expired.
pub(super) fn expire(tx: &mut Tx<'_>, key: &DocumentKey) -> Planned<bool> {
    let expired = live(tx, key)?.is_none();
    if expired {
        remove(tx, key)?;
    }
    Ok(expired)
}
