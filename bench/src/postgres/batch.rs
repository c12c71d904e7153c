//! Many jobs as one statement a kind: alone it commits by itself, several go in one transaction, sent in one go.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures_util::future::try_join_all;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::db::{Db, Done, Json, Param, Sql};
use super::{Clock, REQUEST};
use crate::rival::{Answer, Job, Started, TaskName};

/// Does all jobs or none, and answers each.
pub(super) async fn perform(db: &Db, jobs: &[Job]) -> Done<Vec<Answer>> {
    let calls = calls(&parts(jobs), Clock::now());
    let found = match &calls[..] {
        [] => Vec::new(),
        [call] => vec![call.run(db).await?],
        calls => together(db, calls).await?,
    };
    let mut answers = vec![Answer::Done; jobs.len()];
    for (call, found) in calls.into_iter().zip(found) {
        for (job, answer) in call.answers(&found) {
            // Of a job with parts only a refusal is told.
            if matches!(answer, Answer::Refused) || !matches!(jobs[job], Job::Together(_)) {
                answers[job] = answer;
            }
        }
    }
    Ok(answers)
}

/// Sends a transaction in one go; so few statements are polled, and so sent, in their order.
async fn together(db: &Db, calls: &[Call<'_>]) -> Done<Vec<Found>> {
    type Sent<'a> = Pin<Box<dyn Future<Output = Done<Found>> + Send + 'a>>;
    let plain = |sql| -> Sent<'_> { Box::pin(async move { db.execute(sql, &[]).await.map(Found::Touched) }) };
    let calls = calls.iter().map(|call| -> Sent<'_> { Box::pin(call.run(db)) });
    let sent = [plain(Sql::Begin)].into_iter().chain(calls).chain([plain(Sql::Commit)]);
    let mut found = try_join_all(sent).await?;
    found.pop();
    found.remove(0);
    Ok(found)
}

/// A job, or a part of one, with the number of the job.
type Part<'a> = (usize, &'a Job);

fn parts(jobs: &[Job]) -> Vec<Part<'_>> {
    let mut parts = Vec::with_capacity(jobs.len());
    for (number, job) in jobs.iter().enumerate() {
        match job {
            Job::Together(jobs) => parts.extend(jobs.iter().map(|job| (number, job))),
            job => parts.push((number, job)),
        }
    }
    parts
}

/// The statements in the order in which every transaction sends them, so that none waits for another in a circle.
fn calls<'a>(parts: &[Part<'a>], now: Clock) -> Vec<Call<'a>> {
    let mut calls = Vec::new();
    calls.extend(creates(parts));
    calls.extend(claims(parts, now));
    calls.extend(completes(parts));
    calls.extend(appends(parts));
    calls.extend(entries(parts, now));
    calls.extend(acquires(parts, now));
    calls.extend(releases(parts));
    calls.extend(puts(parts));
    calls.extend(updates(parts));
    calls
}

/// A statement for all jobs of a kind.
struct Call<'a> {
    sql: Sql,
    params: Params<'a>,
    answers: Answers,
}

type Params<'a> = Vec<Box<dyn ToSql + Sync + Send + 'a>>;

/// How the jobs are answered.
enum Answers {
    /// So, if this many rows were touched.
    Touched(usize, Vec<(usize, Answer)>),
    /// With tasks, by their places, and this token.
    Tasks(Vec<usize>, i64),
    /// With a number in a stream: so far before the last one of the stream at this place.
    Numbers(Vec<(usize, i32, i64)>),
}

/// What a statement found.
enum Found {
    Rows(Vec<Row>),
    Touched(u64),
}

