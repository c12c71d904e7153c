//! How one who writes learns what became of what was not answered: with what it sends goes a row with a number that is used
//! once. Whoever finds the row knows that all of it is committed; whoever puts a row there first sees to it that it never is.

use std::time::{Duration, SystemTime};

use std::sync::{Mutex, PoisonError};
use tokio::time::Instant;
use uuid::{NoContext, Timestamp as Moment, Uuid};

use crate::connection::{Call, sql};
use crate::error::Result;
use crate::job::Group;
use crate::rows::read_first;
use crate::values::{Cells, param};
use tokio_postgres::Row;

/// After so many strokes a pen takes another name, and those under the old one are removed together.
const MOST: i64 = 1024;

/// And after so long, so that whoever comes later can tell from a name alone that nobody writes under it any more.
const LONGEST: Duration = Duration::from_secs(86_400);

/// So old are names that nobody writes under. Clocks of machines may differ by the rest.
const ENDED: Duration = Duration::from_secs(3 * 86_400);

/// What is sent at once, by a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stroke {
    pub(crate) pen: Uuid,
    pub(crate) number: i64,
}

/// The numbers of a pen.
pub(crate) struct Strokes(Mutex<Name>);

struct Name {
    pen: Uuid,
    since: Instant,
    last: i64,
    /// What it was called before, while there may be rows under that name.
    old: Option<Uuid>,
    /// Whether those of others who have ended were removed.
    tidy: bool,
}

impl Default for Strokes {
    fn default() -> Self {
        let name = Name { pen: Uuid::now_v7(), since: Instant::now(), last: 0, old: None, tidy: false };
        Self(Mutex::new(name))
    }
}

impl Strokes {
    /// A number that was never used.
    pub(crate) fn next(&self) -> Stroke {
        let mut name = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if name.old.is_none() && (name.last >= MOST || name.since.elapsed() > LONGEST) {
            *name = Name {
                old: Some(name.pen),
                pen: Uuid::now_v7(),
                since: Instant::now(),
                last: 0,
                tidy: false,
            };
        }
        name.last += 1;
        Stroke { pen: name.pen, number: name.last }
    }

    /// The same, if one of these requests cannot be repeated by its caller.
    pub(crate) fn next_for(&self, group: &Group) -> Option<Stroke> {
        group.iter().any(|job| !job.is_repeatable()).then(|| self.next())
    }

    /// Removes rows that nobody will ask for, when it is time. Everything that was sent must have been answered.
    pub(crate) fn remains(&self) -> Vec<Call> {
        let mut name = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut calls = Vec::new();
        if let Some(old) = name.old.take() {
            calls.push(Call::new(sql!("strokes_delete"), vec![param(old)]));
        }
        if name.last > 0 && !std::mem::replace(&mut name.tidy, true) {
            calls.push(Call::new(sql!("strokes_forget"), vec![param(name_of(SystemTime::now() - ENDED))]));
        }
        calls
    }
}

/// The first name of a time.
fn name_of(time: SystemTime) -> Uuid {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let made = Uuid::new_v7(Moment::from_unix(NoContext, since.as_secs(), since.subsec_nanos()));
    let mut bytes = made.into_bytes();
    bytes[6..].fill(0);
    Uuid::from_bytes(bytes)
}

impl Stroke {
    /// Goes with what is written.
    pub(crate) fn call(self, ns: i64) -> Call {
        Call::new(sql!("stroke_insert"), vec![param(ns), param(self.pen), param(self.number)])
    }

    /// Asks what became of it.
    pub(crate) fn ask(self) -> Vec<Call> {
        let params = || vec![param(self.pen), param(self.number)];
        vec![Call::new(sql!("stroke_give_up"), params()), Call::new(sql!("stroke_get"), params())]
    }

    /// By which transaction it was committed; none if it was not, and never will be.
    pub(crate) fn fate(answers: &[Vec<Row>]) -> Result<Option<i64>> {
        let found = answers.last().map(Vec::as_slice).unwrap_or_default();
        Ok(read_first(found, Cells::get::<Option<i64>>)?.flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pen_takes_another_name_in_time_and_what_was_under_the_old_one_is_removed_once() {
        let strokes = Strokes::default();
        let first = strokes.next();
        assert_eq!(strokes.remains().len(), 1, "those of others, once");
        for number in 2..=MOST {
            assert_eq!(strokes.next(), Stroke { number, ..first });
        }
        assert!(strokes.remains().is_empty());
        let renamed = strokes.next();
        assert!(renamed.pen > first.pen && renamed.number == 1);
        assert_eq!((strokes.remains().len(), strokes.remains().len()), (2, 0));
    }

    #[test]
    fn names_tell_their_time() {
        assert!(name_of(SystemTime::now() - Duration::from_millis(5)) < Uuid::now_v7());
        assert!(name_of(SystemTime::now() + Duration::from_secs(1)) > Uuid::now_v7());
    }
}
