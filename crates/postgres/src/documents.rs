//! Documents and the floors of their kinds.

use statehold_core::Timestamp;
use statehold_core::model::{Content, Document};
use statehold_core::query::DocumentList;
use statehold_core::row::{DocumentKey, FloorRow};

use crate::connection::{Connection, Reading, reading, sql};
use crate::error::Result;
use crate::rows::{Table, read_all};
use crate::values::{At, Cells, Param, at, column, count, json, param, value};

impl Table for Document {
    const GET: Reading = reading!("document_get");
    const INSERT: &'static str = sql!("document_insert");
    const UPDATE: &'static str = sql!("document_update");
    const DELETE: &'static str = sql!("document_delete");

    fn keys(keys: &[&DocumentKey]) -> Vec<Param> {
        vec![column(keys, |key| key.kind.clone()), column(keys, |key| key.name.clone())]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        vec![
            column(rows, |row| row.kind.clone()),
            column(rows, |row| row.name.clone()),
            column(rows, |row| count(row.revision)),
            column(rows, |row| row.schema_version.map(i64::from)),
            column(rows, |row| At(row.updated_at)),
            column(rows, |row| at(row.expires_at)),
            column(rows, |row| value(&row.labels)),
            column(rows, |row| row.content.as_ref().map(|content| content.content_type.clone())),
            column(rows, |row| json(row.body.as_ref())),
            column(rows, |row| row.content.as_ref().map(|content| content.data.to_vec())),
        ]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let (kind, name, revision) = (cells.text()?, cells.text()?, cells.number()?);
        let (schema_version, updated_at, expires_at) =
            (cells.maybe_number()?, cells.time()?, cells.maybe_time()?);
        let (labels, content_type, body) = (cells.value()?, cells.maybe_text()?, cells.maybe_json()?);
        let data: Option<&[u8]> = cells.get()?;
        let content =
            content_type.map(|content_type| Content { content_type, data: data.unwrap_or_default().into() });
        Ok(Self { kind, name, revision, schema_version, labels, body, content, updated_at, expires_at })
    }
}

impl Table for FloorRow {
    const GET: Reading = reading!("floor_get");
    const INSERT: &'static str = sql!("floor_insert");
    const UPDATE: &'static str = sql!("floor_update");
    const DELETE: &'static str = sql!("floor_delete");

    fn keys(keys: &[&String]) -> Vec<Param> {
        vec![column(keys, |key| (*key).clone())]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        vec![column(rows, |row| row.kind.clone()), column(rows, |row| count(row.revision))]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        Ok(Self { kind: cells.text()?, revision: cells.number()? })
    }
}

/// A page of documents, with one more to tell that there is a next one.
pub(crate) async fn list(
    db: &Connection,
    ns: i64,
    list: &DocumentList,
    after: Option<String>,
    now: Timestamp,
) -> Result<Vec<Document>> {
    let sql = if list.descending { sql!("document_list_desc") } else { sql!("document_list") };
    let labels = (!list.labels.is_empty()).then(|| value(&list.labels));
    let params = vec![
        param(ns),
        param(list.kind.clone()),
        param(after),
        param(list.prefix.clone()),
        param(labels),
        param(At(now)),
        param(i64::from(list.limit) + 1),
    ];
    read_all(&db.query(sql, params).await?, Document::read)
}
