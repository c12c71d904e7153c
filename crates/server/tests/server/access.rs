//! Who may do what, over every route, every role and every command.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use statehold::Statehold;
use statehold_core::command::Command;
use statehold_server::access::Role;
use statehold_server::access::tokens::{NewToken, Scope, Tokens};
use statehold_server::{Config, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{Answer, Running, send};

const NOBODY: &str = "0198c0de-0000-7000-8000-000000000000";

async fn token(server: &Running, role: Role, namespace: &str) -> String {
    let agent = (role == Role::Agent).then(|| "worker".to_owned());
    let namespace = (role != Role::Admin).then(|| namespace.to_owned());
    let new = NewToken { role, namespace, agent, name: None, ttl_seconds: None, scope: None };
    Tokens::new(&server.hold).create(new, None).await.expect("an answer").token
}

/// A server that everyone needs a token for, and a token of each role.
async fn guarded() -> (Running, Vec<(Role, String)>) {
    let server = Running::start().await;
    let mut tokens = Vec::new();
    for role in Role::ALL {
        tokens.push((role, token(&server, role, "default").await));
    }
    (server, tokens)
}

impl Running {
    async fn as_(&self, token: &str, method: Method, path: &str, body: Value) -> Answer {
        send(self.request(method, path).bearer_auth(token).json(&body)).await
    }
}

/// The routes of the published table: method, path, and what it says of each role.
fn routes() -> Vec<(Method, String, Vec<String>)> {
    let table = statehold_server::roles();
    let lines = table.lines().skip(2);
    let read = |line: &str| {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        let route = cells[1].split('`').nth(1).expect("good");
        let (method, path) = route.split_once(' ').expect("good");
        (method.parse().expect("good"), path.to_owned(), cells[2..7].to_vec())
    };
    lines.map(read).collect()
}

/// Whether a route needs no token.
fn is_open(path: &str) -> bool {
    ["/health/live", "/health/ready", "/openapi.json", "/docs"].contains(&path)
}

fn filled(path: &str, namespace: &str) -> String {
    let path = path.replace("{namespace}", namespace).replace("{id}", NOBODY);
    let parts = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
    format!("/{}", parts.collect::<Vec<_>>().join("/"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_lets_through_whom_the_table_says_and_nobody_else() {
    let (server, tokens) = guarded().await;
    let routes = routes();
    assert!(routes.len() > 70, "all routes are in the table");
    for (method, path, cells) in routes {
        let open = is_open(&path);
        let own = filled(&path, "default");
        let bare = send(server.client.request(method.clone(), format!("{}{}", server.url, &own[1..]))).await;
        assert_eq!(bare.status == StatusCode::UNAUTHORIZED, !open, "{method} {path}: {bare:?}");
        for ((role, token), cell) in tokens.iter().zip(&cells) {
            let asked = send(
                server.request(method.clone(), &own).bearer_auth(token).header("accept", "application/json"),
            )
            .await;
            let through = asked.status != StatusCode::FORBIDDEN && asked.status != StatusCode::UNAUTHORIZED;
            // Where it depends on what is sent, nothing was sent that would let it through.
            let depends = cell == "through its lease"
                && asked.body["detail"].as_str().is_some_and(|d| d.contains("through the lease"));
            assert_eq!(through || depends, !cell.is_empty(), "{method} {path} as {role:?}: {asked:?}");
            if path.contains("{namespace}") {
                let foreign =
                    send(server.request(method.clone(), &filled(&path, "other")).bearer_auth(token)).await;
                foreign.refused(403, "forbidden");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_one_thing_opens_no_route_to_anything_else() {
    let server = Running::start().await;
    let (task, thread) = (Scope::Task(NOBODY.parse().expect("an id")), Scope::Thread(NOBODY.to_owned()));
    for (scope, noun) in [(task, "/tasks/{id}"), (thread, "/threads/{id}")] {
        for (at, role) in [Role::Viewer, Role::Agent].into_iter().enumerate() {
            let agent = (role == Role::Agent).then(|| "worker".to_owned());
            let (namespace, scope) = (Some("default".to_owned()), Some(scope.clone()));
            let new = NewToken { role, namespace, agent, name: None, ttl_seconds: None, scope };
            let token = Tokens::new(&server.hold).create(new, None).await.expect("a token").token;
            for (method, path, cells) in routes() {
                let asked = server.request(method.clone(), &filled(&path, "default")).bearer_auth(&token);
                let asked = send(asked.header("accept", "application/json")).await;
                let own = path.contains(noun) && !cells[at].is_empty();
                let through = asked.status != StatusCode::FORBIDDEN;
                assert!(!through || own || is_open(&path), "{method} {path}: {asked:?}");
                assert!(through || !own || method != Method::GET, "{method} {path}: {asked:?}");
            }
        }
    }
}

/// Each command, made so that nothing is wrong with it but who sends it.
fn commands() -> Vec<Value> {
    let source = json!({ "category": "c" });
    let deliveries = json!([{ "position": "00", "delivery_token": 1 }]);
    vec![
        json!({ "op": "task.create", "kind": "k" }),
        json!({ "op": "task.start", "id": NOBODY, "owner": "worker" }),
        json!({ "op": "task.renew", "id": NOBODY, "token": 1 }),
        json!({ "op": "task.complete", "id": NOBODY, "token": 1 }),
        json!({ "op": "task.fail", "id": NOBODY, "token": 1, "error": { "message": "m" } }),
        json!({ "op": "task.release", "id": NOBODY, "token": 1 }),
        json!({ "op": "task.suspend", "id": NOBODY, "token": 1, "waiting_for": { "signal": "s" } }),
        json!({ "op": "task.signal", "id": NOBODY, "name": "s" }),
        json!({ "op": "task.cancel", "id": NOBODY }),
        json!({ "op": "task.evict", "id": NOBODY }),
        json!({ "op": "task.retry", "id": NOBODY }),
        json!({ "op": "task.promote", "id": NOBODY }),
        json!({ "op": "task.park", "id": NOBODY }),
        json!({ "op": "task.amend", "id": NOBODY }),
        json!({ "op": "task.purge", "id": NOBODY }),
        json!({ "op": "queue.set", "queue": "q", "paused": true }),
        json!({ "op": "stream.append", "stream": "a/b", "events": [{ "type": "t" }] }),
        json!({ "op": "stream.trim", "stream": "a/b", "to": { "length": 1 } }),
        json!({ "op": "stream.purge", "stream": "a/b" }),
        json!({ "op": "group.ack", "group": "g", "source": source, "deliveries": deliveries }),
        json!({ "op": "group.nack", "group": "g", "source": source, "deliveries": deliveries }),
        json!({ "op": "group.seek", "group": "g", "source": source, "to": "oldest" }),
        json!({ "op": "document.put", "kind": "k", "name": "n", "body": 1 }),
        json!({ "op": "document.delete", "kind": "k", "name": "n" }),
        json!({ "op": "entry.set", "key": "k", "value": 1 }),
        json!({ "op": "entry.take", "key": "k" }),
        json!({ "op": "entry.delete", "key": "k" }),
        json!({ "op": "lock.acquire", "key": "k", "owner": "worker" }),
        json!({ "op": "lock.renew", "key": "k", "token": 1 }),
        json!({ "op": "lock.release", "key": "k", "token": 1 }),
        json!({ "op": "lock.force_release", "key": "k" }),
    ]
}

const OPERATE: [&str; 8] = [
    "task.signal",
    "task.cancel",
    "task.evict",
    "task.retry",
    "task.promote",
    "task.park",
    "queue.set",
    "lock.force_release",
];
const WORK: [&str; 11] = [
    "task.start",
    "task.renew",
    "task.complete",
    "task.fail",
    "task.release",
    "task.suspend",
    "group.ack",
    "group.nack",
    "lock.acquire",
    "lock.renew",
    "lock.release",
];
const FENCED: [&str; 9] = [
    "task.create",
    "task.amend",
    "task.signal",
    "stream.append",
    "document.put",
    "document.delete",
    "entry.set",
    "entry.take",
    "entry.delete",
];

fn may(role: Role, op: &str, fenced: bool) -> bool {
    match role {
        Role::Viewer | Role::Admin => false,
        Role::Agent => WORK.contains(&op) || (fenced && FENCED.contains(&op)),
        Role::Operator => OPERATE.contains(&op),
        Role::Orchestrator => true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_judged_command_by_command_wherever_a_command_stands() {
    let (server, tokens) = guarded().await;
    let commands = commands();
    let named: Vec<_> = commands.iter().map(|command| command["op"].as_str().expect("text")).collect();
    assert_eq!(named, Command::NAMES, "every command is judged here");
    for (role, token) in &tokens {
        // Something around it that the role may do; those who may do nothing have nothing.
        let allowed = match role {
            Role::Operator => Some(json!({ "op": "queue.set", "queue": "first", "paused": false })),
            Role::Agent | Role::Orchestrator => {
                Some(json!({ "op": "entry.set", "key": "result/first", "value": 1 }))
            }
            Role::Viewer | Role::Admin => None,
        };
        for command in &commands {
            let op = command["op"].as_str().expect("text");
            for fenced in [false, true] {
                // Alone, last, first, and in the middle.
                for [first, last] in [[false, false], [true, false], [false, true], [true, true]] {
                    let fences = if fenced { json!([{ "task": NOBODY, "token": 1 }]) } else { json!([]) };
                    let around = |is: bool| allowed.clone().filter(|_| is);
                    let all = around(first).into_iter().chain([command.clone()]).chain(around(last));
                    let all: Vec<_> = all.collect();
                    let asked = server
                        .as_(token, Method::POST, "/batch", json!({ "fences": fences, "commands": all }))
                        .await;
                    let through = asked.status != StatusCode::FORBIDDEN;
                    assert_eq!(
                        through,
                        may(*role, op, fenced),
                        "{op} as {role:?}, fenced {fenced}: {asked:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_lease_is_shown_to_its_owner_and_to_orchestrators_alone() {
    let (server, tokens) = guarded().await;
    let of = |role| &tokens.iter().find(|(is, _)| *is == role).expect("good").1;
    let orchestrator = of(Role::Orchestrator);
    let id =
        server.as_(orchestrator, Method::POST, "/tasks", json!({ "kind": "k" })).await.ok()["task"]["id"]
            .clone();
    let id = id.as_str().expect("text");
    let claim = json!({ "queues": ["default"], "owner": "worker" });
    let claimed = server.as_(of(Role::Agent), Method::POST, "/tasks/claim", claim).await.ok();
    assert!(claimed["tasks"][0]["lease"]["token"].is_i64());
    server.as_(of(Role::Agent), Method::POST, "/locks/k/acquire", json!({ "owner": "worker" })).await.ok();
    let new = NewToken {
        role: Role::Agent,
        namespace: Some("default".into()),
        agent: Some("other".into()),
        name: None,
        ttl_seconds: None,
        scope: None,
    };
    let other = Tokens::new(&server.hold).create(new, None).await.expect("an answer").token;
    for (token, shown) in [
        (orchestrator, true),
        (of(Role::Agent), true),
        (&other, false),
        (of(Role::Viewer), false),
        (of(Role::Operator), false),
    ] {
        let sees = |value: &Value| value["token"].is_i64();
        let get = async |path: &str| server.as_(token, Method::GET, path, json!({})).await.ok();
        assert_eq!(sees(&get(&format!("/tasks/{id}")).await["lease"]), shown);
        assert_eq!(sees(&get("/tasks").await["items"][0]["lease"]), shown);
        assert_eq!(sees(&get(&format!("/tasks/{id}/wait")).await["lease"]), shown);
        assert_eq!(sees(&get("/locks/k").await), shown);
        assert_eq!(sees(&get("/locks").await["items"][0]), shown);
        assert_eq!(get("/locks/k").await["owner"], "worker", "the rest is told");
    }
    let cancelled = server
        .as_(
            of(Role::Operator),
            Method::POST,
            "/batch",
            json!({ "commands": [{ "op": "task.cancel", "id": id }] }),
        )
        .await
        .ok();
    let lease = &cancelled["replies"][0]["lease"];
    assert_eq!((&lease["owner"], &lease["token"]), (&json!("worker"), &Value::Null));
    let freed = server.as_(of(Role::Operator), Method::POST, "/locks/k/force-release", json!({})).await.ok();
    assert_eq!((&freed["previous"]["owner"], &freed["previous"]["token"]), (&json!("worker"), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_works_as_itself_and_writes_through_its_lease() {
    let (server, tokens) = guarded().await;
    let agent = &tokens[1].1;
    let claim = |owner: &str| json!({ "queues": ["default"], "owner": owner });
    server.as_(agent, Method::POST, "/tasks/claim", claim("another")).await.refused(403, "forbidden");
    server
        .as_(agent, Method::POST, "/locks/k/acquire", json!({ "owner": "another" }))
        .await
        .refused(403, "forbidden");
    server.hold.tasks().create(statehold::TaskCreate::new("k")).await.expect("an answer");
    let claimed = server.as_(agent, Method::POST, "/tasks/claim", claim("worker")).await.ok();
    let (id, token) = (&claimed["tasks"][0]["id"], &claimed["tasks"][0]["lease"]["token"]);
    let put = |fence: Option<String>| {
        let request =
            server.request(Method::PUT, "/documents/note/1").bearer_auth(agent).json(&json!({ "body": 1 }));
        send(match fence {
            Some(fence) => request.header("statehold-fence", fence),
            None => request,
        })
    };
    put(None).await.refused(403, "forbidden");
    put(Some("lock=k;token=1".into())).await.refused(403, "forbidden");
    put(Some(format!("task={};token={token}", id.as_str().expect("text")))).await.is(200);
    put(Some(format!("task={};token=1", id.as_str().expect("text")))).await.refused(409, "fenced");
    server.as_(agent, Method::PUT, "/results/7", json!({ "value": 1 })).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_one_task_is_good_for_that_one_and_ends_by_itself() {
    let (server, tokens) = guarded().await;
    let orchestrator = &tokens[3].1;
    let task = async || {
        server.as_(orchestrator, Method::POST, "/tasks", json!({ "kind": "k" })).await.ok()["task"]["id"]
            .as_str()
            .expect("good")
            .to_owned()
    };
    let (one, other) = (task().await, task().await);
    let started = server
        .as_(orchestrator, Method::POST, &format!("/tasks/{one}/start"), json!({ "owner": "sandbox" }))
        .await
        .ok();
    let lease = &started["lease"]["token"];
    let access = async |role: &str, ttl: f64| {
        let body = json!({ "role": role, "ttl_seconds": ttl });
        server.as_(orchestrator, Method::POST, &format!("/tasks/{one}/access"), body).await.is(201)["token"]
            .as_str()
            .expect("good")
            .to_owned()
    };
    let (viewer, agent) = (access("viewer", 60.0).await, access("agent", 60.0).await);
    server.as_(&viewer, Method::GET, &format!("/tasks/{one}"), json!({})).await.is(200);
    for path in
        [format!("/tasks/{other}"), "/tasks".into(), "/queues".into(), format!("/streams/task/{one}/events")]
    {
        server.as_(&viewer, Method::GET, &path, json!({})).await.refused(403, "forbidden");
        server.as_(&agent, Method::GET, &path, json!({})).await.refused(403, "forbidden");
    }
    let renew = json!({ "token": lease });
    server
        .as_(&viewer, Method::POST, &format!("/tasks/{one}/renew"), renew.clone())
        .await
        .refused(403, "forbidden");
    server.as_(&agent, Method::POST, &format!("/tasks/{one}/renew"), renew).await.is(200);
    server.as_(&agent, Method::POST, "/batch", json!({ "commands": [] })).await.refused(403, "forbidden");
    let shown =
        send(server.client.get(format!("{}/v1/default/tasks/{one}?access_token={viewer}", server.url))).await;
    shown.is(200);
    let whole = &tokens[0].1;
    send(server.client.get(format!("{}/v1/default/tasks/{one}?access_token={whole}", server.url)))
        .await
        .refused(401, "unauthenticated");
    let brief = access("viewer", 0.2).await;
    let path = format!("/tasks/{one}");
    let ended = async { while server.as_(&brief, Method::GET, &path, json!({})).await.status != 401 {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), ended).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_made_listed_and_revoked_and_never_kept() {
    let server = Running::with(|config| config.bootstrap_token = Some("b".repeat(40))).await;
    let admin = "b".repeat(40);
    server.get("/tasks").await.refused(401, "unauthenticated");
    let new = json!({ "role": "orchestrator", "namespace": "default", "name": "controller" });
    let made = server.as_(&admin, Method::POST, "//v1/tokens", new).await.is(201);
    let secret = made["token"].as_str().expect("text");
    server.as_(secret, Method::POST, "/tasks", json!({ "kind": "k" })).await.is(201);
    assert_eq!(
        server.as_(secret, Method::GET, "//v1/whoami", json!({})).await.ok()["grant"]["role"],
        "orchestrator"
    );
    server.as_(secret, Method::GET, "//v1/tokens", json!({})).await.refused(403, "forbidden");
    let listed = server.as_(&admin, Method::GET, "//v1/tokens", json!({})).await.ok();
    assert!(
        listed["items"]
            .as_array()
            .expect("good")
            .iter()
            .any(|grant| grant["id"] == made["id"] && grant["used_at"].is_string())
    );
    let file = server.store.url.strip_prefix("sqlite:").expect("a file");
    let kept = std::fs::read(file).expect("good");
    let log = std::fs::read(format!("{file}-wal")).unwrap_or_default();
    for bytes in [kept, log] {
        assert!(
            !String::from_utf8_lossy(&bytes).contains(secret.trim_start_matches("sth_")),
            "only the hash is kept"
        );
    }
    assert_eq!(
        server.as_(&admin, Method::GET, "//v1/namespaces", json!({})).await.ok()["items"],
        json!([{ "namespace": "default" }])
    );
    server
        .as_(
            &admin,
            Method::DELETE,
            &format!("//v1/tokens/{}", made["id"].as_str().expect("text")),
            json!({}),
        )
        .await
        .is(200);
    let ended = async { while server.as_(secret, Method::GET, "/tasks", json!({})).await.status != 401 {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), ended).await.expect("it ends");
    for bad in [
        json!({ "role": "agent", "namespace": "default" }),
        json!({ "role": "viewer" }),
        json!({ "role": "admin", "namespace": "x" }),
    ] {
        server.as_(&admin, Method::POST, "//v1/tokens", bad).await.refused(400, "invalid");
    }
    let acts = server.as_(&admin, Method::GET, "//v1/audit", json!({})).await.ok();
    let acts: Vec<_> =
        acts["items"].as_array().expect("a list").iter().map(|act| act["type"].clone()).collect();
    assert_eq!(acts, ["token.create", "token.create", "token.revoke"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_and_orchestrators_do_is_audited_with_the_act() {
    let (server, tokens) = guarded().await;
    let (operator, orchestrator) = (&tokens[2].1, &tokens[3].1);
    let id =
        server.as_(orchestrator, Method::POST, "/tasks", json!({ "kind": "k" })).await.ok()["task"]["id"]
            .clone();
    let cancel = format!("/tasks/{}/cancel", id.as_str().expect("text"));
    let twice = || {
        let request =
            server.request(Method::POST, &cancel).bearer_auth(operator).header("idempotency-key", "once");
        send(request.json(&json!({})))
    };
    twice().await.is(200);
    assert_eq!(twice().await.headers["idempotency-replayed"], "true", "an audited act can be repeated");
    server.as_(operator, Method::POST, &cancel, json!({})).await.refused(409, "invalid_transition");
    let acts = server.as_(&tokens[0].1, Method::GET, "/audit", json!({})).await.ok();
    let acts: Vec<_> = acts["items"]
        .as_array()
        .expect("good")
        .iter()
        .map(|act| (act["type"].clone(), act["actor"].clone()))
        .collect();
    assert_eq!(
        acts,
        [(json!("task.create"), json!("orchestrator")), (json!("task.cancel"), json!("operator"))]
    );
    let forged = json!({ "events": [{ "type": "x" }] });
    server.as_(orchestrator, Method::POST, "/streams/audit/x/events", forged).await.refused(403, "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_this_machine_nothing_is_served_without_tokens() {
    let hold = Statehold::open("memory:").await.expect("an answer");
    let config = || Config::new(([0, 0, 0, 0], 0).into());
    let refused = Server::bind(&hold, config()).await.expect_err("refused");
    assert!(refused.hint_text().expect("good").contains("token create"), "{refused}");
    let server = Running::start().await;
    for (name, value) in [("host", "evil.example"), ("origin", "https://evil.example")] {
        send(server.request(Method::GET, "/tasks").header(name, value)).await.refused(403, "forbidden");
    }
    send(server.request(Method::GET, "/tasks").header("origin", server.url.clone())).await.is(200);
    send(server.request(Method::GET, "/tasks").bearer_auth("sth_unknown"))
        .await
        .refused(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_sends_too_much_is_told_to_wait() {
    let server = Running::with(|config| config.rate = Some(5)).await;
    let mut refused = 0;
    for _ in 0..50 {
        let answer = server.get("/queues").await;
        if answer.status == 429 {
            assert_eq!(answer.headers["retry-after"], "1");
            answer.refused(429, "too_many_requests");
            refused += 1;
        }
    }
    assert!(refused > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_from_elsewhere_are_allowed_nothing() {
    let (server, tokens) = guarded().await;
    let from_elsewhere = |method| {
        let request = server.request(method, "/tasks").header("origin", "https://elsewhere.example");
        send(request.header("access-control-request-method", "POST").bearer_auth(&tokens[3].1))
    };
    for (method, status) in [(Method::OPTIONS, 405), (Method::GET, 200)] {
        let answer = from_elsewhere(method).await;
        assert_eq!(answer.status.as_u16(), status);
        let allowed = answer.headers.keys().find(|name| name.as_str().starts_with("access-control"));
        assert!(allowed.is_none(), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_connections_than_allowed_wait_for_their_turn() {
    let server = Running::with(|config| config.max_connections = 2).await;
    let address = server.url.trim_start_matches("http://").to_owned();
    let ask = async |stream: &mut TcpStream| {
        stream.write_all(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("it is sent");
    };
    let answered = async |stream: &mut TcpStream| stream.read_u8().await.expect("an answer");
    let mut connections = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(&address).await.expect("a connection");
        ask(&mut stream).await;
        connections.push(stream);
    }
    let [first, second, third] = &mut connections[..] else { panic!("there are three") };
    answered(first).await;
    answered(second).await;
    let waits = tokio::time::timeout(Duration::from_millis(300), answered(third)).await;
    assert!(waits.is_err(), "the third is not answered while there are two");
    drop(connections.remove(0));
    let third = answered(&mut connections[1]);
    tokio::time::timeout(Duration::from_secs(60), third).await.expect("its turn has come");
}
