//! Claims: a function on the server starts the first ready tasks, for all claims of a namespace that wait at the same time.
//! Nothing is read before, so nothing is lost to other processes. It leaves to plans what is more than a plain start: what is
//! due is handled before, and where a queue is paused or a task has an exclusive key, the whole claim is planned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use redis::{Cmd, Value};
use statehold_core::call::{Claim, Claimed};
use statehold_core::model::{Task, TaskId};
use statehold_core::plan::{Effects, Ready, Starter, start_topics};
use statehold_core::row::{Change, PollerKey, QueueRow, TaskRow};
use statehold_core::wake::Mark;
use statehold_core::{Error, Result, Timestamp};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::connection::Connection;
use crate::error::{Trouble, odd, unknown};
use crate::lanes::{Flights, Seats};
use crate::memory::Memory;
use crate::rows::{Table as _, Version, read, tail};
use crate::snapshot::read_id;
use crate::space::{Bytes, Space};
use crate::strokes::{self, Stroke, insist};
use crate::writer::{Desk, OUTAGE, pause};

/// How many calls of a namespace are on their way at most.
const FLIGHTS: usize = 3;
/// How many tasks a call starts at most, unless one claim asks for more.
const MOST: usize = 256;
/// How many claims go together at least, if that many wait: a call costs something by itself.
const LEAST: usize = 8;

/// A claim that waits.
pub(crate) struct Waiting {
    pub(crate) claim: Arc<Claim>,
    /// What was done just now about what is due.
    pub(crate) ready: Option<Ready>,
    pub(crate) reply: oneshot::Sender<Result<Said>>,
}

/// What the function said of a claim.
pub(crate) enum Said {
    /// It got this, or there was nothing.
    Claimed(Claimed),
    /// Something in its queues is due.
    Due,
    /// It is to be planned.
    Plan,
}

/// The claims of one namespace at work.
pub(crate) struct Lane {
    desk: Arc<Desk>,
    namespace: String,
    space: Space,
    memory: Arc<Mutex<Memory>>,
    db: Connection,
    /// How many claims are on their way.
    aloft: AtomicUsize,
}

/// Whether it is remembered that an owner asked these queues for work a moment ago.
pub(crate) fn is_noted(memory: &Memory, claim: &Claim, now: Timestamp) -> bool {
    claim.queues.iter().all(|queue| {
        let key = PollerKey { queue: queue.clone(), owner: claim.owner.clone() };
        memory.poller(&key).is_some_and(|row| row.is_recent(now))
    })
}

/// Moves a lane until nobody waits in it.
pub(crate) async fn run(lane: Lane, seats: Seats<Waiting>) {
    let mut flights = Flights::new();
    loop {
        let Some(mut jobs) = seats.take(flights.is_empty()) else { return };
        // Whoever has left takes nothing.
        jobs.retain(|job| !job.reply.is_closed());
        let idle = jobs.is_empty();
        // Claims that come again as soon as they are answered are spread over the calls, so that the server is never idle.
        let share = (jobs.len() + lane.aloft.load(Ordering::Relaxed)).div_ceil(FLIGHTS);
        for group in groups(jobs, share.max(LEAST)) {
            if flights.len() >= FLIGHTS {
                land(&mut flights).await;
            }
            let mut flight = Box::pin(lane.fly(group));
            // It is sent before the next one is put together.
            if (&mut flight).now_or_never().is_none() {
                flights.push(flight);
            }
        }
        if flights.len() >= FLIGHTS {
            land(&mut flights).await;
        } else if idle && !flights.is_empty() {
            tokio::select! {
                () = land(&mut flights) => {}
                () = seats.someone() => {}
            }
        }
    }
}

/// Waits for claims that are on their way.
async fn land(flights: &mut Flights<impl Future<Output = usize>>) {
    if flights.next().await.is_some_and(|many| many > 1) {
        // They may come again at once, and then they go together.
        yield_now().await;
    }
}

/// Claims that go together, so many at most, in the order in which they came.
fn groups(jobs: Vec<Waiting>, most: usize) -> Vec<Vec<Waiting>> {
    let mut groups: Vec<Vec<Waiting>> = Vec::new();
    let mut tasks = 0;
    for job in jobs {
        let limit = job.claim.limit as usize;
        match groups.last_mut() {
            Some(group) if tasks + limit <= MOST && group.len() < most => {
                tasks += limit;
                group.push(job);
            }
            _ => {
                tasks = limit;
                groups.push(vec![job]);
            }
        }
    }
    groups
}

impl Lane {
    pub(crate) fn new(desk: &Arc<Desk>, namespace: &str) -> Self {
        Self {
            space: Space::new(&desk.prefix, namespace),
            memory: desk.memory(namespace),
            db: desk.db.of_a_lane(),
            desk: Arc::clone(desk),
            namespace: namespace.to_owned(),
            aloft: AtomicUsize::new(0),
        }
    }

