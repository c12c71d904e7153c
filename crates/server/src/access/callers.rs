//! Who asks: found by the token that came with the request, and judged by it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use statehold::{Batch, Clock, Result, Statehold, TaskId, Timestamp, Token};
use statehold_core::batch::Fence;
use statehold_core::command::{Command, Reply};
use statehold_core::model::{Lock, Task};

use super::tokens::{Grant, Scope, Tokens};
use super::{Role, Rule, rule_of};
use crate::problem::Problem;

/// How long a token that was looked up is believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// How often the use of a token is noted.
const NOTED: Duration = Duration::from_secs(60);
/// How many tokens are remembered at once.
const REMEMBERED: usize = 10_000;

/// Who asks: the bearer of a token, or anyone on this machine while there are no tokens.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Option<Arc<Grant>>);

impl Caller {
    /// Anyone on this machine, who may do everything.
    pub(crate) const LOCAL: Self = Self(None);

    /// What the caller's token is for.
    pub(crate) fn grant(&self) -> Option<&Grant> {
        self.0.as_deref()
    }

    /// The name that goes into events.
    pub(crate) fn name(&self) -> Option<&str> {
        self.grant().map(|grant| grant.name.as_str())
    }

    /// The agent that the caller is, if it is one.
    pub(crate) fn agent(&self) -> Option<&str> {
        self.grant().filter(|grant| grant.role == Role::Agent)?.agent.as_deref()
    }

    /// What sets this caller apart from others: for its keys and its share of requests.
    pub(crate) fn id(&self) -> &str {
        self.grant().map_or("local", |grant| grant.id.as_str())
    }

    /// Whether the caller may come through a rule in a namespace.
    pub(crate) fn pass(&self, rule: Rule, namespace: Option<&str>) -> Result<(), Problem> {
        let Some(grant) = self.grant() else { return Ok(()) };
        if !grant.role.may(rule) {
            let detail = format!("role {} may not do this", grant.role.as_str());
            return Err(Problem::forbidden(detail, "use a token of another role; /docs shows which"));
        }
        let foreign =
            namespace.is_some() && grant.namespace.is_some() && grant.namespace.as_deref() != namespace;
        if foreign || (namespace.is_some() && grant.role == Role::Admin) {
            return Err(Problem::forbidden(
                "the token is for another namespace",
                "use a token of this namespace",
            ));
        }
        Ok(())
    }

    /// Whether the caller may look at a path, which names a task or a thread if it is about one.
    pub(crate) fn pass_scope(&self, about: Option<&Scope>) -> Result<(), Problem> {
        match self.grant().and_then(|grant| grant.scope.as_ref()) {
            Some(scope) if about != Some(scope) => Err(out_of_scope()),
            _ => Ok(()),
        }
    }

    /// Whether the caller may apply a batch: judged command by command.
    pub(crate) fn judge(&self, batch: &Batch) -> Result<(), Problem> {
        let Some(grant) = self.grant() else { return Ok(()) };
        for command in &batch.commands {
            let rule = rule_of(command);
            self.pass(rule, Some(&batch.namespace))?;
            if grant.role == Role::Agent {
                self.judge_agent(command, rule, batch)?;
            }
            let audits =
                matches!(command, Command::StreamAppend(append) if append.stream.category() == "audit");
            if audits {
                let hint = "append to a stream of another category";
                return Err(Problem::forbidden("only the server writes the audit", hint));
            }
        }
        Ok(())
    }

    fn judge_agent(&self, command: &Command, rule: Rule, batch: &Batch) -> Result<(), Problem> {
        let (agent, grant) = (self.agent().unwrap_or_default(), self.grant());
        let scope = grant.and_then(|grant| grant.scope.as_ref());
        if scope.is_some_and(|scope| !concerns(command, scope)) {
            return Err(out_of_scope());
        }
        match command {
            Command::TaskStart(start) => self.is_itself(&start.owner)?,
            Command::LockAcquire(acquire) => self.is_itself(&acquire.owner)?,
            _ => {}
        }
        let fenced = batch.fences.iter().any(|fence| matches!(fence, Fence::Task { .. }));
        if matches!(rule, Rule::Write | Rule::Signal) && !fenced {
            let detail = format!("agent `{agent}` writes only through the lease of a task");
            let hint = "add `Statehold-Fence: task=<id>;token=<token>` of the task that it holds";
            return Err(Problem::forbidden(detail, hint));
        }
        Ok(())
    }

