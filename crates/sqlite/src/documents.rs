//! Documents and the floors of their kinds.

use rusqlite::{Result, params};
use statehold_core::Timestamp;
use statehold_core::model::{Content, Document};
use statehold_core::query::DocumentList;
use statehold_core::row::{DocumentKey, FloorRow};

use crate::rows::{Cells, More, Table, micros, text, value};
use crate::statements::{Db, sql};

pub(crate) fn read(cells: &mut Cells<'_, '_>) -> Result<Document> {
    let (kind, name, revision, schema_version) = (cells.text()?, cells.text()?, cells.get()?, cells.get()?);
    let (updated_at, expires_at, labels) = (cells.time()?, cells.maybe_time()?, cells.value()?);
    let (content_type, body, data) = (cells.maybe_text()?, cells.maybe_json()?, cells.blob()?);
    let content =
        content_type.map(|content_type| Content { content_type, data: data.unwrap_or_default().into() });
    Ok(Document { kind, name, revision, schema_version, labels, body, content, updated_at, expires_at })
}

impl Table for Document {
    fn get(db: Db<'_, '_>, ns: i64, key: &DocumentKey) -> Result<Option<Self>> {
        db.first(sql!("document_get"), params![ns, key.kind, key.name], read)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, _: Option<&Self>) -> Result<()> {
        let content = self.content.as_ref();
        let params = params![
            ns,
            self.kind,
            self.name,
            self.revision,
            self.schema_version,
            self.updated_at.as_micros(),
            micros(self.expires_at),
            value(&self.labels),
            content.map(|content| content.content_type.as_str()),
            text(self.body.as_ref()),
            content.map(|content| &content.data[..]),
        ];
        db.run(sql!("document_put"), params).map(drop)
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        db.run(sql!("document_delete"), params![ns, self.kind, self.name]).map(drop)
    }
}

pub(crate) fn read_floor(cells: &mut Cells<'_, '_>) -> Result<FloorRow> {
    Ok(FloorRow { kind: cells.text()?, revision: cells.get()? })
}

impl Table for FloorRow {
    fn get(db: Db<'_, '_>, ns: i64, key: &String) -> Result<Option<Self>> {
        db.first(sql!("floor_get"), params![ns, key], read_floor)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, _: Option<&Self>) -> Result<()> {
        db.run(sql!("floor_put"), params![ns, self.kind, self.revision]).map(drop)
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        db.run(sql!("floor_delete"), params![ns, self.kind]).map(drop)
    }
}

/// A document with its body, unless that is longer than `most`.
pub(crate) fn get_short(
    db: Db<'_, '_>,
    ns: i64,
    kind: &str,
    name: &str,
    most: usize,
) -> Result<Option<Short>> {
    db.first(sql!("document_get_short"), params![ns, kind, name, most], |cells| {
        let size: usize = cells.get()?;
        Ok(if size <= most { Short::Whole(Box::new(read(cells)?)) } else { Short::TooLong })
    })
}

/// What a short read finds.
pub(crate) enum Short {
    Whole(Box<Document>),
    TooLong,
}

/// A page of documents, with one more to tell that there is a next one.
pub(crate) fn list(
    db: Db<'_, '_>,
    ns: i64,
    list: &DocumentList,
    after: Option<&str>,
    now: Timestamp,
) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    let each = |cells: &mut Cells<'_, '_>| {
        let document = read(cells)?;
        if !document.name.starts_with(&list.prefix) {
            return Ok(More::Enough);
        }
        let labelled = list.labels.iter().all(|(key, value)| document.labels.get(key) == Some(value));
        if labelled && document.expires_at.is_none_or(|at| at > now) {
            documents.push(document);
        }
        Ok(if documents.len() > list.limit as usize { More::Enough } else { More::Please })
    };
    if list.descending {
        // No name is so long that it could come after this one and begin with the prefix.
        let beyond = list.prefix.clone() + &"\u{10FFFF}".repeat(statehold_core::limits::NAME);
        let before = after.unwrap_or(&beyond);
        db.each(sql!("document_list_desc"), params![ns, list.kind, before], each)?;
    } else {
        let after = after.unwrap_or_default();
        db.each(sql!("document_list"), params![ns, list.kind, after, list.prefix], each)?;
    }
    Ok(documents)
}
