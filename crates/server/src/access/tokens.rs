//! Tokens: what they are for, and how they are kept. Only their hashes are stored, as documents of a namespace that
//! no route reaches.

use serde::{Deserialize, Serialize};
use statehold::{Error, Json, NewEvent, Result, Seconds, Statehold, Timestamp};
use statehold_core::command::{DocumentDelete, DocumentPut, EntrySet, StreamAppend};
use statehold_core::model::{AUDIT_CATEGORY, Document, StreamName, TaskId};
use statehold_core::query::{DocumentList, KeyList};
use utoipa::ToSchema;

use super::Role;

/// The namespace that belongs to the server.
pub const RESERVED: &str = "_statehold";

const KIND: &str = "token";
/// A document that says that this store has had tokens. Without it a server on loopback asks for none.
const MARK: (&str, &str) = ("access", "required");
/// Entries that say when tokens were used.
const USED: &str = "token-used/";
/// How long it is remembered.
const USED_KEPT: Seconds = Seconds::new(366 * 86_400);

/// What a token is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// The id of the token, which is no secret.
    pub id: String,
    /// What people call it; it goes into the events that it writes.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// Where; an admin's is for all.
    pub namespace: Option<String>,
    /// Which agent it is, for agents.
    pub agent: Option<String>,
    /// The one thing that it is for, if it is.
    #[serde(default)]
    pub scope: Option<Scope>,
    /// Who made it.
    pub created_by: Option<String>,
    /// When.
    #[serde(default)]
    pub created_at: Timestamp,
    /// When it ends by itself.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to about a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Timestamp>,
}

/// The one thing that a token is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// A task, with its events.
    Task(TaskId),
    /// A thread, with its messages.
    Thread(String),
}

/// What can be said of a new token.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// What it may do.
    pub role: Role,
    /// Where; an admin's is for all, and has none.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Which agent it is; agents must have one.
    #[serde(default)]
    pub agent: Option<String>,
    /// What people call it; the role and the agent if left out.
    #[serde(default)]
    pub name: Option<String>,
    /// How long it is good for; forever if left out.
    #[serde(default)]
    pub ttl_seconds: Option<Seconds>,
    /// The one thing that it is for; set by the server.
    #[serde(skip)]
    pub scope: Option<Scope>,
}

/// A new token: the only time that it is shown.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Issued {
    /// The secret.
    pub token: String,
    /// What it is for.
    #[serde(flatten)]
    pub grant: Grant,
}

/// How a grant is kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    hash: String,
    grant: Grant,
}

/// The tokens of a store.
#[derive(Clone, Debug)]
pub struct Tokens {
    hold: Statehold,
}

impl Tokens {
    /// The tokens of the store that `hold` is at, changed in its actor's name.
    pub fn new(hold: &Statehold) -> Self {
        Self { hold: hold.at(RESERVED) }
    }

    /// Makes a token.
    pub async fn create(&self, new: NewToken, by: Option<&str>) -> Result<Issued> {
        let mut secret = [0_u8; 32];
        getrandom::fill(&mut secret).map_err(|e| Error::unavailable(format!("no randomness: {e}")))?;
        let token = format!("sth_{}", blake3::Hash::from_bytes(secret).to_hex());
        let grant = self.keep(&token, new, by).await?;
        Ok(Issued { token, grant })
    }

    /// Makes the token that a file brought, unless it is there already. It may do what an admin may.
    pub async fn bootstrap(&self, token: &str) -> Result<()> {
        if token.len() < 32 {
            return Err(Error::invalid("bootstrap token", "is shorter than 32 characters")
                .hint("write a long random text into the file, such as `openssl rand -hex 32` gives"));
        }
        if self.find(token).await?.is_none() {
            let (role, name) = (Role::Admin, Some("bootstrap".to_owned()));
            let new = NewToken { role, namespace: None, agent: None, name, ttl_seconds: None, scope: None };
            self.keep(token, new, None).await?;
        }
        Ok(())
    }

    async fn keep(&self, token: &str, new: NewToken, by: Option<&str>) -> Result<Grant> {
        check(&new)?;
        let NewToken { role, namespace, agent, name, ttl_seconds, scope } = new;
        let hash = blake3::hash(token.as_bytes());
        let name = name.or_else(|| agent.clone()).unwrap_or_else(|| role.as_str().to_owned());
        let (id, created_by) = (id_of(&hash), by.map(str::to_owned));
        let grant = Grant {
            id: id.clone(),
            name,
            role,
            namespace,
            agent,
            scope,
            created_by,
            created_at: Timestamp::default(),
            expires_at: None,
            used_at: None,
        };
        let body = Json::of(&Kept { hash: hash.to_hex().to_string(), grant: grant.clone() })?;
        let mut batch = self.hold.batch();
        batch.add(DocumentPut { ttl_seconds, ..DocumentPut::json(KIND, &id, body) });
        batch.add(DocumentPut::json(MARK.0, MARK.1, Json::null()));
        // What a scoped token lets its bearer do is noted where it is done.
        if grant.scope.is_none() {
            batch.add(audited("token.create", &grant)?);
        }
        self.hold.apply(batch).await?;
        let kept = self.hold.documents().get(KIND, &id).await?;
        Ok(kept.and_then(|document| read(&document)).map_or(grant, |(_, grant)| grant))
    }