    /// Whether a name that an agent uses is its own; others may use any.
    pub(crate) fn is_itself(&self, name: &str) -> Result<(), Problem> {
        match self.agent() {
            Some(agent) if agent != name => {
                let detail = format!("the token is agent `{agent}`'s and not `{name}`'s");
                Err(Problem::forbidden(detail, "use the agent's own name as owner or consumer"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the token of a lease or lock is shown to this caller.
    fn knows(&self, owner: &str) -> bool {
        self.grant().is_none_or(|grant| {
            grant.role == Role::Orchestrator
                || (grant.role == Role::Agent && grant.agent.as_deref() == Some(owner))
        })
    }

    /// Hides from the caller what is not its own.
    pub(crate) fn hide_task(&self, task: &mut Task) {
        if let Some(lease) = task.lease.as_mut().filter(|lease| !self.knows(&lease.owner)) {
            lease.token = Token::HIDDEN;
        }
    }

    /// The same for a lock.
    pub(crate) fn hide_lock(&self, lock: &mut Lock) {
        if !self.knows(&lock.owner) {
            lock.token = Token::HIDDEN;
        }
    }

    /// The same for the reply of a command.
    pub(crate) fn hide(&self, reply: &mut Reply) {
        match reply {
            Reply::Created(created) => self.hide_task(&mut created.task),
            Reply::Task(task) => self.hide_task(task),
            Reply::LockFreed(freed) => freed.previous.iter_mut().for_each(|lock| self.hide_lock(lock)),
            Reply::Renewed(_)
            | Reply::Done(_)
            | Reply::QueueState(_)
            | Reply::Appended(_)
            | Reply::Trimmed(_)
            | Reply::DocumentRevision(_)
            | Reply::Existed(_)
            | Reply::EntryExpiry(_)
            | Reply::TakenEntry(_)
            | Reply::LockAcquired(_)
            | Reply::LockRenewed(_) => {}
        }
    }
}

fn out_of_scope() -> Problem {
    Problem::forbidden("the token is for one task or thread only", "use it for that one, or another token")
}

/// Whether a command is about the one thing that a token is for.
fn concerns(command: &Command, scope: &Scope) -> bool {
    let id: TaskId = match scope {
        Scope::Task(id) => *id,
        Scope::Thread(id) => {
            return matches!(command, Command::StreamAppend(append)
                if append.stream.category() == statehold::THREAD && append.stream.id() == id);
        }
    };
    match command {
        Command::TaskStart(command) => command.id == id,
        Command::TaskRenew(command) => command.id == id,
        Command::TaskComplete(command) => command.id == id,
        Command::TaskFail(command) => command.id == id,
        Command::TaskRelease(command) => command.id == id,
        Command::TaskSuspend(command) => command.id == id,
        Command::TaskAmend(command) => command.id == id,
        Command::TaskCreate(command) => command.parent == Some(id),
        Command::StreamAppend(command) => command.stream.task() == Some(id),
        _ => false,
    }
}

/// Finds out who asks.
#[derive(Debug)]
pub(crate) struct Callers {
    tokens: Tokens,
    /// Whether anyone may ask while there are no tokens.
    open: bool,
    /// Whether there are tokens, as far as is known; once there are, there always are.
    required: AtomicBool,
    seen: Mutex<HashMap<[u8; 32], Seen>>,
    looked: Mutex<Option<Instant>>,
}

#[derive(Clone, Debug)]
struct Seen {
    grant: Option<Arc<Grant>>,
    at: Instant,
    noted: Option<Instant>,
}

impl Seen {
    /// Whether it can be believed; not past the end of the token.
    fn is_fresh(&self) -> bool {
        let over = |end: Timestamp| end <= Clock::real().now();
        let end = self.grant.as_ref().and_then(|grant| grant.expires_at);
        self.at.elapsed() < BELIEVED && !end.is_some_and(over)
    }
}

impl Callers {
    /// For a store; with `open`, anyone may ask until there is a token.
    pub(crate) fn new(hold: &Statehold, open: bool) -> Self {
        let tokens = Tokens::new(hold);
        Self {
            tokens,
            open,
            required: AtomicBool::new(false),
            seen: Mutex::default(),
            looked: Mutex::default(),
        }
    }

    /// Whether everyone needs a token.
    pub(crate) async fn required(&self) -> Result<bool> {
        if !self.open || self.required.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let fresh = |looked: &Mutex<Option<Instant>>| {
            let looked = *looked.lock().unwrap_or_else(PoisonError::into_inner);
            looked.is_some_and(|at| at.elapsed() < BELIEVED)
        };
        if !fresh(&self.looked) {
            self.required.store(self.tokens.required().await?, Ordering::Relaxed);
            *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        Ok(self.required.load(Ordering::Relaxed))
    }

    /// The bearer of a token, or anyone if there is none and none is needed.
    pub(crate) async fn find(&self, token: Option<&str>) -> Result<Caller, Problem> {
        match token {
            Some(token) => match self.grant(token).await? {
                Some(grant) => Ok(Caller(Some(grant))),
                None => Err(Problem::unauthenticated("the token is not known, has ended or was revoked")),
            },
            None if self.required().await? => Err(Problem::unauthenticated("a token is needed")),
            None => Ok(Caller::LOCAL),
        }
    }

    async fn grant(&self, token: &str) -> Result<Option<Arc<Grant>>> {
        // The hash stands for the token here too, so that none is kept in memory.
        let hash = *blake3::hash(token.as_bytes()).as_bytes();
        let known = self.seen().get(&hash).cloned();
        if let Some(seen) = known.as_ref().filter(|seen| seen.is_fresh()) {
            return Ok(seen.grant.clone());
        }
        let grant = self.tokens.find(token).await?.map(Arc::new);
        let mut noted = known.and_then(|seen| seen.noted);
        if let Some(grant) = grant.as_ref().filter(|_| noted.is_none_or(|at| at.elapsed() >= NOTED)) {
            // A use that cannot be noted is no reason to refuse it.
            let _ = self.tokens.used(&grant.id).await;
            noted = Some(Instant::now());
        }
        let mut seen = self.seen();
        if seen.len() >= REMEMBERED {
            seen.clear();
        }
        seen.insert(hash, Seen { grant: grant.clone(), at: Instant::now(), noted });
        Ok(grant)
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tokens themselves.
    pub(crate) fn tokens(&self) -> &Tokens {
        &self.tokens
    }
}
