//! Runs one sequence on a backend and on the model, and says where they disagree.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use serde_json::{Value, json};
use statehold_core::batch::{Batch, Prepared};
use statehold_core::call::{Sweep, Swept};
use statehold_core::command::{Command, TaskCreate};
use statehold_core::dump::Record;
use statehold_core::model::{Event, Position, StreamName, TaskId};
use statehold_core::query::{CategoryCursor, CategoryFrom, CategoryRead, TaskList, TaskPlace};
use statehold_core::{Backend, Clock, Error, ErrorKind, Result, Seconds, Timestamp};

use super::coverage::Coverage;
use super::names::CATEGORIES;
use super::ops::{BatchOp, Op};
use super::resolve::{self, Resolver};
use super::seen::Seen;
use crate::model::{Model, scrub, tell};

/// What the backend and the model disagree about.
pub(crate) type Verdict<T = ()> = std::result::Result<T, String>;

/// A sequence being run.
pub(crate) struct Run<'a> {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Clock,
    pub(crate) namespace: String,
    pub(crate) model: Model,
    pub(crate) seen: Seen,
    pub(crate) coverage: &'a mut Coverage,
    /// A list of tasks that has another page: its cursor and the place where it ended.
    pub(crate) page: Option<(TaskList, TaskPlace)>,
    /// The cursors that pages of categories gave, with how often the category had been trimmed.
    pub(crate) cursors: Vec<(String, CategoryCursor, usize)>,
    /// Whether the clock was ever moved back by more than pollers are remembered to.
    pub(crate) rewound: bool,
    /// The highest position of each category that was ever told.
    newest: BTreeMap<String, Position>,
    trace: Vec<String>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(backend: Arc<dyn Backend>, clock: Clock, coverage: &'a mut Coverage) -> Self {
        Self {
            backend,
            clock,
            namespace: format!("property-{}", TaskId::generate()),
            model: Model::new("local"),
            seen: Seen::default(),
            coverage,
            page: None,
            cursors: Vec::new(),
            rewound: false,
            newest: BTreeMap::new(),
            trace: Vec::new(),
        }
    }

    /// Runs all operations, then compares everything there is; `other` takes a copy.
    pub(crate) async fn all(&mut self, ops: &[Op], other: &dyn Backend) -> Verdict {
        for op in ops {
            let verdict = self.one(op).await;
            verdict.map_err(|problem| self.explain(&problem))?;
        }
        self.compare_everything(other).await.map_err(|problem| self.explain(&problem))
    }

    fn explain(&self, problem: &str) -> String {
        format!("{problem}\n\nwhat was asked, and what the backend answered:\n{}", self.trace.join("\n"))
    }

    async fn one(&mut self, op: &Op) -> Verdict {
        self.coverage.operations += 1;
        let (known, nominees) = (self.model.statuses(), self.model.nominees());
        match op {
            Op::Batch(op) => self.batch(op).await?,
            Op::Repeat { nth } => self.repeat(*nth).await?,
            Op::Claim { .. } => self.claim(op).await?,
            Op::Read { .. } => self.read(op).await?,
            Op::Sweep { limit, retention } => {
                let sweep = resolve::sweep(&self.namespace, *limit, *retention);
                self.sweep(sweep).await?;
            }
            Op::Step(micros) => {
                self.step(*micros);
                return Ok(());
            }
            Op::Ask(query) => return self.ask(query).await,
        }
        self.learn().await?;
        let gone = known.into_iter().map(|(id, _)| id).filter(|id| self.model.task(*id).is_none());
        self.seen.gone(gone);
        self.coverage.nominees(&nominees, &self.model.nominees());
        Ok(())
    }

    pub(crate) fn resolver(&mut self) -> Resolver<'_> {
        let now = self.now();
        Resolver { seen: &mut self.seen, model: &self.model, now, namespace: &self.namespace }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Notes what was asked and answered, and compares the answers.
    pub(crate) fn agree(&mut self, request: &str, backend: Value, model: Value) -> Verdict {
        let (mut backend, mut model) = (backend, model);
        scrub(&mut backend);
        scrub(&mut model);
        self.trace.push(format!("at {}: {request}\n    -> {}", self.now(), brief(&backend)));
        if backend == model {
            return Ok(());
        }
        Err(format!(
            "they disagree about {request}\n  backend: {}\n  model:   {}{}",
            brief(&backend),
            brief(&model),
            difference(&backend, &model)
        ))
    }

    fn step(&mut self, micros: i64) {
        self.trace.push(format!("at {}: the clock moves by {micros} µs", self.now()));
        let by = Seconds::from_micros(micros.unsigned_abs());
        if micros < 0 {
            self.clock.rewind(by);
        } else {
            self.clock.advance(by);
        }
        self.rewound |= micros < -10_000_000;
    }

    async fn batch(&mut self, op: &BatchOp) -> Verdict {
        let Some((batch, prepared)) = self.resolver().batch(op) else { return Ok(()) };
        self.seen.sent(&batch);
        self.apply(&batch, prepared).await
    }

    async fn repeat(&mut self, nth: u8) -> Verdict {
        let Some(batch) = self.seen.batch(nth) else { return Ok(()) };
        let resolver = self.resolver();
        let orphaned = |create: &TaskCreate| create.id.is_some_and(|id| resolver.is_orphaned(id));
        if batch
            .commands
            .iter()
            .any(|command| matches!(command, Command::TaskCreate(create) if orphaned(create)))
        {
            return Ok(());
        }
        let prepared = batch.clone().prepare().map_err(|error| error.to_string())?;
        self.apply(&batch, prepared).await
    }

    async fn apply(&mut self, batch: &Batch, prepared: Prepared) -> Verdict {
        let now = self.now();
        let expected = self.model.apply(&prepared, now);
        let answered = self.backend.apply(prepared.clone()).await;
        self.coverage.batch(prepared.batch(), &expected);
        if let Ok(replies) = &answered {
            self.seen.answered(prepared.batch(), &replies.replies);
            self.notice_generated(batch, &prepared);
        }
        let told = |result: &Result<statehold_core::batch::Replies>| match result {
            Ok(replies) => json!({"replies": replies.replies, "replayed": replies.replayed}),
            Err(error) => refusal(error),
        };
        let request = request_of(prepared.batch());
        self.agree(&request, told(&answered), told(&expected))
    }

    /// Puts tasks that got their id here into slots, so that later operations find them.
    fn notice_generated(&mut self, batch: &Batch, prepared: &Prepared) {
        for (sent, made) in batch.commands.iter().zip(&prepared.batch().commands) {
            if let (Command::TaskCreate(sent), Command::TaskCreate(made)) = (sent, made) {
                let new = made.id.filter(|id| sent.id.is_none() && self.model.task(*id).is_some());
                if let Some(id) = new {
                    self.seen.generated(id);
                }
            }
        }
    }

    async fn claim(&mut self, op: &Op) -> Verdict {
        let Some(claim) = resolve::claim(&self.namespace, op) else { return Ok(()) };
        let attempts = self.attempts();
        let expected = self.model.claim(&claim, self.now());
        self.coverage.claim(&expected, attempts != self.attempts());
        let answered = self.backend.claim(claim.clone()).await.map_err(|error| error.to_string())?;
        self.seen.claimed(&answered);
        let request = format!("claim {}", json!(claim));
        self.agree(&request, json!(answered), json!(expected))
    }

    /// How often tasks were started.
    fn attempts(&self) -> u32 {
        let tasks = self.model.statuses().into_iter().filter_map(|(id, _)| self.model.task(id));
        tasks.map(|task| task.attempt).sum()
    }

    async fn read(&mut self, op: &Op) -> Verdict {
        let Some(read) = resolve::read(&self.namespace, op) else { return Ok(()) };
        let before = self.model.group_info(&read.group, &read.source).ok();
        let expected = self.model.group_read(&read, self.now());
        let after = self.model.group_info(&read.group, &read.source).ok();
        self.coverage.read(&expected, before == after);
        let answered = self.backend.group_read(read.clone()).await;
        if let Ok(deliveries) = &answered {
            self.seen.delivered(&read, deliveries);
        }
        let told = |result: &Result<statehold_core::call::Deliveries>| match result {
            Ok(deliveries) => json!(deliveries),
            Err(error) => refusal(error),
        };
        let request = format!("group_read {} {}", read.group, json!(read));
        self.agree(&request, told(&answered), told(&expected))
    }

    async fn sweep(&mut self, sweep: Sweep) -> Verdict {
        let expected = self.model.sweep(&sweep, self.now());
        let answered = self.backend.sweep(sweep.clone()).await.map_err(|error| error.to_string())?;
        self.coverage.sweep(&expected);
        let expected = Swept { more: more(&answered, &expected, sweep.limit), ..expected };
        self.agree(&format!("sweep {}", json!(sweep)), json!(answered), json!(expected))
    }

    /// Reads all categories, checks them against the model's, and learns the positions of new events.
    async fn learn(&mut self) -> Verdict {
        for category in CATEGORIES {
            let mut unlearned: BTreeMap<_, _> =
                self.model.unlearned().into_iter().map(|event| (place_of(&event), event)).collect();
            unlearned.retain(|(stream, _), _| stream.category() == category);
            let all = self.category(category).await?;
            let newest = self.newest.get(category).cloned().unwrap_or_default();
            for event in all.iter().filter(|event| event.position > newest) {
                let Some(mut wanted) = unlearned.remove(&place_of(event)) else {
                    return Err(format!("an event that should not be there: {}", json!(event)));
                };
                wanted.position = event.position.clone();
                self.model.learn(&event.stream, event.seq, &event.position);
                self.coverage.event(event);
                self.seen.saw_position(category, event.position.clone());
                self.told_position(category, event.position.clone());
                self.agree("a new event", json!(event), json!(wanted))?;
            }
            if let Some(missing) = unlearned.values().next() {
                return Err(format!("an event is missing, or behind another one: {}", json!(missing)));
            }
            let expected = self.model.category_read(category, None, 0).map_err(|error| error.to_string())?;
            let places = |events: &[Event]| events.iter().map(place_of).collect::<Vec<_>>();
            if places(&all) != places(&expected) {
                return Err(format!(
                    "category {category} has {:?} and not {:?}",
                    places(&all),
                    places(&expected)
                ));
            }
        }
        self.learn_marks().await
    }

    /// All events of a category, whose positions must grow and which must keep the order of each stream.
    async fn category(&self, category: &str) -> Verdict<Vec<Event>> {
        let mut all: Vec<Event> = Vec::new();
        let mut from = CategoryFrom::Oldest;
        loop {
            let read = CategoryRead { category: category.into(), from, limit: 1000 };
            let page = self.backend.category_read(&self.namespace, &read).await.map_err(|e| e.to_string())?;
            let last = page.events.len() < 1000;
            all.extend(page.events);
            from = CategoryFrom::After(page.cursor);
            if last {
                break;
            }
        }
        let mut last = BTreeMap::new();
        if let Some(pair) = all.windows(2).find(|pair| pair[0].position >= pair[1].position) {
            return Err(format!("position {} comes before {}", pair[0].position, pair[1].position));
        }
        for event in &all {
            if last.insert(&event.stream, event.seq).is_some_and(|before| before >= event.seq) {
                return Err(format!("category {category} does not keep the order of {}", event.stream));
            }
        }
        Ok(all)
    }

    /// A position or cursor of a category was given out: nothing may come before it later.
    pub(crate) fn told_position(&mut self, category: &str, position: Position) {
        let newest = self.newest.entry(category.to_owned()).or_default();
        *newest = position.max(newest.clone());
    }

    /// Asks the backend how far it trimmed, where events were trimmed before anyone saw them.
    async fn learn_marks(&mut self) -> Verdict {
        for category in self.model.unknown_marks() {
            let from = CategoryFrom::After(Position::default().into());
            let read = CategoryRead { category: category.clone(), from, limit: 1 };
            let Err(error) = self.backend.category_read(&self.namespace, &read).await else {
                return Err(format!("category {category} was trimmed and can be read from its start"));
            };
            let ErrorKind::Compacted { oldest } = error.kind() else { return Err(error.to_string()) };
            let mark = Position(oldest.clone());
            if self.model.mark(&category).is_some_and(|known| mark <= known) {
                return Err(format!("category {category} was trimmed further than {oldest}"));
            }
            self.told_position(&category, mark.clone());
            self.model.learn_mark(&category, &mark);
        }
        Ok(())
    }

    async fn compare_everything(&mut self, other: &dyn Backend) -> Verdict {
        let records = dump(&*self.backend, &self.namespace).await?;
        let (told, expected) = (tell(&records, self.now()), self.model.facts(self.now()));
        let names: std::collections::BTreeSet<_> = told.keys().chain(expected.keys()).collect();
        for name in names {
            let (backend, model) = (told.get(name), expected.get(name));
            if backend != model {
                let (backend, model) = (json!(backend), json!(model));
                let difference = difference(&backend, &model);
                return Err(format!(
                    "the dump differs in {name}\n  backend: {backend}\n  model:   {model}{difference}"
                ));
            }
        }
        self.copy(records, other).await
    }

    /// Loads a dump into another backend, which must then give the same dump.
    async fn copy(&self, records: Vec<Record>, other: &dyn Backend) -> Verdict {
        let namespace = format!("copy-{}", TaskId::generate());
        let stream = futures_util::stream::iter(records.clone().into_iter().map(Ok));
        let count = other.load(&namespace, Box::pin(stream)).await.map_err(|error| error.to_string())?;
        if count != records.len() as u64 {
            return Err(format!("{count} records of {} were loaded", records.len()));
        }
        let copied = dump(other, &namespace).await?;
        match records.iter().zip(&copied).find(|(one, two)| one != two) {
            Some((one, two)) => {
                Err(format!("the copy differs\n  dumped: {}\n  copied: {}", json!(one), json!(two)))
            }
            None if records.len() != copied.len() => Err("the copy has another number of records".into()),
            None => Ok(()),
        }
    }
}

