//! Batch keys: the same request under the same key answers what it answered before.

use super::tx::{Planned, Tx};
use crate::batch::{Prepared, Replies};
use crate::error::{Error, Place};
use crate::json::Json;
use crate::row::{AnswerKey, AnswerRow};

fn answer_key(batch: &Prepared) -> Option<(AnswerKey, crate::row::RequestHash, crate::clock::Seconds)> {
    let key = batch.batch().key.as_ref().filter(|_| !batch.repeats_by_nature())?;
    let actor = batch.batch().actor.clone().unwrap_or_default();
    Some((AnswerKey { actor, key: key.key.clone() }, *batch.request()?, key.keep))
}

/// The replies of an earlier batch with the same key.
pub(super) fn recall(tx: &mut Tx<'_>, batch: &Prepared) -> Planned<Option<Replies>> {
    let Some((key, request, _)) = answer_key(batch) else { return Ok(None) };
    let now = tx.now;
    let Some(row) = tx.get::<AnswerRow>(&key)?.filter(|row| row.expires_at > now) else { return Ok(None) };
    if row.request != request {
        let message = format!("the key `{}` was used for another request", key.key);
        return Err(Error::conflict(key.key, message).at(Place::Key).into());
    }
    let replies = batch.batch().read_replies(row.replies.as_str())?;
    Ok(Some(Replies { replies, replayed: true }))
}

/// Stores the replies under the batch's key.
pub(super) fn remember(tx: &mut Tx<'_>, batch: &Prepared, replies: &Replies) {
    let Some((key, request, keep)) = answer_key(batch) else { return };
    let expires_at = tx.now + keep;
    tx.put(AnswerRow { key, request, replies: Json::trusted(&replies.replies), expires_at });
}
