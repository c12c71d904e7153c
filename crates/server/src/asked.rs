//! One request: who asks, where, for what, and what it carries. Every handler is given one of these, and every change
//! goes through [`Asked::apply`].

use std::str::FromStr;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::AsHeaderName;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use statehold::{Batch, Error, ErrorKind, Result, Seconds, Statehold, TaskId, Token};
use statehold_core::batch::{BatchKey, Fence, Replies};
use statehold_core::command::{Fields, FromReply, Op};
use statehold_core::limits;

use crate::access::tokens::{RESERVED, Scope};
use crate::access::{Caller, Rule, audit};
use crate::app::App;
use crate::observe;
use crate::patience::{Late, Patient};
use crate::problem::Problem;
use crate::route::{Param, Path, Request};

/// The header that says what the caller must still hold.
pub(crate) const FENCE: HeaderName = HeaderName::from_static("statehold-fence");
/// The header that makes a change safe to repeat.
pub(crate) const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header of an answer that was given before.
pub(crate) const REPLAYED: &str = "idempotency-replayed";
/// The longest that a request may wait.
const LONGEST_WAIT: Seconds = Seconds::new(60);
/// What `/v1/…` means without a namespace.
const NOT_NAMESPACES: [&str; 5] = [RESERVED, "tokens", "namespaces", "whoami", "audit"];

/// One request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) app: App,
    /// The store at the namespace of the request, in the name of the caller.
    pub(crate) hold: Statehold,
    pub(crate) caller: Caller,
    pub(crate) headers: HeaderMap,
    path: Path,
    query: Vec<(String, String)>,
    body: Bytes,
    fences: Vec<Fence>,
    key: Option<String>,
}

/// What one command answered, and whether it had answered that before.
pub(crate) struct Reply<R> {
    pub(crate) value: R,
    pub(crate) replayed: bool,
}

