//! Documents: bodies with a revision.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;
use statehold::wait::Wait;
use statehold::{DocumentPut, Error, Json, Result, Seconds};
use statehold_core::command::{DocumentDelete, DocumentRevision, EntrySet, Existed, Expect};
use statehold_core::model::{Content, Document};
use statehold_core::query::{DocumentList, Page};
use statehold_core::wake::Topic;

use super::patch;
use crate::access::Rule;
use crate::asked::{Asked, Reply, ok};
use crate::problem::{Answer, Problem};
use crate::route::{CURSOR, Kind, LIMIT, PREFIX, Param, Route, WAIT};

pub(super) fn routes() -> Vec<Route> {
    let path = "/documents/{kind}/{name}";
    let content = "/documents/{kind}/{name}/content";
    vec![
        Route::new(
            Method::PUT,
            path,
            Rule::Write,
            "Writes a document, if it is as `If-Match` or `If-None-Match: *` says.",
            put,
        )
        .takes_without::<DocumentPut>(&["kind", "name"])
        .example(json!({ "body": { "state": "new" }, "labels": { "team": "a" } }))
        .answers::<DocumentRevision>(StatusCode::OK),
        Route::new(
            Method::GET,
            path,
            Rule::Read,
            "A document; with `after_revision`, as soon as it has changed.",
            get,
        )
        .query(
            const {
                &[
                    Param::new(
                        "after_revision",
                        Kind::Integer,
                        "Waits until the revision is above this one.",
                    ),
                    WAIT,
                ]
            },
        )
        .answers::<Document>(StatusCode::OK)
        .answers_nothing(StatusCode::NOT_MODIFIED),
        Route::new(
            Method::PATCH,
            path,
            Rule::Write,
            "Changes a document by a merge patch or a JSON patch of its body; no change of others is lost.",
            change_body,
        )
        .takes::<Json>()
        .example(json!({ "state": "done" }))
        .answers::<DocumentRevision>(StatusCode::OK),
        Route::new(
            Method::DELETE,
            path,
            Rule::Write,
            "Removes a document, if it is as `If-Match` says.",
            delete,
        )
        .answers::<Existed>(StatusCode::OK),
        Route::new(Method::GET, "/documents/{kind}", Rule::Read, "Lists documents of a kind by name.", list)
            .query(
                const {
                    &[
                        PREFIX,
                        Param::new(
                            "label",
                            Kind::Text,
                            "With this label, `key:value`; repeat it for several.",
                        )
                        .repeated(),
                        Param::new("descending", Kind::Yes, "Backwards."),
                        LIMIT,
                        CURSOR,
                    ]
                },
            )
            .lists::<Page<Document>, Document>(),
        Route::new(
            Method::PUT,
            content,
            Rule::Write,
            "Writes a document of bytes, of the type that they are sent with.",
            put_content,
        )
        .raw("application/octet-stream")
        .answers::<DocumentRevision>(StatusCode::OK),
        Route::new(Method::GET, content, Rule::Read, "The bytes of a document.", get_content)
            .raw("application/octet-stream")
            .answers_nothing(StatusCode::NOT_MODIFIED),
    ]
}

/// What `If-Match` and `If-None-Match` say must be there.
fn expected(asked: &Asked) -> Result<Option<Expect>> {
    let hint = "write If-Match: \"7\" with a revision, or If-None-Match: *";
    match (asked.header("if-match"), asked.header("if-none-match")) {
        (None, None) => Ok(None),
        (None, Some("*")) => Ok(Some(Expect::Absent)),
        (Some(tag), None) => {
            let revision =
                revision(tag).ok_or_else(|| Error::invalid("if-match", "is not a revision").hint(hint))?;
            Ok(Some(Expect::Revision(revision)))
        }
        _ => Err(Error::invalid("if-none-match", "is not `*` alone").hint(hint)),
    }
}

fn revision(tag: &str) -> Option<u64> {
    tag.strip_prefix('"')?.strip_suffix('"')?.parse().ok()
}

fn tagged(mut response: Response, revision: u64) -> Response {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn written(reply: &Reply<DocumentRevision>) -> Answer {
    Ok(tagged(reply.answer(StatusCode::OK)?, reply.value.revision))
}

async fn put(asked: Asked) -> Answer {
    let mut fields = asked.fields()?;
    if let Some(expect) = expected(&asked)? {
        fields.give("expect", &expect)?;
    }
    fields.give("kind", asked.path("kind"))?;
    fields.give("name", asked.path("name"))?;
    written(&asked.run(fields.read::<DocumentPut>()?).await?)
}

async fn put_content(asked: Asked) -> Answer {
    let content_type = asked.header("content-type").unwrap_or("application/octet-stream").to_owned();
    let content = Content { content_type, data: asked.bytes().to_vec().into() };
    let put = DocumentPut::binary(asked.path("kind"), asked.path("name"), content);
    written(&asked.run(DocumentPut { expect: expected(&asked)?.unwrap_or_default(), ..put }).await?)
}

async fn delete(asked: Asked) -> Answer {
    let expect = expected(&asked)?.unwrap_or_default();
    let (kind, name) = (asked.path("kind").to_owned(), asked.path("name").to_owned());
    asked.run(DocumentDelete { kind, name, expect }).await?.answer(StatusCode::OK)
}

/// A document that must be there.
pub(super) async fn document(asked: &Asked, kind: &str, name: &str) -> Result<Document> {
    let missing = || Error::not_found("document", format_args!("{kind}/{name}"));
    asked.hold.documents().get(kind, name).await?.ok_or_else(missing)
}

async fn get(asked: Asked) -> Answer {
    let (kind, name) = (asked.path("kind"), asked.path("name"));
    let after: Option<u64> = asked.parsed("after_revision")?;
    let topic = [Topic::Document { kind: kind.to_owned(), name: name.to_owned() }];
    let (asked, topic) = (&asked, &topic);
    let watching = |most| async move {
        let mut wait = Wait::begin(&asked.hold, topic, Some(most)).await?;
        loop {
            let found = document(asked, kind, name).await;
            let news = found.as_ref().is_ok_and(|found| after.is_none_or(|after| found.revision > after));
            let gone_wrong = found.as_ref().is_err_and(|error| !error.is_not_found());
            if news || gone_wrong || !wait.sleep(None).await {
                return found;
            }
        }
    };
    let found = asked.waiting(asked.wait()?, watching).await?;
    if asked.header("if-none-match").and_then(revision) == Some(found.revision) {
        return Ok(not_modified(found.revision));
    }
    Ok(tagged(ok(&found)?, found.revision))
}

fn not_modified(revision: u64) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    tagged(response, revision)
}