impl Call<'_> {
    async fn run(&self, db: &Db) -> Done<Found> {
        let params: Vec<_> = self.params.iter().map(|param| &**param as Param<'_>).collect();
        match self.answers {
            Answers::Touched(..) => db.execute(self.sql, &params).await.map(Found::Touched),
            Answers::Tasks(..) | Answers::Numbers(_) => db.query(self.sql, &params).await.map(Found::Rows),
        }
    }

    fn answers(self, found: &Found) -> Vec<(usize, Answer)> {
        match (self.answers, found) {
            (Answers::Touched(rows, answers), Found::Touched(touched)) if rows as u64 == *touched => answers,
            (Answers::Tasks(jobs, token), Found::Rows(rows)) => tasks(&jobs, token, rows),
            (Answers::Numbers(events), Found::Rows(rows)) => {
                let last: Vec<i64> = rows.first().map(|row| row.get(0)).unwrap_or_default();
                let last = |place| usize::try_from(place - 1).ok().and_then(|place| last.get(place));
                let number =
                    |place, back| last(place).map_or(Answer::Refused, |last| Answer::Number(last - back));
                events.into_iter().map(|(job, place, back)| (job, number(place, back))).collect()
            }
            // Whose row was not touched is not asked: nothing stands against any of these jobs.
            (Answers::Touched(_, answers), _) => {
                answers.into_iter().map(|(job, _)| (job, Answer::Refused)).collect()
            }
            (Answers::Tasks(..) | Answers::Numbers(_), Found::Touched(_)) => Vec::new(),
        }
    }
}

fn tasks(jobs: &[usize], token: i64, rows: &[Row]) -> Vec<(usize, Answer)> {
    let mut answers: Vec<_> = jobs.iter().map(|job| (*job, Answer::Refused)).collect();
    for row in rows {
        let place = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or_default();
        let input = row.get::<_, Option<Json<'_>>>(2).map(|input| input.0.to_owned());
        answers[place].1 = Answer::Task(Started { task: TaskName::of(row.get(1)), token, input });
    }
    answers
}

/// A statement that touches one row for each of the jobs that have one here; none if none has.
fn touching<'a, R>(
    sql: Sql,
    parts: &[Part<'a>],
    row: impl Fn(&'a Job) -> Option<(R, Answer)>,
    params: impl FnOnce(&[R]) -> Params<'a>,
) -> Option<Call<'a>> {
    let (mut rows, mut answers) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
    for (number, job) in parts {
        if let Some((row, answer)) = row(job) {
            rows.push(row);
            answers.push((*number, answer));
        }
    }
    let call = || Call { sql, params: params(&rows), answers: Answers::Touched(rows.len(), answers) };
    (!rows.is_empty()).then(call)
}

/// A column of rows, as a parameter.
fn column<'a, R, T: ToSql + Sync + Send + 'a>(
    rows: &[R],
    value: impl Fn(&R) -> T,
) -> Box<dyn ToSql + Sync + Send + 'a> {
    Box::new(rows.iter().map(value).collect::<Vec<T>>())
}

fn creates<'a>(parts: &[Part<'a>]) -> Option<Call<'a>> {
    let row = |job: &'a Job| match job {
        Job::TaskCreate { queue, task, input } => Some(((task.uuid(), &**queue, Json(input)), Answer::Done)),
        _ => None,
    };
    touching(Sql::TasksCreate, parts, row, |rows| {
        vec![column(rows, |r| r.0), column(rows, |r| r.1), column(rows, |r| r.2), Box::new(REQUEST)]
    })
}

/// One for each queue.
fn claims<'a>(parts: &[Part<'a>], now: Clock) -> Vec<Call<'a>> {
    let mut queues: BTreeMap<&str, Vec<(usize, &str)>> = BTreeMap::new();
    for (number, job) in parts {
        if let Job::TaskClaim { queue, owner } = job {
            queues.entry(queue).or_default().push((*number, owner));
        }
    }
    let call = |(queue, claims): (&'a str, Vec<(usize, &'a str)>)| Call {
        sql: Sql::TasksClaim,
        params: vec![
            Box::new(queue),
            column(&claims, |claim| claim.1),
            Box::new(now.micros()),
            Box::new(now.last_minute()),
        ],
        answers: Answers::Tasks(claims.iter().map(|claim| claim.0).collect(), now.micros()),
    };
    queues.into_iter().map(call).collect()
}

