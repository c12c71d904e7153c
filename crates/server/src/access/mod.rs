//! Who may do what: roles, the rule of every route and of every command, and what of an answer is shown to whom.

pub(crate) mod audit;
mod callers;
mod limiter;
pub mod tokens;

pub(crate) use callers::{Caller, Callers};
pub(crate) use limiter::Limiter;

use serde::{Deserialize, Serialize};
use statehold_core::command::Command;
use utoipa::ToSchema;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads.
    Viewer,
    /// Reads, claims as itself, and writes what the task that it holds lets it.
    Agent,
    /// Reads, signals, cancels, retries, evicts, orders the backlog, pauses, frees locks.
    Operator,
    /// Everything in its namespace.
    Orchestrator,
    /// Tokens and namespaces, of all namespaces.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::Viewer, Self::Agent, Self::Operator, Self::Orchestrator, Self::Admin];

    /// The wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::Orchestrator => "orchestrator",
            Self::Admin => "admin",
        }
    }

    /// Whether a rule lets this role through.
    pub fn may(self, rule: Rule) -> bool {
        match rule {
            Rule::Open | Rule::Known => true,
            Rule::Read => self != Self::Admin,
            Rule::Work | Rule::Write => matches!(self, Self::Agent | Self::Orchestrator),
            Rule::Signal => matches!(self, Self::Agent | Self::Operator | Self::Orchestrator),
            Rule::Operate => matches!(self, Self::Operator | Self::Orchestrator),
            Rule::Orchestrate => self == Self::Orchestrator,
            Rule::Commands => !matches!(self, Self::Viewer | Self::Admin),
            Rule::Administer => self == Self::Admin,
        }
    }
}

/// Who may come through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Anyone, also without a token.
    Open,
    /// Anyone with a token.
    Known,
    /// Who reads.
    Read,
    /// Who works on tasks: agents as themselves, with the tokens that they were given.
    Work,
    /// Who writes: agents only through the lease of a task, which the request must be fenced by.
    Write,
    /// Who gives signals: operators too, and agents as when they write.
    Signal,
    /// Who operates.
    Operate,
    /// Who orchestrates.
    Orchestrate,
    /// Who may do what the commands in it need, each by its own rule.
    Commands,
    /// Who administers.
    Administer,
}

impl Rule {
    /// What is asked of a role beyond having it, for the published table.
    pub fn condition(self, role: Role) -> &'static str {
        match (self, role) {
            (Self::Work, Role::Agent) => "as itself",
            (Self::Write | Self::Signal, Role::Agent) => "through its lease",
            (Self::Commands, Role::Agent | Role::Operator) => "command by command",
            _ => "yes",
        }
    }
}

/// The rule of a command.
pub(crate) fn rule_of(command: &Command) -> Rule {
    match command {
        // A result is handed over by whoever has it.
        Command::EntrySet(set) if set.key.starts_with("result/") => Rule::Work,
        command => rule_of_op(command.name()),
    }
}

/// The rule of a command by its wire name. One that is not listed is for those who may do everything.
pub(crate) fn rule_of_op(op: &str) -> Rule {
    match op {
        "task.start" | "task.renew" | "task.complete" | "task.fail" | "task.release" | "task.suspend"
        | "group.ack" | "group.nack" | "lock.acquire" | "lock.renew" | "lock.release" => Rule::Work,
        "task.create" | "task.amend" | "stream.append" | "document.put" | "document.delete" | "entry.set"
        | "entry.take" | "entry.delete" => Rule::Write,
        "task.signal" => Rule::Signal,
        "task.cancel" | "task.evict" | "task.retry" | "task.promote" | "task.park" | "queue.set"
        | "lock.force_release" => Rule::Operate,
        _ => Rule::Orchestrate,
    }
}