/// Bytes of others are never a page of this server's: browsers must neither show nor run them.
const HARMLESS: [(HeaderName, &str); 3] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
    (header::CONTENT_DISPOSITION, "attachment"),
];

async fn get_content(asked: Asked) -> Answer {
    let Document { content, revision: is, name, .. } =
        document(&asked, asked.path("kind"), asked.path("name")).await?;
    let content = content.ok_or_else(|| {
        Error::conflict(&name, "the document is JSON and not bytes").hint("read it without /content")
    })?;
    if asked.header("if-none-match").and_then(revision) == Some(is) {
        return Ok(not_modified(is));
    }
    let mut response = Response::new(Body::from(content.data.to_vec()));
    let fallback = HeaderValue::from_static("application/octet-stream");
    let media = HeaderValue::from_str(&content.content_type).unwrap_or(fallback);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    for (name, value) in HARMLESS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(tagged(response, is))
}

async fn list(asked: Asked) -> Answer {
    let mut list = DocumentList {
        prefix: asked.query("prefix").unwrap_or_default().to_owned(),
        descending: asked.parsed("descending")?.unwrap_or(false),
        limit: asked.limit()?,
        cursor: asked.cursor(),
        ..DocumentList::new(asked.path("kind"))
    };
    for label in asked.queries("label") {
        let (key, value) =
            label.split_once(':').ok_or_else(|| Error::invalid("label", "is not key:value"))?;
        list.labels.insert(key.to_owned(), value.to_owned());
    }
    list.check()?;
    ok(&asked.hold.documents().list(&list).await?)
}

async fn change_body(asked: Asked) -> Answer {
    let patch = Json::parse(asked.text()?)?;
    let steps =
        asked.header("content-type").is_some_and(|media| media.starts_with("application/json-patch+json"));
    let (kind, name) = (asked.path("kind"), asked.path("name"));
    let change = change(&asked, kind, name, |body| {
        if steps { patch::apply(body, &patch) } else { patch::merge(Some(body), &patch) }
    });
    written(&change.await?)
}

/// What is remembered of a change that read before it wrote, under the key of its request: a batch's own key would see
/// another request each time, since what was read may have changed.
#[derive(Serialize, Deserialize)]
struct Remembered {
    request: String,
    revision: u64,
}

/// How long it is remembered.
const KEPT: Seconds = Seconds::new(86_400);

/// Changes the body of a document, again if someone else wrote meanwhile, so that no change is lost.
pub(super) async fn change(
    asked: &Asked,
    kind: &str,
    name: &str,
    change: impl Fn(&Json) -> Result<Json>,
) -> Result<Reply<DocumentRevision>, Problem> {
    let expect = expected(asked)?;
    let key = asked.key().map(|key| format!("idempotency/{}", blake3::hash(key.as_bytes()).to_hex()));
    let request = blake3::hash(format!("{kind}\n{name}\n{expect:?}\n{}", asked.text()?).as_bytes())
        .to_hex()
        .to_string();
    loop {
        if let Some(key) = &key
            && let Some(before) = remembered(asked, key, &request).await?
        {
            return Ok(Reply { value: DocumentRevision { revision: before }, replayed: true });
        }
        let before = document(asked, kind, name).await?;
        let Some(body) = &before.body else {
            let error = Error::conflict(name, format!("document `{kind}/{name}` is bytes and not JSON"));
            return Err(error.hint("write it as a whole").into());
        };
        let put = DocumentPut {
            expect: expect.unwrap_or(Expect::Revision(before.revision)),
            labels: before.labels.clone(),
            schema_version: before.schema_version,
            ttl_seconds: before.expires_at.map(|at| at.since(before.updated_at)),
            ..DocumentPut::json(kind, name, change(body)?)
        };
        let mut batch = asked.hold.batch();
        let revision = batch.add(put);
        if let Some(key) = &key {
            let value = Json::of(&Remembered { request: request.clone(), revision: before.revision + 1 })?;
            batch.add(EntrySet { ttl_seconds: KEPT, if_absent: true, ..EntrySet::new(key, value) });
        }
        match asked.apply_unkeyed(batch).await {
            Ok(mut replies) => return Ok(Reply { value: replies.take(revision)?, replayed: false }),
            Err(problem) if problem.code() == "precondition_failed" && expect.is_none() => {}
            Err(problem) if problem.code() == "conflict" && key.is_some() => {}
            Err(problem) => return Err(problem.single()),
        }
    }
}

async fn remembered(asked: &Asked, key: &str, request: &str) -> Result<Option<u64>> {
    let Some(entry) = asked.hold.entries().get(key).await? else { return Ok(None) };
    let Remembered { request: was, revision } = entry.value.to()?;
    if was == request {
        return Ok(Some(revision));
    }
    Err(Error::conflict(key, "the key was used for another request")
        .hint("use another key, or send the same request as before"))
}
