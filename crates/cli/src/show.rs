//! How answers are shown: tables and cards for people, JSON for programs. What others wrote is made harmless for
//! terminals here.

use std::cell::Cell;
use std::fmt::{self, Display, Write as _};
use std::io::{self, Write as _};

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use statehold::{Error, Json, Result, Status, Timestamp};
use statehold_core::model::{Event, Labels, Lock, Task, Token};

use crate::args::now;

/// JSON up to this length stays on one line.
const ONE_LINE: usize = 72;

/// The style of what matters less.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// The style of headings.
pub(crate) const BOLD: Style = Style::new().bold();
/// The style of what went well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// The style of what went wrong.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();

/// Where answers go.
#[derive(Debug)]
pub(crate) struct Show {
    json: bool,
    closed: Cell<bool>,
}

impl Show {
    /// For programs or for people.
    pub(crate) fn new(json: bool) -> Self {
        Self { json, closed: Cell::new(false) }
    }

    /// Whether it is for programs.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether the reader has gone, so that there is no use in going on.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// One answer: JSON for programs, the text for people.
    pub(crate) fn answer(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        if self.json { self.json(value) } else { self.line(text()) }
    }

    /// A list: one JSON value a line for programs, the table for people.
    pub(crate) fn list<T: Serialize>(&self, items: &[T], table: impl FnOnce(&[T]) -> Table) -> Result<()> {
        if self.json {
            return items.iter().try_for_each(|item| self.json(item));
        }
        self.line(table(items))
    }

    /// One line of JSON.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value)
            .map_err(|e| Error::invalid("", format!("cannot be written as JSON: {e}")))?;
        self.checked(writeln!(io::stdout(), "{text}"))
    }

    /// A line of text.
    pub(crate) fn line(&self, text: impl Display) -> Result<()> {
        let text = text.to_string();
        self.checked(writeln!(anstream::stdout(), "{}", text.trim_end_matches('\n')))
    }

    /// Bytes as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<()> {
        self.checked(io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()))
    }

    /// Something beside the answer, for people.
    pub(crate) fn note(&self, text: impl Display) {
        if !self.json {
            let _ = writeln!(anstream::stderr(), "{FAINT}{text}{FAINT:#}");
        }
    }

    /// A reader that has seen enough is no reason to fail; everything else is.
    fn checked(&self, written: io::Result<()>) -> Result<()> {
        match written {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => self.closed.set(true),
            Err(e) => {
                let message = format!("the answer cannot be written: {e}");
                return Err(Error::unavailable(message).hint("it was done; only its answer is lost"));
            }
            Ok(()) => {}
        }
        Ok(())
    }
}

/// A table without borders. Cells that are all empty take no column.
#[derive(Debug)]
pub(crate) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<Field>>,
}

/// One field of a table.
#[derive(Debug)]
pub(crate) struct Field {
    text: String,
    style: Style,
}

impl<T: Display> From<T> for Field {
    fn from(text: T) -> Self {
        Self { text: plain(&text.to_string()), style: Style::new() }
    }
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new(heads: &[&'static str]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, fields: [Field; N]) {
        self.rows.push(fields.into());
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |text: &str| text.chars().count();
        let widest = |column: usize| {
            let fields = self.rows.iter().filter_map(|row| row.get(column));
            fields.map(|field| length(&field.text)).max().unwrap_or_default()
        };
        let widths: Vec<_> = (0..self.heads.len()).map(widest).collect();
        let mut lines = vec![String::new(); self.rows.len() + 1];
        for (column, (head, width)) in self.heads.iter().zip(widths).enumerate() {
            if width == 0 && !self.rows.is_empty() {
                continue;
            }
            let width = width.max(length(head));
            let mut put = |line: usize, text: &str, style: Style| {
                let space = " ".repeat(width - length(text) + 2);
                let _ = write!(lines[line], "{style}{text}{style:#}{space}");
            };
            put(0, head, BOLD);
            for (line, row) in self.rows.iter().enumerate() {
                if let Some(field) = row.get(column) {
                    put(line + 1, &field.text, field.style);
                }
            }
        }
        lines.iter().try_for_each(|line| writeln!(f, "{}", line.trim_end()))
    }
}

/// Everything about one thing: a name and a value a line.
#[derive(Debug, Default)]
pub(crate) struct Card(Vec<(&'static str, String)>);

impl Card {
    /// Adds a line; text of others must be made harmless before.
    pub(crate) fn add(&mut self, name: &'static str, value: impl Display) {
        self.0.push((name, value.to_string()));
    }

    /// Adds a line if there is something to say.
    pub(crate) fn maybe(&mut self, name: &'static str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.add(name, plain(&value.to_string()));
        }
    }

    /// Adds JSON, on lines of its own if it is long.
    pub(crate) fn json(&mut self, name: &'static str, value: Option<&Json>) {
        if let Some(value) = value {
            self.add(name, pretty(value));
        }
    }
}

impl Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        for (name, value) in &self.0 {
            let value = value.replace('\n', &format!("\n{:width$}  ", ""));
            writeln!(f, "{FAINT}{name:width$}{FAINT:#}  {value}")?;
        }
        Ok(())
    }
}

