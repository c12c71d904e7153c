//! Tasks: made, looked at, changed from outside. Who works on them is in `work`.

use axum::http::{Method, StatusCode};
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::json;
use statehold::{Error, Result, Status, Task, TaskCreate, TaskId};
use statehold_core::batch::{BatchKey, Fence};
use statehold_core::command::{
    Command, Created, Reply, TaskAmend, TaskCancel, TaskEvict, TaskPark, TaskPromote, TaskPurge, TaskRetry,
    TaskSignal,
};
use statehold_core::query::{Page, TaskList, TaskOrder, Why};
use utoipa::ToSchema;

use crate::access::Rule;
use crate::asked::{Asked, json, ok, replayed};
use crate::problem::{Answer, Problem};
use crate::route::{ACCESS, CURSOR, Kind, LIMIT, Param, Route, WAIT};

const FILTERS: &[Param] = &[
    Param::new("status", Kind::Text, "In this status; repeat it for several.").repeated(),
    Param::new("queue", Kind::Text, "In this queue."),
    Param::new("kind", Kind::Text, "Of this kind."),
    Param::new("thread", Kind::Text, "Of this thread."),
    Param::new("parent", Kind::Id, "Children of this task."),
    Param::new("root", Kind::Id, "In the family of this task."),
    Param::new("owner", Kind::Text, "Leased to this owner."),
    Param::new("label", Kind::Text, "With this label, `key:value`; repeat it for several.").repeated(),
    Param::new("idempotency_key", Kind::Text, "With this key."),
    Param::new("exclusive_key", Kind::Text, "With this key."),
    Param::new("created_from", Kind::Time, "Created at or after."),
    Param::new("created_before", Kind::Time, "Created before."),
    Param::new("heartbeat_from", Kind::Time, "Leased, with a heartbeat at or after."),
    Param::new("heartbeat_before", Kind::Time, "Leased, with a heartbeat before."),
    Param::new("order", Kind::Text, "`created`, `rank` or `claim`."),
    Param::new("descending", Kind::Yes, "Backwards."),
    LIMIT,
    CURSOR,
];

/// Several tasks to create together.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Bulk {
    /// At most 1000.
    tasks: Vec<TaskCreate>,
}

/// What creating several tasks answers.
#[derive(Serialize, ToSchema)]
pub(super) struct BulkReply {
    /// In the order of the request.
    pub(super) results: Vec<Created>,
}

/// Something done to many tasks, each by itself.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Actions {
    /// What is done.
    action: Action,
    /// To which tasks, at most 1000 at a time; either this or `ids`.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    filter: Option<TaskList>,
    /// To these tasks, at most 1000.
    #[serde(default)]
    ids: Option<Vec<TaskId>>,
    /// Only tells how many there are.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Cancel,
    Retry,
    Promote,
    Park,
    Evict,
}

/// What was done to many tasks.
#[derive(Default, Serialize, ToSchema)]
struct ActionsReply {
    /// How many there were.
    matched: usize,
    /// To how many it was done.
    done: usize,
    /// The others, with why not.
    refused: Vec<RefusedAction>,
    /// Whether there may be more than were looked at; ask again.
    more: bool,
}

/// A task to which it was not done.
#[derive(Serialize, ToSchema)]
struct RefusedAction {
    id: TaskId,
    code: String,
    message: String,
}