impl Asked {
    /// Finds out who asks, judges whether it may, and only then reads what it sends.
    pub(crate) async fn read(
        app: App,
        rule: Rule,
        params: &'static [Param],
        path: Path,
        request: Request,
    ) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let namespace = named(&path, "namespace");
        let query = read_query(parts.uri.query().unwrap_or_default(), params)?;
        let caller = if rule == Rule::Open { Caller::LOCAL } else { find(&app, &parts, &query).await? };
        caller.pass(rule, namespace)?;
        caller.pass_scope(about(parts.uri.path(), &path).as_ref())?;
        if !app.limiter.admits(caller.id()) {
            return Err(Problem::too_many());
        }
        if let Some(namespace) = namespace {
            limits::name(namespace).map_err(|problem| Error::invalid("namespace", problem))?;
            if NOT_NAMESPACES.contains(&namespace) {
                return Err(Error::invalid("namespace", format!("`{namespace}` is reserved")).into());
            }
        }
        let hold = app.hold.at(namespace.unwrap_or(RESERVED));
        let hold = match caller.name() {
            Some(name) => hold.acting_as(name),
            None => hold,
        };
        let headers = parts.headers;
        let body = read_body(&app, body).await?;
        let (fences, key) = (read_fences(&headers)?, read_key(&headers)?);
        Ok(Self { app, hold, caller, headers, path, query, body, fences, key })
    }

    /// A part of the path.
    pub(crate) fn path(&self, name: &str) -> &str {
        named(&self.path, name).unwrap_or_default()
    }

    /// The parts of the path that say what the request is about.
    pub(crate) fn path_fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.path.iter().map(|(name, value)| (&**name, value.as_str()));
        fields.filter(|(name, _)| *name != "namespace")
    }

    /// The task that the path names.
    pub(crate) fn task(&self) -> Result<TaskId> {
        let text = self.path("id");
        text.parse().map_err(|_| Error::invalid("id", format!("`{text}` is not the id of a task")))
    }

    /// A parameter of the query.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(is, _)| is == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that can be there several times.
    pub(crate) fn queries<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter(move |(is, _)| is == name).map(|(_, value)| value.as_str())
    }

    /// A parameter of the query as a type.
    pub(crate) fn parsed<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        self.query(name).map(|text| parse(name, text)).transpose()
    }

    /// How many items a page may have.
    pub(crate) fn limit(&self) -> Result<u32> {
        Ok(self.parsed("limit")?.unwrap_or(50))
    }

    /// Where the last page ended.
    pub(crate) fn cursor(&self) -> Option<String> {
        self.query("cursor").map(str::to_owned)
    }

    /// How long the caller waits, by the query.
    pub(crate) fn wait(&self) -> Result<Duration> {
        let text = self.query("wait_seconds").unwrap_or("0");
        let wait = serde_json::from_str(text).map_err(|e| Error::invalid("wait_seconds", e.to_string()))?;
        check_wait(wait)
    }

    /// How long the caller waits, by the body.
    pub(crate) fn wait_in(fields: &mut Fields) -> Result<Duration> {
        check_wait(fields.take("wait_seconds")?.unwrap_or(Seconds::ZERO))
    }

    /// The body as it came.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.body
    }

    /// The text of a JSON body, which may be left out where nothing has to be said.
    pub(crate) fn text(&self) -> Result<&str> {
        let json = self.header(header::CONTENT_TYPE).unwrap_or_default();
        let json = json.split(';').next().unwrap_or_default().trim();
        if !self.body.is_empty() && json != "application/json" && !json.ends_with("+json") {
            return Err(Error::invalid("content-type", format!("`{json}` is not application/json"))
                .hint("send JSON, with `Content-Type: application/json`"));
        }
        std::str::from_utf8(&self.body).map_err(|_| Error::invalid("", "the body is not text"))
    }

    /// The fields of the body; none if there is none.
    pub(crate) fn fields(&self) -> Result<Fields> {
        let text = self.text()?;
        Fields::parse(if text.is_empty() { "{}" } else { text })
    }

    /// The body as a type, which refuses what it does not know.
    pub(crate) fn body<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        let text = match self.text()? {
            "" => "{}",
            text => text,
        };
        // A list would be taken for the fields in their order.
        if !text.trim_start().starts_with('{') {
            return Err(Error::invalid("", "the body is not an object of fields"));
        }
        if let Ok(read) = serde_json::from_str(text) {
            return Ok(read);
        }
        // What is wrong, and where, is looked for only now: keeping track of the place takes time.
        let mut reader = serde_json::Deserializer::from_str(text);
        let read = serde_path_to_error::deserialize(&mut reader)
            .map_err(|e| Error::invalid(e.path().to_string().trim_matches('.'), e.inner().to_string()))?;
        reader.end().map_err(|e| Error::invalid("", e.to_string()))?;
        Ok(read)
    }

    /// A header, if it is text.
    pub(crate) fn header(&self, name: impl AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Whether the caller wants what comes as it comes.
    pub(crate) fn is_live(&self) -> bool {
        self.header(header::ACCEPT).is_some_and(|accept| accept.contains("text/event-stream"))
    }

    /// The key that makes the request safe to repeat, as one that no other caller can use.
    pub(crate) fn key(&self) -> Option<String> {
        self.key.as_ref().map(|key| self.own(key))
    }

    /// A key of the caller's as one that no other caller can use.
    pub(crate) fn own(&self, key: &str) -> String {
        let own = self.caller.grant().map_or_else(|| key.to_owned(), |grant| format!("{}/{key}", grant.id));
        // What is too long is told so as it came.
        let long = own.len() > limits::NAME && key.len() <= limits::NAME;
        if long { blake3::hash(own.as_bytes()).to_hex().to_string() } else { own }
    }

    /// Refuses fences where nothing could be fenced by them.
    pub(crate) fn unfenced(&self) -> Result<()> {
        if self.fences.is_empty() {
            return Ok(());
        }
        Err(Error::invalid(FENCE.as_str(), "this request takes no fence")
            .hint("leave the header out, or use a batch"))
    }

    /// Refuses fences and keys where neither could do what it says.
    pub(crate) fn plain(&self) -> Result<()> {
        match self.key {
            None => self.unfenced(),
            Some(_) => {
                Err(Error::invalid(KEY.as_str(), "this request cannot be repeated: its answer is not kept")
                    .hint("leave the header out; what was made twice can be revoked"))
            }
        }
    }

    /// Applies a batch, with the fences and the key of the headers, if the caller may.
    pub(crate) async fn apply(&self, mut batch: Batch) -> Result<Replies, Problem> {
        batch.key = batch.key.or_else(|| self.key().map(BatchKey::new));
        self.apply_unkeyed(batch).await
    }

    /// The same without the key of the headers, for changes that see to repetition themselves.
    pub(crate) async fn apply_unkeyed(&self, mut batch: Batch) -> Result<Replies, Problem> {
        batch.fences.extend(self.fences.iter().cloned());
        batch.traceparent = observe::trace(&self.headers).map(str::to_owned);
        self.caller.judge(&batch)?;
        let audited = audit::events(&batch, &self.caller, &self.app.replica)?;
        let commands = batch.commands.len();
        match audited {
            Some(append) if commands < limits::COMMANDS => drop(batch.add(append)),
            // A full batch is told of before it is applied.
            Some(append) => {
                self.hold.run(append).await?;
            }
            None => {}
        }
        self.app.metrics.applied(commands);
        let mut replies = self.hold.apply(batch).await.map_err(|error| self.refused(error))?;
        replies.replies.truncate(commands);
        replies.replies.iter_mut().for_each(|reply| self.caller.hide(reply));
        Ok(replies)
    }

    fn refused(&self, error: Error) -> Problem {
        if error.is_fenced() {
            self.app.metrics.fenced.inc();
        }
        Problem::from(error)
    }

    /// Applies one command.
    pub(crate) fn run<O: Op>(&self, command: O) -> impl Future<Output = Result<Reply<O::Reply>, Problem>> {
        self.run_in(self.hold.batch(), command)
    }

    /// Applies one command in a batch that has its fences already.
    pub(crate) fn run_in<O: Op>(
        &self,
        mut batch: Batch,
        command: O,
    ) -> impl Future<Output = Result<Reply<O::Reply>, Problem>> {
        // Commands are large. Given to the batch at once, none is part of the futures around this one.
        let _ = batch.add(command);
        async move {
            let mut replies = self.apply(batch).await.map_err(Problem::single)?;
            let reply = replies.replies.pop().and_then(O::Reply::from_reply);
            let value = reply.ok_or_else(|| Error::corrupt("the reply is of another command"))?;
            Ok(Reply { value, replayed: replies.replayed })
        }
    }

    /// Waits for something for as long as the caller does; not at all once the server drains. A wait that nobody waits
    /// for is dropped, and has taken nothing.
    pub(crate) async fn waiting<T, E, F>(&self, most: Duration, wait: impl Fn(Duration) -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        if most.is_zero() {
            return wait(most).await;
        }
        let _waiting = self.app.metrics.waits.guard();
        tokio::select! {
            came = wait(most) => came,
            () = self.app.draining.cancelled() => wait(Duration::ZERO).await,
        }
    }
}

