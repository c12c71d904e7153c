//! Documents: revisions, expectations, floors, expiry and lists.

use statehold_core::call::Sweep;
use statehold_core::command::{DocumentDelete, DocumentPut, DocumentRevision, Existed, Expect};
use statehold_core::dump::Record;
use statehold_core::error::Place;
use statehold_core::model::{Content, Document, Labels};
use statehold_core::query::{DocumentList, Page};
use statehold_core::{ErrorKind, Result};

use crate::harness::{Store, at_once, json, refused};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_document_carries_what_was_put,
    a_put_replaces_all_that_was_there,
    each_put_adds_one_to_the_revision,
    a_put_may_expect_what_is_there,
    a_delete_may_expect_what_is_there,
    deleting_what_is_not_there_is_no_error,
    after_a_delete_the_kind_starts_above_its_floor,
    after_an_expiry_a_new_document_starts_above,
    an_expired_document_that_is_deleted_leaves_its_floor,
    a_late_writer_never_matches,
    an_expired_document_is_not_there_before_a_sweep,
    a_sweep_removes_expired_documents_and_remembers_their_revision,
    a_put_without_a_time_to_live_stays,
    binary_content_comes_back_byte_for_byte,
    a_document_is_either_json_or_binary,
    documents_are_listed_in_the_order_of_bytes,
    documents_are_listed_by_prefix_and_label,
    documents_are_listed_page_by_page_either_way,
    a_page_goes_on_after_its_last_name_whatever_happened,
    of_many_writers_who_expect_the_same_one_wins,
];

fn put(name: &str) -> DocumentPut {
    DocumentPut::json("d", name, json("1"))
}

fn delete(name: &str) -> DocumentDelete {
    DocumentDelete { kind: "d".into(), name: name.into(), expect: Expect::Any }
}

async fn get(store: &Store, name: &str) -> Option<Document> {
    store.backend.document_get(&store.namespace, "d", name).await.expect("the document is read")
}

async fn revision(store: &Store, put: DocumentPut) -> u64 {
    store.run(put).await.expect("put").revision
}

async fn list(store: &Store, change: impl FnOnce(&mut DocumentList)) -> Page<Document> {
    let mut list = DocumentList::new("d");
    change(&mut list);
    store.backend.document_list(&store.namespace, &list).await.expect("listed")
}

fn names(page: &Page<Document>) -> Vec<&str> {
    page.items.iter().map(|document| document.name.as_str()).collect()
}

