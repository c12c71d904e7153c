//! How columns are sent: as an array with a value for each row, or as one value where all rows have the same. Most columns
//! of most statements are the same in all rows, and an array costs the server more than a value: it is taken apart, and
//! read side by side with the others for each row.

use std::collections::HashMap;
use std::fmt::Write as _;

/// Some of the parameters of a statement, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn with(self, number: usize) -> Self {
        u32::try_from(number)
            .ok()
            .and_then(|number| 1_u64.checked_shl(number))
            .map_or(self, |bit| Self(self.0 | bit))
    }

    pub(crate) fn has(self, number: usize) -> bool {
        Self::default().with(number).0 & self.0 != 0
    }

    fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }
}

/// A parameter that is unnested, as it stands in a text: what comes before it, its number, its type, what comes after.
struct Unnested<'t> {
    before: &'t str,
    number: usize,
    kind: &'t str,
    after: &'t str,
}

/// The first of them in a text.
fn first_unnested(text: &str) -> Option<Unnested<'_>> {
    const START: &str = "unnest($";
    let mut from = 0;
    while let Some(found) = text[from..].find(START) {
        let start = from + found;
        from = start + START.len();
        let inside = text[from..]
            .split_once("[])")
            .and_then(|(inside, after)| Some((inside.split_once("::")?, after)));
        if let Some(((number, kind), after)) = inside
            && kind.bytes().all(|byte| byte.is_ascii_lowercase())
            && let Ok(number) = number.parse()
        {
            return Some(Unnested { before: &text[..start], number, kind, after });
        }
    }
    None
}

/// The columns of a statement that may be sent as one value: they are unnested, and not spoken of otherwise.
fn columns(sql: &str) -> Numbers {
    let (mut once, mut again) = (Numbers::default(), Numbers::default());
    for part in sql.split('$').skip(1) {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let number = part[..digits].parse().unwrap_or_default();
        if once.has(number) {
            again = again.with(number);
        }
        once = once.with(number);
    }
    let (mut unnested, mut rest) = (Numbers::default(), sql);
    while let Some(found) = first_unnested(rest) {
        unnested = unnested.with(found.number);
        rest = found.after;
    }
    unnested.without(again)
}

/// A statement whose columns with these numbers are values.
pub(crate) fn with_values(sql: &str, values: Numbers) -> String {
    let (mut text, mut rest) = (String::with_capacity(sql.len()), sql);
    while let Some(Unnested { before, number, kind, after }) = first_unnested(rest) {
        text.push_str(before);
        let (open, close) = if values.has(number) { ("", "") } else { ("unnest(", "[])") };
        let _ = write!(text, "{open}${number}::{kind}{close}");
        rest = after;
    }
    text + rest
}

/// The statements of a connection that write, with the columns of each that were the same in all rows whenever it was used.
#[derive(Default)]
pub(crate) struct Shapes(HashMap<(usize, bool), Usual>);

struct Usual {
    columns: Numbers,
    same: Numbers,
}

impl Shapes {
    /// Which columns to send as one value. A statement is prepared for each choice, so there are few: for a lone row all, for
    /// others those that never differed.
    pub(crate) fn choose(
        &mut self,
        name: (usize, bool),
        text: impl FnOnce() -> String,
        lone: bool,
        same: Numbers,
    ) -> Numbers {
        let usual = self.0.entry(name).or_insert_with(|| {
            let columns = columns(&text());
            Usual { columns, same: columns }
        });
        if lone {
            return usual.columns;
        }
        usual.same = usual.same.and(same);
        usual.same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQL: &str = "INSERT INTO t SELECT $1, u.a FROM (SELECT generate_series(1, cardinality($2::text[])) AS n, \
                       unnest($2::text[]) AS k, unnest($3::bigint[]) AS a, unnest($4::text[])::uuid[] AS b) u";

    fn numbers(numbers: &[usize]) -> Numbers {
        numbers.iter().fold(Numbers::default(), |all, number| all.with(*number))
    }

    #[test]
    fn only_what_is_unnested_and_nothing_else_may_be_one_value() {
        assert_eq!(columns(SQL), numbers(&[3, 4]));
        assert_eq!(
            columns("SELECT unnest((SELECT $1)), unnest($2, $3) FROM unnest($4::text[])"),
            numbers(&[4])
        );
        assert_eq!(columns("SELECT 1"), numbers(&[]));
    }

    #[test]
    fn columns_become_values() {
        let text = with_values(SQL, numbers(&[3, 4]));
        assert!(
            text.ends_with("unnest($2::text[]) AS k, $3::bigint AS a, $4::text::uuid[] AS b) u"),
            "{text}"
        );
        assert_eq!(with_values(SQL, numbers(&[])), SQL);
    }

    #[test]
    fn what_differed_once_stays_an_array() {
        let mut shapes = Shapes::default();
        let mut choose =
            |lone, same: &[usize]| shapes.choose((1, false), || SQL.to_owned(), lone, numbers(same));
        assert_eq!(choose(false, &[3, 4]), numbers(&[3, 4]));
        assert_eq!(choose(false, &[4]), numbers(&[4]));
        assert_eq!(choose(false, &[3, 4]), numbers(&[4]));
        assert_eq!(choose(true, &[1, 2, 3, 4]), numbers(&[3, 4]));
    }

    #[test]
    fn numbers_end_somewhere() {
        assert!(numbers(&[63]).has(63));
        assert!(!numbers(&[64, 200]).has(64));
    }
}
