//! All there is, in a form in which a backend's dump and the model's state can be compared.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use statehold_core::dump;
use statehold_core::model::{Document, StreamName, TASK_CATEGORY, Token};
use statehold_core::row::{Cursor, DeliveryKey, Head, LockRow, TaskRow};
use statehold_core::{Seconds, Status, Timestamp};

use super::state::{Delivery, Record, State, Stream};

/// What is known, by a name that says what it is about.
pub type Facts = BTreeMap<String, Value>;

/// Removes the messages of Statehold's own errors, which are for people.
pub fn scrub(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(scrub),
        Value::Object(members) => {
            let own = ["timeout", "lease_lost", "expired", "dependency", "wait_timeout"];
            let code = members.get("code").and_then(Value::as_str);
            if code.is_some_and(|code| own.contains(&code)) && members.contains_key("message") {
                members.insert("message".into(), Value::Null);
            }
            members.values_mut().for_each(scrub);
        }
        _ => {}
    }
}

/// A value without the messages of Statehold's own errors.
fn clean(mut value: Value) -> Value {
    scrub(&mut value);
    value
}

/// What a dump tells at a time. What has expired is not there, whether or not it was swept.
pub fn tell(records: &[dump::Record], now: Timestamp) -> Facts {
    records.iter().flat_map(|record| facts_of(record, now)).collect()
}

fn facts_of(record: &dump::Record, now: Timestamp) -> Vec<(String, Value)> {
    let fact = match record {
        dump::Record::Queue(row) => Some((format!("queue {}", row.queue), json!(row.paused))),
        dump::Record::Poller(_) => None,
        dump::Record::Task(row) => return vec![task_fact(row), bookkeeping_fact(row)],
        dump::Record::Signals(row) if row.kept.is_empty() => None,
        dump::Record::Signals(row) => Some((format!("signals {}", row.task), json!(row.kept))),
        dump::Record::Exclusive(row) => Some((
            format!("exclusive {}", row.key),
            json!({"open": row.open, "holder": row.holder, "nominee": row.nominee}),
        )),
        dump::Record::Stream(row) => Some((format!("stream {}", row.stream), json!(row.head))),
        dump::Record::Event(event) => {
            Some((format!("event {} {:06}", event.stream, event.seq), json!(event)))
        }
        dump::Record::Category(mark) => {
            Some((format!("category {}", mark.category), json!(mark.trims.oldest())))
        }
        dump::Record::Group(row) => Some(group_fact(&json!(row.group), row.cursor.as_ref())),
        dump::Record::Delivery(row) => {
            let (stream, consumer) = (row.stream.clone(), row.consumer.clone());
            let (times, token, out) = (row.delivery, row.token, row.out);
            let (seq, visible_at, read_key) = (row.seq, row.visible_at, row.read_key.clone());
            let delivery = Delivery { stream, seq, consumer, times, token, out, visible_at, read_key };
            Some(delivery_fact(&row.key, &delivery))
        }
        dump::Record::Document(document) => document_fact(document, now),
        dump::Record::Floor(row) => Some((format!("floor {}", row.kind), json!(row.revision))),
        dump::Record::Entry(entry) if entry.expires_at <= now => None,
        dump::Record::Entry(entry) => Some((format!("entry {}", entry.key), json!(entry))),
        dump::Record::Lock(row) => lock_fact(row, now),
        dump::Record::Answer(row) if row.expires_at <= now => None,
        dump::Record::Answer(row) => {
            let replies: Value = row.replies.to().unwrap_or_default();
            Some(answer_fact(&row.key.actor, &row.key.key, &json!(row.request), &replies, row.expires_at))
        }
        dump::Record::Chore(row) => Some((format!("chore {:?}", row.chore), json!(row.after))),
    };
    fact.into_iter().map(|(name, value)| (name, clean(value))).collect()
}

fn task_fact(row: &TaskRow) -> (String, Value) {
    (format!("task {}", row.task.id), clean(json!(row.task)))
}

fn bookkeeping_fact(row: &TaskRow) -> (String, Value) {
    let running = row.task.status == Status::Running;
    let books = Books {
        last_token: row.last_token,
        head: row.head,
        turn: json!(row.turn),
        open_children: row.open_children as usize,
        failed_by: json!(row.failed_by.filter(|_| row.task.status == Status::Failed)),
        lease_seconds: row.lease_seconds.filter(|_| running),
        claim_key: row.claim_key.clone().filter(|_| running),
    };
    (format!("task {} (bookkeeping)", row.task.id), books.tell())
}

/// What is known of a task beside what its caller sees.
struct Books {
    last_token: Token,
    head: Head,
    turn: Value,
    open_children: usize,
    failed_by: Value,
    lease_seconds: Option<Seconds>,
    claim_key: Option<String>,
}

impl Books {
    fn tell(&self) -> Value {
        json!({
            "last_token": self.last_token,
            "head": self.head,
            "turn": self.turn,
            "open_children": self.open_children,
            "failed_by": self.failed_by,
            "lease_seconds": self.lease_seconds,
            "claim_key": self.claim_key,
        })
    }
}

fn group_fact(group: &Value, cursor: Option<&Cursor>) -> (String, Value) {
    (format!("group {group}"), json!(cursor))
}

