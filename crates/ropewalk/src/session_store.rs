//! Chooses the session store: a file on this machine, or a PostgreSQL database that several servers share.
//!
//! The precedence is that of the other settings: command line, settings file, environment, default file.
//!
//! **Invariant:** an address with a password comes from a variable or from a file of the person's own. It is refused on the
//! command line, which other users can read, and in a settings file, which is copied and shared. A project's settings are
//! never read.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once, OnceLock};

use engine::Store;
use store::SqliteStore;
use store::sql::{PostgresAddress, PostgresStore};

use crate::cli::StoreOptions;
use crate::cli_error::CliError;
use crate::config::{self, Config, ResolvedSetting, SettingSource};
use crate::{guard_settings, paths, secrets_to_redact};

pub const VARIABLE: &str = "ROPEWALK_STORE_URL";
/// A longer file does not hold an address.
const ADDRESS_BYTES_MAX: u64 = 16 << 10;

/// The warning about the mode of the address file is printed once.
static WARNED: Once = Once::new();

/// The options of the command line, for the whole process.
static FLAGS: OnceLock<StoreOptions> = OnceLock::new();

/// Called before any store is opened. Only the first call counts.
pub fn set_flags(options: StoreOptions) {
    drop(FLAGS.set(options));
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionStore {
    File(PathBuf),
    Postgres(PostgresAddress),
}

impl SessionStore {
    /// The store of this process.
    pub fn chosen() -> Result<Self, CliError> {
        let settings = config::user()?;
        setting(FLAGS.get().unwrap_or(&StoreOptions::default()), &settings).map(|setting| setting.value)
    }

    /// Where it is, without the password.
    pub fn location(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Postgres(address) => address.shown.clone(),
        }
    }

    /// Returns at once; the store is opened in the background or on first use.
    pub fn open(self, warm: bool) -> Arc<dyn Store> {
        match self {
            Self::File(path) => {
                Arc::new(SqliteStore::open(path, store::Options { warm, ..store::Options::default() }))
            }
            Self::Postgres(address) => Arc::new(PostgresStore::new(address)),
        }
    }
}

/// The file with the address, if the command line or the settings name one. Agents must not read it.
pub fn address_file(settings: &Config) -> Option<PathBuf> {
    let named = FLAGS.get().and_then(|options| options.store_file.clone());
    named.or_else(|| settings.store.file.clone())
}

/// The store, and where the choice comes from.
pub fn setting(options: &StoreOptions, settings: &Config) -> Result<ResolvedSetting<SessionStore>, CliError> {
    match (options.store.as_deref(), &options.store_file) {
        (Some("sqlite"), None) => local_file(SettingSource::Flag("store")),
        (None | Some("postgres" | "postgresql"), Some(file)) => {
            let address = read_file(file)?;
            Ok(ResolvedSetting::new(SessionStore::Postgres(address), SettingSource::Flag("store-file")))
        }
        (Some(_), Some(_)) => {
            Err(CliError::usage("--store and --store-file cannot be combined").fix("pass --store-file only"))
        }
        (Some("postgres" | "postgresql"), None) => match from_settings_or_variable(settings)? {
            Some(found) => Ok(found),
            None => Err(CliError::usage("--store postgres needs an address").fix(format!(
                "set {VARIABLE} to postgres://USER:PASSWORD@HOST/NAME, or pass --store-file FILE"
            ))),
        },
        (Some(url), None) => {
            let address = without_password("--store", url)?;
            Ok(ResolvedSetting::new(SessionStore::Postgres(address), SettingSource::Flag("store")))
        }
        (None, None) => match from_settings_or_variable(settings)? {
            Some(found) => Ok(found),
            None => local_file(SettingSource::Default),
        },
    }
}

fn local_file(source: SettingSource) -> Result<ResolvedSetting<SessionStore>, CliError> {
    Ok(ResolvedSetting::new(SessionStore::File(paths::sessions()?), source))
}

/// The store from the settings or the environment.
fn from_settings_or_variable(settings: &Config) -> Result<Option<ResolvedSetting<SessionStore>>, CliError> {
    let found = match (&settings.store.url, &settings.store.file) {
        (Some(_), Some(_)) => {
            return Err(CliError::usage("[store] in the settings has both a url and a file")
                .fix("remove one of them"));
        }
        (Some(url), None) => {
            (without_password("url in [store] of the settings", url)?, settings.sources.of("store.url"))
        }
        (None, Some(file)) => (read_file(file)?, settings.sources.of("store.file")),
        (None, None) => match paths::variable(VARIABLE) {
            Some(url) => (parse(VARIABLE, &url.to_string_lossy())?, SettingSource::Variable(VARIABLE)),
            None => return Ok(None),
        },
    };
    Ok(Some(ResolvedSetting::new(SessionStore::Postgres(found.0), found.1)))
}

fn without_password(place: &str, url: &str) -> Result<PostgresAddress, CliError> {
    let address = parse(place, url)?;
    if address.password.is_none() {
        return Ok(address);
    }
    Err(CliError::usage(format!("the address in {place} contains a password"))
        .because("other users can read it there, in the process list or in copies of the settings")
        .fix(format!(
            "put the address into {VARIABLE}, or into a private file and pass --store-file FILE; \
             then change the password, which may have been seen"
        )))
}

/// Errors about an address never repeat it.
fn parse(place: &str, url: &str) -> Result<PostgresAddress, CliError> {
    let url = url.trim();
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(CliError::usage(format!("{place} is not a valid session store"))
            .because("sessions are stored in a file on this machine (sqlite) or in PostgreSQL")
            .fix("use sqlite, postgres or postgres://USER@HOST/NAME"));
    }
    let address = PostgresAddress::parse(url)
        .map_err(|error| CliError::usage(format!("the address in {place} is invalid")).because(error))?;
    if let Some(password) = &address.password {
        secrets_to_redact::add(password);
        secrets_to_redact::add(address.url());
    }
    Ok(address)
}

fn read_file(path: &Path) -> Result<PostgresAddress, CliError> {
    let place = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        CliError::failed(format!("could not read the address of the session store from {place}"))
            .because(error)
            .fix("write it there as postgres://USER:PASSWORD@HOST/NAME, readable only by you (chmod 600)")
    };
    let file = store::open_regular(path).map_err(unreadable)?;
    let file = file.ok_or_else(|| unreadable(std::io::ErrorKind::NotFound.into()))?;
    if file.metadata().map_err(unreadable)?.permissions().mode() & 0o077 != 0 {
        WARNED.call_once(|| {
            guard_settings::warn(&format!(
                "other users of this machine can read {place}; run chmod 600 {place}"
            ))
        });
    }
    let mut text = String::new();
    file.take(ADDRESS_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
    parse(&place, &text)
}
