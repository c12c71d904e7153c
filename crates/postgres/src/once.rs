//! Several statements that write as one, which is a transaction by itself: it enters the namespace first, and the number of
//! rows that each part changes is seen to as if it stood alone. Parts do not see what the others wrote.

use std::fmt::Write as _;

use statehold_core::Timestamp;
use tokio_postgres::Row;

use crate::connection::{Call, Connection, Name, sql};
use crate::error::{Result, Trouble};
use crate::namespaces::Era;
use crate::values::{At, Param, param};

/// How parts say what positions begin with; within one statement it is known from entering.
const ORD: &str = "((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint)";

/// Statements to run as one.
pub(crate) struct Once<'a> {
    pub(crate) calls: &'a [Call],
    pub(crate) ns: i64,
    pub(crate) era: Era,
    /// What the server's clock must show, or nearly so.
    pub(crate) shown: Option<Timestamp>,
    /// Tasks on which nobody may depend.
    pub(crate) ended: Option<Param>,
    /// What must not be there, as `are_absent` takes it. If it is, nothing is done.
    pub(crate) absent: Option<Vec<Param>>,
}

/// What a combination is known by once it is prepared: its parts, whether some tasks may have no dependents, and whether
/// something must not be there.
pub(crate) type OnceName = (Vec<Name>, bool, bool);

impl Once<'_> {
    /// What it is known by once it is prepared.
    fn name(&self) -> OnceName {
        (self.calls.iter().map(Call::name).collect(), self.ended.is_some(), self.absent.is_some())
    }

    fn text(&self) -> String {
        let (mut before, mut looks) = (ENTERING, String::new());
        if let Some(absent) = &self.absent {
            let params: Vec<_> = (1..=absent.len()).map(|number| format!("${}", before + number)).collect();
            let _ = write!(looks, "\nAND are_absent($1, {})", params.join(", "));
            before += absent.len();
        }
        if self.ended.is_some() {
            before += 1;
            let depends = "SELECT 1 FROM dependencies d WHERE d.ns = $1 AND d.dependency = ANY";
            let _ = write!(looks, "\nAND NOT EXISTS ({depends} (${before}::uuid[]))");
        }
        let (mut text, mut fine) = (format!("WITH {}", sql!("entered").trim_end()), "entered");
        if !looks.is_empty() {
            let case = format!("CASE WHEN ord IS NOT NULL{looks}\nTHEN ord END");
            let _ = write!(text, ",\nfine AS MATERIALIZED (SELECT {case} AS ord FROM entered)");
            fine = "fine";
        }
        let mut amiss = String::new();
        for (number, call) in self.calls.iter().enumerate() {
            let part = shifted(&call.part().replace(ORD, &format!("(SELECT ord FROM {fine})")), before);
            before += call.params.len();
            let and = if call.inserts() { "WHERE" } else { "AND" };
            let _ = write!(text, ",\nw{number} AS ({part}\n{and} (SELECT ord FROM {fine}) IS NOT NULL");
            if call.is_counted() {
                text += "\nRETURNING 1";
                let or = if amiss.is_empty() { "" } else { " OR " };
                let _ = write!(amiss, "{or}(SELECT count(*) FROM w{number}) <> ${before}");
            }
            text.push(')');
        }
        text += "\nSELECT e.ord, clock_timestamp()";
        if !amiss.is_empty() {
            let _ = write!(text, ",\nCASE WHEN e.ord IS NOT NULL AND ({amiss}) THEN refuse_change() END");
        }
        let _ = write!(text, "\nFROM {fine} e");
        text
    }
}

/// How many parameters `entered` has.
const ENTERING: usize = 4;

/// The parameters of `entered`.
pub(crate) fn entering(ns: i64, shown: Option<Timestamp>, era: Era) -> Vec<Param> {
    vec![param(ns), param(shown.map(At)), param(era.epoch), param(era.changes)]
}

/// A statement whose parameters come after others.
fn shifted(sql: &str, by: usize) -> String {
    let mut parts = sql.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.chars().take_while(char::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        let number: usize = number.parse().unwrap_or_default();
        let _ = write!(text, "${}{rest}", number + by);
    }
    text
}

impl Connection {
    /// Runs statements as one.
    pub(crate) async fn query_once(&self, once: Once<'_>) -> Result<Vec<Row>> {
        let name = once.name();
        let statement = if let Some(statement) = self.known_once(&name) {
            statement
        } else {
            let prepared = self.in_time(self.client().prepare(&once.text())).await;
            // Nothing would be wrong without it but the time that it takes the long way, which no test would tell.
            debug_assert!(
                !prepared.as_ref().is_err_and(Trouble::is_mistake),
                "{prepared:?}: {}",
                once.text()
            );
            let statement = prepared?;
            self.keep_once(name, statement.clone());
            statement
        };
        let mut own = entering(once.ns, once.shown, once.era);
        own.extend(once.absent.into_iter().flatten());
        own.extend(once.ended);
        let own = own.iter().map(Param::value);
        let params: Vec<_> = own.chain(once.calls.iter().flat_map(Call::params)).collect();
        self.in_time(self.client().query(&statement, &params)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_after_those_of_others() {
        assert_eq!(shifted("SELECT $1, $12::text[] || '{}'", 3), "SELECT $4, $15::text[] || '{}'");
        assert_eq!(shifted("SELECT 1", 3), "SELECT 1");
    }
}