fn delivery_fact(key: &DeliveryKey, delivery: &Delivery) -> (String, Value) {
    let value = json!({
        "stream": delivery.stream,
        "seq": delivery.seq,
        "consumer": delivery.consumer,
        "delivery": delivery.times,
        "token": delivery.token,
        "out": delivery.out,
        "visible_at": delivery.visible_at,
        "read_key": delivery.read_key.as_ref().filter(|_| delivery.out),
    });
    (format!("delivery {} {}", json!(key.group), key.position), value)
}

fn document_fact(document: &Document, now: Timestamp) -> Option<(String, Value)> {
    let expired = document.expires_at.is_some_and(|at| at <= now);
    (!expired).then(|| (format!("document {} {}", document.kind, document.name), json!(document)))
}

fn lock_fact(row: &LockRow, now: Timestamp) -> Option<(String, Value)> {
    (row.forget_at > now).then(|| (format!("lock {}", row.key), json!(row)))
}

fn answer_fact(actor: &str, key: &str, request: &Value, replies: &Value, at: Timestamp) -> (String, Value) {
    let value = json!({"request": request, "replies": replies, "expires_at": at});
    (format!("answer {actor} {key}"), clean(value))
}

fn head_of(stream: &Stream) -> Head {
    Head { last: stream.last, oldest: stream.oldest, oldest_at: stream.events.first().map(|event| event.at) }
}

impl State {
    pub(super) fn facts(&self, now: Timestamp) -> Facts {
        let mut facts = Facts::new();
        self.tasks.values().for_each(|record| self.tell_task(record, &mut facts));
        self.tell_keys(&mut facts);
        self.tell_streams(&mut facts);
        self.tell_groups(&mut facts);
        self.tell_rest(now, &mut facts);
        facts
    }

    fn tell_task(&self, record: &Record, facts: &mut Facts) {
        let (id, status) = (record.task.id, record.task.status);
        facts.insert(format!("task {id}"), clean(json!(record.task)));
        let stream = self.streams.get(&StreamName::of_task(id));
        let books = Books {
            last_token: record.last_token,
            head: stream.map(head_of).unwrap_or_default(),
            turn: json!(self.turn(record)),
            open_children: self.open_children(id),
            failed_by: json!(record.failed_by().filter(|_| status == Status::Failed)),
            lease_seconds: record.lease_seconds,
            claim_key: record.claim_key.clone(),
        };
        facts.insert(format!("task {id} (bookkeeping)"), books.tell());
        if !record.signals.is_empty() {
            facts.insert(format!("signals {id}"), clean(json!(record.signals)));
        }
    }

    fn turn(&self, record: &Record) -> &'static str {
        match record.task.status {
            Status::Pending if record.later => "later",
            Status::Pending if self.is_first(record) => "ready",
            Status::Pending => "in_line",
            _ => "off",
        }
    }

    fn tell_keys(&self, facts: &mut Facts) {
        let open = self.tasks.values().filter(|record| record.is_open());
        let keys: Vec<_> = open.filter_map(|record| record.task.exclusive_key.clone()).collect();
        for key in &keys {
            let holder = self.holder(key).map(|record| record.task.id);
            let open = keys.iter().filter(|other| *other == key).count();
            let value = json!({"open": open, "holder": holder, "nominee": self.nominees.get(key)});
            facts.insert(format!("exclusive {key}"), value);
        }
        for (name, paused) in self.queues.iter().filter_map(|(name, queue)| Some((name, queue.set?))) {
            facts.insert(format!("queue {name}"), json!(paused));
        }
    }

    fn tell_streams(&self, facts: &mut Facts) {
        for (name, stream) in &self.streams {
            if name.category() != TASK_CATEGORY {
                facts.insert(format!("stream {name}"), json!(head_of(stream)));
            }
            for event in &stream.events {
                facts.insert(format!("event {name} {:06}", event.seq), clean(json!(event)));
            }
        }
        for category in self.trims.keys() {
            facts.insert(format!("category {category}"), json!(self.mark(category)));
        }
    }

    fn tell_groups(&self, facts: &mut Facts) {
        facts.extend(self.groups.iter().map(|(key, group)| group_fact(&json!(key), group.cursor.as_ref())));
        facts.extend(self.deliveries.iter().map(|(key, delivery)| delivery_fact(key, delivery)));
    }

    fn tell_rest(&self, now: Timestamp, facts: &mut Facts) {
        facts.extend(self.documents.values().filter_map(|document| document_fact(document, now)));
        facts.extend(self.floors.iter().map(|(kind, revision)| (format!("floor {kind}"), json!(revision))));
        let entries = self.entries.values().filter(|entry| entry.expires_at > now);
        facts.extend(entries.map(|entry| (format!("entry {}", entry.key), clean(json!(entry)))));
        facts.extend(self.locks.iter().filter_map(|(key, state)| {
            let (token, holder, forget_at) = (state.token, state.holder.clone(), state.forget_at);
            lock_fact(&LockRow { key: key.clone(), token, holder, forget_at }, now)
        }));
        let answers = self.answers.iter().filter(|(_, answer)| answer.expires_at > now);
        facts.extend(answers.map(|(key, answer)| {
            let (request, replies) = (json!(answer.request), json!(answer.replies));
            answer_fact(&key.actor, &key.key, &request, &replies, answer.expires_at)
        }));
    }
}
