//! How the types that write themselves as something else are described for OpenAPI. All others derive it.

use std::borrow::Cow;

use utoipa::openapi::schema::{KnownFormat, Object, ObjectBuilder, SchemaFormat, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::clock::{Seconds, Timestamp};
use crate::json::Json;
use crate::model::{Children, Position, ResumedBy, StreamName, TaskId, Token};
use crate::query::CategoryCursor;

macro_rules! written_as {
    ($($name:ident: $kind:ident, $format:expr, $example:expr, $description:literal;)*) => {
        $(impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let object = ObjectBuilder::new()
                    .schema_type(Type::$kind)
                    .format($format)
                    .description(Some($description))
                    .examples([serde_json::json!($example)]);
                RefOr::T(object.build().into())
            }
        })*
    };
}

written_as! {
    Timestamp: String, Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)), "2026-01-31T08:00:00.000000Z",
        "An instant, RFC 3339 in UTC with microseconds.";
    Seconds: Number, None, 30, "A length of time in seconds, at most ten years.";
    TaskId: String, Some(SchemaFormat::Custom("uuid".into())), "0198c0de-0000-7000-8000-000000000000",
        "The id of a task, a UUID.";
    StreamName: String, None, "run/7", "The name of a stream, `category/id`.";
    Token: Integer, Some(SchemaFormat::KnownFormat(KnownFormat::Int64)), 1_769_846_400_000_000_i64,
        "A fencing token: proof of being the current holder.";
    Position: String, None, "000000000000002a", "Where an event stands in its category; opaque.";
    CategoryCursor: String, None, "000000000000002a", "A place in a category; opaque.";
}

impl ToSchema for Json {
    fn name() -> Cow<'static, str> {
        "Json".into()
    }
}

impl PartialSchema for Json {
    fn schema() -> RefOr<Schema> {
        let any = Object::builder().schema_type(SchemaType::AnyValue);
        RefOr::T(any.description(Some("Any JSON value, kept as it came.")).build().into())
    }
}

/// How [`ResumedBy`] is written, for its description.
#[derive(ToSchema)]
#[schema(as = ResumedBy)]
#[expect(dead_code, reason = "only its description is used")]
struct Resumed {
    /// The name of the signal that came.
    signal: Option<String>,
    /// What the signal carried.
    data: Option<Json>,
    /// Children ended.
    children: Option<Children>,
    /// The time came.
    until: Option<Timestamp>,
    /// The deadline passed.
    timeout: Option<bool>,
}

impl ToSchema for ResumedBy {
    fn name() -> Cow<'static, str> {
        "ResumedBy".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        Resumed::schemas(schemas);
    }
}

impl PartialSchema for ResumedBy {
    fn schema() -> RefOr<Schema> {
        Resumed::schema()
    }
}
