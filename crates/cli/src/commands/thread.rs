//! `statehold thread`: conversations.

use clap::{Args, Subcommand};
use statehold::{Error, Json, Message, Result, Said, Statehold, Thread as Row};

use crate::args::Body;
use crate::show::{self, BOLD, Card, FAINT, Show};
use crate::trouble::Exit;

/// What can be done with threads.
#[derive(Subcommand, Debug)]
pub(crate) enum Thread {
    /// Shows a thread and its last messages
    #[command(after_help = "\
Examples:
  statehold thread show 42")]
    Show {
        /// Which thread
        id: String,
        /// How many of the last messages
        #[arg(long, value_name = "COUNT", default_value = "10", value_parser = clap::value_parser!(u32).range(0..=1000))]
        messages: u32,
    },
    /// Makes a thread, or shows the one that is there
    #[command(after_help = "\
Examples:
  statehold thread create 42 --metadata '{\"topic\": \"billing\"}'")]
    Create {
        /// Its id
        id: String,
        /// What is known of it, an object: JSON, @FILE, or -
        #[arg(long, value_name = "JSON", default_value = "{}")]
        metadata: Body,
    },
    /// Merges an object into the metadata of a thread; null removes a member
    #[command(after_help = "\
Examples:
  statehold thread update 42 --metadata '{\"topic\": \"refunds\"}'")]
    Update {
        /// Which thread
        id: String,
        /// Members to set, or to remove with null: JSON, @FILE, or -
        #[arg(long, value_name = "JSON")]
        metadata: Body,
    },
    /// Adds a message
    #[command(after_help = "\
Examples:
  statehold thread say 42 user 'Where is my parcel?'
  statehold thread say 42 tool --content '{\"result\": 7}'")]
    Say(Say),
    /// Shows the last messages, oldest first
    #[command(after_help = "\
Examples:
  statehold thread messages 42 --limit 100
  statehold thread messages 42 -o json")]
    Messages {
        /// Which thread
        id: String,
        /// How many at most
        #[arg(long, value_name = "COUNT", default_value = "50")]
        limit: u32,
    },
}

/// The arguments of `statehold thread say`.
#[derive(Args, Debug)]
pub(crate) struct Say {
    /// Which thread
    id: String,
    /// Who speaks: user, assistant, tool…
    role: String,
    /// What is said
    #[arg(required_unless_present = "content")]
    text: Option<String>,
    /// Content that is not text: JSON, @FILE, or -
    #[arg(long, value_name = "JSON", conflicts_with = "text")]
    content: Option<Body>,
}

/// Does it.
pub(crate) async fn run(hold: &Statehold, thread: &Thread, show: &Show) -> Result<Exit> {
    match thread {
        Thread::Show { id, messages } => show_thread(hold, id, *messages, show).await?,
        Thread::Create { id, metadata } => {
            tell(show, &hold.threads().get_or_create(id, &metadata.read("--metadata")?).await?)?;
        }
        Thread::Update { id, metadata } => {
            tell(show, &hold.threads().update(id, &metadata.read("--metadata")?).await?)?;
        }
        Thread::Say(say) => {
            let content = match (&say.text, &say.content) {
                (_, Some(content)) => content.read("--content")?,
                (text, None) => Json::of(&text)?,
            };
            let seq = hold.threads().append(&say.id, &Message::new(&say.role, content)).await?;
            show.answer(&serde_json::json!({ "seq": seq }), || {
                format!("message {seq} of thread {}", say.id)
            })?;
        }
        Thread::Messages { id, limit } => {
            for said in hold.threads().messages(id, *limit).await? {
                show.answer(&said, || message(&said))?;
            }
        }
    }
    Ok(Exit::Success)
}

async fn show_thread(hold: &Statehold, id: &str, messages: u32, show: &Show) -> Result<()> {
    let thread = hold.threads().get(id).await?.ok_or_else(|| {
        Error::not_found("thread", id).hint("statehold thread create makes one; doc list thread shows all")
    })?;
    tell(show, &thread)?;
    if messages > 0 && !show.is_json() {
        show.line(format_args!("\n{FAINT}last messages{FAINT:#}"))?;
        for said in hold.threads().messages(id, messages).await? {
            show.line(message(&said))?;
        }
    }
    Ok(())
}

fn tell(show: &Show, thread: &Row) -> Result<()> {
    show.answer(thread, || {
        let mut card = Card::default();
        card.add("thread", show::plain(&thread.id));
        card.add("revision", thread.revision);
        card.add("updated", show::time(thread.updated_at));
        card.json("metadata", Some(&thread.metadata));
        card.to_string()
    })
}

fn message(said: &Said) -> String {
    let Message { role, content, .. } = &said.message;
    let text = content.to::<String>().map_or_else(|_| show::compact(content), |text| show::plain(&text));
    let (seq, at) = (said.seq, show::absolute(said.at));
    format!("{seq:>4}  {FAINT}{at}{FAINT:#}  {BOLD}{}{BOLD:#}  {text}", show::plain(role))
}
