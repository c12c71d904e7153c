//! The calls of a backend, listed once, and what is made of them on both sides of the pipe. What a call's types
//! do not write is written beside them, in [`Remote`] and [`Store`], where the methods of those names are.

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde_json::value::RawValue;
use statehold_core::Backend;
use statehold_core::batch::{Prepared, Replies};
use statehold_core::call::{Claim, Claimed, Deliveries, GroupRead, Sweep, Swept};
use statehold_core::dump::Record;
use statehold_core::error::Result;
use statehold_core::model::Document;
use statehold_core::query::{DocumentList, Page};
use statehold_core::session::Session;
use statehold_core::wake::{Topic, Waiter};

use super::Several;
use super::process::Remote;
use super::serve::Store;
use super::wire::{Argument, read, write};

macro_rules! calls {
    ({ $($asking:tt)* } plain { $($plain:tt)* } special { $($special:tt)* }) => {
        calls! { plain { $($asking)* $($plain)* } special { $($special)* } }
    };
    (
        plain { $($plain:ident($($argument:ident: $type:ty),*) -> $answer:ty;)* }
        special { $($special:ident($($other:ident: $other_type:ty),*) -> $other_answer:ty;)* }
    ) => {
        #[async_trait]
        impl<B: Backend> Backend for Several<B> {
            $(async fn $plain(&self, $($argument: $type),*) -> Result<$answer> {
                self.next().$plain($($argument),*).await
            })*

            $(async fn $special(&self, $($other: $other_type),*) -> Result<$other_answer> {
                self.next().$special($($other),*).await
            })*

            // What is asked for next goes to another process, which knows nothing of it.
            async fn session(&self) -> Result<Session> {
                Err(Session::none("a store that is several processes"))
            }

            fn can_lose_answers(&self) -> bool {
                self.next().can_lose_answers()
            }
        }

        #[async_trait]
        impl Backend for Remote {
            $(async fn $plain(&self, $($argument: $type),*) -> Result<$answer> {
                self.ask(stringify!($plain), ($($argument.own(),)*)).await
            })*

            $(async fn $special(&self, $($other: $other_type),*) -> Result<$other_answer> {
                Remote::$special(self, $($other),*).await
            })*

            async fn session(&self) -> Result<Session> {
                Err(Session::none("another process"))
            }

            // Those of a process that dies are lost with it.
            fn can_lose_answers(&self) -> bool {
                true
            }
        }

        impl Store {
            /// Does what another process asks.
            pub(super) async fn answer(&self, call: &str, arguments: &RawValue) -> Result<Box<RawValue>> {
                match call {
                    $(stringify!($plain) => {
                        let owned: ($(<$type as Argument<'_>>::Owned,)*) = read(arguments);
                        let ($($argument,)*) = &owned;
                        let answer = self.backend.$plain($(Argument::lend($argument)),*).await?;
                        Ok(write(&answer))
                    })*
                    $(stringify!($special) => Ok(write(&self.$special(read(arguments)).await?)),)*
                    _ => panic!("there is no call `{call}`"),
                }
            }
        }
    };
}

statehold_core::asking! {
    calls
    plain {
        sweep(sweep: Sweep) -> Swept;
    }
    special {
        apply(batch: Prepared) -> Replies;
        claim(claim: Claim) -> Claimed;
        group_read(read: GroupRead) -> Deliveries;
        document_list(namespace: &str, list: &DocumentList) -> Page<Document>;
        register(namespace: &str, topics: &[Topic]) -> Waiter;
        dump(namespace: &str) -> BoxStream<'static, Result<Record>>;
        load(namespace: &str, records: BoxStream<'static, Result<Record>>) -> u64;
    }
}
