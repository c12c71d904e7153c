//! Consumer groups: events handed out, each to one consumer at a time, until it is acknowledged.

use std::time::Duration;

use statehold_core::call::{Deliveries, GroupRead};
use statehold_core::command::{DeliveryRef, GroupAck, GroupNack, GroupSeek, SeekTo};
use statehold_core::model::{Delivered, GroupInfo, Source};
use statehold_core::wake::Topic;
use statehold_core::{Result, Seconds};

use crate::hold::Tries;
use crate::wait::Wait;
use crate::{Statehold, taken};

/// Consumer groups of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Groups<'a> {
    pub(crate) hold: &'a Statehold,
}

impl Groups<'_> {
    /// Reads events for a consumer: what nobody has read yet, and what was read and not acknowledged in time. Waits at
    /// most for `most`, not at all if that is nothing.
    ///
    /// If the future is dropped, what it read is given to others at once.
    pub async fn read(self, read: GroupRead, most: Option<Duration>) -> Result<Vec<Delivered>> {
        let source = match &read.source {
            Source::Stream(stream) => Topic::Stream(stream.clone()),
            Source::Category(category) => Topic::Category(category.clone()),
        };
        let topics = [source, Topic::Group(read.group.clone())];
        let mut wait = Wait::begin(self.hold, &topics, Some(most.unwrap_or_default())).await?;
        loop {
            let Deliveries { events, next_at } = self.read_now(read.clone()).await?;
            if !events.is_empty() || !wait.sleep(next_at).await {
                return Ok(events);
            }
        }
    }

    /// Reads once. An empty answer says when the visibility of a delivery runs out.
    ///
    /// If the future is dropped, what it read is given to others at once.
    pub async fn read_now(self, mut read: GroupRead) -> Result<Deliveries> {
        let hold = self.hold.clone();
        read.namespace = hold.namespace().to_owned();
        if read.key.is_none() && hold.backend().can_lose_answers() {
            read.key = Some(format!("retry/{}", statehold_core::model::TaskId::generate()));
        }
        let (reading, group, source) = (hold.clone(), read.group.clone(), read.source.clone());
        let give_back = async move |abandoned: Deliveries| {
            let deliveries: Vec<_> = abandoned.events.iter().map(DeliveryRef::from).collect();
            if !deliveries.is_empty() {
                // If that fails, they are given again when their time is over.
                let _ = hold.groups().nack(&group, &source, deliveries, None).await;
            }
        };
        taken::take(async move { read_surely(&reading, read).await }, give_back).await
    }

    /// Says that events are dealt with.
    pub async fn ack(self, group: &str, source: &Source, deliveries: Vec<DeliveryRef>) -> Result<()> {
        let ack = GroupAck { group: group.to_owned(), source: source.clone(), deliveries };
        self.hold.run(ack).await.map(drop)
    }

    /// Gives events back, to be read again after a while.
    pub async fn nack(
        self,
        group: &str,
        source: &Source,
        deliveries: Vec<DeliveryRef>,
        delay: Option<Seconds>,
    ) -> Result<()> {
        let (group, source) = (group.to_owned(), source.clone());
        self.hold.run(GroupNack { group, source, deliveries, delay_seconds: delay }).await.map(drop)
    }

    /// Says where the next read begins; what was read before is forgotten.
    pub async fn seek(self, group: &str, source: &Source, to: SeekTo) -> Result<()> {
        self.hold.run(GroupSeek { group: group.to_owned(), source: source.clone(), to }).await.map(drop)
    }

    /// Where a group is, and what it waits for.
    pub async fn info(self, group: &str, source: &Source) -> Result<GroupInfo> {
        self.hold.backend().group_info(self.hold.namespace(), group, source).await
    }
}

async fn read_surely(hold: &Statehold, read: GroupRead) -> Result<Deliveries> {
    let mut tries = Tries::of(read.key.is_some());
    loop {
        match hold.backend().group_read(read.clone()).await {
            Ok(deliveries) => return Ok(deliveries),
            Err(error) => tries.pause(error).await?,
        }
    }
}
