//! Streams: events appended, read, and followed.

use std::collections::VecDeque;

use futures_core::Stream;
use futures_util::stream;
use statehold_core::command::{Appended, NewEvent, StreamAppend, StreamPurge, StreamTrim, TrimTo};
use statehold_core::model::{Event, StreamInfo, StreamName};
use statehold_core::query::{
    CategoryCursor, CategoryFrom, CategoryRead, KeyList, Page, ReadFrom, StreamPage, StreamRead,
};
use statehold_core::wake::Topic;
use statehold_core::{Result, limits};

use crate::Statehold;
use crate::wait::Wait;

/// Streams of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Streams<'a> {
    pub(crate) hold: &'a Statehold,
}

/// Where a subscription begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From<C> {
    /// With everything that is there.
    Oldest,
    /// After a place: the number of an event of a stream, the cursor of a category.
    After(C),
    /// With what comes from now on.
    Now,
}

impl Streams<'_> {
    /// Appends events in order.
    pub async fn append(self, stream: &StreamName, events: Vec<NewEvent>) -> Result<Appended> {
        self.hold.run(StreamAppend { stream: stream.clone(), events, expect_seq: None }).await
    }

    /// A page of events.
    pub async fn read(self, stream: &StreamName, from: ReadFrom, limit: u32) -> Result<StreamPage> {
        let read = StreamRead { stream: stream.clone(), from, limit };
        self.hold.backend().stream_read(self.hold.namespace(), &read).await
    }

    /// The last events, oldest first.
    pub async fn last(self, stream: &StreamName, limit: u32) -> Result<Vec<Event>> {
        Ok(self.read(stream, ReadFrom::Last, limit).await?.events)
    }

    /// A page of streams by the prefix of their names.
    pub async fn list(self, list: &KeyList) -> Result<Page<StreamInfo>> {
        self.hold.backend().stream_list(self.hold.namespace(), list).await
    }

    /// Removes the oldest events, and answers the oldest cursor that can be read after.
    pub async fn trim(self, stream: &StreamName, to: TrimTo) -> Result<u64> {
        Ok(self.hold.run(StreamTrim { stream: stream.clone(), to }).await?.oldest)
    }

    /// Removes all events.
    pub async fn purge(self, stream: &StreamName) -> Result<u64> {
        Ok(self.hold.run(StreamPurge { stream: stream.clone() }).await?.oldest)
    }

    /// Follows a stream: what is there, then what comes, each event once and in order. Ends with an error only, such as
    /// `compacted` when what comes next was trimmed away.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use futures_util::StreamExt as _;
    /// use statehold::{From, NewEvent, Statehold};
    ///
    /// let hold = Statehold::open("memory:").await?;
    /// let run = "run/7".parse()?;
    /// hold.streams().append(&run, vec![NewEvent::new("begun")]).await?;
    ///
    /// let mut events = Box::pin(hold.streams().subscribe(&run, From::Oldest));
    /// assert_eq!(events.next().await.unwrap()?.kind, "begun");
    /// hold.streams().append(&run, vec![NewEvent::new("ended")]).await?;
    /// assert_eq!(events.next().await.unwrap()?.kind, "ended");
    /// # Ok::<(), statehold::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn subscribe(
        self,
        stream: &StreamName,
        from: From<u64>,
    ) -> impl Stream<Item = Result<Event>> + Send + use<> {
        let topic = Topic::Stream(stream.clone());
        follow(self.hold.clone(), topic, StreamPlace { stream: stream.clone(), from })
    }

    /// Follows all streams of a category, in the order of their positions.
    pub fn subscribe_category(
        self,
        category: &str,
        from: From<CategoryCursor>,
    ) -> impl Stream<Item = Result<Event>> + Send + use<> {
        let topic = Topic::Category(category.to_owned());
        follow(self.hold.clone(), topic, CategoryPlace { category: category.to_owned(), from })
    }
}

/// How many events a subscription reads at once.
const PAGE: u32 = 500;
const _: () = assert!(PAGE as usize <= limits::LIST);

/// Where a subscription is.
trait Follow: Send + 'static {
    /// Reads what comes next, and moves behind it.
    fn next_page(&mut self, hold: &Statehold) -> impl Future<Output = Result<Vec<Event>>> + Send;
}

struct StreamPlace {
    stream: StreamName,
    from: From<u64>,
}

impl Follow for StreamPlace {
    async fn next_page(&mut self, hold: &Statehold) -> Result<Vec<Event>> {
        let (from, limit) = match self.from {
            From::Oldest => (ReadFrom::Oldest, PAGE),
            From::After(seq) => (ReadFrom::After(seq), PAGE),
            From::Now => (ReadFrom::Last, 1),
        };
        let page = hold.streams().read(&self.stream, from, limit).await?;
        if self.from == From::Now {
            self.from = From::After(page.last_seq);
            return Ok(Vec::new());
        }
        self.from = From::After(page.events.last().map_or_else(
            || if let From::After(seq) = self.from { seq } else { page.oldest },
            |event| event.seq,
        ));
        Ok(page.events)
    }
}

struct CategoryPlace {
    category: String,
    from: From<CategoryCursor>,
}

impl Follow for CategoryPlace {
    async fn next_page(&mut self, hold: &Statehold) -> Result<Vec<Event>> {
        let from = match &self.from {
            From::Oldest => CategoryFrom::Oldest,
            From::After(cursor) => CategoryFrom::After(cursor.clone()),
            From::Now => CategoryFrom::Latest,
        };
        let read = CategoryRead { category: self.category.clone(), from, limit: PAGE };
        let page = hold.backend().category_read(hold.namespace(), &read).await?;
        self.from = From::After(page.cursor);
        Ok(page.events)
    }
}

/// A subscription on its way: registered before it first reads, so that nothing comes in between.
struct Following<F> {
    hold: Statehold,
    topic: Topic,
    place: F,
    wait: Option<Wait>,
    read: VecDeque<Event>,
    over: bool,
}

fn follow<F: Follow>(
    hold: Statehold,
    topic: Topic,
    place: F,
) -> impl Stream<Item = Result<Event>> + Send + use<F> {
    let begun = Following { hold, topic, place, wait: None, read: VecDeque::new(), over: false };
    stream::unfold(begun, |mut following| async {
        if following.over {
            return None;
        }
        let next = following.next().await;
        following.over = next.is_err();
        Some((next, following))
    })
}

impl<F: Follow> Following<F> {
    async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Ok(event);
            }
            let first = self.wait.is_none();
            if first {
                self.wait = Some(Wait::begin(&self.hold, std::slice::from_ref(&self.topic), None).await?);
            }
            self.read = self.place.next_page(&self.hold).await?.into();
            if let Some(wait) = self.wait.as_mut().filter(|_| self.read.is_empty()) {
                wait.sleep(None).await;
            }
        }
    }
}
