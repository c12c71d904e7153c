//! What a caller has seen so far: ids, tokens, deliveries and positions that later operations name.

use std::collections::{BTreeMap, BTreeSet};

use statehold_core::batch::Batch;
use statehold_core::call::{Claimed, Deliveries, GroupRead};
use statehold_core::command::{Command, DeliveryRef, Reply, TaskCreate};
use statehold_core::model::{Position, Source, Task, TaskId, Token};
use uuid::Uuid;

use super::ops::{NewId, Tok};

/// How many ids there are at a time.
pub(crate) const SLOTS: u8 = 8;

/// A token that nobody was ever given.
const NEVER: Token = Token(7);

type Deliverer = (String, Source);

/// What was answered so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    slots: BTreeMap<u8, TaskId>,
    generations: BTreeMap<u8, u128>,
    gone: BTreeSet<TaskId>,
    /// The slots of creates without an id.
    generated: BTreeMap<TaskId, u8>,
    creates: Vec<TaskCreate>,
    batches: Vec<Batch>,
    tokens: BTreeMap<TaskId, Vec<Token>>,
    locks: BTreeMap<String, Vec<Token>>,
    out: BTreeMap<Deliverer, Vec<DeliveryRef>>,
    spent: BTreeMap<Deliverer, Vec<DeliveryRef>>,
    positions: BTreeMap<String, Vec<Position>>,
}

impl Seen {
    /// The id that a slot stands for.
    pub(crate) fn slot(&self, slot: u8) -> TaskId {
        let slot = slot % SLOTS;
        self.slots.get(&slot).copied().unwrap_or_else(|| slot_id(slot, 0))
    }

    /// The id of a new task, if it gets one.
    pub(crate) fn new_id(&mut self, slot: u8, id: NewId, taken: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        let slot = slot % SLOTS;
        match id {
            NewId::Generated => None,
            NewId::Same => Some(self.slot(slot)),
            NewId::Fresh => {
                let mut generation = self.generations.get(&slot).copied().unwrap_or(0);
                while taken(slot_id(slot, generation)) || self.gone.contains(&slot_id(slot, generation)) {
                    generation += 1;
                }
                self.generations.insert(slot, generation);
                self.slots.insert(slot, slot_id(slot, generation));
                Some(slot_id(slot, generation))
            }
        }
    }

    /// These tasks are gone: slots do not stand for them any more.
    pub(crate) fn gone(&mut self, ids: impl Iterator<Item = TaskId>) {
        self.gone.extend(ids);
        for slot in 0..SLOTS {
            while self.gone.contains(&self.slot(slot)) {
                let generation = self.generations.entry(slot).or_default();
                *generation += 1;
                self.slots.insert(slot, slot_id(slot, *generation));
            }
        }
    }

    /// The nth last create.
    pub(crate) fn create(&self, nth: u8) -> Option<TaskCreate> {
        let recent = self.creates.iter().rev().take(8);
        recent.clone().nth(usize::from(nth) % recent.len().max(1)).cloned()
    }

    /// The nth last batch with a key.
    pub(crate) fn batch(&self, nth: u8) -> Option<Batch> {
        let recent = self.batches.iter().rev().take(4);
        recent.clone().nth(usize::from(nth) % recent.len().max(1)).cloned()
    }

    pub(crate) fn token(&self, id: TaskId, token: Tok) -> Token {
        pick(self.tokens.get(&id), token)
    }

    pub(crate) fn lock(&self, key: &str, token: Tok) -> Token {
        pick(self.locks.get(key), token)
    }

    /// Whether anything is out.
    pub(crate) fn has_out(&self, group: &str, source: &Source) -> bool {
        self.out.get(&(group.to_owned(), source.clone())).is_some_and(|out| !out.is_empty())
    }

    /// Up to `count` deliveries: the last that are out, or some that are not.
    pub(crate) fn deliveries(&self, group: &str, source: &Source, token: Tok, count: u8) -> Vec<DeliveryRef> {
        let key = (group.to_owned(), source.clone());
        let from = if matches!(token, Tok::Stale) { &self.spent } else { &self.out };
        let mut found: Vec<DeliveryRef> = Vec::new();
        for delivery in from.get(&key).into_iter().flatten().rev() {
            if found.len() < usize::from(count)
                && found.iter().all(|other| other.position != delivery.position)
            {
                found.push(delivery.clone());
            }
        }
        if found.is_empty() {
            found.push(DeliveryRef { position: Position::from_number(1), delivery_token: NEVER });
        }
        if matches!(token, Tok::Wrong) {
            found[0].delivery_token = NEVER;
        }
        found
    }

