//! How a route is registered: its method and path, the rule that says who may use it, what does it, and what the
//! reference says of it. From the same list come the router, the OpenAPI document and the table of roles.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_core::future::BoxFuture;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;
use statehold::{Error, Result};
use statehold_core::command::Op;
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::access::{Role, Rule, rule_of_op};
use crate::app::App;
use crate::asked::Asked;
use crate::observe::Noted;
use crate::patience::Patient;
use crate::problem::{Answer, Problem};

/// A parameter of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) kind: Kind,
    pub(crate) repeats: bool,
}

/// What a parameter is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Text,
    Integer,
    Number,
    Yes,
    Time,
    Id,
}

impl Param {
    /// A parameter that can be there once.
    pub(crate) const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, about, kind, repeats: false }
    }

    /// The same, several times.
    pub(crate) const fn repeated(self) -> Self {
        Self { repeats: true, ..self }
    }
}

/// How many items a page has.
pub(crate) const LIMIT: Param =
    Param::new("limit", Kind::Integer, "How many at most, 1 to 1000; 50 if left out.");
/// Where a list goes on.
pub(crate) const CURSOR: Param = Param::new("cursor", Kind::Text, "`next_cursor` of the page before.");
/// What a list is of.
pub(crate) const PREFIX: Param = Param::new("prefix", Kind::Text, "Only what begins with this.");
/// How long a request waits.
pub(crate) const WAIT: Param = Param::new("wait_seconds", Kind::Number, "How long to wait, at most 60.");
/// Where events are read.
pub(crate) const AFTER: Param =
    Param::new("after", Kind::Text, "After this cursor; `0` is the beginning, `latest` the end.");
/// The same, backwards.
pub(crate) const BEFORE: Param = Param::new("before", Kind::Integer, "The events just before this number.");
/// A token, for browsers.
pub(crate) const ACCESS: Param = Param::new(
    "access_token",
    Kind::Text,
    "A token for this task or thread alone, where no header can be sent.",
);

/// What requests are counted under that no route is for.
const NO_ROUTE: &str = "none";

type Schemas = Vec<(String, RefOr<Schema>)>;

/// How a shape is found out. Only who wants the description does: the schemas of all routes are megabytes.
type Described = Box<dyn Fn() -> Shape + Send + Sync>;

/// A schema, and those that it speaks of.
pub(crate) struct Shape {
    pub(crate) schema: RefOr<Schema>,
    pub(crate) schemas: Schemas,
}

impl Shape {
    /// The shape of a type, by its name.
    pub(crate) fn of<T: ToSchema>() -> Self {
        let mut schemas = Vec::new();
        T::schemas(&mut schemas);
        schemas.push((T::name().into_owned(), T::schema()));
        Self { schema: RefOr::Ref(utoipa::openapi::Ref::from_schema_name(T::name())), schemas }
    }

    /// The shape of a type that is made of items, whose name alone would not tell of what.
    fn of_items<L: ToSchema, T: ToSchema>() -> Self {
        Self { schema: L::schema(), schemas: Self::of::<T>().schemas }
    }

    /// The shape of a type without some fields, which a path says.
    fn without<T: ToSchema>(fields: &[String]) -> Self {
        let mut schemas = Vec::new();
        T::schemas(&mut schemas);
        let mut schema = T::schema();
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.properties.retain(|name, _| !fields.contains(name));
            object.required.retain(|name| !fields.contains(name));
        }
        Self { schema, schemas }
    }
}

/// One route.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) rule: Rule,
    pub(crate) summary: String,
    pub(crate) params: &'static [Param],
    pub(crate) request: Option<Described>,
    pub(crate) example: Option<serde_json::Value>,
    pub(crate) answers: Vec<(StatusCode, Option<Described>)>,
    /// Whether it can answer with a stream of events.
    pub(crate) live: bool,
    /// The media type of answers and bodies that are not JSON.
    pub(crate) raw: Option<&'static str>,
    handler: Arc<Handler>,
}

/// A request as it came.
pub(crate) type Request = hyper::Request<Patient>;

/// The parts of a path that its route has names for.
pub(crate) type Path = Vec<(Arc<str>, String)>;