pub(super) fn routes() -> Vec<Route> {
    let create = json!({ "kind": "answer", "idempotency_key": "hook-7", "input": { "question": "Where is my parcel?" }, "thread": "42" });
    vec![
        Route::new(
            Method::POST,
            "/tasks",
            Rule::Write,
            "Creates a task, or answers the one that its key has made.",
            create_one,
        )
        .takes::<TaskCreate>()
        .example(create.clone())
        .answers::<Created>(StatusCode::CREATED)
        .answers::<Created>(StatusCode::OK),
        Route::new(Method::POST, "/tasks/bulk", Rule::Write, "Creates up to 1000 tasks, all or none.", bulk)
            .takes::<Bulk>()
            .example(json!({ "tasks": [create] }))
            .answers::<BulkReply>(StatusCode::OK),
        Route::new(Method::GET, "/tasks", Rule::Read, "Lists tasks.", list)
            .query(FILTERS)
            .lists::<Page<Task>, Task>(),
        Route::new(
            Method::POST,
            "/tasks/actions",
            Rule::Operate,
            "Does something to many tasks, each by itself.",
            actions,
        )
        .takes::<Actions>()
        .example(json!({ "action": "cancel", "filter": { "queue": "default" }, "dry_run": true }))
        .answers::<ActionsReply>(StatusCode::OK),
        Route::new(Method::GET, "/tasks/{id}", Rule::Read, "A task.", get)
            .query(&[ACCESS])
            .answers::<Task>(StatusCode::OK),
        Route::command::<TaskAmend>(Method::PATCH, "/tasks/{id}")
            .example(json!({ "labels": { "team": "a" }, "priority": -1 })),
        Route::command::<TaskPurge>(Method::DELETE, "/tasks/{id}"),
        Route::new(Method::GET, "/tasks/{id}/why", Rule::Read, "Why a task is not moving.", why)
            .query(&[ACCESS])
            .answers::<Why>(StatusCode::OK),
        Route::new(
            Method::GET,
            "/tasks/{id}/wait",
            Rule::Read,
            "Waits until a task has ended, then answers it as it is.",
            wait,
        )
        .query(&[WAIT, ACCESS])
        .answers::<Task>(StatusCode::OK),
        Route::command::<TaskSignal>(Method::POST, "/tasks/{id}/signals/{name}")
            .example(json!({ "data": { "approved": true } })),
        Route::command::<TaskCancel>(Method::POST, "/tasks/{id}/cancel").example(json!({ "force": false })),
        Route::command::<TaskEvict>(Method::POST, "/tasks/{id}/evict"),
        Route::command::<TaskRetry>(Method::POST, "/tasks/{id}/retry"),
        Route::command::<TaskPromote>(Method::POST, "/tasks/{id}/promote"),
        Route::command::<TaskPark>(Method::POST, "/tasks/{id}/park"),
    ]
}

async fn create_one(asked: Asked) -> Answer {
    let reply = asked.run(asked.body::<TaskCreate>()?).await?;
    reply.answer(if reply.value.created { StatusCode::CREATED } else { StatusCode::OK })
}

async fn bulk(asked: Asked) -> Answer {
    let Bulk { tasks } = asked.body()?;
    create_many(&asked, tasks, None).await
}

/// Creates tasks together, with what must still be held for it.
pub(super) async fn create_many(asked: &Asked, tasks: Vec<TaskCreate>, fence: Option<Fence>) -> Answer {
    let mut batch = asked.hold.batch();
    batch.fences.extend(fence);
    batch.commands = tasks.into_iter().map(Command::TaskCreate).collect();
    let replies = asked.apply(batch).await?;
    let created = replies.replies.into_iter().filter_map(|reply| match reply {
        Reply::Created(created) => Some(created),
        _ => None,
    });
    Ok(replayed(json(StatusCode::OK, &BulkReply { results: created.collect() })?, replies.replayed))
}

async fn list(asked: Asked) -> Answer {
    let mut list = TaskList {
        queue: asked.parsed("queue")?,
        kind: asked.parsed("kind")?,
        thread: asked.parsed("thread")?,
        parent: asked.parsed("parent")?,
        root: asked.parsed("root")?,
        owner: asked.parsed("owner")?,
        idempotency_key: asked.parsed("idempotency_key")?,
        exclusive_key: asked.parsed("exclusive_key")?,
        created_from: asked.parsed("created_from")?,
        created_before: asked.parsed("created_before")?,
        heartbeat_from: asked.parsed("heartbeat_from")?,
        heartbeat_before: asked.parsed("heartbeat_before")?,
        descending: asked.parsed("descending")?.unwrap_or(false),
        limit: asked.limit()?,
        cursor: asked.cursor(),
        order: asked.query("order").map_or(Ok(TaskOrder::Created), order)?,
        ..TaskList::default()
    };
    for status in asked.queries("status") {
        let all = Status::ALL.map(Status::as_str).join(", ");
        let status = status
            .parse()
            .map_err(|_| Error::invalid("status", format!("`{status}` is not one of {all}")))?;
        list.status.push(status);
    }
    for label in asked.queries("label") {
        let (key, value) =
            label.split_once(':').ok_or_else(|| Error::invalid("label", "is not key:value"))?;
        list.labels.insert(key.to_owned(), value.to_owned());
    }
    list.check()?;
    let mut page = asked.hold.tasks().list(&list).await?;
    page.items.iter_mut().for_each(|task| asked.caller.hide_task(task));
    ok(&page)
}

