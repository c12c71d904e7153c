//! Consumer groups: events handed out, each to one consumer at a time.

use axum::http::{Method, StatusCode};
use serde_json::json;
use statehold::wait::Wait;
use statehold::{Error, Seconds};
use statehold_core::call::{Deliveries, GroupRead};
use statehold_core::command::{GroupAck, GroupNack, GroupSeek};
use statehold_core::model::{GroupInfo, Source};
use statehold_core::wake::Topic;

use crate::access::Rule;
use crate::asked::{Asked, ok};
use crate::problem::Answer;
use crate::route::{Kind, Param, Route};

pub(super) fn routes() -> Vec<Route> {
    let source = json!({ "category": "task" });
    let deliveries = json!([{ "position": "000000000000002a", "delivery_token": 1_769_846_400_000_000_i64 }]);
    vec![
        Route::new(
            Method::POST,
            "/groups/{group}/read",
            Rule::Work,
            "Reads events for a consumer, until they are acknowledged.",
            read,
        )
        .takes_without::<GroupRead>(&["group", "namespace", "key"])
        .takes_also::<Seconds>("wait_seconds")
        .example(json!({ "source": source, "consumer": "worker-1", "limit": 10, "wait_seconds": 0 }))
        .answers::<Deliveries>(StatusCode::OK),
        Route::command::<GroupAck>(Method::POST, "/groups/{group}/ack")
            .example(json!({ "source": source, "deliveries": deliveries })),
        Route::command::<GroupNack>(Method::POST, "/groups/{group}/nack")
            .example(json!({ "source": source, "deliveries": deliveries, "delay_seconds": 5 })),
        Route::command::<GroupSeek>(Method::POST, "/groups/{group}/seek")
            .example(json!({ "source": source, "to": "oldest" })),
        Route::new(Method::GET, "/groups/{group}", Rule::Read, "How far a group is.", info)
            .query(
                const {
                    &[
                        Param::new("stream", Kind::Text, "What it reads, a stream `category/id`."),
                        Param::new("category", Kind::Text, "What it reads, a category."),
                    ]
                },
            )
            .answers::<GroupInfo>(StatusCode::OK),
    ]
}

async fn read(asked: Asked) -> Answer {
    asked.unfenced()?;
    let mut fields = asked.fields()?;
    let most = Asked::wait_in(&mut fields)?;
    let mut read: GroupRead = fields.read()?;
    read.namespace = asked.hold.namespace().to_owned();
    read.group = asked.path("group").to_owned();
    read.key = read.key.map(|key| asked.own(&key)).or_else(|| asked.key());
    read.check()?;
    asked.caller.is_itself(&read.consumer)?;
    let source = match &read.source {
        Source::Stream(stream) => Topic::Stream(stream.clone()),
        Source::Category(category) => Topic::Category(category.clone()),
    };
    let topics = [source, Topic::Group(read.group.clone())];
    let (hold, read, topics) = (&asked.hold, &read, &topics);
    let reading = |most| async move {
        let mut wait = Wait::begin(hold, topics, Some(most)).await?;
        loop {
            let deliveries = hold.groups().read_now(read.clone()).await?;
            if !deliveries.events.is_empty() || !wait.sleep(deliveries.next_at).await {
                return Ok::<_, Error>(deliveries);
            }
        }
    };
    ok(&asked.waiting(most, reading).await?)
}

async fn info(asked: Asked) -> Answer {
    let source = match (asked.query("stream"), asked.query("category")) {
        (Some(stream), None) => Source::Stream(stream.parse()?),
        (None, Some(category)) => Source::Category(category.to_owned()),
        _ => return Err(Error::invalid("stream", "exactly one of stream and category must be given").into()),
    };
    ok(&asked.hold.groups().info(asked.path("group"), &source).await?)
}