/// What answers the requests to a route, given its parameters.
type Handler =
    dyn Fn(App, &'static [Param], Result<Path>, Request) -> BoxFuture<'static, Response> + Send + Sync;

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl Route {
    /// A route under `/v1/{namespace}`.
    pub(crate) fn new<F>(
        method: Method,
        path: &str,
        rule: Rule,
        summary: &str,
        handler: impl Fn(Asked) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Self::outside(method, &format!("/v1/{{namespace}}{path}"), rule, summary, handler)
    }

    /// A route of no namespace.
    pub(crate) fn outside<F>(
        method: Method,
        path: &str,
        rule: Rule,
        summary: &str,
        handler: impl Fn(Asked) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let route: Arc<str> = path.into();
        let handler = move |app: App, params: &'static [Param], path: Result<Path>, mut request: Request| {
            let (handler, route) = (handler.clone(), Arc::clone(&route));
            let answering: BoxFuture<'static, Response> = Box::pin(async move {
                let noted = Noted::begin(&mut request, &route);
                // It is large, and stays where it is.
                let answering = std::pin::pin!(async {
                    match Asked::read(app.clone(), rule, params, path?, request).await {
                        Ok(asked) => handler(asked).await,
                        Err(problem) => Err(problem),
                    }
                });
                let answer = noted.within(answering).await.unwrap_or_else(Problem::into_response);
                noted.end(&app, &route, answer)
            });
            answering
        };
        Self {
            method,
            path: path.to_owned(),
            rule,
            summary: summary.to_owned(),
            params: &[],
            request: None,
            example: None,
            answers: Vec::new(),
            live: false,
            raw: None,
            handler: Arc::new(handler),
        }
    }

    /// A route that is a command: the path says some of its fields, the body the others, and its reply is the answer.
    pub(crate) fn command<O>(method: Method, path: &str) -> Self
    where
        O: Op + DeserializeOwned + ToSchema + Send + 'static,
        O::Reply: Serialize + ToSchema + Send + 'static,
    {
        let described = match O::schema() {
            RefOr::T(Schema::Object(object)) => object.description,
            _ => None,
        };
        let summary = described.as_deref().and_then(|text| text.lines().next()).unwrap_or(O::NAME).to_owned();
        let mut route = Self::new(method, path, rule_of_op(O::NAME), &summary, async |asked: Asked| {
            let mut fields = asked.fields()?;
            for (name, value) in command_fields(&asked) {
                fields.give(&name, &value)?;
            }
            asked.run(fields.read::<O>()?).await?.answer(StatusCode::OK)
        });
        let mut said: Vec<_> = route.path_names().into_iter().map(str::to_owned).collect();
        if said.iter().any(|name| name == "category") {
            said = vec!["stream".to_owned()];
        }
        route.request = Some(Box::new(move || Shape::without::<O>(&said)));
        route.answers::<O::Reply>(StatusCode::OK)
    }

    /// The names in the path, but for the namespace.
    pub(crate) fn path_names(&self) -> Vec<&str> {
        let names = self.path.split(['{', '}']).skip(1).step_by(2);
        names.filter(|name| *name != "namespace").collect()
    }

    /// The parameters of its query. Others are refused.
    pub(crate) fn query(self, params: &'static [Param]) -> Self {
        Self { params, ..self }
    }

    /// What its body is.
    pub(crate) fn takes<T: ToSchema + 'static>(self) -> Self {
        Self { request: Some(Box::new(Shape::of::<T>)), ..self }
    }

    /// What its body is, beside what the path and others say.
    pub(crate) fn takes_without<T: ToSchema + 'static>(self, fields: &[&str]) -> Self {
        let fields: Vec<_> = fields.iter().map(|&field| field.to_owned()).collect();
        Self { request: Some(Box::new(move || Shape::without::<T>(&fields))), ..self }
    }

    /// A field that its body has beside those of its type.
    pub(crate) fn takes_also<T: ToSchema + 'static>(self, name: &'static str) -> Self {
        let also = move |request: Described| -> Described {
            Box::new(move || {
                let mut shape = request();
                if let RefOr::T(Schema::Object(object)) = &mut shape.schema {
                    object.properties.insert(name.to_owned(), T::schema());
                }
                shape
            })
        };
        Self { request: self.request.map(also), ..self }
    }

    /// An example of a body.
    pub(crate) fn example(self, example: serde_json::Value) -> Self {
        Self { example: Some(example), ..self }
    }

    /// What it answers.
    pub(crate) fn answers<T: ToSchema + 'static>(mut self, status: StatusCode) -> Self {
        self.answers.push((status, Some(Box::new(Shape::of::<T>))));
        self
    }

    /// What it answers, a list `L` of items `T`.
    pub(crate) fn lists<L: ToSchema + 'static, T: ToSchema + 'static>(mut self) -> Self {
        self.answers.push((StatusCode::OK, Some(Box::new(Shape::of_items::<L, T>))));
        self
    }

    /// An answer without a body.
    pub(crate) fn answers_nothing(mut self, status: StatusCode) -> Self {
        self.answers.push((status, None));
        self
    }

    /// It can answer with a stream of events.
    pub(crate) fn live(self) -> Self {
        Self { live: true, ..self }
    }

    /// Its body, and its answer if it is a GET, is not JSON.
    pub(crate) fn raw(self, media: &'static str) -> Self {
        Self { raw: Some(media), ..self }
    }

    /// Whether it changes anything.
    pub(crate) fn is_mutation(&self) -> bool {
        self.method != Method::GET
    }
}

