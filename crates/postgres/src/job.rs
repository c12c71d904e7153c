//! Requests on their way to a decision.

use std::sync::Arc;

use statehold_core::call::{Claim, Claimed};
use statehold_core::plan::{Context, Effects, Needs, Rows, Step};
use statehold_core::{Error, Result};
use tokio::sync::oneshot;

/// Requests that are decided together.
pub(crate) type Group = Vec<Box<dyn Job>>;

/// Something to do within a transaction.
pub(crate) trait Job: Send {
    /// Where it happens.
    fn namespace(&self) -> &str;
    /// Whether it reads what only the store knows, so that it shares its transaction with nobody.
    fn is_alone(&self) -> bool;
    /// Whether it looks for what is not known by its key.
    fn looks_around(&self) -> bool;
    /// The queues whose switch it sets.
    fn switches(&self) -> &[String];
    /// Whether its caller can repeat it without knowing what became of it.
    fn is_repeatable(&self) -> bool;
    /// Goes on with it as far as the rows reach.
    fn step(&mut self, rows: &Rows, sight: &Sight<'_>) -> Progress;
    /// Answers what was decided, once it is committed.
    fn answer(self: Box<Self>);
    /// Answers that it came to nothing.
    fn fail(self: Box<Self>, error: Error);

    /// The claim that it is, unless it is something else or nobody waits for it any more.
    fn claim(&self) -> Option<&Claim> {
        None
    }

    /// Answers what the claim got.
    fn give(self: Box<Self>, _: Claimed) {}
}

/// What a request sees beside the rows.
pub(crate) struct Sight<'a> {
    pub(crate) context: Context<'a>,
    /// Ready tasks were left out because another transaction holds them.
    pub(crate) skipped: bool,
}

/// How far a request is.
pub(crate) enum Progress {
    /// These are missing.
    Need(Box<Needs>),
    /// It is decided and leaves this.
    Done(Box<Effects>),
}

/// A request that a plan decides.
pub(crate) struct Planned<T, P> {
    pub(crate) namespace: String,
    pub(crate) plan: P,
    pub(crate) reply: oneshot::Sender<Result<T>>,
    pub(crate) decided: Option<Result<T>>,
    /// Whether it is for nothing once its caller has gone.
    pub(crate) gives: bool,
    pub(crate) alone: bool,
    pub(crate) repeatable: bool,
    pub(crate) switches: Vec<String>,
}

impl<T, P> Job for Planned<T, P>
where
    T: Send,
    P: Fn(&Rows, &Sight<'_>) -> Step<T> + Send,
{
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn is_alone(&self) -> bool {
        self.alone
    }

    fn looks_around(&self) -> bool {
        self.gives || self.alone
    }

    fn switches(&self) -> &[String] {
        &self.switches
    }

    fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    fn step(&mut self, rows: &Rows, sight: &Sight<'_>) -> Progress {
        self.decided = None;
        if self.gives && self.reply.is_closed() {
            return Progress::Done(Box::default());
        }
        match (self.plan)(rows, sight) {
            Step::Need(needs) => Progress::Need(Box::new(needs)),
            Step::Accept(answer, effects) => {
                self.decided = Some(Ok(answer));
                Progress::Done(Box::new(effects))
            }
            Step::Refuse(error) => {
                self.decided = Some(Err(error));
                Progress::Done(Box::default())
            }
        }
    }

    fn answer(self: Box<Self>) {
        if let Some(decided) = self.decided {
            let _ = self.reply.send(decided);
        }
    }

    fn fail(self: Box<Self>, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}

/// A claim, which the store can also decide without a plan.
pub(crate) struct Claiming<P> {
    pub(crate) claim: Arc<Claim>,
    pub(crate) planned: Planned<Claimed, P>,
}

impl<P> Job for Claiming<P>
where
    P: Fn(&Rows, &Sight<'_>) -> Step<Claimed> + Send,
{
    fn namespace(&self) -> &str {
        self.planned.namespace()
    }

    fn is_alone(&self) -> bool {
        self.planned.is_alone()
    }

    fn looks_around(&self) -> bool {
        self.planned.looks_around()
    }

    fn switches(&self) -> &[String] {
        self.planned.switches()
    }

    fn is_repeatable(&self) -> bool {
        self.planned.is_repeatable()
    }

    fn step(&mut self, rows: &Rows, sight: &Sight<'_>) -> Progress {
        self.planned.step(rows, sight)
    }

    fn answer(self: Box<Self>) {
        Box::new(self.planned).answer();
    }

    fn fail(self: Box<Self>, error: Error) {
        Box::new(self.planned).fail(error);
    }

    fn claim(&self) -> Option<&Claim> {
        (!self.planned.reply.is_closed()).then_some(&self.claim)
    }

    fn give(self: Box<Self>, claimed: Claimed) {
        let _ = self.planned.reply.send(Ok(claimed));
    }
}
