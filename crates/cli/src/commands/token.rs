//! `statehold token`: who may ask a server, and for what.

use clap::{Args, Subcommand, ValueEnum};
use statehold::{Result, Seconds, Statehold};
use statehold_server::access::Role as Kind;
use statehold_server::access::tokens::{Grant, NewToken, Tokens};

use crate::args;
use crate::show::{self, Card, Show, Table};
use crate::trouble::Exit;

/// What can be done with tokens.
#[derive(Subcommand, Debug)]
pub(crate) enum Token {
    /// Makes a token, and shows it this once
    ///
    /// From the first one on, everyone who asks a server needs one.
    #[command(after_help = "\
Examples:
  statehold token create --role admin
  statehold token create --role agent --agent worker-1 --ttl 30d
  statehold token create --role orchestrator --name controller -o json")]
    Create(Create),
    /// Lists tokens, without their secrets
    #[command(after_help = "\
Examples:
  statehold token list")]
    List,
    /// Ends a token; servers notice within a second
    #[command(after_help = "\
Examples:
  statehold token revoke \"$TOKEN\"")]
    Revoke {
        /// The id that the list shows
        id: String,
    },
}

/// The arguments of `statehold token create`.
#[derive(Args, Debug)]
pub(crate) struct Create {
    /// What it may do
    #[arg(long, value_enum)]
    role: Role,
    /// Which agent it is, for agents
    #[arg(long, value_name = "NAME", required_if_eq("role", "agent"))]
    agent: Option<String>,
    /// What people call it; it goes into the events that it writes
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How long it is good for, such as 30d; forever if left out
    #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
    ttl: Option<Seconds>,
}

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Reads
    Viewer,
    /// Works on tasks as itself, and writes through the lease that it holds
    Agent,
    /// Signals, cancels, retries, evicts, pauses, frees locks
    Operator,
    /// Everything in its namespace
    Orchestrator,
    /// Tokens and namespaces
    Admin,
}

/// Does it.
pub(crate) async fn run(hold: &Statehold, token: &Token, show: &Show) -> Result<Exit> {
    let tokens = Tokens::new(hold);
    match token {
        Token::Create(args) => create(hold, &tokens, args, show).await?,
        Token::List => show.list(&tokens.list().await?, table)?,
        Token::Revoke { id } => {
            let grant = tokens.revoke(id).await?;
            show.answer(&grant, || format!("token {} of {} is revoked", grant.id, show::plain(&grant.name)))?;
        }
    }
    Ok(Exit::Success)
}

async fn create(hold: &Statehold, tokens: &Tokens, args: &Create, show: &Show) -> Result<()> {
    let role = match args.role {
        Role::Viewer => Kind::Viewer,
        Role::Agent => Kind::Agent,
        Role::Operator => Kind::Operator,
        Role::Orchestrator => Kind::Orchestrator,
        Role::Admin => Kind::Admin,
    };
    let new = NewToken {
        role,
        namespace: (role != Kind::Admin).then(|| hold.namespace().to_owned()),
        agent: args.agent.clone(),
        name: args.name.clone(),
        ttl_seconds: args.ttl,
        scope: None,
    };
    let issued = tokens.create(new, None).await?;
    show.answer(&issued, || {
        let mut card = Card::default();
        card.add("token", &issued.token);
        card.add("id", &issued.grant.id);
        card.add("role", role.as_str());
        card.add("namespace", show::plain(issued.grant.namespace.as_deref().unwrap_or("all")));
        card.add("expires", issued.grant.expires_at.map_or("never".to_owned(), show::time));
        card.to_string()
    })
}

fn table(grants: &[Grant]) -> Table {
    let mut table = Table::new(&["ID", "NAME", "ROLE", "NAMESPACE", "AGENT", "CREATED", "USED", "EXPIRES"]);
    for grant in grants {
        table.row([
            (&grant.id).into(),
            (&grant.name).into(),
            grant.role.as_str().into(),
            grant.namespace.as_deref().unwrap_or("all").into(),
            grant.agent.as_deref().unwrap_or_default().into(),
            show::relative(grant.created_at).into(),
            grant.used_at.map(show::relative).unwrap_or_default().into(),
            grant.expires_at.map(show::relative).unwrap_or_default().into(),
        ]);
    }
    table
}
