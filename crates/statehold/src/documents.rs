//! Documents: bodies with a revision.

use statehold_core::command::{DocumentDelete, DocumentPut, Expect};
use statehold_core::model::Document;
use statehold_core::query::{DocumentList, Page};
use statehold_core::{Clock, Error, ErrorKind, Json, Result};

use crate::Statehold;

/// Documents of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Documents<'a> {
    pub(crate) hold: &'a Statehold,
}

impl Documents<'_> {
    /// A document.
    pub async fn get(self, kind: &str, name: &str) -> Result<Option<Document>> {
        self.hold.backend().document_get(self.hold.namespace(), kind, name).await
    }

    /// Writes a document whatever is there, and answers its revision.
    pub async fn put(self, kind: &str, name: &str, body: Json) -> Result<u64> {
        self.put_with(DocumentPut::json(kind, name, body)).await
    }

    /// Writes a document with everything that can be said of it: what is expected, labels, a time to live.
    pub async fn put_with(self, put: DocumentPut) -> Result<u64> {
        Ok(self.hold.run(put).await?.revision)
    }

    /// Changes a document: `change` is given its body, if there is one, and answers the new one. It is called again if
    /// someone else wrote meanwhile, so that no change is lost.
    ///
    /// Labels and schema version stay as they are; its time to live, if it has one, begins anew.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use statehold::{Json, Statehold};
    ///
    /// let hold = Statehold::open("memory:").await?;
    /// for _ in 0..3 {
    ///     hold.documents()
    ///         .update("counter", "visits", |body| {
    ///             let count: u64 = body.map_or(Ok(0), |body| body.to())?;
    ///             Json::of(&(count + 1))
    ///         })
    ///         .await?;
    /// }
    /// let document = hold.documents().get("counter", "visits").await?.unwrap();
    /// assert_eq!(document.body.unwrap().to::<u64>()?, 3);
    /// # Ok::<(), statehold::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn update(
        self,
        kind: &str,
        name: &str,
        mut change: impl FnMut(Option<&Json>) -> Result<Json>,
    ) -> Result<Document> {
        loop {
            let before = self.get(kind, name).await?;
            if before.as_ref().is_some_and(|document| document.content.is_some()) {
                let message = format!("document `{kind}/{name}` is bytes and not JSON");
                return Err(Error::conflict(name, message).hint("write it as a whole, with `put_with`"));
            }
            let body = change(before.as_ref().and_then(|document| document.body.as_ref()))?;
            let mut put = DocumentPut::json(kind, name, body);
            put.expect = Expect::Absent;
            if let Some(document) = &before {
                put.expect = Expect::Revision(document.revision);
                put.labels.clone_from(&document.labels);
                put.schema_version = document.schema_version;
                put.ttl_seconds = document.expires_at.map(|at| at.since(document.updated_at));
            }
            let revision = match self.put_with(put.clone()).await {
                Ok(revision) => revision,
                Err(error) if matches!(error.kind(), ErrorKind::PreconditionFailed { .. }) => continue,
                Err(error) => return Err(error),
            };
            // Someone may have removed it since. It was changed all the same, and is not changed again.
            return Ok(self.get(kind, name).await?.unwrap_or_else(|| written(put, revision)));
        }
    }

    /// Removes a document whatever its revision, and answers whether there was one.
    pub async fn delete(self, kind: &str, name: &str) -> Result<bool> {
        let delete =
            DocumentDelete { kind: kind.to_owned(), name: name.to_owned(), expect: Expect::default() };
        Ok(self.hold.run(delete).await?.existed)
    }

    /// A page of documents of a kind.
    pub async fn list(self, list: &DocumentList) -> Result<Page<Document>> {
        self.hold.backend().document_list(self.hold.namespace(), list).await
    }
}

/// A document as it was written, for when it can no longer be read.
fn written(put: DocumentPut, revision: u64) -> Document {
    let DocumentPut { kind, name, body, content, labels, schema_version, ttl_seconds, expect: _ } = put;
    let updated_at = Clock::real().now();
    let expires_at = ttl_seconds.map(|ttl| updated_at + ttl);
    Document { kind, name, revision, schema_version, labels, body, content, updated_at, expires_at }
}
