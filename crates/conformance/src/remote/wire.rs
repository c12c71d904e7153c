//! What goes through the pipe, a line of JSON each. Nothing here is flattened, untagged or internally tagged:
//! such types are buffered when they are read, and users' numbers would be lost.

use std::borrow::Borrow;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use statehold_core::call::Sweep;
use statehold_core::dump::Record;
use statehold_core::model::TaskId;
use statehold_core::{Error, Result};

/// A call, for the process that serves it.
#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) id: u64,
    /// Which of the stores that the process has open.
    pub(super) store: u64,
    /// What the caller's clock says, in microseconds.
    pub(super) now: i64,
    pub(super) call: String,
    pub(super) arguments: Box<RawValue>,
}

/// What a serving process has to tell.
#[derive(Serialize, Deserialize)]
pub(super) enum Message {
    /// The call with this id is answered.
    Answer(u64, Result<Box<RawValue>>),
    /// The call with this id has panicked.
    Panic(u64),
    /// The waiter with this number is woken.
    Wake(u64),
}

/// The text of a value that goes through the pipe.
pub(super) fn write(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("it can be written as JSON")
}

/// The value of a text that came through the pipe.
pub(super) fn read<T: DeserializeOwned>(text: &RawValue) -> T {
    serde_json::from_str(text.get()).expect("it is read as it was written")
}

/// How an argument goes through the pipe: as something owned, which is lent to the backend on the other side.
pub(super) trait Argument<'a> {
    type Owned: Serialize + DeserializeOwned;
    fn own(&self) -> Self::Owned;
    fn lend(owned: &'a Self::Owned) -> Self;
}

impl<'a, T: ToOwned<Owned: Serialize + DeserializeOwned> + ?Sized> Argument<'a> for &'a T {
    type Owned = T::Owned;

    fn own(&self) -> T::Owned {
        (*self).to_owned()
    }

    fn lend(owned: &'a T::Owned) -> Self {
        owned.borrow()
    }
}

impl<'a> Argument<'a> for Option<&'a str> {
    type Owned = Option<String>;

    fn own(&self) -> Option<String> {
        self.map(str::to_owned)
    }

    fn lend(owned: &'a Option<String>) -> Self {
        owned.as_deref()
    }
}

macro_rules! by_value {
    ($($type:ty),*) => {
        $(impl Argument<'_> for $type {
            type Owned = Self;

            fn own(&self) -> Self {
                self.clone()
            }

            fn lend(owned: &Self) -> Self {
                owned.clone()
            }
        })*
    };
}

by_value!(TaskId, Sweep, bool);

/// The records of a dump, and how it broke off if it did.
#[derive(Serialize, Deserialize)]
pub(super) struct Dump(Vec<Record>, Option<Error>);

impl Dump {
    pub(super) async fn collect(mut records: BoxStream<'static, Result<Record>>) -> Self {
        let mut all = Vec::new();
        loop {
            match records.try_next().await {
                Ok(Some(record)) => all.push(record),
                Ok(None) => return Self(all, None),
                Err(error) => return Self(all, Some(error)),
            }
        }
    }

    pub(super) fn stream(self) -> BoxStream<'static, Result<Record>> {
        stream::iter(self.0.into_iter().map(Ok).chain(self.1.map(Err))).boxed()
    }
}