fn place_of(event: &Event) -> (StreamName, u64) {
    (event.stream.clone(), event.seq)
}

async fn dump(backend: &dyn Backend, namespace: &str) -> Verdict<Vec<Record>> {
    let records = backend.dump(namespace).await.map_err(|error| error.to_string())?;
    records.try_collect().await.map_err(|error| error.to_string())
}

/// What a sweep may say about more: if a limit was just reached, either.
fn more(answered: &Swept, expected: &Swept, limit: u32) -> bool {
    let counts = [expected.leases, expected.timers, expected.documents, expected.entries, expected.locks];
    let reached =
        counts.into_iter().chain([expected.answers, expected.purged, expected.trimmed]).any(|n| n == limit);
    if reached { expected.more || answered.more } else { expected.more }
}

fn request_of(batch: &Batch) -> String {
    let (actor, key) = (batch.actor.as_deref(), batch.key.as_ref().map(|key| &key.key));
    format!("batch by {actor:?} with key {key:?}: {}", json!(batch))
}

/// What of an error is compared: what is wrong with an invalid request is told in words.
pub(crate) fn refusal(error: &Error) -> Value {
    match error.kind() {
        ErrorKind::Invalid { .. } => json!({"refused": "invalid", "place": error.place()}),
        kind => json!({"refused": kind, "place": error.place()}),
    }
}

