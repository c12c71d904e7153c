//! The description of all routes, made from the list that the router is made from.

use std::collections::BTreeMap;

use axum::http::{Method, StatusCode};
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, HttpMethod, InfoBuilder, KnownFormat, OpenApiBuilder, PathsBuilder,
    Ref, RefOr, Required, Response, ResponseBuilder, Schema,
};

use crate::access::Rule;
use crate::problem::Written;
use crate::route::{Kind, Param, Route, Shape};

/// The problems that a route can answer, each with its name among the responses.
const PROBLEMS: [(StatusCode, &str, &str); 12] = [
    (StatusCode::BAD_REQUEST, "Invalid", "`invalid`: the request itself is wrong."),
    (StatusCode::UNAUTHORIZED, "Unauthenticated", "`unauthenticated`: a token is needed, or another one."),
    (StatusCode::FORBIDDEN, "Forbidden", "`forbidden`: the token is not for this."),
    (StatusCode::NOT_FOUND, "NotFound", "`not_found`: what the request names is not there."),
    (
        StatusCode::CONFLICT,
        "Conflict",
        "`conflict`, `held`, `fenced` or `invalid_transition`: what is there does not allow it.",
    ),
    (StatusCode::GONE, "Compacted", "`compacted`: what came after this cursor was trimmed."),
    (
        StatusCode::PRECONDITION_FAILED,
        "PreconditionFailed",
        "`precondition_failed`: the revision is another one.",
    ),
    (StatusCode::PAYLOAD_TOO_LARGE, "TooLarge", "`too_large`: a bound was passed."),
    (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "`too_many_requests`: this caller sends too much."),
    (StatusCode::NOT_IMPLEMENTED, "Unsupported", "`unsupported`: this store cannot do it."),
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "Unavailable",
        "`unavailable`: the store cannot be reached; try again.",
    ),
    (
        StatusCode::GATEWAY_TIMEOUT,
        "Timeout",
        "`timeout`: the outcome is unknown; repeat it with the same key.",
    ),
];

/// The description of routes, as JSON.
pub(crate) fn describe(routes: &[Route]) -> String {
    let mut schemas = BTreeMap::new();
    collect(&mut schemas, &Shape::of::<Written>());
    let mut paths = PathsBuilder::new();
    for route in routes {
        let answers = route.answers.iter().filter_map(|(_, shape)| shape.as_ref());
        route.request.iter().chain(answers).for_each(|shape| collect(&mut schemas, &shape()));
        let item = PathItem::new(method(&route.method), operation(route));
        paths = paths.path(&route.path, item);
    }
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let problems = PROBLEMS.iter().map(|(_, name, about)| {
        let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("ProblemDetails"))).build();
        (
            *name,
            ResponseBuilder::new().description(*about).content("application/problem+json", problem).build(),
        )
    });
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .responses_from_iter(problems)
        .security_scheme("token", SecurityScheme::Http(bearer))
        .build();
    let info = InfoBuilder::new()
        .title("Statehold")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(include_str!("../assets/about.md")));
    let document =
        OpenApiBuilder::new().info(info.build()).paths(paths.build()).components(Some(components)).build();
    let mut document = serde_json::to_value(&document).unwrap_or_default();
    tidy(&mut document);
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// Any JSON value can be null already: a choice between it and null would be met twice.
fn tidy(value: &mut serde_json::Value) {
    let any = value.get("oneOf").and_then(serde_json::Value::as_array).and_then(|choice| {
        choice
            .iter()
            .find(|one| one.get("$ref").is_some_and(|name| name == "#/components/schemas/Json"))
            .cloned()
    });
    if let Some(any) = any {
        *value = any;
    }
    match value {
        serde_json::Value::Array(items) => items.iter_mut().for_each(tidy),
        serde_json::Value::Object(members) => members.values_mut().for_each(tidy),
        _ => {}
    }
}