async fn a_document_carries_what_was_put(store: Store) {
    let labels = Labels::from([("team".into(), "red".into()), ("empty".into(), String::new())]);
    let put = DocumentPut {
        labels: labels.clone(),
        schema_version: Some(3),
        ttl_seconds: Some(60.into()),
        ..DocumentPut::json("d", "n", json(r#"{"b":[],"a":{}}"#))
    };
    assert_eq!(store.run(put).await, Ok(DocumentRevision { revision: 1 }));
    let expected = Document {
        kind: "d".into(),
        name: "n".into(),
        revision: 1,
        schema_version: Some(3),
        labels,
        body: Some(json(r#"{"a":{},"b":[]}"#)),
        content: None,
        updated_at: store.now(),
        expires_at: Some(store.now() + 60.into()),
    };
    assert_eq!(get(&store, "n").await, Some(expected));
    assert_eq!(get(&store, "other").await, None);
}

async fn a_put_replaces_all_that_was_there(store: Store) {
    let labels = Labels::from([("team".into(), "red".into())]);
    let first = DocumentPut { labels, schema_version: Some(3), ttl_seconds: Some(60.into()), ..put("n") };
    store.run(first).await.expect("put");
    store.clock.advance(5);
    store.run(DocumentPut::json("d", "n", json("null"))).await.expect("put");
    let document = get(&store, "n").await.expect("it is there");
    assert_eq!((document.labels.len(), document.schema_version, document.expires_at), (0, None, None));
    assert_eq!((document.body, document.updated_at), (Some(json("null")), store.now()));
}

async fn each_put_adds_one_to_the_revision(store: Store) {
    for expected in 1..=3 {
        assert_eq!(revision(&store, put("n")).await, expected);
    }
    assert_eq!(revision(&store, put("m")).await, 1, "each document counts for itself");
    assert_eq!(revision(&store, DocumentPut::json("other", "n", json("1"))).await, 1);
    assert_eq!(get(&store, "n").await.map(|document| document.revision), Some(3));
}

fn failed(revision: Option<u64>) -> ErrorKind {
    ErrorKind::PreconditionFailed { revision }
}

async fn a_put_may_expect_what_is_there(store: Store) {
    let expecting = |expect| DocumentPut { expect, ..put("n") };
    let error = refused(store.run(expecting(Expect::Revision(1))).await, "precondition_failed");
    assert_eq!((error.kind(), error.place()), (&failed(None), Some(Place::Command(0))));
    assert_eq!(revision(&store, expecting(Expect::Absent)).await, 1);
    let error = refused(store.run(expecting(Expect::Absent)).await, "precondition_failed");
    assert_eq!(error.kind(), &failed(Some(1)));
    assert_eq!(revision(&store, expecting(Expect::Revision(1))).await, 2);
    for wrong in [0, 1, 3] {
        let error = refused(store.run(expecting(Expect::Revision(wrong))).await, "precondition_failed");
        assert_eq!(error.kind(), &failed(Some(2)));
    }
    assert_eq!(revision(&store, expecting(Expect::Any)).await, 3);
}

async fn a_delete_may_expect_what_is_there(store: Store) {
    let expecting = |expect| DocumentDelete { expect, ..delete("n") };
    assert_eq!(store.run(expecting(Expect::Absent)).await, Ok(Existed { existed: false }));
    let error = refused(store.run(expecting(Expect::Revision(1))).await, "precondition_failed");
    assert_eq!(error.kind(), &failed(None));
    store.run(put("n")).await.expect("put");
    for wrong in [Expect::Absent, Expect::Revision(2)] {
        let error = refused(store.run(expecting(wrong)).await, "precondition_failed");
        assert_eq!(error.kind(), &failed(Some(1)));
    }
    assert!(get(&store, "n").await.is_some());
    assert_eq!(store.run(expecting(Expect::Revision(1))).await, Ok(Existed { existed: true }));
    assert_eq!(get(&store, "n").await, None);
}

async fn deleting_what_is_not_there_is_no_error(store: Store) {
    assert_eq!(store.run(delete("n")).await, Ok(Existed { existed: false }));
    store.run(put("n")).await.expect("put");
    assert_eq!(store.run(delete("n")).await, Ok(Existed { existed: true }));
    assert_eq!(store.run(delete("n")).await, Ok(Existed { existed: false }));
}

async fn after_a_delete_the_kind_starts_above_its_floor(store: Store) {
    for _ in 0..3 {
        store.run(put("n")).await.expect("put");
    }
    store.run(put("low")).await.expect("put");
    store.run(delete("n")).await.expect("deleted");
    assert_eq!(revision(&store, put("n")).await, 4);
    assert_eq!(revision(&store, put("new")).await, 4, "also under another name");
    assert_eq!(revision(&store, put("low")).await, 2, "what is there counts on");
    store.run(delete("low")).await.expect("deleted");
    assert_eq!(revision(&store, put("newer")).await, 4, "a lower one does not lower the floor");
    assert_eq!(
        revision(&store, DocumentPut::json("other", "n", json("1"))).await,
        1,
        "nor raise another kind's"
    );
}

async fn after_an_expiry_a_new_document_starts_above(store: Store) {
    let fleeting = || DocumentPut { ttl_seconds: Some(60.into()), ..put("n") };
    for _ in 0..3 {
        store.run(fleeting()).await.expect("put");
    }
    store.clock.advance(60);
    assert_eq!(revision(&store, fleeting()).await, 4, "before a sweep");
    store.clock.advance(60);
    assert_eq!(store.sweep().await.documents, 1);
    assert_eq!(revision(&store, put("n")).await, 5, "after a sweep");
    assert_eq!(revision(&store, put("new")).await, 5, "the kind remembers");
}

async fn an_expired_document_that_is_deleted_leaves_its_floor(store: Store) {
    let fleeting = DocumentPut { ttl_seconds: Some(60.into()), ..put("n") };
    store.run(fleeting.clone()).await.expect("put");
    store.run(fleeting).await.expect("put");
    store.clock.advance(60);
    assert_eq!(store.run(delete("n")).await, Ok(Existed { existed: false }));
    assert_eq!(revision(&store, put("n")).await, 3);
}

async fn a_late_writer_never_matches(store: Store) {
    for _ in 0..2 {
        store.run(put("n")).await.expect("put");
    }
    let late = DocumentPut { expect: Expect::Revision(2), ..put("n") };
    store.run(delete("n")).await.expect("deleted");
    for _ in 0..3 {
        refused(store.run(late.clone()).await, "precondition_failed");
        store.run(put("n")).await.expect("put");
    }
    refused(store.run(late).await, "precondition_failed");
}

async fn an_expired_document_is_not_there_before_a_sweep(store: Store) {
    store.run(DocumentPut { ttl_seconds: Some(60.into()), ..put("n") }).await.expect("put");
    store.clock.advance(59);
    assert!(get(&store, "n").await.is_some());
    store.clock.advance(1);
    assert_eq!(get(&store, "n").await, None);
    assert_eq!(list(&store, |_| {}).await.items, []);
    let expecting = DocumentPut { expect: Expect::Revision(1), ..put("n") };
    let error = refused(store.run(expecting).await, "precondition_failed");
    assert_eq!(error.kind(), &failed(None));
    let absent = DocumentPut { expect: Expect::Absent, ..put("n") };
    assert_eq!(revision(&store, absent).await, 2);
}

async fn a_sweep_removes_expired_documents_and_remembers_their_revision(store: Store) {
    for n in 0..5 {
        store.run(DocumentPut { ttl_seconds: Some(60.into()), ..put(&n.to_string()) }).await.expect("put");
    }
    store.run(put("stays")).await.expect("put");
    assert_eq!(store.sweep().await.documents, 0);
    store.clock.advance(60);
    let sweep = Sweep { limit: 3, ..Sweep::new(&store.namespace) };
    let swept = store.backend.sweep(sweep.clone()).await.expect("swept");
    assert_eq!((swept.documents, swept.more), (3, true));
    let swept = store.backend.sweep(sweep).await.expect("swept");
    assert_eq!((swept.documents, swept.more), (2, false));
    let dump = store.dump().await;
    assert_eq!(dump.iter().filter(|record| matches!(record, Record::Document(_))).count(), 1);
    assert_eq!(revision(&store, put("new")).await, 2);
}

async fn a_put_without_a_time_to_live_stays(store: Store) {
    store.run(DocumentPut { ttl_seconds: Some(60.into()), ..put("n") }).await.expect("put");
    store.clock.advance(30);
    store.run(put("n")).await.expect("put");
    store.clock.advance(86_400 * 365);
    assert_eq!(store.sweep().await.documents, 0);
    assert_eq!(get(&store, "n").await.map(|document| document.revision), Some(2));
}

fn binary(data: &[u8]) -> DocumentPut {
    let content = Content { content_type: "application/octet-stream".into(), data: data.into() };
    DocumentPut::binary("d", "n", content)
}

async fn binary_content_comes_back_byte_for_byte(store: Store) {
    let all: Vec<u8> = (0..=255).collect();
    for data in [&all[..], b"", b"\0", b"not \xff utf-8", b"{\"json\":true}"] {
        store.run(binary(data)).await.expect("put");
        let content = get(&store, "n").await.expect("it is there").content.expect("binary");
        assert_eq!(&content.data[..], data);
        assert_eq!(content.content_type, "application/octet-stream");
        assert_eq!(list(&store, |_| {}).await.items[0].content.as_ref(), Some(&content));
    }
}

async fn a_document_is_either_json_or_binary(store: Store) {
    store.run(put("n")).await.expect("put");
    store.run(binary(b"1")).await.expect("put");
    let document = get(&store, "n").await.expect("it is there");
    assert_eq!((document.body, document.revision), (None, 2));
    store.run(put("n")).await.expect("put");
    let document = get(&store, "n").await.expect("it is there");
    assert_eq!((document.body, document.content, document.revision), (Some(json("1")), None, 3));
    let both = DocumentPut { body: Some(json("1")), ..binary(b"1") };
    let neither = DocumentPut { body: None, ..put("n") };
    for put in [both, neither] {
        refused(store.run(put).await, "invalid");
    }
}

async fn documents_are_listed_in_the_order_of_bytes(store: Store) {
    for name in ["ä", "z", "a", "B", "10", "9", "a b", "a/b", "_", "Ä", "日"] {
        store.run(put(name)).await.expect("put");
    }
    store.run(DocumentPut::json("e", "other kind", json("1"))).await.expect("put");
    let page = list(&store, |_| {}).await;
    assert_eq!(names(&page), ["10", "9", "B", "_", "a", "a b", "a/b", "z", "Ä", "ä", "日"]);
    let back = list(&store, |list| list.descending = true).await;
    assert_eq!(names(&back), ["日", "ä", "Ä", "z", "a/b", "a b", "a", "_", "B", "9", "10"]);
}

async fn documents_are_listed_by_prefix_and_label(store: Store) {
    for (name, color, size) in
        [("a1", "red", "s"), ("a2", "red", "l"), ("a_", "blue", "s"), ("b1", "red", "s"), ("A1", "Red", "S")]
    {
        let labels = Labels::from([("color".into(), color.into()), ("size".into(), size.into())]);
        store.run(DocumentPut { labels, ..put(name) }).await.expect("put");
    }
    assert_eq!(names(&list(&store, |list| list.prefix = "a".into()).await), ["a1", "a2", "a_"]);
    assert_eq!(
        names(&list(&store, |list| list.prefix = "a_".into()).await),
        ["a_"],
        "a prefix is no pattern"
    );
    assert_eq!(names(&list(&store, |list| list.prefix = "%".into()).await), [""; 0]);
    let labelled = async |pairs: &[(&str, &str)], prefix: &str| {
        let labels = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        list(&store, |list| (list.labels, list.prefix) = (labels, prefix.into())).await
    };
    assert_eq!(names(&labelled(&[("color", "red")], "").await), ["a1", "a2", "b1"]);
    assert_eq!(names(&labelled(&[("color", "red"), ("size", "s")], "").await), ["a1", "b1"]);
    assert_eq!(names(&labelled(&[("color", "red"), ("size", "s")], "a").await), ["a1"]);
    assert_eq!(names(&labelled(&[("color", "s")], "").await), [""; 0]);
    assert_eq!(names(&labelled(&[("missing", "")], "").await), [""; 0]);
}

async fn pages(store: &Store, descending: bool) -> Vec<Vec<String>> {
    let (mut pages, mut cursor) = (Vec::new(), None);
    loop {
        let page =
            list(store, |list| (list.limit, list.descending, list.cursor) = (2, descending, cursor)).await;
        pages.push(names(&page).into_iter().map(str::to_owned).collect());
        cursor = page.next_cursor;
        if cursor.is_none() {
            return pages;
        }
    }
}

async fn documents_are_listed_page_by_page_either_way(store: Store) {
    for name in ["a", "b", "c", "d", "e"] {
        store.run(put(name)).await.expect("put");
    }
    assert_eq!(pages(&store, false).await, [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
    assert_eq!(pages(&store, true).await, [vec!["e", "d"], vec!["c", "b"], vec!["a"]]);
    store.run(delete("e")).await.expect("deleted");
    assert_eq!(pages(&store, false).await, [vec!["a", "b"], vec!["c", "d"]], "a full last page has no next");
}

async fn a_page_goes_on_after_its_last_name_whatever_happened(store: Store) {
    for name in ["a", "b", "d", "e"] {
        store.run(put(name)).await.expect("put");
    }
    let first = list(&store, |list| list.limit = 2).await;
    store.run(delete("b")).await.expect("deleted");
    for name in ["aa", "c"] {
        store.run(put(name)).await.expect("put");
    }
    let second = list(&store, |list| list.cursor = first.next_cursor).await;
    assert_eq!(names(&second), ["c", "d", "e"]);
}

async fn of_many_writers_who_expect_the_same_one_wins(store: Store) {
    for expect in [Expect::Absent, Expect::Revision(1)] {
        let results: Vec<Result<_>> = at_once(50, |n| {
            let store = store.clone();
            let put = DocumentPut { expect, ..DocumentPut::json("d", "n", json(&n.to_string())) };
            async move { store.run(put).await }
        })
        .await;
        let winners: Vec<_> = results.iter().enumerate().filter(|(_, result)| result.is_ok()).collect();
        assert_eq!(winners.len(), 1);
        let body = get(&store, "n").await.expect("it is there").body;
        assert_eq!(body, Some(json(&winners[0].0.to_string())));
        let refusals = results.into_iter().filter_map(Result::err);
        refusals.for_each(|error| assert_eq!(error.code(), "precondition_failed"));
    }
}