/// Text without characters that a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Text as a shell takes it for one word.
pub(crate) fn quoted(text: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    if !text.is_empty() && text.chars().all(bare) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// JSON on one line. What a terminal would obey is escaped, which leaves the value as it is.
pub(crate) fn compact(json: &Json) -> String {
    let mut out = String::with_capacity(json.size());
    json.as_str().chars().for_each(|c| push(&mut out, c));
    out
}

fn push(out: &mut String, c: char) {
    if c.is_control() {
        let _ = write!(out, "\\u{:04x}", u32::from(c));
    } else {
        out.push(c);
    }
}

/// JSON for reading: on several lines unless it is short. Numbers stay as they were written.
pub(crate) fn pretty(json: &Json) -> String {
    if json.size() <= ONE_LINE { compact(json) } else { spread(json) }
}

/// JSON on several lines.
pub(crate) fn spread(json: &Json) -> String {
    let (mut out, mut depth, mut quoted, mut escaped) = (String::new(), 0, false, false);
    let new_line = |out: &mut String, depth: usize| {
        let _ = write!(out, "\n{:1$}", "", 2 * depth);
    };
    let mut rest = json.as_str().chars().peekable();
    while let Some(c) = rest.next() {
        if quoted {
            quoted = c != '"' || escaped;
            escaped = c == '\\' && !escaped;
            push(&mut out, c);
            continue;
        }
        match c {
            '{' | '[' if rest.peek().is_some_and(|next| matches!(next, '}' | ']')) => {
                out.push(c);
                out.extend(rest.next());
            }
            '{' | '[' => {
                depth += 1;
                out.push(c);
                new_line(&mut out, depth);
            }
            '}' | ']' => {
                depth -= 1;
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => {
                quoted = c == '"';
                out.push(c);
            }
        }
    }
    out
}

/// A time as people say it: `3m ago`, `in 20s`.
pub(crate) fn relative(at: Timestamp) -> String {
    let now = now();
    let micros = at.as_micros().abs_diff(now.as_micros());
    let seconds = micros / 1_000_000;
    let length = match seconds {
        0 => return "now".to_owned(),
        1..=99 => format!("{seconds}s"),
        100..=5999 => format!("{}m", seconds / 60),
        6000..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    };
    if at > now { format!("in {length}") } else { format!("{length} ago") }
}

/// A time to the second.
pub(crate) fn absolute(at: Timestamp) -> String {
    let text = at.to_string();
    text.split_once('.').map_or(text.clone(), |(to_the_second, _)| format!("{to_the_second}Z"))
}

/// A time both ways.
pub(crate) fn time(at: Timestamp) -> String {
    format!("{} ({})", relative(at), absolute(at))
}

/// A status in its colour.
pub(crate) fn status(status: Status) -> Field {
    Field { text: status.to_string(), style: status_style(status) }
}

/// The colour of a status.
pub(crate) fn status_style(status: Status) -> Style {
    match status {
        Status::Completed => GOOD,
        Status::Failed => BAD,
        Status::Running => AnsiColor::Cyan.on_default(),
        Status::Cancelled => AnsiColor::Yellow.on_default(),
        Status::Backlog | Status::Blocked | Status::Waiting => FAINT,
        Status::Pending => Style::new(),
    }
}

/// Labels as `key=value`.
pub(crate) fn labels(labels: &Labels) -> String {
    let pairs: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    plain(&pairs.join(", "))
}

/// An event on a line; with the name of its stream where several are mixed.
pub(crate) fn event(event: &Event, mixed: bool) -> String {
    let stream = if mixed { format!("{}  ", event.stream) } else { String::new() };
    let data = event.data.as_ref().map(|data| format!("  {}", compact(data))).unwrap_or_default();
    let actor = event.actor.as_ref().map(|actor| format!("  {FAINT}by {actor}{FAINT:#}")).unwrap_or_default();
    let (seq, at) = (event.seq, absolute(event.at));
    format!("{stream}{seq:>4}  {FAINT}{at}{FAINT:#}  {BOLD}{}{BOLD:#}{data}{actor}", event.kind)
}

/// A task whose token is not shown: a token is a secret of its holder.
pub(crate) fn without_token(mut task: Task) -> Task {
    if let Some(lease) = &mut task.lease {
        lease.token = Token::HIDDEN;
    }
    task
}

/// The same for a lock.
pub(crate) fn lock_without_token(lock: Lock) -> Lock {
    Lock { token: Token::HIDDEN, ..lock }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretty_json_is_the_same_json() -> Result<()> {
        let long = "x".repeat(80);
        for text in [
            format!(
                r#"{{"a":[],"b":{{}},"c":[1.10,12345678901234567890,{{"d":"{long}"}}],"e":"\"{{[,:\\"}}"#
            ),
            format!(r#"["{long}\u009b2J"]"#),
        ] {
            let json = Json::parse(&text)?;
            assert_eq!(Json::parse(&pretty(&json))?.as_str(), json.as_str());
            assert!(pretty(&json).lines().count() > 1);
        }
        Ok(())
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_shown() -> Result<()> {
        assert_eq!(plain("a\u{1b}[2J\u{9b}2J\r"), r"a\u{1b}[2J\u{9b}2J\r");
        let json = Json::parse("\"\u{9b}2J\u{7f}\"")?;
        assert_eq!(compact(&json), r#""\u009b2J\u007f""#);
        Ok(())
    }
}
