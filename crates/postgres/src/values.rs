//! Values on their way to PostgreSQL and back: times to the microsecond, user JSON as it came, ids, counts.

use std::error::Error as StdError;

use bytes::{BufMut as _, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use statehold_core::model::{StreamName, TaskId};
use statehold_core::row::RequestHash;
use statehold_core::{Error, Json, Seconds, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};
use uuid::Uuid;

use crate::error::Result;

type Problem = Box<dyn StdError + Sync + Send>;

/// A parameter of a statement.
pub(crate) enum Param {
    Value(Box<dyn ToSql + Sync + Send>),
    /// A column of rows, and whether all of them have the same value.
    Column(Box<dyn Column>, bool),
}

/// The values of a column.
pub(crate) trait Column: Sync + Send {
    /// As an array.
    fn all(&self) -> &(dyn ToSql + Sync);
    /// The value of the first row.
    fn first(&self) -> Option<&(dyn ToSql + Sync)>;
    /// Of how many rows.
    fn len(&self) -> usize;
}

impl<T: ToSql + Sync + Send> Column for Vec<T> {
    fn all(&self) -> &(dyn ToSql + Sync) {
        self
    }

    fn first(&self) -> Option<&(dyn ToSql + Sync)> {
        self.as_slice().first().map(|value| value as &(dyn ToSql + Sync))
    }

    fn len(&self) -> usize {
        self.as_slice().len()
    }
}

impl Param {
    /// What is sent: for a column an array.
    pub(crate) fn value(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Value(value) => &**value,
            Self::Column(column, _) => column.all(),
        }
    }

    /// What is sent if one value is enough.
    pub(crate) fn one(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Value(value) => &**value,
            Self::Column(column, _) => column.first().unwrap_or_else(|| column.all()),
        }
    }
}

/// A parameter.
pub(crate) fn param<T: ToSql + Sync + Send + 'static>(value: T) -> Param {
    Param::Value(Box::new(value))
}

/// A column of rows, as a parameter.
pub(crate) fn column<R, T>(rows: &[R], value: impl Fn(&R) -> T) -> Param
where
    T: ToSql + PartialEq + Sync + Send + 'static,
{
    let values: Vec<T> = rows.iter().map(value).collect();
    let same = values.windows(2).all(|two| two[0] == two[1]);
    Param::Column(Box::new(values), same)
}

/// An instant as `timestamptz`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct At(pub(crate) Timestamp);

/// PostgreSQL counts from 2000-01-01.
const MILLENNIUM: i64 = 946_684_800_000_000;
/// The first and the last instant that it knows; beyond are the infinities.
const FIRST: i64 = -211_813_488_000_000_000;
const LAST: i64 = 9_223_371_331_199_999_999;

impl ToSql for At {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Problem> {
        let micros = match self.0.as_micros().saturating_sub(MILLENNIUM) {
            micros if micros < FIRST => i64::MIN,
            micros if micros > LAST => i64::MAX,
            micros => micros,
        };
        out.put_i64(micros);
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for At {
    fn from_sql(_: &Type, raw: &'a [u8]) -> std::result::Result<Self, Problem> {
        let micros = i64::from_be_bytes(raw.try_into()?);
        Ok(Self(Timestamp::from_micros(micros.saturating_add(MILLENNIUM))))
    }

    accepts!(TIMESTAMPTZ);
}

/// An instant that may be missing.
pub(crate) fn at(time: Option<Timestamp>) -> Option<At> {
    time.map(At)
}

/// A JSON text as `json` or `jsonb`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text(pub(crate) String);

impl ToSql for Text {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Problem> {
        if *ty == Type::JSONB {
            out.put_u8(1);
        }
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    accepts!(JSON, JSONB);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Text {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> std::result::Result<Self, Problem> {
        let raw = if *ty == Type::JSONB { raw.get(1..).unwrap_or_default() } else { raw };
        Ok(Self(std::str::from_utf8(raw)?.to_owned()))
    }

    accepts!(JSON, JSONB);
}

/// A user's JSON.
pub(crate) fn json(json: Option<&Json>) -> Option<Text> {
    json.map(|json| Text(json.as_str().to_owned()))
}

/// A value of ours as JSON.
pub(crate) fn value<T: Serialize>(value: &T) -> Text {
    Text(serde_json::to_string(value).unwrap_or_default())
}

/// A count, as far as the store can count.
pub(crate) fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A limit.
pub(crate) fn limit(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn length(length: Option<Seconds>) -> Option<i64> {
    length.map(|length| count(length.as_micros()))
}

pub(crate) fn id(id: Option<TaskId>) -> Option<Uuid> {
    id.map(|id| id.0)
}

/// Ids as the text of an array, since arrays of arrays cannot be told apart by a statement.
pub(crate) fn ids(ids: &[TaskId]) -> String {
    let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
    format!("{{{}}}", ids.join(","))
}

/// The columns of a row, read from left to right.
pub(crate) struct Cells<'r> {
    row: &'r Row,
    next: usize,
}

impl<'r> Cells<'r> {
    pub(crate) fn new(row: &'r Row) -> Self {
        Self { row, next: 0 }
    }