/// The fields of a command that the path says. A stream is named by two parts.
fn command_fields(asked: &Asked) -> Vec<(String, String)> {
    let fields: Vec<_> =
        asked.path_fields().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    match fields.as_slice() {
        [(category, first), (_, second)] if category == "category" => {
            vec![("stream".to_owned(), format!("{first}/{second}"))]
        }
        _ => fields,
    }
}

/// All routes, found by path and method. Nothing stands between a route and its handler: of a small request, the layers
/// of a framework would be a good part.
pub(crate) struct Routes {
    app: App,
    paths: matchit::Router<Place>,
}

/// What is at a path.
struct Place {
    /// The names in the path.
    names: Vec<Arc<str>>,
    /// By method.
    ways: Vec<(Method, &'static [Param], Arc<Handler>)>,
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routes").finish_non_exhaustive()
    }
}

impl Routes {
    pub(crate) fn new(app: App, routes: Vec<Route>) -> Result<Self> {
        let mut places: BTreeMap<String, Place> = BTreeMap::new();
        for route in routes {
            let names = || route.path.split(['{', '}']).skip(1).step_by(2).map(Arc::from).collect();
            let place = places
                .entry(route.path.clone())
                .or_insert_with(|| Place { names: names(), ways: Vec::new() });
            place.ways.push((route.method, route.params, route.handler));
        }
        let mut paths = matchit::Router::new();
        for (path, place) in places {
            paths.insert(path, place).map_err(|e| Error::unsupported(format!("routes: {e}")))?;
        }
        Ok(Self { app, paths })
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, request: Request) -> Response {
        let Ok(found) = self.paths.at(request.uri().path()) else {
            let problem = Problem::no_route(request.uri().path());
            return refuse(&self.app, request, problem);
        };
        let Place { names, ways } = found.value;
        let head = request.method() == Method::HEAD;
        let asked = if head { &Method::GET } else { request.method() };
        let Some((_, params, handler)) = ways.iter().find(|(method, ..)| method == asked) else {
            let mut response = refuse(&self.app, request, Problem::no_method());
            response.headers_mut().insert(header::ALLOW, allowed(ways.iter().map(|(method, ..)| method)));
            return response;
        };
        let path = names.iter().zip(found.params.iter()).map(|(name, (_, value))| {
            let value = percent_decode_str(value).decode_utf8();
            let value = value.map_err(|_| Error::invalid("path", format!("`{name}` is not UTF-8")))?;
            Ok((Arc::clone(name), value.into_owned()))
        });
        let path = path.collect();
        let mut response = handler(self.app.clone(), params, path, request).await;
        if head {
            let length = response.body().size_hint().exact();
            *response.body_mut() = Body::empty();
            if let Some(length) = length {
                response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(length.into());
            }
        }
        response
    }
}

/// The methods of a path, as a header lists them.
fn allowed<'a>(methods: impl Iterator<Item = &'a Method>) -> HeaderValue {
    let names = methods.map(|method| if method == Method::GET { "GET,HEAD" } else { method.as_str() });
    let names: Vec<_> = names.collect();
    HeaderValue::from_str(&names.join(",")).unwrap_or(HeaderValue::from_static(""))
}

/// Answers a request that no route is for.
fn refuse(app: &App, mut request: Request, problem: Problem) -> Response {
    let noted = Noted::begin(&mut request, NO_ROUTE);
    noted.end(app, NO_ROUTE, problem.into_response())
}

/// The table of routes and roles, as it is published.
pub(crate) fn table(routes: &[Route]) -> String {
    let mut text = String::from(
        "| route | viewer | agent | operator | orchestrator | admin |\n|---|---|---|---|---|---|\n",
    );
    for Route { method, path, rule, .. } in routes {
        let cells: Vec<_> =
            Role::ALL.iter().map(|role| if role.may(*rule) { rule.condition(*role) } else { "" }).collect();
        let open = if *rule == Rule::Open { " (no token)" } else { "" };
        let _ = writeln!(text, "| `{method} {path}`{open} | {} |", cells.join(" | "));
    }
    text
}
