//! Questions, asked of the backend and of the model.

use serde_json::{Value, json};
use statehold_core::model::{Position, QueueInfo};
use statehold_core::query::{
    CategoryFrom, CategoryPage, CategoryRead, DocumentList, KeyList, Page, ReadFrom, StreamRead, TaskList,
};
use statehold_core::{Result, Seconds, Timestamp};

use super::names::{CATEGORIES, document, group, named, owner, queue, source};
use super::questions::{Filter, From, ListOp, Place, Query};
use super::run::{Run, Verdict, refusal};

/// An answer in a comparable form; the argument tells the good one.
macro_rules! told {
    ($result:expr) => {
        match $result {
            Ok(answer) => json!(answer),
            Err(error) => refusal(&error),
        }
    };
}

/// Follows a list's cursor to its end. Every page but the last must be full.
macro_rules! pages {
    ($limit:expr, $cursor:ident, $page:expr) => {{
        let mut all = Vec::new();
        let mut $cursor = None;
        loop {
            let page: Page<_> = $page.map_err(|error| error.to_string())?;
            let (count, limit) = (page.items.len(), $limit as usize);
            if count > limit || (page.next_cursor.is_some() && count < limit) {
                return Err(format!("a page of {count} where {limit} were asked for"));
            }
            all.extend(page.items);
            $cursor = page.next_cursor;
            if $cursor.is_none() {
                break all;
            }
        }
    }};
}

/// A page whose cursor tells only the position.
fn plain(page: CategoryPage) -> CategoryPage {
    CategoryPage { cursor: page.cursor.position.clone().into(), ..page }
}

