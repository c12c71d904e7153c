//! The thirteen calls of a state layer, and the rest of every handle.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{claim, code, events, json, on_every_store, story, stream, tasks};
use statehold::core::call::GroupRead;
use statehold::core::command::{DeliveryRef, EntrySet, SeekTo, TaskAmend, TrimTo};
use statehold::core::model::{Content, Source};
use statehold::core::query::{DocumentList, KeyList, ReadFrom, ReasonCode, TaskList};
use statehold::{DocumentPut, Json, Message, NewEvent, Seconds, Status, TaskCreate, TaskError, TaskId};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn tasks_are_created_once_got_updated_and_listed() {
    on_every_store(async |hold, _| {
        let hook = || TaskCreate::new("answer").thread("42").idempotency_key("hook-7").label("team", "blue");
        let first = hold.tasks().create(hook()).await.unwrap();
        let again = hold.tasks().create(hook()).await.unwrap();
        assert!(first.created && !again.created);
        assert_eq!(first.task, again.task);
        let other = hold.tasks().create(hook().priority(3)).await;
        assert_eq!(code(other), "conflict");

        let id = first.task.id;
        assert_eq!(hold.tasks().get(id).await.unwrap(), Some(first.task.clone()));
        assert_eq!(hold.tasks().get(TaskId::generate()).await.unwrap(), None);
        let amend =
            TaskAmend { id, metadata: Some(json(&BTreeMap::from([("a", 1)]))), ..TaskAmend::default() };
        let task = hold.tasks().update(amend).await.unwrap();
        assert_eq!(task.metadata.unwrap().as_str(), r#"{"a":1}"#);
        let stale = TaskAmend { id, revision: Some(first.task.revision), ..TaskAmend::default() };
        assert_eq!(code(hold.tasks().update(stale).await), "precondition_failed");

        hold.tasks().create(TaskCreate::new("other")).await.unwrap();
        let list = TaskList { thread: Some("42".into()), ..TaskList::default() };
        let page = hold.tasks().list(&list).await.unwrap();
        assert_eq!(page.items.iter().map(|task| task.id).collect::<Vec<_>>(), [id]);
        assert_eq!(tasks(&hold).await.len(), 2);
        assert_eq!(hold.tasks().count(None).await.unwrap().counts[&Status::Pending], 2);
    });
}

#[test]
fn tasks_are_parked_promoted_cancelled_retried_evicted_and_purged() {
    on_every_store(async |hold, _| {
        let id = hold.tasks().create(TaskCreate::new("work")).await.unwrap().task.id;
        assert_eq!(hold.tasks().park(id).await.unwrap().status, Status::Backlog);
        assert_eq!(hold.tasks().why(id).await.unwrap().reasons[0].code, ReasonCode::Parked);
        assert_eq!(hold.tasks().promote(id).await.unwrap().status, Status::Pending);
        assert_eq!(hold.tasks().cancel(id).await.unwrap().status, Status::Cancelled);
        assert_eq!(code(hold.tasks().cancel(id).await), "invalid_transition");
        assert_eq!(hold.tasks().retry(id).await.unwrap().status, Status::Pending);
        let lease = hold.tasks().start(id, "one", Some(Seconds::new(10))).await.unwrap();
        assert_eq!(hold.tasks().evict(id).await.unwrap().status, Status::Pending);
        assert!(lease.renew().await.unwrap_err().is_fenced());
        let lease = claim(&hold, "two").await;
        assert_eq!(code(hold.tasks().purge(id).await), "invalid_transition");
        let failed = lease.fail(TaskError::new("broken", "it broke"), false).await.unwrap();
        assert_eq!(failed.status, Status::Failed);
        let kinds = story(&hold, &failed).await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "task.started").count(), 2, "{kinds:?}");
        hold.tasks().purge(id).await.unwrap();
        assert_eq!(hold.tasks().get(id).await.unwrap(), None);
    });
}