    pub(crate) fn get<T: FromSql<'r>>(&mut self) -> Result<T> {
        let cell = self.row.try_get(self.next);
        self.next += 1;
        cell.map_err(|problem| Error::corrupt(format!("a row cannot be read: {problem}")).into())
    }

    fn wrong(&self, problem: impl std::fmt::Display) -> crate::error::Trouble {
        let name = self.row.columns().get(self.next - 1).map_or("", |column| column.name());
        Error::corrupt(format!("column {name} of a row cannot be read: {problem}")).into()
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        self.get()
    }

    pub(crate) fn maybe_text(&mut self) -> Result<Option<String>> {
        self.get()
    }

    /// A count.
    pub(crate) fn number<T: TryFrom<i64>>(&mut self) -> Result<T> {
        let number: i64 = self.get()?;
        T::try_from(number).map_err(|_| self.wrong("the number is out of range"))
    }

    pub(crate) fn maybe_number<T: TryFrom<i64>>(&mut self) -> Result<Option<T>> {
        let number: Option<i64> = self.get()?;
        number.map(T::try_from).transpose().map_err(|_| self.wrong("the number is out of range"))
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp> {
        Ok(self.get::<At>()?.0)
    }

    pub(crate) fn maybe_time(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.get::<Option<At>>()?.map(|at| at.0))
    }

    pub(crate) fn maybe_length(&mut self) -> Result<Option<Seconds>> {
        Ok(self.maybe_number()?.map(Seconds::from_micros))
    }

    pub(crate) fn id(&mut self) -> Result<TaskId> {
        self.get().map(TaskId)
    }

    pub(crate) fn maybe_id(&mut self) -> Result<Option<TaskId>> {
        Ok(self.get::<Option<Uuid>>()?.map(TaskId))
    }

    pub(crate) fn ids(&mut self) -> Result<Vec<TaskId>> {
        Ok(self.get::<Vec<Uuid>>()?.into_iter().map(TaskId).collect())
    }

    /// A text that a type is read from.
    pub(crate) fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(&mut self) -> Result<T> {
        let text: &str = self.get()?;
        text.parse().map_err(|problem| self.wrong(problem))
    }

    pub(crate) fn stream(&mut self) -> Result<StreamName> {
        Ok(StreamName::stored(self.get()?))
    }

    pub(crate) fn json(&mut self) -> Result<Json> {
        Ok(Json::stored(&self.get::<Text>()?.0))
    }

    pub(crate) fn maybe_json(&mut self) -> Result<Option<Json>> {
        Ok(self.get::<Option<Text>>()?.map(|text| Json::stored(&text.0)))
    }

    /// A value of ours that is kept as JSON.
    pub(crate) fn value<T: DeserializeOwned>(&mut self) -> Result<T> {
        let text = self.get::<Text>()?;
        serde_json::from_str(&text.0).map_err(|problem| self.wrong(problem))
    }

    pub(crate) fn maybe_value<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let text = self.get::<Option<Text>>()?;
        let value = text.map(|text| serde_json::from_str(&text.0)).transpose();
        value.map_err(|problem| self.wrong(problem))
    }

    pub(crate) fn request(&mut self) -> Result<RequestHash> {
        let bytes: &[u8] = self.get()?;
        bytes.try_into().map(RequestHash::from_bytes).map_err(|_| self.wrong("it is not a hash"))
    }
}
