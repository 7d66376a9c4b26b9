//! Whether a statement reads, writes or changes tables, which decides where it may run; and our SQL translated to PostgreSQL's.

use std::borrow::Cow;

use crate::sql::Statement;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementKind {
    Read,
    Write,
    /// Makes or changes tables.
    Layout,
}

const CHANGES: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];

impl StatementKind {
    pub(super) fn of(sql: &str) -> Self {
        let word = first_word(sql);
        let is = |one: &str| word.eq_ignore_ascii_case(one);
        if is("SELECT") || is("VALUES") {
            Self::Read
        } else if CHANGES.into_iter().any(is)
            || (is("WITH") && CHANGES.into_iter().any(|one| sql.contains(one)))
        {
            Self::Write
        } else if is("WITH") {
            Self::Read
        } else {
            Self::Layout
        }
    }

    pub(super) fn of_all(statements: &[Statement]) -> Self {
        let kinds = || statements.iter().map(|statement| Self::of(&statement.sql));
        let guarded = statements.iter().any(|statement| statement.must_change.is_some());
        if kinds().any(|kind| kind == Self::Layout) {
            Self::Layout
        } else if guarded || kinds().any(|kind| kind == Self::Write) {
            Self::Write
        } else {
            Self::Read
        }
    }
}

fn first_word(sql: &str) -> &str {
    let sql = sql.trim_start();
    sql.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default()
}

/// Tables are made with texts that compare byte by byte, as they do in the other engine: so lists have one order
/// everywhere, and no index breaks when the machine's idea of an alphabet changes.
pub(super) fn dialect(sql: &str) -> Cow<'_, str> {
    if StatementKind::of(sql) != StatementKind::Layout {
        // The clock of the statement: the transaction's clock stands still while it waits.
        let now = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";
        return if sql.contains("NOW_MS") { sql.replace("NOW_MS", now).into() } else { sql.into() };
    }
    let mut made = String::with_capacity(sql.len());
    for word in sql.split_inclusive(|letter: char| !(letter.is_alphanumeric() || letter == '_')) {
        let end = word.trim_end_matches(|letter: char| !(letter.is_alphanumeric() || letter == '_')).len();
        let (word, mark) = word.split_at(end);
        made.push_str(match word {
            "TEXT" => "TEXT COLLATE \"C\"",
            "SERIAL_KEY" => "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            other => other,
        });
        made.push_str(mark);
    }
    Cow::Owned(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_made_in_the_words_of_postgresql() {
        assert_eq!(
            dialect("CREATE TABLE texts (id SERIAL_KEY, TEXTS TEXT, b TEXT NOT NULL, PRIMARY KEY(id))"),
            "CREATE TABLE texts (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, TEXTS TEXT COLLATE \"C\", \
             b TEXT COLLATE \"C\" NOT NULL, PRIMARY KEY(id))"
        );
        assert_eq!(dialect("SELECT CAST($1 AS TEXT)"), "SELECT CAST($1 AS TEXT)");
    }

    #[test]
    fn what_a_statement_does_is_seen_by_its_first_word() {
        let kinds = [
            "\n select 1",
            "WITH a AS (SELECT 1) DELETE FROM b",
            "update x",
            "CREATE TABLE x",
            "",
            "VALUES (1)",
        ];
        assert_eq!(
            kinds.map(StatementKind::of),
            [
                StatementKind::Read,
                StatementKind::Write,
                StatementKind::Write,
                StatementKind::Layout,
                StatementKind::Layout,
                StatementKind::Read
            ]
        );
        let guarded = Statement::new("SELECT 1", []).must_change(1);
        assert_eq!(StatementKind::of_all(&[guarded]), StatementKind::Write);
        assert_eq!(StatementKind::of_all(&[]), StatementKind::Read);
    }
}
