//! Where a setting comes from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml_edit::TableLike;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SettingSource {
    /// An option of the command line.
    Flag(&'static str),
    Variable(&'static str),
    File(PathBuf),
    /// One of `[profiles.NAME]` in the settings file.
    Profile(String),
    #[default]
    Default,
}

impl SettingSource {
    /// The kind of source, for `--json`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Flag(_) => "flag",
            Self::Variable(_) => "variable",
            Self::File(_) => "file",
            Self::Profile(_) => "profile",
            Self::Default => "default",
        }
    }

    /// The name of the option, variable, file or profile.
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

impl fmt::Display for SettingSource {
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
pub struct ResolvedSetting<T> {
    pub value: T,
    pub source: SettingSource,
}

impl<T> ResolvedSetting<T> {
    pub fn new(value: T, source: SettingSource) -> Self {
        Self { value, source }
    }
}

/// Where each key of the settings was set, by its full name: `acp.max_sessions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingSources(BTreeMap<String, SettingSource>);

impl SettingSources {
    /// Everything in a settings file.
    pub fn of_file(path: &Path, table: &dyn TableLike) -> Self {
        let mut sources = Self::default();
        sources.walk("", table, &SettingSource::File(path.to_owned()));
        sources
    }

    pub fn walk(&mut self, prefix: &str, table: &dyn TableLike, source: &SettingSource) {
        for (key, item) in table.iter() {
            let name = format!("{prefix}{key}");
            match item.as_table_like() {
                Some(inner) => self.walk(&format!("{name}."), inner, source),
                None => self.set(&name, source.clone()),
            }
        }
    }

    pub fn set(&mut self, key: &str, source: SettingSource) {
        self.0.insert(key.to_owned(), source);
    }

    /// Notes that `key` was set under another name.
    pub fn also(&mut self, key: &str, other: &str) {
        let source = self.of(other);
        self.set(key, source);
    }

    pub fn of(&self, key: &str) -> SettingSource {
        self.0.get(key).cloned().unwrap_or_default()
    }
}