fn check_wait(wait: Seconds) -> Result<Duration> {
    if wait > LONGEST_WAIT {
        return Err(Error::invalid("wait_seconds", format!("{wait} s is more than {LONGEST_WAIT} s"))
            .hint("wait for less, and ask again"));
    }
    Ok(wait.into())
}

fn parse<T: FromStr>(name: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::invalid(name, format!("`{text}` cannot be read")))
}

/// Who asks, by the header; by the query only with a token for one thing, since queries are written down in places.
async fn find(app: &App, request: &Parts, query: &[(String, String)]) -> Result<Caller, Problem> {
    let bearer = match request.headers.get(header::AUTHORIZATION) {
        None => None,
        Some(value) => {
            let bearer = value.to_str().ok().and_then(|text| text.split_once(' '));
            let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let unreadable = || Problem::unauthenticated("the Authorization header is not `Bearer TOKEN`");
            Some(bearer.ok_or_else(unreadable)?.1.trim())
        }
    };
    let shown = query.iter().find(|(name, _)| name == "access_token").map(|(_, token)| token.as_str());
    let caller = app.callers.find(bearer.or(shown)).await?;
    if bearer.is_none() && caller.grant().is_some_and(|grant| grant.scope.is_none()) {
        return Err(Problem::unauthenticated("only a token for one task or thread may stand in the query"));
    }
    if caller.grant().is_none() {
        from_this_machine(request)?;
    }
    Ok(caller)
}

/// Refuses what a page from elsewhere makes a browser on this machine send, while there are no tokens.
fn from_this_machine(request: &Parts) -> Result<(), Problem> {
    let text = |name| request.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let host = request.uri.authority().map(axum::http::uri::Authority::as_str).or_else(|| text(header::HOST));
    let own = |host: &str| {
        let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        let name = name.map_or(host, |(name, _)| name);
        let ip = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        name.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
    };
    let origin = text(header::ORIGIN).map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    if host.is_some_and(own) && origin.is_none_or(own) {
        return Ok(());
    }
    let hint = "ask from this machine by its loopback address, or create tokens";
    Err(Problem::forbidden("without tokens only this machine itself may ask", hint))
}