    /// Sends claims and answers them, however many they are.
    async fn fly(&self, group: Vec<Waiting>) -> usize {
        let many = group.len();
        self.aloft.fetch_add(many, Ordering::Relaxed);
        let said = self.ask(&group).await;
        self.aloft.fetch_sub(many, Ordering::Relaxed);
        match said {
            Ok(said) if said.len() == many => {
                for (job, said) in group.into_iter().zip(said) {
                    let _ = job.reply.send(Ok(said));
                }
            }
            Ok(_) => fail(group, &odd("as many answers").into_error()),
            Err(trouble) if trouble.is_lost() => fail(group, &unknown(trouble)),
            Err(trouble) => fail(group, &trouble.into_error()),
        }
        many
    }

    /// Sends claims, again as long as the server refuses for now, or was lost before it did them.
    async fn ask(&self, group: &[Waiting]) -> crate::error::Result<Vec<Said>> {
        let (began, mut tries) = (Instant::now(), 0);
        loop {
            match self.ask_once(group).await {
                Err(trouble) if trouble.is_passing() && began.elapsed() < OUTAGE => tries += 1,
                said => return said,
            }
            sleep(pause(tries, true)).await;
        }
    }

    async fn ask_once(&self, group: &[Waiting]) -> crate::error::Result<Vec<Said>> {
        let (desk, version) = (&self.desk, self.desk.strokes.version());
        let repeatable = group.iter().all(|job| job.claim.key.is_some());
        let stroke =
            (!repeatable).then(|| desk.strokes.stroke(&desk.db, &self.space, &self.namespace, version));
        let call = self.call(group, &version, stroke.as_ref())?;
        let said = self.db.call(&call).await;
        let Some(stroke) = stroke else { return self.read(said?, group, &version) };
        match said {
            Err(trouble) if trouble.is_lost() => {
                let left = stroke.learn(&self.db, &self.space, trouble).await?;
                self.look_up(group, &left.ok_or(Trouble::Undone)?).await
            }
            // The clock of this machine was set: what was sent was too late from the beginning.
            Ok(Value::Nil) => {
                stroke.end(false);
                desk.db.time().await?;
                Err(Trouble::Undone)
            }
            said => {
                let said = said.and_then(|said| self.read(said, group, &version));
                let got = |said: &Said| matches!(said, Said::Claimed(claimed) if !claimed.tasks.is_empty());
                stroke.end(said.as_ref().is_ok_and(|said| said.iter().any(got)));
                said
            }
        }
    }

    /// What claims got by a call whose answer was lost, as far as they still hold it. Those that got nothing ask again.
    async fn look_up(&self, group: &[Waiting], left: &[u8]) -> crate::error::Result<Vec<Said>> {
        let (at, ids) = left.split_first_chunk().ok_or_else(|| odd("what was claimed"))?;
        let at = Timestamp::from_micros(i64::from_be_bytes(*at));
        let ids = ids.chunks(16).filter_map(read_id);
        let names: Vec<_> = ids.map(|id| self.space.key(&tail::<TaskRow>(&id))).collect();
        let mut call = redis::cmd("MGET");
        call.arg(&names);
        let said = insist(&self.db, &call).await?;
        let rows: Vec<Option<Bytes>> = redis::from_redis_value(said).map_err(|_| odd("rows"))?;
        let rows = rows.iter().flatten().map(|stored| read::<TaskRow>(stored));
        let mut tasks: Vec<_> =
            rows.map(|row| row.map(|row| row.task)).collect::<crate::error::Result<_>>()?;
        // What it did is not remembered.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).forget_after(&BTreeSet::new());
        self.desk.wakes.hub.wake_all();
        Ok(group.iter().map(|job| share(&mut tasks, &job.claim, at)).collect())
    }

    fn call(
        &self,
        group: &[Waiting],
        version: &Version,
        stroke: Option<&Stroke>,
    ) -> crate::error::Result<Cmd> {
        let (desk, space, clock) = (&*self.desk, &self.space, &self.desk.clock);
        let mut call = desk.db.function("claim");
        strokes::begin(&mut call, space, stroke);
        call.arg(space.tag());
        let shift = clock.from_store(Timestamp::default()).as_micros();
        let [now, shift] = if clock.is_manual() {
            [shift.to_string(), String::new()]
        } else {
            [String::new(), shift.to_string()]
        };
        call.arg(now).arg(shift);
        let wake = desk.wakes.start_of_started(&self.namespace);
        call.arg(wake.channel).arg(wake.own).arg(wake.message).arg(version).arg(&desk.me);
        let mut numbers = BTreeMap::new();
        for queue in group.iter().flat_map(|job| &job.claim.queues) {
            let next = numbers.len() + 1;
            numbers.entry(queue).or_insert(next);
        }
        let mut queues: Vec<_> = numbers.iter().map(|(queue, number)| (number, queue)).collect();
        queues.sort_unstable();
        call.arg(queues.len());
        for (_, queue) in queues {
            let mut open = Bytes::new();
            QueueRow { queue: (*queue).clone(), paused: false }.write(&mut open)?;
            call.arg(queue.as_str()).arg(open);
        }
        call.arg(group.len());
        for job in group {
            claim_args(&mut call, job, &numbers)?;
        }
        Ok(call)
    }