/// A value without members that say nothing.
fn brief(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(brief).collect(),
        Value::Object(members) => {
            let said = members.iter().filter(|(_, value)| !value.is_null() && **value != json!([]));
            Value::Object(said.map(|(name, value)| (name.clone(), brief(value))).collect())
        }
        value => value.clone(),
    }
}

/// The innermost places where two values differ.
fn difference(backend: &Value, model: &Value) -> String {
    let mut found = Vec::new();
    differ("", backend, model, &mut found);
    found.concat()
}

fn differ(path: &str, backend: &Value, model: &Value, found: &mut Vec<String>) {
    match (backend, model) {
        (Value::Object(one), Value::Object(two)) => {
            let names: std::collections::BTreeSet<_> = one.keys().chain(two.keys()).collect();
            for name in names {
                let (one, two) =
                    (one.get(name).unwrap_or(&Value::Null), two.get(name).unwrap_or(&Value::Null));
                differ(&format!("{path}.{name}"), one, two, found);
            }
        }
        (Value::Array(one), Value::Array(two)) if one.len() == two.len() => {
            let pairs = one.iter().zip(two).enumerate();
            pairs.for_each(|(index, (one, two))| differ(&format!("{path}[{index}]"), one, two, found));
        }
        _ if backend != model => {
            found.push(format!("\n  differs at {path}: backend {backend}, model {model}"));
        }
        _ => {}
    }
}
