//! Where a setting comes from, for whoever asks why it is what it is.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml_edit::TableLike;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Source {
    /// An option of the command line.
    Flag(&'static str),
    Variable(&'static str),
    File(PathBuf),
    /// One of `[profiles.NAME]` in the settings file.
    Profile(String),
    #[default]
    Default,
}

impl Source {
    /// Its kind, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Flag(_) => "flag",
            Self::Variable(_) => "variable",
            Self::File(_) => "file",
            Self::Profile(_) => "profile",
            Self::Default => "default",
        }
    }

    /// Which one of its kind.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::Flag(name) => Some(format!("--{name}")),
            Self::Variable(name) => Some((*name).to_owned()),
            Self::File(path) => Some(path.display().to_string()),
            Self::Profile(name) => Some(name.clone()),
            Self::Default => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.name()) {
            (Self::Profile(_), Some(name)) => write!(f, "profile {name}"),
            (_, Some(name)) => f.write_str(&name),
            (_, None) => f.write_str("default"),
        }
    }
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    pub value: T,
    pub source: Source,
}

impl<T> Setting<T> {
    pub fn new(value: T, source: Source) -> Self {
        Self { value, source }
    }
}

/// Where each key of the settings was set, by its full name: `acp.max_sessions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources(BTreeMap<String, Source>);

impl Sources {
    /// Everything in a settings file.
    pub fn of_file(path: &Path, table: &dyn TableLike) -> Self {
        let mut sources = Self::default();
        sources.walk("", table, &Source::File(path.to_owned()));
        sources
    }

    pub fn walk(&mut self, prefix: &str, table: &dyn TableLike, source: &Source) {
        for (key, item) in table.iter() {
            let name = format!("{prefix}{key}");
            match item.as_table_like() {
                Some(inner) => self.walk(&format!("{name}."), inner, source),
                None => self.set(&name, source.clone()),
            }
        }
    }

    pub fn set(&mut self, key: &str, source: Source) {
        self.0.insert(key.to_owned(), source);
    }

    /// `key` was set under another name.
    pub fn also(&mut self, key: &str, other: &str) {
        let source = self.of(other);
        self.set(key, source);
    }

    pub fn of(&self, key: &str) -> Source {
        self.0.get(key).cloned().unwrap_or_default()
    }
}