fn collect(schemas: &mut BTreeMap<String, RefOr<Schema>>, shape: &Shape) {
    schemas.extend(shape.schemas.iter().cloned());
}

fn method(method: &Method) -> HttpMethod {
    match *method {
        Method::POST => HttpMethod::Post,
        Method::PUT => HttpMethod::Put,
        Method::PATCH => HttpMethod::Patch,
        Method::DELETE => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}

fn operation(route: &Route) -> utoipa::openapi::path::Operation {
    let mut operation = OperationBuilder::new()
        .operation_id(Some(operation_id(route)))
        .tag(tag(&route.path))
        .summary(Some(route.summary.as_str()))
        .description(Some(who(route)));
    for parameter in parameters(route) {
        operation = operation.parameter(parameter);
    }
    if route.rule != Rule::Open {
        operation = operation.security(SecurityRequirement::new("token", Vec::<String>::new()));
    }
    if let Some(body) = body(route) {
        operation = operation.request_body(Some(body));
    }
    for (status, response) in responses(route) {
        operation = operation.response(status.as_str(), response);
    }
    operation.build()
}

/// `POST /v1/{namespace}/tasks/{id}/complete` is `post_tasks_id_complete`.
fn operation_id(route: &Route) -> String {
    let path = route.path.replace("/v1/{namespace}", "");
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<_> = words.collect();
    format!("{}_{}", route.method.as_str().to_lowercase(), words.join("_"))
}

fn tag(path: &str) -> String {
    let mut parts =
        path.trim_start_matches('/').split('/').filter(|part| !part.starts_with('{') && *part != "v1");
    parts.next().unwrap_or("server").split('.').next().unwrap_or("server").to_owned()
}

fn who(route: &Route) -> String {
    let roles = crate::access::Role::ALL.iter().filter(|role| role.may(route.rule));
    let roles: Vec<_> = roles
        .map(|role| match route.rule.condition(*role) {
            "yes" => role.as_str().to_owned(),
            condition => format!("{} ({condition})", role.as_str()),
        })
        .collect();
    match route.rule {
        Rule::Open => "Needs no token.".to_owned(),
        _ => format!("For: {}.", roles.join(", ")),
    }
}

fn parameter(
    name: &str,
    place: ParameterIn,
    required: bool,
    about: &str,
    schema: impl Into<RefOr<Schema>>,
) -> Parameter {
    let required = if required { Required::True } else { Required::False };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some(about))
        .schema(Some(schema))
        .build()
}

fn text(format: Option<SchemaFormat>) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).format(format)
}

fn key() -> ObjectBuilder {
    text(None).min_length(Some(1)).max_length(Some(256))
}

fn parameters(route: &Route) -> Vec<Parameter> {
    let mut all = Vec::new();
    if route.path.contains("{namespace}") {
        all.push(parameter("namespace", ParameterIn::Path, true, "The namespace.", key()));
    }
    for name in route.path_names() {
        let task = name == "id" && route.path.contains("/tasks/");
        let schema = if task { text(Some(SchemaFormat::Custom("uuid".into()))) } else { key() };
        all.push(parameter(name, ParameterIn::Path, true, "Percent-encoded.", schema));
    }
    for Param { name, about, kind, repeats } in route.params {
        let schema: RefOr<Schema> = kind_schema(*kind).into();
        let schema =
            if *repeats { RefOr::T(ArrayBuilder::new().items(schema).build().into()) } else { schema };
        all.push(parameter(name, ParameterIn::Query, false, about, schema));
    }
    if route.is_mutation() {
        let about = "Makes the request safe to repeat for 24 hours.";
        all.push(parameter("Idempotency-Key", ParameterIn::Header, false, about, key()));
        let about = "What the caller must still hold: `task=<id>;token=<n>` or `lock=<percent-encoded key>;token=<n>`.";
        all.push(parameter("Statehold-Fence", ParameterIn::Header, false, about, text(None)));
    }
    if route.path.contains("/documents/{kind}/{name}") {
        let about = "The revision that must be there, in quotes.";
        all.push(parameter("If-Match", ParameterIn::Header, false, about, text(None)));
        let about = "`*` if nothing may be there; on reading, the revision that is known, in quotes.";
        all.push(parameter("If-None-Match", ParameterIn::Header, false, about, text(None)));
    }
    if route.live {
        let about = "Where the last connection ended; with `Accept: text/event-stream`.";
        all.push(parameter("Last-Event-ID", ParameterIn::Header, false, about, text(None)));
    }
    all
}