    /// Reads what the function said, and takes in what it did.
    fn read(&self, said: Value, group: &[Waiting], version: &Version) -> crate::error::Result<Vec<Said>> {
        let (server, now, answers): (i64, i64, Vec<Vec<Bytes>>) =
            redis::from_redis_value(said).map_err(|_| odd("what was claimed"))?;
        self.desk.db.note_late_time(server);
        let (now, mut started) = (Timestamp::from_micros(now), Effects::default());
        let mut read_one = |(answer, job): (Vec<Bytes>, &Waiting)| {
            let (word, rest) = answer.split_first().ok_or_else(|| odd("what was claimed"))?;
            Ok(match word.as_slice() {
                b"got" => Said::Claimed(take(rest, &job.claim, now, &mut started)?),
                b"none" if job.ready.is_some_and(|ready| ready.more) => Said::Claimed(nothing(Some(now))),
                b"none" => Said::Claimed(nothing(next_at(rest))),
                b"due" => Said::Due,
                _ => Said::Plan,
            })
        };
        let said: crate::error::Result<Vec<_>> = answers.into_iter().zip(group).map(&mut read_one).collect();
        self.remember(&started, version);
        said
    }

    /// Remembers what was started, and wakes whoever waits for it.
    fn remember(&self, started: &Effects, version: &Version) {
        if started.is_empty() {
            return;
        }
        let ids = || started.tasks.iter().map(|change| change.key);
        let names: Vec<_> = ids().map(|id| self.space.key(&tail::<TaskRow>(&id))).collect();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.accept(started);
        memory.sent(names.iter().map(|name| (name, true)), *version);
        drop(memory);
        let hub = &self.desk.wakes.hub;
        if !hub.is_empty() {
            hub.wake(ids().flat_map(|id| marks(&self.namespace, id)));
        }
    }
}

/// The marks of the start of a task.
pub(crate) fn marks(namespace: &str, id: TaskId) -> [Mark; 3] {
    start_topics(id).map(|topic| Mark::of(namespace, &topic))
}

fn claim_args(call: &mut Cmd, job: &Waiting, numbers: &BTreeMap<&String, usize>) -> crate::error::Result<()> {
    let claim = &*job.claim;
    let owner = serde_json::to_string(&claim.owner)
        .map_err(|e| Error::corrupt(format!("an owner cannot be written: {e}")))?;
    let lease = claim.lease_seconds.map(|length| length.as_micros().to_string()).unwrap_or_default();
    let handled = job.ready.map(|ready| ready.at.as_micros().to_string()).unwrap_or_default();
    let mut queues: Vec<_> = claim.queues.iter().filter_map(|queue| numbers.get(queue)).collect();
    queues.sort_unstable();
    queues.dedup();
    call.arg(&claim.owner).arg(owner).arg(claim.limit).arg(lease);
    call.arg(claim.key.as_deref().unwrap_or_default()).arg(handled).arg(queues.len()).arg(queues);
    Ok(())
}

/// Takes in the tasks that a claim got: they are answered as they were before.
fn take(
    rows: &[Bytes],
    claim: &Claim,
    now: Timestamp,
    effects: &mut Effects,
) -> crate::error::Result<Claimed> {
    let Claim { owner, lease_seconds, key, .. } = claim;
    let starter = Starter { owner, lease_seconds: *lease_seconds, claim_key: key.as_deref() };
    let mut tasks = Vec::with_capacity(rows.len());
    for stored in rows {
        let mut row = read::<TaskRow>(stored)?;
        row.start(&starter, now);
        tasks.push(row.task.clone());
        effects.tasks.push(Change { key: row.task.id, before: None, after: Some(Arc::new(row)) });
    }
    Ok(Claimed { tasks, next_at: None })
}

/// What one of several claims got at a time. Among claims of one owner it does not matter who gets what.
fn share(tasks: &mut Vec<Task>, claim: &Claim, at: Timestamp) -> Said {
    let is_its = |task: &Task| {
        task.lease.as_ref().is_some_and(|lease| lease.owner == claim.owner && lease.started_at == at)
    };
    let mut left = claim.limit as usize;
    let (its, others) = std::mem::take(tasks).into_iter().partition::<Vec<_>, _>(|task| {
        let takes = left > 0 && is_its(task);
        left -= usize::from(takes);
        takes
    });
    *tasks = others;
    if its.is_empty() { Said::Due } else { Said::Claimed(Claimed { tasks: its, next_at: None }) }
}

fn nothing(next_at: Option<Timestamp>) -> Claimed {
    Claimed { tasks: Vec::new(), next_at }
}

/// When something happens by itself: the first of times as they stand in the index.
fn next_at(times: &[Bytes]) -> Option<Timestamp> {
    let times = times.iter().filter_map(|time| Some(i64::from_be_bytes(time.as_slice().try_into().ok()?)));
    times.map(|time| Timestamp::from_micros(time ^ i64::MIN)).min()
}

fn fail(group: Vec<Waiting>, error: &Error) {
    for job in group {
        let _ = job.reply.send(Err(error.clone()));
    }
}