fn order(text: &str) -> Result<TaskOrder> {
    match text {
        "created" => Ok(TaskOrder::Created),
        "rank" => Ok(TaskOrder::Rank),
        "claim" => Ok(TaskOrder::Claim),
        _ => Err(Error::invalid("order", format!("`{text}` is not one of created, rank, claim"))),
    }
}

async fn get(asked: Asked) -> Answer {
    let id = asked.task()?;
    let task = asked.hold.tasks().get(id).await?;
    show(&asked, task.ok_or_else(|| Error::not_found("task", id))?)
}

/// A task as the caller may see it.
pub(super) fn show(asked: &Asked, mut task: Task) -> Answer {
    asked.caller.hide_task(&mut task);
    ok(&task)
}

async fn why(asked: Asked) -> Answer {
    ok(&asked.hold.tasks().why(asked.task()?).await?)
}

async fn wait(asked: Asked) -> Answer {
    let id = asked.task()?;
    let task = asked.waiting(asked.wait()?, |most| asked.hold.tasks().wait(id, Some(most))).await?;
    show(&asked, task)
}

impl Action {
    /// The statuses to which it can be done.
    fn statuses(self) -> &'static [Status] {
        match self {
            Self::Cancel => {
                &[Status::Backlog, Status::Blocked, Status::Pending, Status::Running, Status::Waiting]
            }
            Self::Retry => &[Status::Failed, Status::Cancelled],
            Self::Promote => &[Status::Backlog],
            Self::Park => &[Status::Pending, Status::Blocked],
            Self::Evict => &[Status::Running],
        }
    }

    fn command(self, id: TaskId) -> Command {
        match self {
            Self::Cancel => TaskCancel { id, force: false, children: false }.into(),
            Self::Retry => TaskRetry { id, with_dependents: false }.into(),
            Self::Promote => TaskPromote { id }.into(),
            Self::Park => TaskPark { id, rank: None }.into(),
            Self::Evict => TaskEvict { id }.into(),
        }
    }
}

/// How many tasks are acted on at once.
const AT_ONCE: usize = 32;

async fn actions(asked: Asked) -> Answer {
    let Actions { action, filter, ids, dry_run } = asked.body()?;
    let (ids, more) = match (filter, ids) {
        (Some(filter), None) => find(&asked, action, filter).await?,
        (None, Some(ids)) if ids.len() <= statehold_core::limits::LIST => (ids, false),
        (None, Some(ids)) => {
            return Err(
                Error::invalid("ids", format!("has {} items; at most 1000 are allowed", ids.len())).into()
            );
        }
        _ => return Err(Error::invalid("filter", "exactly one of filter and ids must be given").into()),
    };
    let mut reply = ActionsReply { matched: ids.len(), more, ..ActionsReply::default() };
    if !dry_run {
        let acting = stream::iter(ids).map(|id| act(&asked, action, id));
        let refused: Vec<_> = acting.buffered(AT_ONCE).collect().await;
        for refused in refused {
            match refused {
                None => reply.done += 1,
                Some(refused) => reply.refused.push(refused),
            }
        }
    }
    ok(&reply)
}

async fn find(asked: &Asked, action: Action, mut filter: TaskList) -> Result<(Vec<TaskId>, bool)> {
    if filter.status.is_empty() {
        filter.status = action.statuses().to_vec();
    }
    filter.limit = 1000;
    filter.check()?;
    let page = asked.hold.tasks().list(&filter).await?;
    Ok((page.items.iter().map(|task| task.id).collect(), page.next_cursor.is_some()))
}

/// Acts on one task; answers why not if it did not. Each is safe to repeat by itself.
async fn act(asked: &Asked, action: Action, id: TaskId) -> Option<RefusedAction> {
    let mut batch = asked.hold.batch();
    batch.key = asked
        .key()
        .map(|key| BatchKey::new(blake3::hash(format!("{key}/{id}").as_bytes()).to_hex().to_string()));
    batch.commands.push(action.command(id));
    let refused = asked.apply(batch).await.map_err(Problem::single).err()?;
    Some(RefusedAction { id, code: refused.code().to_owned(), message: refused.detail().to_owned() })
}