fn kind_schema(kind: Kind) -> ObjectBuilder {
    match kind {
        Kind::Text => text(None),
        Kind::Integer => ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)),
        Kind::Number => ObjectBuilder::new().schema_type(Type::Number).minimum(Some(0)),
        Kind::Yes => ObjectBuilder::new().schema_type(Type::Boolean),
        Kind::Time => text(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))),
        Kind::Id => text(Some(SchemaFormat::Custom("uuid".into()))),
    }
}

fn body(route: &Route) -> Option<utoipa::openapi::request_body::RequestBody> {
    if !route.is_mutation() {
        return None;
    }
    if let Some(media) = route.raw {
        let bytes = text(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)));
        let content = ContentBuilder::new().schema(Some(bytes)).build();
        return Some(
            RequestBodyBuilder::new().content(media, content).required(Some(Required::True)).build(),
        );
    }
    let shape = route.request.as_ref()?();
    let content =
        ContentBuilder::new().schema(Some(shape.schema.clone())).example(route.example.clone()).build();
    let needed = match &shape.schema {
        RefOr::T(Schema::Object(object)) => !object.required.is_empty(),
        _ => true,
    };
    let required = if needed { Required::True } else { Required::False };
    let mut body =
        RequestBodyBuilder::new().required(Some(required)).content("application/json", content.clone());
    if route.method == Method::PATCH && route.path.contains("/documents/") {
        body = body.content("application/merge-patch+json", content);
        let steps = ArrayBuilder::new().items(ObjectBuilder::new().schema_type(Type::Object));
        let example = serde_json::json!([{ "op": "replace", "path": "/state", "value": "done" }]);
        let steps = ContentBuilder::new().schema(Some(steps)).example(Some(example)).build();
        body = body.content("application/json-patch+json", steps);
    }
    Some(body.build())
}

fn responses(route: &Route) -> Vec<(StatusCode, RefOr<Response>)> {
    let mut all: Vec<(StatusCode, RefOr<Response>)> = Vec::new();
    for (status, shape) in &route.answers {
        let mut response = ResponseBuilder::new().description(status.canonical_reason().unwrap_or_default());
        if let Some(shape) = shape {
            let content = ContentBuilder::new().schema(Some(shape().schema)).build();
            response = response.content("application/json", content);
        }
        if route.live && *status == StatusCode::OK {
            let content = ContentBuilder::new().schema(Some(text(None))).build();
            response = response.content("text/event-stream", content);
        }
        if route.is_mutation() {
            let replayed =
                HeaderBuilder::new().description(Some("`true` if this is the answer of an earlier request."));
            response = response.header("Idempotency-Replayed", replayed.schema(Some(text(None))).build());
        }
        all.push((*status, response.build().into()));
    }
    if let Some(media) = route.raw.filter(|_| !route.is_mutation()) {
        let content = ContentBuilder::new().schema(Some(text(None))).build();
        all.push((
            StatusCode::OK,
            ResponseBuilder::new().description("OK").content(media, content).build().into(),
        ));
    }
    let problems = if route.rule == Rule::Open { &PROBLEMS[..1] } else { &PROBLEMS[..] };
    for (status, name, _) in problems {
        if all.iter().all(|(is, _)| is != status) {
            all.push((*status, Ref::from_response_name(*name).into()));
        }
    }
    all
}