impl Run<'_> {
    pub(crate) async fn ask(&mut self, query: &Query) -> Verdict {
        match query {
            Query::Tasks(_) | Query::List(_) | Query::NextPage | Query::Count(_) => {
                self.ask_tasks(query).await
            }
            Query::Stream { .. } | Query::Category { .. } | Query::Streams { .. } | Query::Group { .. } => {
                self.ask_streams(query).await
            }
            Query::Queues => self.ask_queues().await,
            _ => self.ask_values(query).await,
        }
    }

    async fn ask_tasks(&mut self, query: &Query) -> Verdict {
        let now = self.now();
        match query {
            Query::Tasks(which) => {
                let ids: Vec<_> = which.iter().map(|which| self.resolver().task(*which)).collect();
                let answered = told!(self.backend.task_get(&self.namespace, &ids).await);
                let expected: Vec<_> = ids.iter().map(|id| self.model.task(*id)).collect();
                self.agree(&format!("task_get {ids:?}"), answered, json!(expected))
            }
            Query::List(op) => self.ask_list(op).await,
            Query::NextPage => match self.page.take() {
                Some((list, after)) => self.ask_page(list, Some(after)).await,
                None => Ok(()),
            },
            Query::Count(n) => {
                let queue = n.map(queue);
                let answered = told!(self.backend.task_count(&self.namespace, queue.as_deref()).await);
                let expected = json!(self.model.task_count(queue.as_deref(), now));
                self.agree(&format!("task_count {queue:?}"), answered, expected)
            }
            _ => Ok(()),
        }
    }

    async fn ask_list(&mut self, op: &ListOp) -> Verdict {
        let (order, descending, limit) = (op.order, op.descending, op.limit);
        let list = TaskList { order, descending, limit, ..self.filter(op.filter) };
        if !op.whole {
            return self.ask_page(list, None).await;
        }
        let all = pages!(limit, cursor, {
            let list = TaskList { cursor, ..list.clone() };
            self.backend.task_list(&self.namespace, &list).await
        });
        let expected = json!(self.model.task_list(&list, None));
        self.agree(&format!("task_list {}", json!(list)), json!(all), expected)
    }

    /// One page, which may be asked to go on later.
    async fn ask_page(&mut self, list: TaskList, after: Option<statehold_core::query::TaskPlace>) -> Verdict {
        let answered =
            self.backend.task_list(&self.namespace, &list).await.map_err(|error| error.to_string())?;
        let mut expected = self.model.task_list(&list, after);
        let more = expected.len() > list.limit as usize;
        expected.truncate(list.limit as usize);
        let request = format!("task_list {}", json!(list));
        if let Some(cursor) = answered.next_cursor.clone() {
            let place = expected.last().map(|task| list.place_of(task));
            self.page = place.map(|place| (TaskList { cursor: Some(cursor), ..list }, place));
        }
        let answered = json!({"items": answered.items, "more": answered.next_cursor.is_some()});
        self.agree(&request, answered, json!({"items": expected, "more": more}))
    }

    fn filter(&mut self, filter: Filter) -> TaskList {
        let now = self.now();
        let list = TaskList::default();
        match filter {
            Filter::All => list,
            Filter::Status(status) => TaskList { status: vec![status], ..list },
            Filter::Queue(n) => TaskList { queue: Some(queue(n)), ..list },
            Filter::Kind(n) => TaskList { kind: Some(format!("kind-{n}")), ..list },
            Filter::Thread => TaskList { thread: Some("thread".into()), ..list },
            Filter::Parent(which) => TaskList { parent: Some(self.resolver().task(which)), ..list },
            Filter::Root(which) => TaskList { root: Some(self.resolver().task(which)), ..list },
            Filter::Owner(n) => TaskList { owner: Some(owner(n)), ..list },
            Filter::Label(n) => TaskList { labels: [("shape".into(), n.to_string())].into(), ..list },
            Filter::Idempotency(n) => TaskList { idempotency_key: Some(format!("once-{n}")), ..list },
            Filter::Exclusive(n) => TaskList { exclusive_key: Some(format!("only-{n}")), ..list },
            Filter::Created { seconds, before } => {
                let at = Some(now - Seconds::new(seconds));
                let (from, before) = if before { (None, at) } else { (at, None) };
                TaskList { created_from: from, created_before: before, ..list }
            }
            Filter::Heartbeat { seconds, before } => {
                let at = Some(now - Seconds::new(seconds));
                let (from, before) = if before { (None, at) } else { (at, None) };
                TaskList { heartbeat_from: from, heartbeat_before: before, ..list }
            }
        }
    }

    async fn ask_streams(&mut self, query: &Query) -> Verdict {
        match query {
            Query::Stream { stream, from, limit } => {
                let stream = self.resolver().stream(*stream);
                let head = self.resolver().head(&stream);
                let from = match from {
                    From::Oldest => ReadFrom::Oldest,
                    From::After(back) => ReadFrom::After(head.saturating_sub(*back)),
                    From::Before(back) => ReadFrom::Before((head + 1).saturating_sub(*back)),
                    From::Last => ReadFrom::Last,
                };
                let read = StreamRead { stream, from, limit: *limit };
                let answered = told!(self.backend.stream_read(&self.namespace, &read).await);
                let expected = told!(self.model.stream_read(&read));
                self.agree(&format!("stream_read {}", json!(read)), answered, expected)
            }
            Query::Category { category, from, limit } => {
                let category = CATEGORIES[usize::from(*category) % CATEGORIES.len()];
                self.ask_category(category, *from, *limit).await
            }
            Query::Streams { tasks, limit } => {
                let prefix = if *tasks { "task/" } else { "" };
                let answered = pages!(*limit, cursor, {
                    let list = KeyList { prefix: prefix.into(), limit: *limit, cursor };
                    self.backend.stream_list(&self.namespace, &list).await
                });
                let expected = json!(self.model.stream_list(prefix));
                self.agree(&format!("stream_list `{prefix}`"), json!(answered), expected)
            }
            Query::Group { group: n, source: from } => {
                let (group, source) = (group(*n), source(*from));
                let answered = told!(self.backend.group_info(&self.namespace, &group, &source).await);
                let expected = told!(self.model.group_info(&group, &source));
                self.agree(&format!("group_info {group} {source:?}"), answered, expected)
            }
            _ => Ok(()),
        }
    }

    async fn ask_category(&mut self, category: &str, place: Place, limit: u32) -> Verdict {
        let positions = self.seen.positions(category);
        let mut seen = 0;
        let from = match place {
            Place::Oldest => CategoryFrom::Oldest,
            Place::Latest => CategoryFrom::Latest,
            Place::After(n) => {
                let nth = positions.get(usize::from(n) % positions.len().max(1));
                CategoryFrom::After(nth.cloned().unwrap_or_default().into())
            }
            Place::Page(n) => {
                let given = self.cursors.iter().rev().filter(|(of, ..)| of == category).nth(n.into());
                let Some((_, cursor, trims)) = given else { return Ok(()) };
                seen = *trims;
                CategoryFrom::After(cursor.clone())
            }
        };
        let newest = positions.last().cloned().unwrap_or_default();
        let read = CategoryRead { category: category.into(), from, limit };
        let answered = self.backend.category_read(&self.namespace, &read).await;
        let expected = self.expected_page(&read, seen, &newest, answered.as_ref().ok());
        if let Ok(page) = &answered {
            self.told_position(category, page.cursor.position.clone());
            self.cursors.push((category.to_owned(), page.cursor.clone(), self.model.trims(category)));
        }
        self.agree(&format!("category_read {}", json!(read)), told!(answered.map(plain)), told!(expected))
    }

    /// The page as it should be. A cursor that no event gives is the backend's own choice, within bounds.
    fn expected_page(
        &self,
        read: &CategoryRead,
        seen: usize,
        newest: &Position,
        answered: Option<&CategoryPage>,
    ) -> Result<CategoryPage> {
        let (after, limit) = match &read.from {
            CategoryFrom::Oldest => (None, read.limit as usize),
            CategoryFrom::After(cursor) => (Some(cursor.position.clone()), read.limit as usize),
            CategoryFrom::Latest => (None, 0),
        };
        let mut events = self.model.category_read(&read.category, after.as_ref(), seen)?;
        events.truncate(limit);
        let least = if limit == 0 { newest.clone() } else { Position::default() };
        let chosen = answered.map(|page| page.cursor.position.clone()).filter(|cursor| *cursor >= least);
        let given = events.last().map(|event| event.position.clone());
        Ok(CategoryPage { events, cursor: given.or(after).or(chosen).unwrap_or(least).into() })
    }

    async fn ask_values(&mut self, query: &Query) -> Verdict {
        let (now, namespace) = (self.now(), self.namespace.clone());
        let (answered, expected) = match query {
            Query::Document(n) => {
                let (kind, name) = document(*n);
                let answered = told!(self.backend.document_get(&namespace, kind, name).await);
                (answered, json!(self.model.document(kind, name, now)))
            }
            Query::Documents { kind, prefix, label, descending, limit } => {
                let mut list = DocumentList::new(if *kind == 0 { "note" } else { "plan" });
                list.prefix = if *prefix { "ab".into() } else { String::new() };
                list.labels.extend(label.then(|| ("binary".to_owned(), "true".to_owned())));
                (list.descending, list.limit) = (*descending, *limit);
                let all = pages!(*limit, cursor, {
                    let list = DocumentList { cursor, ..list.clone() };
                    self.backend.document_list(&namespace, &list).await
                });
                (json!(all), json!(self.model.document_list(&list, now)))
            }
            Query::Entry(n) => {
                let key = named("entry", *n);
                (told!(self.backend.entry_get(&namespace, &key).await), json!(self.model.entry(&key, now)))
            }
            Query::Entries { limit } => {
                let all = pages!(*limit, cursor, {
                    let list = KeyList { prefix: "entry/".into(), limit: *limit, cursor };
                    self.backend.entry_list(&namespace, &list).await
                });
                (json!(all), json!(self.model.entry_list("entry/", now)))
            }
            Query::Lock(n) => {
                let key = named("lock", *n);
                (told!(self.backend.lock_get(&namespace, &key).await), json!(self.model.lock(&key, now)))
            }
            Query::Locks { limit } => {
                let all = pages!(*limit, cursor, {
                    let list = KeyList { prefix: String::new(), limit: *limit, cursor };
                    self.backend.lock_list(&namespace, &list).await
                });
                (json!(all), json!(self.model.lock_list("", now)))
            }
            _ => (Value::Null, Value::Null),
        };
        self.agree(&format!("{query:?}"), answered, expected)
    }

    async fn ask_queues(&mut self) -> Verdict {
        let now = self.now();
        let mut answered =
            self.backend.queue_list(&self.namespace).await.map_err(|error| error.to_string())?;
        for queue in &mut answered {
            self.judge_pollers(queue, now)?;
            queue.pollers.clear();
            let edge = self.model.ended_at(&queue.queue, now - Seconds::new(60));
            let expected = self.model.queue_list(now).into_iter().find(|known| known.queue == queue.queue);
            if expected.is_some_and(|known| known.per_minute + edge == queue.per_minute) {
                queue.per_minute -= edge;
            }
        }
        let expected = self.model.queue_list(now);
        let must = |queue: &QueueInfo| expected.iter().any(|known| known.queue == queue.queue);
        answered.retain(|queue| must(queue) || self.model.polls(&queue.queue).is_empty());
        self.agree("queue_list", json!(answered), json!(expected))
    }

    /// Pollers are remembered to about ten seconds.
    fn judge_pollers(&self, queue: &QueueInfo, now: Timestamp) -> Verdict {
        if self.rewound {
            return Ok(());
        }
        let ten = Seconds::new(10);
        let polls = self.model.polls(&queue.queue);
        for poller in &queue.pollers {
            let near =
                polls.get(&poller.owner).is_some_and(|at| poller.at + ten >= *at && *at + ten >= poller.at);
            if !near {
                return Err(format!(
                    "{} is said to have polled {} at {}",
                    poller.owner, queue.queue, poller.at
                ));
            }
        }
        let late = now - Seconds::new(280);
        let missing = polls
            .iter()
            .find(|(owner, at)| **at > late && queue.pollers.iter().all(|poller| poller.owner != **owner));
        match missing {
            Some((owner, at)) => Err(format!("{owner} polled {} at {at}, and is not listed", queue.queue)),
            None => Ok(()),
        }
    }
}