/// A part of a path.
fn named<'a>(path: &'a Path, name: &str) -> Option<&'a str> {
    path.iter().find(|(is, _)| **is == *name).map(|(_, value)| value.as_str())
}

/// The task or thread that a path is about.
fn about(path: &str, params: &Path) -> Option<Scope> {
    let id = || named(params, "id");
    match path.split('/').nth(3)? {
        "tasks" => Some(Scope::Task(id()?.parse().ok()?)),
        "threads" => Some(Scope::Thread(id()?.to_owned())),
        _ => None,
    }
}

fn read_query(query: &str, params: &[Param]) -> Result<Vec<(String, String)>> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        let decoded = percent_decode_str(&text).decode_utf8();
        decoded.map(std::borrow::Cow::into_owned).map_err(|_| Error::invalid("query", "is not UTF-8"))
    };
    let mut read = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        let param = params.iter().find(|param| param.name == name);
        let Some(param) = param else {
            let names: Vec<_> = params.iter().map(|param| param.name).collect();
            return Err(Error::invalid(&name, format!("unknown parameter `{name}`"))
                .hint(format!("this route knows: {}", names.join(", "))));
        };
        if !param.repeats && read.iter().any(|(is, _)| *is == name) {
            return Err(Error::invalid(&name, "is there twice"));
        }
        read.push((name, value));
    }
    Ok(read)
}

async fn read_body(app: &App, body: Patient) -> Result<Bytes> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let most = app.config.max_body;
    match Limited::new(body, most).collect().await {
        Ok(read) => Ok(read.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Error::new(ErrorKind::TooLarge, format!("the body has more than {most} bytes")))
        }
        Err(error) if error.is::<Late>() => Err(Error::invalid("", error.to_string())),
        Err(error) => Err(Error::invalid("", format!("the body cannot be read: {error}"))),
    }
}

/// `task=<id>;token=<n>` or `lock=<key>;token=<n>`, several with commas or in several headers.
fn read_fences(headers: &HeaderMap) -> Result<Vec<Fence>> {
    let mut fences = Vec::new();
    for header in headers.get_all(FENCE) {
        let text = header.to_str().map_err(|_| Error::invalid(FENCE.as_str(), "is not text"))?;
        for fence in text.split(',') {
            fences.push(read_fence(fence.trim()).ok_or_else(|| {
                Error::invalid(FENCE.as_str(), format!("`{fence}` is not a fence"))
                    .hint("write task=<id>;token=<n>, or lock=<percent-encoded key>;token=<n>")
            })?);
        }
    }
    Ok(fences)
}

fn read_fence(text: &str) -> Option<Fence> {
    let (what, token) = text.split_once(';')?;
    let (kind, name) = what.trim().split_once('=')?;
    let token = Token(token.trim().strip_prefix("token=")?.trim().parse().ok()?);
    match kind {
        "task" => Some(Fence::Task { task: name.parse().ok()?, token }),
        "lock" => {
            Some(Fence::Lock { lock: percent_decode_str(name).decode_utf8().ok()?.into_owned(), token })
        }
        _ => None,
    }
}

fn read_key(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(key) = headers.get(KEY) else { return Ok(None) };
    let key = key.to_str().map_err(|_| Error::invalid(KEY.as_str(), "is not text"))?;
    limits::name(key).map_err(|problem| Error::invalid(KEY.as_str(), problem))?;
    Ok(Some(key.to_owned()))
}

/// How many bytes an answer with one task has room for, so that writing it need not look for room.
const USUAL: usize = 1536;

/// An answer in JSON.
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Result<Response, Problem> {
    let mut text = Vec::with_capacity(USUAL);
    serde_json::to_writer(&mut text, value).map_err(|e| Error::corrupt(format!("cannot be written: {e}")))?;
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// An answer that all went well.
pub(crate) fn ok<T: Serialize>(value: &T) -> Result<Response, Problem> {
    json(StatusCode::OK, value)
}

impl<R: Serialize> Reply<R> {
    /// The reply as an answer.
    pub(crate) fn answer(&self, status: StatusCode) -> Result<Response, Problem> {
        Ok(replayed(json(status, &self.value)?, self.replayed))
    }
}

/// Says of an answer that it was given before, if it was.
pub(crate) fn replayed(mut response: Response, replayed: bool) -> Response {
    if replayed {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}
