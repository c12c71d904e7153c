//! Every example in the description does what the description says.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Running, send};

/// A namespace of an example's own, in which things are made ready for it.
struct Place<'a> {
    server: &'a Running,
    namespace: String,
}

impl Place<'_> {
    async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let path = format!("//v1/{}{path}", self.namespace);
        self.server.ask(method.parse().expect("a method"), &path, body).await.ok()
    }

    /// A task in the status that an action is for, and the token of its lease.
    async fn task(&self, action: &str) -> (String, Value) {
        let made = self.ask("POST", "/tasks", json!({ "kind": "k" })).await;
        let id = made["task"]["id"].as_str().expect("an id").to_owned();
        let path = format!("/tasks/{id}");
        let before = match action {
            "retry" | "purge" => "cancel",
            "promote" => "park",
            "start" | "park" | "amend" | "cancel" | "access" => return (id, Value::Null),
            _ => {
                let started =
                    self.ask("POST", &format!("{path}/start"), json!({ "owner": "worker-1" })).await;
                return (id, started["lease"]["token"].clone());
            }
        };
        self.ask("POST", &format!("{path}/{before}"), json!({})).await;
        (id, Value::Null)
    }

    /// Makes ready what a route is about; answers its path, and what the example must name of it.
    async fn ready(&self, method: &str, path: &str) -> (String, Value) {
        let last = path.rsplit('/').next().unwrap_or_default();
        let noun = path.split('/').nth(3).unwrap_or_default();
        let path = path.replace("{namespace}", &self.namespace);
        match noun {
            "tasks" if path.contains("{id}") => {
                let action = match (method, last) {
                    ("DELETE", _) => "purge",
                    ("PATCH", _) => "amend",
                    (_, last) => last,
                };
                let (id, token) = self.task(action).await;
                (path.replace("{id}", &id).replace("{name}", "approval"), json!({ "token": token }))
            }
            "locks" if last != "acquire" => {
                let lock = self.ask("POST", "/locks/k/acquire", json!({ "owner": "controller-1" })).await;
                (path.replace("{key}", "k"), json!({ "token": lock["token"] }))
            }
            "groups" => {
                self.task("start").await;
                let read = json!({ "source": { "category": "task" }, "consumer": "worker-1", "limit": 1 });
                let deliveries = match last {
                    "read" => Value::Null,
                    _ => self.ask("POST", "/groups/g/read", read).await["events"].take(),
                };
                let named = |event: &Value| json!({ "position": event["position"], "delivery_token": event["delivery_token"] });
                let deliveries: Option<Vec<_>> =
                    deliveries.as_array().map(|events| events.iter().map(named).collect());
                (path.replace("{group}", "g"), json!({ "deliveries": deliveries }))
            }
            _ => {
                self.thing(noun, method, last).await;
                let parts = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
                (parts.collect::<Vec<_>>().join("/"), json!({}))
            }
        }
    }

    /// The thread, document or stream that a route changes.
    async fn thing(&self, noun: &str, method: &str, last: &str) {
        match (noun, method) {
            ("threads", _) if last != "threads" => {
                self.ask("POST", "/threads", json!({ "id": "1", "metadata": {} })).await;
            }
            ("documents", "PATCH") => {
                self.ask("PUT", "/documents/1/1", json!({ "body": { "state": "new" } })).await;
            }
            ("streams", _) if last != "events" => {
                self.ask("POST", "/streams/1/1/events", json!({ "events": [{ "type": "t" }] })).await;
            }
            _ => {}
        }
    }
}

/// The example, naming what is there.
fn naming(mut example: Value, there: &Value) -> Value {
    for (name, value) in there.as_object().expect("an object") {
        if let Some(field) = example.get_mut(name) {
            *field = value.clone();
        }
    }
    example
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_in_the_description_does_what_it_says() {
    let server = Running::start().await;
    let api: Value = serde_json::from_str(&statehold_server::openapi()).expect("JSON");
    let paths = api["paths"].as_object().expect("paths");
    let routes = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods");
        methods.iter().map(move |(method, route)| (path, method.to_uppercase(), route))
    });
    let mut tried = 0;
    for (path, method, route) in routes {
        let bodies = route["requestBody"]["content"].as_object().into_iter().flatten();
        for (media, body) in bodies.filter(|(media, _)| media.contains("json")) {
            // From the first token on everyone needs one.
            let gives_tokens = path == "/v1/tokens" || path.ends_with("/access");
            let own = if gives_tokens { Some(Running::start().await) } else { None };
            let server = own.as_ref().unwrap_or(&server);
            let place = Place { server, namespace: format!("example-{tried}") };
            let (filled, there) = place.ready(&method, path).await;
            let example = naming(body.get("example").cloned().unwrap_or_else(|| json!({})), &there);
            let asked: Method = method.parse().expect("a method");
            let request = server.request(asked, &format!("/{filled}")).header("content-type", media);
            let answer = send(request.body(example.to_string())).await;
            assert!(answer.status.is_success(), "{method} {path} {media} {example}: {answer:?}");
            assert!(
                route["responses"].get(answer.status.as_str()).is_some(),
                "{method} {path}: {} is documented",
                answer.status
            );
            tried += 1;
        }
    }
    assert!(tried > 40, "only {tried} examples were tried");
}