    /// What a token is for, if there is such a token.
    pub async fn find(&self, token: &str) -> Result<Option<Grant>> {
        let hash = blake3::hash(token.as_bytes());
        let document = self.hold.documents().get(KIND, &id_of(&hash)).await?;
        // Hashes compare in constant time.
        Ok(document.as_ref().and_then(read).filter(|(kept, _)| *kept == hash).map(|(_, grant)| grant))
    }

    /// All tokens, with when they were last used.
    pub async fn list(&self) -> Result<Vec<Grant>> {
        let mut grants = Vec::new();
        let mut list = DocumentList { limit: 1000, ..DocumentList::new(KIND) };
        loop {
            let page = self.hold.documents().list(&list).await?;
            grants.extend(page.items.iter().filter_map(read).map(|(_, grant)| grant));
            list.cursor = page.next_cursor;
            if list.cursor.is_none() {
                break;
            }
        }
        let mut used = KeyList { prefix: USED.to_owned(), limit: 1000, cursor: None };
        loop {
            let page = self.hold.entries().list(&used).await?;
            for entry in page.items {
                let id = entry.key.strip_prefix(USED).unwrap_or_default();
                if let Some(grant) = grants.iter_mut().find(|grant| grant.id == id) {
                    grant.used_at = Some(entry.set_at);
                }
            }
            used.cursor = page.next_cursor;
            if used.cursor.is_none() {
                return Ok(grants);
            }
        }
    }

    /// Ends a token. Servers notice within a second.
    pub async fn revoke(&self, id: &str) -> Result<Grant> {
        let document = self.hold.documents().get(KIND, id).await?;
        let (_, grant) = document.as_ref().and_then(read).ok_or_else(|| Error::not_found("token", id))?;
        let mut batch = self.hold.batch();
        let expect = statehold_core::command::Expect::Any;
        batch.add(DocumentDelete { kind: KIND.to_owned(), name: id.to_owned(), expect });
        batch.add(audited("token.revoke", &grant)?);
        self.hold.apply(batch).await?;
        Ok(grant)
    }

    /// Notes that a token was used.
    pub async fn used(&self, id: &str) -> Result<()> {
        let set = EntrySet { ttl_seconds: USED_KEPT, ..EntrySet::new(format!("{USED}{id}"), Json::null()) };
        self.hold.entries().set_with(set).await.map(drop)
    }

    /// Whether this store ever had a token. From then on everyone needs one.
    pub async fn required(&self) -> Result<bool> {
        Ok(self.hold.documents().get(MARK.0, MARK.1).await?.is_some())
    }
}

fn id_of(hash: &blake3::Hash) -> String {
    hash.to_hex().chars().take(16).collect()
}

fn check(new: &NewToken) -> Result<()> {
    if (new.role == Role::Agent) != new.agent.is_some() {
        return Err(Error::invalid("agent", "an agent's token names its agent, and no other token does"));
    }
    if (new.role == Role::Admin) != new.namespace.is_none() {
        return Err(Error::invalid("namespace", "every token but an admin's is for one namespace")
            .hint("say which namespace it is for, such as default"));
    }
    Ok(())
}

fn read(document: &Document) -> Option<(blake3::Hash, Grant)> {
    let Kept { hash, grant } = document.body.as_ref()?.to().ok()?;
    let (created_at, expires_at) = (document.updated_at, document.expires_at);
    Some((blake3::Hash::from_hex(hash).ok()?, Grant { created_at, expires_at, ..grant }))
}

/// The event that tells of an act on a token.
fn audited(act: &str, grant: &Grant) -> Result<StreamAppend> {
    let Grant { id, name, role, namespace, agent, .. } = grant;
    let data = serde_json::json!({
        "token": id, "name": name, "role": role, "namespace": namespace, "agent": agent,
    });
    let stream = StreamName::new(AUDIT_CATEGORY, "tokens")?;
    Ok(StreamAppend { stream, events: vec![NewEvent::new(act).data(Json::of(&data)?)], expect_seq: None })
}
