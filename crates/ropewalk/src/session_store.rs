//! Which store keeps the sessions: a file of this machine, or a PostgreSQL that several servers share.
//!
//! The order is that of the other settings: command line, settings file, environment, the file of this machine.
//!
//! **Invariant:** an address with a password comes from a variable or from a file of the person's own. On the command line
//! and in a settings file it is refused: others can read the one, and the other is copied and shared. A project's
//! settings are not asked at all.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once, OnceLock};

use engine::Store;
use store::SqliteStore;
use store::sql::{PostgresAddress, PostgresStore};

use crate::cli::StoreOptions;
use crate::config::{self, Config, Setting, Source};
use crate::trouble::Trouble;
use crate::{guards, paths, secrets};

pub const VARIABLE: &str = "ROPEWALK_STORE_URL";
/// A longer file is not an address.
const ADDRESS_BYTES_MAX: u64 = 16 << 10;

/// Whoever reads the file warns of its mode, once.
static WARNED: Once = Once::new();

/// What the command line says, for the whole process.
static CHOICE: OnceLock<StoreOptions> = OnceLock::new();

/// Before anybody opens a store. Only the first choice counts.
pub fn choose(options: StoreOptions) {
    drop(CHOICE.set(options));
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionStore {
    File(PathBuf),
    Postgres(PostgresAddress),
}

impl SessionStore {
    /// The store of this process.
    pub fn chosen() -> Result<Self, Trouble> {
        let settings = config::user()?;
        setting(CHOICE.get().unwrap_or(&StoreOptions::default()), &settings).map(|setting| setting.value)
    }

    /// Where it is, without a password.
    pub fn shown(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Postgres(address) => address.shown.clone(),
        }
    }

    /// Returns at once; the store is opened in the background, or when something is asked of it.
    pub fn open(self, warm: bool) -> Arc<dyn Store> {
        match self {
            Self::File(path) => {
                Arc::new(SqliteStore::open(path, store::Options { warm, ..store::Options::default() }))
            }
            Self::Postgres(address) => Arc::new(PostgresStore::new(address)),
        }
    }
}

/// The file with the address, if the command line or the settings name one: agents must not read it.
pub fn address_file(settings: &Config) -> Option<PathBuf> {
    let named = CHOICE.get().and_then(|options| options.store_file.clone());
    named.or_else(|| settings.store.file.clone())
}

/// The store, and where it was chosen.
pub fn setting(options: &StoreOptions, settings: &Config) -> Result<Setting<SessionStore>, Trouble> {
    match (options.store.as_deref(), &options.store_file) {
        (Some("sqlite"), None) => file_of(Source::Flag("store")),
        (None | Some("postgres" | "postgresql"), Some(file)) => {
            let address = read_file(file)?;
            Ok(Setting::new(SessionStore::Postgres(address), Source::Flag("store-file")))
        }
        (Some(_), Some(_)) => {
            Err(Trouble::usage("--store and --store-file both say where sessions are kept")
                .fix("give --store-file alone"))
        }
        (Some("postgres" | "postgresql"), None) => match elsewhere(settings)? {
            Some(found) => Ok(found),
            None => Err(Trouble::usage("--store postgres needs an address").fix(format!(
                "set {VARIABLE} to postgres://USER:PASSWORD@HOST/NAME, or give --store-file FILE"
            ))),
        },
        (Some(url), None) => {
            let address = without_password("--store", url)?;
            Ok(Setting::new(SessionStore::Postgres(address), Source::Flag("store")))
        }
        (None, None) => match elsewhere(settings)? {
            Some(found) => Ok(found),
            None => file_of(Source::Default),
        },
    }
}

fn file_of(source: Source) -> Result<Setting<SessionStore>, Trouble> {
    Ok(Setting::new(SessionStore::File(paths::sessions()?), source))
}

/// What the settings and the environment say.
fn elsewhere(settings: &Config) -> Result<Option<Setting<SessionStore>>, Trouble> {
    let found = match (&settings.store.url, &settings.store.file) {
        (Some(_), Some(_)) => {
            return Err(
                Trouble::usage("[store] in the settings has both a url and a file").fix("leave one out")
            );
        }
        (Some(url), None) => {
            (without_password("url in [store] of the settings", url)?, settings.sources.of("store.url"))
        }
        (None, Some(file)) => (read_file(file)?, settings.sources.of("store.file")),
        (None, None) => match paths::variable(VARIABLE) {
            Some(url) => (parse(VARIABLE, &url.to_string_lossy())?, Source::Variable(VARIABLE)),
            None => return Ok(None),
        },
    };
    Ok(Some(Setting::new(SessionStore::Postgres(found.0), found.1)))
}

fn without_password(place: &str, url: &str) -> Result<PostgresAddress, Trouble> {
    let address = parse(place, url)?;
    if address.password.is_none() {
        return Ok(address);
    }
    Err(Trouble::usage(format!("the address in {place} has a password in it"))
        .because("others can read it there: in the list of processes, or wherever the settings are copied to")
        .fix(format!(
            "put the address into {VARIABLE}, or into a file for you only and give --store-file FILE; \
             then change the password, which may have been seen"
        )))
}

/// Whatever is wrong with an address is said without repeating it.
fn parse(place: &str, url: &str) -> Result<PostgresAddress, Trouble> {
    let url = url.trim();
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(Trouble::usage(format!("{place} does not name a store"))
            .because("sessions are kept in a file of this machine (sqlite) or on PostgreSQL")
            .fix("postgres://USER@HOST/NAME, postgres or sqlite"));
    }
    let address = PostgresAddress::parse(url)
        .map_err(|error| Trouble::usage(format!("the address in {place} cannot be used")).because(error))?;
    if let Some(password) = &address.password {
        secrets::also(password);
        secrets::also(address.url());
    }
    Ok(address)
}

fn read_file(path: &Path) -> Result<PostgresAddress, Trouble> {
    let place = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        Trouble::failed(format!("the address of the session store cannot be read from {place}"))
            .because(error)
            .fix("write it there as postgres://USER:PASSWORD@HOST/NAME, for you only (chmod 600)")
    };
    let file = store::open_regular(path).map_err(unreadable)?;
    let file = file.ok_or_else(|| unreadable(std::io::ErrorKind::NotFound.into()))?;
    if file.metadata().map_err(unreadable)?.permissions().mode() & 0o077 != 0 {
        WARNED.call_once(|| {
            guards::warn(&format!("{place} can be read by others of this machine; chmod 600 {place}"))
        });
    }
    let mut text = String::new();
    file.take(ADDRESS_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
    parse(&place, &text)
}
