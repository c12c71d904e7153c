//! Questions as they are generated.

use statehold_core::Status;
use statehold_core::query::TaskOrder;

use super::ops::{Src, Str, Which};

/// One question.
#[derive(Clone, Debug)]
pub(crate) enum Query {
    Tasks(Vec<Which>),
    List(ListOp),
    /// The next page of the last list of tasks that had one.
    NextPage,
    Count(Option<u8>),
    Stream {
        stream: Str,
        from: From,
        limit: u32,
    },
    Category {
        category: u8,
        from: Place,
        limit: u32,
    },
    Streams {
        tasks: bool,
        limit: u32,
    },
    Group {
        group: u8,
        source: Src,
    },
    Document(u8),
    Documents {
        kind: u8,
        prefix: bool,
        label: bool,
        descending: bool,
        limit: u32,
    },
    Entry(u8),
    Entries {
        limit: u32,
    },
    Lock(u8),
    Locks {
        limit: u32,
    },
    Queues,
}

/// Where to read a stream; numbers are counted from the head.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    Oldest,
    After(u64),
    Before(u64),
    Last,
}

/// Where to read a category.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Oldest,
    /// After the nth event that was ever there.
    After(u8),
    /// After the nth last page that was given.
    Page(u8),
    Latest,
}

/// Which tasks, in which order.
#[derive(Clone, Debug)]
pub(crate) struct ListOp {
    pub(crate) filter: Filter,
    pub(crate) order: TaskOrder,
    pub(crate) descending: bool,
    pub(crate) limit: u32,
    /// Follows the cursor to the end; otherwise [`Query::NextPage`] may go on later.
    pub(crate) whole: bool,
}

/// What a list lets through.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Filter {
    All,
    Status(Status),
    Queue(u8),
    Kind(u8),
    Thread,
    Parent(Which),
    Root(Which),
    Owner(u8),
    Label(u8),
    Idempotency(u8),
    Exclusive(u8),
    /// Created in the last seconds, or before.
    Created {
        seconds: u64,
        before: bool,
    },
    /// Heard of in the last seconds, or before.
    Heartbeat {
        seconds: u64,
        before: bool,
    },
}
