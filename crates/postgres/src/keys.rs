//! Batch keys: the stored answers.

use statehold_core::row::{AnswerKey, AnswerRow};

use crate::connection::{Reading, reading, sql};
use crate::error::Result;
use crate::rows::Table;
use crate::values::{At, Cells, Param, Text, column};

impl Table for AnswerRow {
    const GET: Reading = reading!("answer_get");
    const INSERT: &'static str = sql!("answer_insert");
    const UPDATE: &'static str = sql!("answer_update");
    const DELETE: &'static str = sql!("answer_delete");

    fn keys(keys: &[&AnswerKey]) -> Vec<Param> {
        vec![column(keys, |key| key.actor.clone()), column(keys, |key| key.key.clone())]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        vec![
            column(rows, |row| row.key.actor.clone()),
            column(rows, |row| row.key.key.clone()),
            column(rows, |row| row.request.as_bytes().to_vec()),
            column(rows, |row| At(row.expires_at)),
            column(rows, |row| Text(row.replies.as_str().to_owned())),
        ]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        Ok(Self {
            key: AnswerKey { actor: cells.text()?, key: cells.text()? },
            request: cells.request()?,
            expires_at: cells.time()?,
            replies: cells.json()?,
        })
    }
}
