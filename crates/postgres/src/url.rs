//! The parts of a store's URL: what the driver reads, and what is ours.

use std::collections::BTreeMap;
use std::time::Duration;

use statehold_core::{Error, Result};

/// How a URL is written.
pub(crate) const HINT: &str = "write postgres://user:password@host:5432/database";

/// The parameters that are ours.
const OWN: &[&str] = &[
    "sslmode",
    "sslrootcert",
    "password_file",
    "password_command",
    "schema",
    "pool_max",
    "poll_only",
    "pooled",
    "statement_timeout",
    "lock_timeout",
];

/// The parameters that the driver reads.
const DRIVERS: &[&str] = &[
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "connect_timeout",
    "options",
    "target_session_attrs",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "tcp_user_timeout",
    "channel_binding",
    "load_balance_hosts",
    "sslnegotiation",
];

/// A URL taken apart.
pub(crate) struct Parts {
    /// The URL as the driver reads it.
    pub(crate) plain: String,
    pub(crate) own: Own,
}

/// The parameters that are ours, by name.
pub(crate) struct Own(BTreeMap<String, String>);

/// Takes a URL apart; refuses a parameter that nobody knows.
pub(crate) fn split(url: &str) -> Result<Parts> {
    let Some(rest) = url.strip_prefix("postgres://").or(url.strip_prefix("postgresql://")) else {
        return Err(Error::invalid("store", "is not the URL of a PostgreSQL database").hint(HINT));
    };
    // As libpq does: a user is named if an @ comes before the first slash, and a password may have a question mark.
    let user = rest.find(['@', '/']).filter(|at| rest[*at..].starts_with('@')).map_or(0, |at| at + 1);
    let (place, query) = match rest[user..].split_once('?') {
        Some((place, query)) => (format!("{}{place}", &rest[..user]), query),
        None => (rest.to_owned(), ""),
    };
    let (mut own, mut drivers) = (BTreeMap::new(), Vec::new());
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if OWN.contains(&name) {
            own.insert(name.to_owned(), decode(name, value)?);
        } else if DRIVERS.contains(&name) {
            // The driver takes everything before an @ for a user.
            drivers.push(format!("{name}={}", value.replace('@', "%40")));
        } else {
            return Err(unknown(name));
        }
    }
    Ok(Parts { plain: format!("postgres://{place}?{}", drivers.join("&")), own: Own(own) })
}

fn unknown(name: &str) -> Error {
    let mut known = [OWN, DRIVERS].concat();
    known.sort_unstable();
    Error::invalid("store", format!("has a parameter `{name}`, which nobody knows"))
        .hint(format!("known are {}", known.join(", ")))
}

fn wrong(name: &str, what: &str) -> Error {
    Error::invalid("store", format!("parameter `{name}` {what}"))
}

/// A value without its percent signs.
fn decode(name: &str, value: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut parts = value.split('%');
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        let digits = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(
            digits.ok_or_else(|| wrong(name, "has a % without two digits after it").hint("write %25"))?,
        );
        bytes.extend(part.bytes().skip(2));
    }
    String::from_utf8(bytes).map_err(|_| wrong(name, "is not UTF-8"))
}

impl Own {
    /// A parameter as it is.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A parameter that is `true` or `false`.
    pub(crate) fn flag(&self, name: &str) -> Result<bool> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(wrong(name, "is neither true nor false").hint(format!("write {name}=true"))),
        }
    }

    /// A parameter that counts.
    pub(crate) fn number(&self, name: &str, usual: usize, least: usize) -> Result<usize> {
        let Some(text) = self.text(name) else { return Ok(usual) };
        let number = text.parse().ok().filter(|number| *number >= least);
        number.ok_or_else(|| wrong(name, "is too small or no number").hint(format!("at least {least}")))
    }

    /// A parameter that is a length of time: milliseconds, or with a unit.
    pub(crate) fn length(&self, name: &str, usual: Duration) -> Result<Duration> {
        let Some(text) = self.text(name) else { return Ok(usual) };
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let factor = match unit {
            "" | "ms" => 1,
            "s" => 1000,
            "min" => 60_000,
            _ => 0,
        };
        // The server keeps it in 31 bits; 0 would be forever.
        let length = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
        let length = length.filter(|length| (1..1 << 31).contains(length)).map(Duration::from_millis);
        length.ok_or_else(|| wrong(name, "is not a length of time").hint(format!("write {name}=20s")))
    }
}