    /// The positions of a category that were ever given.
    pub(crate) fn positions(&self, category: &str) -> &[Position] {
        self.positions.get(category).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn saw_position(&mut self, category: &str, position: Position) {
        self.positions.entry(category.to_owned()).or_default().push(position);
    }

    /// Remembers what was sent, before it was sent.
    pub(crate) fn sent(&mut self, batch: &Batch) {
        for command in &batch.commands {
            if let Command::TaskCreate(create) = command {
                self.creates.push(create.clone());
            }
        }
        if batch.key.is_some() {
            self.batches.push(batch.clone());
        }
    }

    /// A create without an id was given one.
    pub(crate) fn generated(&mut self, id: TaskId) {
        let slot = u8::try_from(self.generated.len() % usize::from(SLOTS)).unwrap_or(0);
        self.generated.insert(id, slot);
        self.slots.insert(slot, id);
    }

    /// Remembers what a batch answered.
    pub(crate) fn answered(&mut self, batch: &Batch, replies: &[Reply]) {
        for (command, reply) in batch.commands.iter().zip(replies) {
            match (command, reply) {
                (_, Reply::Task(task)) => self.saw(task),
                (_, Reply::Created(created)) => self.saw(&created.task),
                (Command::LockAcquire(acquire), Reply::LockAcquired(acquired)) => {
                    self.locks.entry(acquire.key.clone()).or_default().push(acquired.token);
                }
                (Command::GroupAck(ack), _) => self.spend(&ack.group, &ack.source, &ack.deliveries),
                (Command::GroupNack(nack), _) => self.spend(&nack.group, &nack.source, &nack.deliveries),
                (Command::GroupSeek(seek), _) => {
                    let all = self.out.get(&(seek.group.clone(), seek.source.clone())).cloned();
                    self.spend(&seek.group, &seek.source, &all.unwrap_or_default());
                }
                _ => {}
            }
        }
    }

    pub(crate) fn claimed(&mut self, claimed: &Claimed) {
        claimed.tasks.iter().for_each(|task| self.saw(task));
    }

    pub(crate) fn delivered(&mut self, read: &GroupRead, deliveries: &Deliveries) {
        let key = (read.group.clone(), read.source.clone());
        for event in &deliveries.events {
            let position = event.event.position.clone();
            let given = DeliveryRef { position, delivery_token: event.delivery_token };
            let out = self.out.entry(key.clone()).or_default();
            let (before, rest): (Vec<_>, Vec<_>) = out.drain(..).partition(|d| d.position == given.position);
            *out = rest;
            out.push(given.clone());
            let old = before.into_iter().filter(|delivery| *delivery != given);
            self.spent.entry(key.clone()).or_default().extend(old);
        }
    }

    fn spend(&mut self, group: &str, source: &Source, deliveries: &[DeliveryRef]) {
        let key = (group.to_owned(), source.clone());
        self.out.entry(key.clone()).or_default().retain(|delivery| !deliveries.contains(delivery));
        self.spent.entry(key).or_default().extend(deliveries.iter().cloned());
    }

    fn saw(&mut self, task: &Task) {
        let Some(lease) = &task.lease else { return };
        let tokens = self.tokens.entry(task.id).or_default();
        if tokens.last() != Some(&lease.token) {
            tokens.push(lease.token);
        }
    }
}

fn slot_id(slot: u8, generation: u128) -> TaskId {
    TaskId(Uuid::from_u128((u128::from(slot) + 1) << 64 | generation))
}

fn pick(given: Option<&Vec<Token>>, token: Tok) -> Token {
    let given = given.map_or(&[][..], Vec::as_slice);
    let picked = match token {
        Tok::Current => given.last(),
        Tok::Stale => given.iter().rev().nth(1),
        Tok::Wrong => None,
    };
    picked.copied().unwrap_or(NEVER)
}
