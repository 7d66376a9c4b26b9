//! What is wrong in a settings file, and where it stands there.

use std::fmt;
use std::ops::Range;

use toml_edit::{Item, TableLike};

/// Whoever finds something wrong says what; whoever reads the table around it says where.
#[derive(Debug)]
pub struct Wrong {
    what: String,
    /// From the inside out.
    keys: Vec<String>,
    /// Of the innermost value that has a place in the text.
    span: Option<Range<usize>>,
}

impl<T: Into<String>> From<T> for Wrong {
    fn from(what: T) -> Self {
        Self { what: what.into(), keys: Vec::new(), span: None }
    }
}

impl Wrong {
    pub fn within(mut self, key: &str, item: &Item) -> Self {
        self.keys.push(key.to_owned());
        self.span = self.span.or_else(|| item.span());
        self
    }

    /// With the line and the column in this text.
    pub fn told(&self, text: &str) -> String {
        let before = self.span.as_ref().and_then(|span| text.get(..span.start));
        let Some(before) = before else { return self.to_string() };
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("line {line}, column {column}: {self}")
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, key) in self.keys.iter().rev().enumerate() {
            f.write_str(if at == 0 { "" } else { "." })?;
            f.write_str(key)?;
        }
        f.write_str(if self.keys.is_empty() { "" } else { ": " })?;
        f.write_str(&self.what)
    }
}

/// Every entry of a table. What is wrong with one is told with its key and its place.
pub fn each(
    table: &dyn TableLike,
    mut take: impl FnMut(&str, &Item) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    table.iter().try_for_each(|(key, item)| take(key, item).map_err(|wrong| wrong.within(key, item)))
}
