//! Several statements that write as one, which is a transaction by itself: it enters the namespace first, and the number of
//! rows that each part touches is seen to as if it stood alone. Parts do not see what the others wrote.

use std::fmt::Write as _;

use statehold_core::Timestamp;
use tokio_postgres::Row;

use crate::connection::{Call, Connection, Name};
use crate::error::Result;
use crate::values::{At, Param, param};

/// How parts say what positions begin with; within one statement it is known from entering.
const ORD: &str = "((SELECT epoch FROM namespaces WHERE ns = $1) << 48 | pg_current_xact_id()::text::bigint)";

/// Statements to run as one.
pub(crate) struct Once<'a> {
    pub(crate) calls: &'a [Call],
    pub(crate) ns: i64,
    /// What the server's clock must show, or nearly so.
    pub(crate) shown: Option<Timestamp>,
    /// Tasks on which nobody may depend.
    pub(crate) ended: Option<Param>,
    /// What must not be there, as `enter_anew` takes it. If it is, nothing is done.
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
        let mut before = 2;
        let mut text = "WITH entered AS MATERIALIZED (SELECT true AS fine, * FROM enter($1, $2))".to_owned();
        if let Some(absent) = &self.absent {
            let params: Vec<_> = (1..=before + absent.len()).map(|number| format!("${number}")).collect();
            text = format!("WITH entered AS MATERIALIZED (SELECT * FROM enter_anew({}))", params.join(", "));
            before += absent.len();
        }
        let ended = self.ended.as_ref().map(|_| before + 1);
        before += usize::from(ended.is_some());
        let (mut held, mut amiss) = ("0".to_owned(), "0".to_owned());
        for (number, call) in self.calls.iter().enumerate() {
            let part = shifted(&call.part().replace(ORD, "(SELECT ord FROM entered)"), before);
            before += call.params.len();
            let fine = match &self.absent {
                Some(_) if part.contains("INSERT INTO") => "\nWHERE (SELECT fine FROM entered)",
                Some(_) => "\nAND (SELECT fine FROM entered)",
                None => "",
            };
            let _ = write!(text, ",\nw{number} AS ({part}{fine}\nRETURNING 1)");
            let _ = write!(amiss, "\n+ abs((SELECT count(*) FROM w{number}) - ${before})");
            let _ = write!(held, " + (SELECT count(*) FROM w{number})");
        }
        let _ = write!(
            text,
            "\nSELECT e.fine, e.stored, e.version,\nCASE WHEN e.fine AND ({amiss}) > 0 THEN refuse_change() END"
        );
        if let Some(ended) = ended {
            let _ = write!(text, ",\nnobody_depends($1, ${ended}, {held})");
        }
        text + "\nFROM entered e"
    }
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
            let statement = self.in_time(self.client().prepare(&once.text())).await?;
            self.keep_once(name, statement.clone());
            statement
        };
        let mut own = vec![param(once.ns), param(once.shown.map(At))];
        own.extend(once.absent.into_iter().flatten());
        own.extend(once.ended);
        let params: Vec<_> = own.iter().chain(once.calls.iter().flat_map(|call| &call.params)).collect();
        let params: Vec<_> =
            params.into_iter().map(|param| &**param as &(dyn tokio_postgres::types::ToSql + Sync)).collect();
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