#[test]
fn a_paused_queue_gives_nothing_until_it_is_resumed() {
    on_every_store(async |hold, _| {
        hold.tasks().create(TaskCreate::new("work")).await.unwrap();
        assert!(hold.queues().pause("default").await.unwrap().paused);
        assert!(hold.tasks().claim(&["default"], "one", 1).await.unwrap().is_empty());
        let queues = hold.queues().list().await.unwrap();
        assert!(queues.len() == 1 && queues[0].paused, "{queues:?}");
        assert!(!hold.queues().resume("default").await.unwrap().paused);
        claim(&hold, "one").await;
    });
}

#[test]
fn namespaces_share_nothing() {
    on_every_store(async |hold, _| {
        let other = hold.at("other");
        hold.tasks().create(TaskCreate::new("work")).await.unwrap();
        other.entries().set("key", json("other"), HOUR).await.unwrap();
        assert!(other.tasks().claim(&["default"], "one", 1).await.unwrap().is_empty());
        assert_eq!(hold.entries().get("key").await.unwrap(), None);
        assert_eq!(claim(&hold, "one").await.hold().namespace(), "default");
    });
}

#[test]
fn who_acts_is_written_into_events() {
    on_every_store(async |hold, _| {
        let log = stream("log/1");
        hold.acting_as("clerk").streams().append(&log, vec![NewEvent::new("filed")]).await.unwrap();
        assert_eq!(events(&hold, &log).await[0].actor.as_deref(), Some("clerk"));
    });
}

