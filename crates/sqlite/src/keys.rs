//! Batch keys: the stored answers.

use rusqlite::{Result, params};
use statehold_core::row::{AnswerKey, AnswerRow};

use crate::rows::{Cells, Table};
use crate::statements::{Db, sql};

pub(crate) fn read_answer(cells: &mut Cells<'_, '_>) -> Result<AnswerRow> {
    Ok(AnswerRow {
        key: AnswerKey { actor: cells.text()?, key: cells.text()? },
        request: cells.request()?,
        expires_at: cells.time()?,
        replies: cells.json()?,
    })
}

impl Table for AnswerRow {
    fn get(db: Db<'_, '_>, ns: i64, key: &AnswerKey) -> Result<Option<Self>> {
        db.first(sql!("answer_get"), params![ns, key.actor, key.key], read_answer)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, _: Option<&Self>) -> Result<()> {
        let (request, expires_at) = (self.request.as_bytes(), self.expires_at.as_micros());
        let params = params![ns, self.key.actor, self.key.key, request, expires_at, self.replies.as_str()];
        db.run(sql!("answer_put"), params).map(drop)
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        db.run(sql!("answer_delete"), params![ns, self.key.actor, self.key.key]).map(drop)
    }
}