fn completes<'a>(parts: &[Part<'a>]) -> Option<Call<'a>> {
    let row = |job: &'a Job| match job {
        Job::TaskComplete(end) => Some(((end.task.uuid(), end.token, Json(&end.output)), Answer::Done)),
        _ => None,
    };
    touching(Sql::TasksComplete, parts, row, |rows| {
        vec![column(rows, |r| r.0), column(rows, |r| r.1), column(rows, |r| r.2)]
    })
}

/// Each stream once, in order, however many events it gets.
fn appends<'a>(parts: &[Part<'a>]) -> Option<Call<'a>> {
    let mut streams: BTreeMap<&str, Vec<(usize, Json<'_>)>> = BTreeMap::new();
    for (number, job) in parts {
        if let Job::StreamAppend { stream, data } = job {
            streams.entry(stream).or_default().push((*number, Json(data)));
        }
    }
    let (mut heads, mut events, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    for ((stream, appends), place) in streams.into_iter().zip(1_i32..) {
        let mut back = i64::try_from(appends.len()).unwrap_or(i64::MAX);
        heads.push((stream, back));
        for (number, data) in appends {
            back -= 1;
            events.push((place, back, data));
            numbers.push((number, place, back));
        }
    }
    let call = || Call {
        sql: Sql::StreamsAppend,
        params: vec![
            column(&heads, |head| head.0),
            column(&heads, |head| head.1),
            column(&events, |event| event.0),
            column(&events, |event| event.1),
            column(&events, |event| event.2),
        ],
        answers: Answers::Numbers(numbers),
    };
    (!heads.is_empty()).then(call)
}

/// Each key once, in order: the last of its values stays.
fn entries<'a>(parts: &[Part<'a>], now: Clock) -> Option<Call<'a>> {
    let (mut keys, mut answers) = (BTreeMap::new(), Vec::new());
    for (number, job) in parts {
        if let Job::EntrySet { key, value } = job {
            keys.insert(&**key, Json(value));
            answers.push((*number, Answer::Done));
        }
    }
    let keys: Vec<_> = keys.into_iter().collect();
    let call = || Call {
        sql: Sql::EntriesSet,
        params: vec![
            column(&keys, |entry| entry.0),
            column(&keys, |entry| entry.1),
            Box::new(now.last_minute()),
        ],
        answers: Answers::Touched(keys.len(), answers),
    };
    (!keys.is_empty()).then(call)
}

fn acquires<'a>(parts: &[Part<'a>], now: Clock) -> Option<Call<'a>> {
    let row = |job: &'a Job| match job {
        Job::LockAcquire { key, owner } => Some(((&**key, &**owner), Answer::Number(now.micros()))),
        _ => None,
    };
    touching(Sql::LocksAcquire, parts, row, |rows| {
        let (token, hour) = (Box::new(now.micros()), Box::new(now.last_minute() / 60));
        vec![column(rows, |r| r.0), column(rows, |r| r.1), token, hour]
    })
}

fn releases<'a>(parts: &[Part<'a>]) -> Option<Call<'a>> {
    let row = |job: &'a Job| match job {
        Job::LockRelease { key, token } => Some(((&**key, *token), Answer::Done)),
        _ => None,
    };
    touching(Sql::LocksRelease, parts, row, |rows| vec![column(rows, |r| r.0), column(rows, |r| r.1)])
}

fn puts<'a>(parts: &[Part<'a>]) -> Option<Call<'a>> {
    let row = |job: &'a Job| match job {
        Job::DocumentPut { kind, name, body } => Some(((*kind, &**name, Json(body)), Answer::Done)),
        _ => None,
    };
    touching(Sql::DocumentsPut, parts, row, |rows| {
        vec![column(rows, |r| r.0), column(rows, |r| r.1), column(rows, |r| r.2)]
    })
}

fn updates<'a>(parts: &[Part<'a>]) -> Option<Call<'a>> {
    let row = |job: &'a Job| match job {
        Job::DocumentUpdate { name, revision, body } => {
            Some(((&**name, *revision, Json(body)), Answer::Number(revision + 1)))
        }
        _ => None,
    };
    touching(Sql::DocumentsUpdate, parts, row, |rows| {
        vec![column(rows, |r| r.0), column(rows, |r| r.1), column(rows, |r| r.2)]
    })
}
