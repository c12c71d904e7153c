//! Time as the store sees it: instants, lengths of time, and a clock that tests can hold in their
//! hand. Nothing here decides what time means for a task or a lock; that is the plan's.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::fmt::temporal::DateTimePrinter;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An instant with microsecond precision, shown as RFC 3339 in UTC.
///
/// ```
/// use statehold_core::clock::{Seconds, Timestamp};
///
/// let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
/// assert_eq!((start + Seconds::from(90)).to_string(), "2026-01-01T00:01:30.000000Z");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The last instant that has a four-digit year; later ones are brought back to it.
    pub const MAX: Self = Self(253_402_207_200_000_000);

    /// The instant `micros` microseconds after 1970-01-01T00:00:00Z.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970-01-01T00:00:00Z.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time from `earlier` to this instant, zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Seconds {
        Seconds::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Seconds> for Timestamp {
    type Output = Self;

    fn add(self, length: Seconds) -> Self {
        let micros = i64::try_from(length.0).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros)).min(Self::MAX)
    }
}

impl Sub<Seconds> for Timestamp {
    type Output = Self;

    fn sub(self, length: Seconds) -> Self {
        Self(self.0.saturating_sub(i64::try_from(length.0).unwrap_or(i64::MAX)))
    }
}

/// Writes microseconds whether there are any or not.
const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => write!(f, "{at:.6}"),
            Err(_) => write!(f, "{}µs", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at: jiff::Timestamp = text
            .parse()
            .map_err(|_| format!("`{text}` is not an RFC 3339 time such as 2026-01-31T08:00:00Z"))?;
        Ok(Self(at.as_microsecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Every task has several: they do not go through a formatter.
        let mut text = String::with_capacity("2026-01-31T08:00:00.000000Z".len());
        let at = jiff::Timestamp::from_microsecond(self.0);
        match at.and_then(|at| PRINTER.print_timestamp(&at, &mut text)) {
            Ok(()) => serializer.serialize_str(&text),
            Err(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A length of time, written as a number of seconds (`30`, `0.25`), kept to the microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seconds(u64);

impl Seconds {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest that a request may name: ten years.
    pub const MAX: Self = Self::new(10 * 366 * 86_400);

    /// A whole number of seconds.
    pub const fn new(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// A number of microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The length in microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }
}

impl From<u64> for Seconds {
    fn from(seconds: u64) -> Self {
        Self::new(seconds)
    }
}

impl From<Duration> for Seconds {
    fn from(length: Duration) -> Self {
        Self(u64::try_from(length.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Seconds> for Duration {
    fn from(length: Seconds) -> Self {
        Self::from_micros(length.0)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if rest == 0 {
            write!(f, "{whole}")
        } else {
            let digits = format!("{rest:06}");
            write!(f, "{whole}.{}", digits.trim_end_matches('0'))
        }
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1_000_000) {
            serializer.serialize_u64(self.0 / 1_000_000)
        } else {
            serializer.serialize_f64(Duration::from_micros(self.0).as_secs_f64())
        }
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds)
            .map(|length| Self::from((length + Duration::from_nanos(500)).min(Self::MAX.into())))
            .map_err(|_| de::Error::custom(format!("{seconds} is not a length of time in seconds")))
    }
}

/// Where a backend gets its time from.
///
/// In production it is the store's own clock. A test takes a [`Clock::manual`], which stands still
/// until it is told to move, or shifts the real one with [`Clock::advance`].
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// A manual clock: `shift` is the time itself.
    manual: AtomicBool,
    /// Microseconds added to the real time.
    shift: AtomicI64,
}

impl Clock {
    /// The real time.
    pub fn real() -> Self {
        Self::default()
    }

    /// A clock that stands at `start` until [`advance`](Self::advance) or [`rewind`](Self::rewind).
    pub fn manual(start: Timestamp) -> Self {
        Self(Arc::new(Inner { manual: AtomicBool::new(true), shift: AtomicI64::new(start.0) }))
    }

    /// The time now, from this machine's clock unless the clock is manual.
    pub fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.from_store(Timestamp(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The time to decide by when the store's own clock says `stored`: shifted, or replaced by a
    /// manual clock's.
    pub fn from_store(&self, stored: Timestamp) -> Timestamp {
        let shift = self.0.shift.load(Ordering::SeqCst);
        if self.is_manual() { Timestamp(shift) } else { Timestamp(stored.0.saturating_add(shift)) }
    }

    /// Whether the time stands still between calls.
    pub fn is_manual(&self) -> bool {
        self.0.manual.load(Ordering::SeqCst)
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: impl Into<Seconds>) {
        self.step(i64::try_from(by.into().0).unwrap_or(i64::MAX));
    }

    /// Moves the clock back, as a corrected machine clock does.
    pub fn rewind(&self, by: impl Into<Seconds>) {
        self.step(-i64::try_from(by.into().0).unwrap_or(i64::MAX));
    }

    fn step(&self, micros: i64) {
        self.0.shift.fetch_add(micros, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = Clock::manual(Timestamp::from_micros(1_000_000));
        assert_eq!(clock.now(), clock.now());
        clock.advance(2);
        assert_eq!(clock.now(), Timestamp::from_micros(3_000_000));
        clock.rewind(1);
        assert_eq!(clock.now(), Timestamp::from_micros(2_000_000));
    }

    #[test]
    fn the_last_instant_can_be_written_and_read_back() {
        let text = Timestamp::MAX.to_string();
        assert_eq!(text.parse(), Ok(Timestamp::MAX), "{text}");
    }

    #[test]
    fn seconds_keep_fractions_and_refuse_nonsense() {
        let read = |text: &str| serde_json::from_str::<Seconds>(text);
        assert_eq!(read("0.25").ok(), Some(Seconds::from_micros(250_000)));
        assert_eq!(read("30").ok(), Some(Seconds::new(30)));
        assert!(read("-1").is_err());
        assert_eq!(serde_json::to_string(&Seconds::from_micros(250_000)).ok().as_deref(), Some("0.25"));
    }
}
