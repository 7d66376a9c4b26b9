//! An error in a settings file, with its key and position.

use std::fmt;
use std::ops::Range;

use toml_edit::{Item, TableLike};

/// The function that finds an error sets its text; the functions that read the tables around it add the keys.
#[derive(Debug)]
pub struct ConfigError {
    what: String,
    /// From the innermost key out.
    keys: Vec<String>,
    /// The position of the innermost value that has one.
    span: Option<Range<usize>>,
}

impl<T: Into<String>> From<T> for ConfigError {
    fn from(what: T) -> Self {
        Self { what: what.into(), keys: Vec::new(), span: None }
    }
}

impl ConfigError {
    pub fn within(mut self, key: &str, item: &Item) -> Self {
        self.keys.push(key.to_owned());
        self.span = self.span.or_else(|| item.span());
        self
    }

    /// The error with its line and column in this text.
    pub fn with_position(&self, text: &str) -> String {
        let before = self.span.as_ref().and_then(|span| text.get(..span.start));
        let Some(before) = before else { return self.to_string() };
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("line {line}, column {column}: {self}")
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, key) in self.keys.iter().rev().enumerate() {
            f.write_str(if at == 0 { "" } else { "." })?;
            f.write_str(key)?;
        }
        f.write_str(if self.keys.is_empty() { "" } else { ": " })?;
        f.write_str(&self.what)
    }
}

/// Calls `take` for every entry of a table. Adds the key and position to its error.
pub fn each_entry(
    table: &dyn TableLike,
    mut take: impl FnMut(&str, &Item) -> Result<(), ConfigError>,
) -> Result<(), ConfigError> {
    table.iter().try_for_each(|(key, item)| take(key, item).map_err(|wrong| wrong.within(key, item)))
}