#[test]
fn a_thread_is_made_once_by_many_and_no_change_of_it_is_lost() {
    on_every_store(async |hold, _| {
        let race = (0..8).map(|caller| {
            let hold = hold.clone();
            tokio::spawn(async move {
                let metadata = json(&BTreeMap::from([("maker", caller)]));
                hold.threads().get_or_create("42", &metadata).await.unwrap()
            })
        });
        let mut threads = Vec::new();
        for made in race.collect::<Vec<_>>() {
            threads.push(made.await.unwrap());
        }
        assert!(threads.iter().all(|thread| *thread == threads[0]), "all got the same thread: {threads:?}");
        assert_eq!(threads[0].revision, 1);

        let changes = (0..8).map(|caller| {
            let hold = hold.clone();
            tokio::spawn(async move {
                let change = json(&BTreeMap::from([(format!("key-{caller}"), caller)]));
                hold.threads().update("42", &change).await.unwrap();
            })
        });
        for change in changes.collect::<Vec<_>>() {
            change.await.unwrap();
        }
        let thread = hold.threads().update("42", &Json::parse(r#"{"key-3": null}"#).unwrap()).await.unwrap();
        let metadata: BTreeMap<String, u64> = thread.metadata.to().unwrap();
        let expected = ["key-0", "key-1", "key-2", "key-4", "key-5", "key-6", "key-7", "maker"];
        assert_eq!(metadata.keys().map(String::as_str).collect::<Vec<_>>(), expected);
        assert_eq!(hold.threads().get("42").await.unwrap(), Some(thread));
        assert_eq!(hold.threads().get("43").await.unwrap(), None);
        assert_eq!(code(hold.threads().update("43", &json(&BTreeMap::<u8, u8>::new())).await), "not_found");
    });
}

#[test]
fn messages_keep_their_order_and_the_last_are_read() {
    on_every_store(async |hold, _| {
        for (seq, text) in (1..).zip(["Hello", "How are you?", "Fine"]) {
            let message = Message::text("user", text).unwrap();
            assert_eq!(hold.threads().append("42", &message).await.unwrap(), seq);
        }
        // What is not a message is passed over.
        hold.streams().append(&stream("thread/42"), vec![NewEvent::new("typing")]).await.unwrap();
        let said = hold.threads().messages("42", 3).await.unwrap();
        let texts: Vec<_> = said.iter().map(|said| (said.seq, said.message.content.as_str())).collect();
        assert_eq!(texts, [(2, r#""How are you?""#), (3, r#""Fine""#)]);
        assert!(hold.threads().messages("43", 3).await.unwrap().is_empty());
    });
}

#[test]
fn a_lock_is_had_by_one_and_released_by_its_token() {
    on_every_store(async |hold, clock| {
        let token = hold.locks().try_lock("project", "one").await.unwrap().unwrap();
        assert_eq!(hold.locks().try_lock("project", "two").await.unwrap(), None);
        assert_eq!(code(hold.locks().release("project", statehold::Token(1)).await), "fenced");
        clock.advance(50);
        hold.locks().renew("project", token, Seconds::new(60)).await.unwrap();
        clock.advance(50);
        assert_eq!(hold.locks().get("project").await.unwrap().unwrap().owner, "one");
        assert_eq!(hold.locks().list(&KeyList::default()).await.unwrap().items.len(), 1);
        hold.locks().release("project", token).await.unwrap();
        let next = hold.locks().try_lock("project", "two").await.unwrap().unwrap();
        assert!(next > token, "tokens only grow");
        assert_eq!(code(hold.locks().release("project", token).await), "fenced");
        assert_eq!(hold.locks().force_release("project").await.unwrap().unwrap().owner, "two");
        assert_eq!(code(hold.locks().renew("project", next, Seconds::new(60)).await), "fenced");
    });
}

#[test]
fn results_are_set_got_and_taken_once_and_end() {
    on_every_store(async |hold, clock| {
        hold.results().set("run-7", json("42")).await.unwrap();
        assert_eq!(hold.results().get("run-7").await.unwrap(), Some(json("42")));
        assert_eq!(hold.results().take("run-7").await.unwrap(), Some(json("42")));
        assert_eq!(hold.results().take("run-7").await.unwrap(), None);
        hold.results().set_for("run-8", json("43"), Duration::from_secs(10)).await.unwrap();
        clock.advance(11);
        assert_eq!(hold.results().get("run-8").await.unwrap(), None);
    });
}

#[test]
fn entries_are_set_if_absent_listed_and_deleted() {
    on_every_store(async |hold, _| {
        hold.entries().set("code/1", json("a"), HOUR).await.unwrap();
        let absent = EntrySet { if_absent: true, ..EntrySet::new("code/1", json("b")) };
        assert_eq!(code(hold.entries().set_with(absent).await), "conflict");
        hold.entries().set("code/2", json("c"), HOUR).await.unwrap();
        let list = KeyList { prefix: "code/".into(), ..KeyList::default() };
        assert_eq!(hold.entries().list(&list).await.unwrap().items.len(), 2);
        assert!(hold.entries().delete("code/1").await.unwrap());
        assert!(!hold.entries().delete("code/1").await.unwrap());
    });
}

#[test]
fn no_increment_of_a_document_is_lost() {
    on_every_store(async |hold, _| {
        let callers = (0..8).map(|_| {
            let hold = hold.clone();
            tokio::spawn(async move {
                for _ in 0..25 {
                    let increment = |body: Option<&Json>| {
                        let count: u64 = body.map_or(Ok(0), Json::to)?;
                        json_of(count + 1)
                    };
                    hold.documents().update("counter", "visits", increment).await.unwrap();
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        let document = hold.documents().get("counter", "visits").await.unwrap().unwrap();
        assert_eq!((document.body, document.revision), (Some(json(&200)), 200));
    });
}

fn json_of(count: u64) -> statehold::Result<Json> {
    Json::of(&count)
}

#[test]
fn an_update_keeps_labels_and_an_error_in_it_changes_nothing() {
    on_every_store(async |hold, _| {
        let mut put = DocumentPut::json("plan", "a", json("one"));
        put.labels.insert("team".into(), "blue".into());
        put.schema_version = Some(3);
        hold.documents().put_with(put).await.unwrap();
        let refuse = |_: Option<&Json>| Err(statehold::Error::invalid("", "no"));
        assert_eq!(code(hold.documents().update("plan", "a", refuse).await), "invalid");
        let document = hold.documents().update("plan", "a", |_| Json::of("two")).await.unwrap();
        assert_eq!((document.revision, document.schema_version), (2, Some(3)));
        assert_eq!(document.labels["team"], "blue");
        assert_eq!(hold.documents().list(&DocumentList::new("plan")).await.unwrap().items, [document]);
        let picture = Content { content_type: "image/png".into(), data: [1, 2, 3].as_slice().into() };
        hold.documents().put_with(DocumentPut::binary("picture", "a", picture.clone())).await.unwrap();
        assert_eq!(code(hold.documents().update("picture", "a", |_| Json::of("two")).await), "conflict");
        let kept = hold.documents().get("picture", "a").await.unwrap().unwrap();
        assert_eq!(kept.content, Some(picture), "bytes are not taken for nothing");
        assert!(hold.documents().delete("plan", "a").await.unwrap());
        assert!(!hold.documents().delete("plan", "a").await.unwrap());
        assert_eq!(hold.documents().put("plan", "a", json("new")).await.unwrap(), 3, "no revision repeats");
    });
}

#[test]
fn streams_are_read_trimmed_and_purged() {
    on_every_store(async |hold, _| {
        let log = stream("log/1");
        let appended = hold.streams().append(&log, vec![NewEvent::new("e"); 10]).await.unwrap();
        assert_eq!((appended.first_seq, appended.last_seq), (1, 10));
        assert_eq!(hold.streams().trim(&log, TrimTo::Length(4)).await.unwrap(), 6);
        assert_eq!(code(hold.streams().read(&log, ReadFrom::After(3), 10).await), "compacted");
        let left = hold.streams().read(&log, ReadFrom::Oldest, 10).await.unwrap();
        assert_eq!((left.events.len(), left.oldest, left.last_seq), (4, 6, 10));
        let list = KeyList { prefix: "log/".into(), ..KeyList::default() };
        assert_eq!(hold.streams().list(&list).await.unwrap().items[0].last_seq, 10);
        assert_eq!(hold.streams().purge(&log).await.unwrap(), 10);
        assert!(hold.streams().last(&log, 10).await.unwrap().is_empty());
        assert_eq!(hold.streams().append(&log, vec![NewEvent::new("e")]).await.unwrap().first_seq, 11);
    });
}

#[test]
fn a_group_gives_each_event_to_one_consumer_until_it_is_acknowledged() {
    on_every_store(async |hold, _| {
        let log = stream("log/1");
        hold.streams().append(&log, vec![NewEvent::new("e"); 4]).await.unwrap();
        let source = Source::Stream(log);
        let read = |consumer: &str, limit| {
            let mut read = GroupRead::new("", "readers", source.clone(), consumer);
            read.limit = limit;
            hold.groups().read(read, None)
        };
        let (one, two) = (read("one", 2).await.unwrap(), read("two", 10).await.unwrap());
        let seqs = |events: &[statehold::core::model::Delivered]| -> Vec<_> {
            events.iter().map(|delivered| (delivered.event.seq, delivered.delivery)).collect()
        };
        assert_eq!((seqs(&one), seqs(&two)), (vec![(1, 1), (2, 1)], vec![(3, 1), (4, 1)]));
        let refs =
            |events: &[statehold::core::model::Delivered]| events.iter().map(DeliveryRef::from).collect();
        hold.groups().ack("readers", &source, refs(&one)).await.unwrap();
        assert_eq!(code(hold.groups().ack("readers", &source, refs(&one)).await), "fenced");
        hold.groups().nack("readers", &source, refs(&two), None).await.unwrap();
        assert_eq!(seqs(&read("one", 10).await.unwrap()), [(3, 2), (4, 2)]);
        assert_eq!(hold.groups().info("readers", &source).await.unwrap().pending, 2);
        hold.groups().seek("readers", &source, SeekTo::Oldest).await.unwrap();
        assert_eq!(read("one", 10).await.unwrap().len(), 4);
    });
}
