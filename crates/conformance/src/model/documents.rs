//! Documents: bodies with a revision.

use statehold_core::command::{DocumentDelete, DocumentPut, DocumentRevision, Existed, Expect};
use statehold_core::error::ErrorKind;
use statehold_core::model::Document;
use statehold_core::row::DocumentKey;
use statehold_core::{Error, Result, Timestamp};

use super::commit::Commit;
use super::state::State;
use super::time::count;

impl State {
    /// A document that has not expired.
    pub(super) fn document(&self, kind: &str, name: &str, now: Timestamp) -> Option<&Document> {
        let key = DocumentKey { kind: kind.to_owned(), name: name.to_owned() };
        self.documents.get(&key).filter(|document| document.expires_at.is_none_or(|at| at > now))
    }

    pub(super) fn judge_document(
        &self,
        kind: &str,
        name: &str,
        expect: Expect,
        now: Timestamp,
    ) -> Result<()> {
        let revision = self.document(kind, name, now).map(|document| document.revision);
        let good = match expect {
            Expect::Any => true,
            Expect::Absent => revision.is_none(),
            Expect::Revision(expected) => revision == Some(expected),
        };
        let kind = ErrorKind::PreconditionFailed { revision };
        if good { Ok(()) } else { Err(Error::new(kind, "the document is not as expected")) }
    }
}

impl Commit {
    pub(super) fn put(&mut self, put: &DocumentPut) -> DocumentRevision {
        let key = DocumentKey { kind: put.kind.clone(), name: put.name.clone() };
        let there = self.state.documents.get(&key).map_or(0, |document| document.revision);
        let live = self.state.document(&put.kind, &put.name, self.now).is_some();
        let floor = self.state.floors.get(&put.kind).copied().unwrap_or(0);
        let revision = 1 + if live { there } else { floor.max(there) };
        let document = Document {
            kind: put.kind.clone(),
            name: put.name.clone(),
            revision,
            schema_version: put.schema_version,
            labels: put.labels.clone(),
            body: put.body.clone(),
            content: put.content.clone(),
            updated_at: self.now,
            expires_at: put.ttl_seconds.map(|ttl| self.now + ttl),
        };
        self.state.documents.insert(key, document);
        DocumentRevision { revision }
    }

    pub(super) fn delete_document(&mut self, delete: &DocumentDelete) -> Existed {
        let existed = self.state.document(&delete.kind, &delete.name, self.now).is_some();
        self.forget_document(&DocumentKey { kind: delete.kind.clone(), name: delete.name.clone() });
        Existed { existed }
    }

    pub(super) fn sweep_documents(&mut self, limit: usize) -> (u32, bool) {
        let expired = |document: &&Document| document.expires_at.is_some_and(|at| at <= self.now);
        let mut over: Vec<_> = self.state.documents.values().filter(expired).cloned().collect();
        over.sort_by_key(|document| (document.expires_at, document.kind.clone(), document.name.clone()));
        for document in over.iter().take(limit) {
            self.forget_document(&DocumentKey { kind: document.kind.clone(), name: document.name.clone() });
        }
        (count(over.len().min(limit)), over.len() > limit)
    }

    /// Removes a document; its kind remembers the revision.
    fn forget_document(&mut self, key: &DocumentKey) {
        let Some(document) = self.state.documents.remove(key) else { return };
        let floor = self.state.floors.entry(document.kind).or_default();
        *floor = document.revision.max(*floor);
    }
}
