//! The address of a database: parsing its URL, connecting, and the settings that every connection starts with.
//!
//! **Invariant:** a password crosses a network only encrypted, to a server that proved its name, unless the URL
//! says `sslmode=disable`. It never appears in errors or logs.

use std::time::Duration;

use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Connection, Socket};

use super::tls::{DatabaseTls, TlsStream};
use crate::sql::DbError;

pub(super) const CONNECT_MAX: Duration = Duration::from_secs(2);

/// A statement that takes longer is stuck, and so is everything behind it.
const SETTINGS: &str = "SET statement_timeout = '8s';
    SET lock_timeout = '800ms';
    SET idle_in_transaction_session_timeout = '15s';
    SET client_min_messages = 'warning';
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';";

#[derive(Clone)]
pub(super) struct DatabaseAddress {
    config: Config,
    tls: DatabaseTls,
}

pub(super) type OpenConnection = (Client, Connection<Socket, TlsStream>);

impl DatabaseAddress {
    pub(super) fn parse(url: &str) -> Result<Self, DbError> {
        let (plain, security) = TlsSettings::take_from(url);
        // A text that cannot be parsed is not repeated: it may contain the password.
        let mut config: Config = plain.parse().map_err(|error: tokio_postgres::Error| {
            failed(format!("could not parse the URL of the database: {}", root_of(&error)))
        })?;
        if config.get_hosts().is_empty() {
            return Err(failed("the URL of the database names no host: postgres://USER@HOST/NAME".into()));
        }
        let here = config.get_hosts().iter().all(is_here);
        let encrypted = match security.mode.as_deref() {
            Some("disable") => false,
            None => !here,
            Some("require" | "verify-full") => true,
            Some(_) => {
                return Err(failed(
                    "sslmode must be disable, require or verify-full; the last two both verify the certificate"
                        .into(),
                ));
            }
        };
        config.ssl_mode(if encrypted { SslMode::Require } else { SslMode::Disable });
        if config.get_application_name().is_none() {
            config.application_name("ropewalk");
        }
        // Of several hosts, the one that takes writes.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.connect_timeout(CONNECT_MAX).tcp_user_timeout(Duration::from_secs(10));
        config.keepalives_idle(Duration::from_secs(10)).keepalives_interval(Duration::from_secs(5));
        config.keepalives_retries(2);
        let tls =
            if encrypted { DatabaseTls::verifying(security.roots.as_deref())? } else { DatabaseTls::none() };
        Ok(Self { config, tls })
    }

    /// A connection that still has to be driven.
    pub(super) async fn open(&self) -> Result<OpenConnection, DbError> {
        let opening = tokio::time::timeout(CONNECT_MAX, self.config.connect(self.tls.clone()));
        let (client, connection) = match opening.await {
            Ok(opened) => opened.map_err(|error| DbError::Unavailable { reason: cause(&error) })?,
            Err(_) => return Err(DbError::Unavailable { reason: "it does not answer".into() }),
        };
        match connection.parameter("server_encoding") {
            Some("UTF8") | None => Ok((client, connection)),
            Some(other) => Err(failed(format!(
                "the database is encoded in {other}; create one with: CREATE DATABASE name ENCODING 'UTF8'"
            ))),
        }
    }

    /// Sends the settings that every connection starts with.
    pub(super) async fn settle(client: &Client) -> Result<(), DbError> {
        match tokio::time::timeout(CONNECT_MAX, client.batch_execute(SETTINGS)).await {
            Ok(settled) => settled.map_err(|error| DbError::Unavailable { reason: cause(&error) }),
            Err(_) => Err(DbError::Unavailable { reason: "it does not answer".into() }),
        }
    }
}

/// A parsed URL, split into the part that may be shown and the secret part.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresAddress {
    /// Without the password.
    pub shown: String,
    pub password: Option<String>,
    url: String,
}

impl PostgresAddress {
    pub fn parse(url: &str) -> Result<Self, DbError> {
        let DatabaseAddress { config, .. } = DatabaseAddress::parse(url)?;
        let ports = config.get_ports();
        let host = |(at, host): (usize, &Host)| {
            let host = match host {
                Host::Tcp(name) if name.contains(':') => format!("[{name}]"),
                Host::Tcp(name) => name.clone(),
                Host::Unix(folder) => folder.display().to_string(),
            };
            // One port may apply to all hosts.
            match ports.get(at).or(ports.first()) {
                None | Some(5432) => host,
                Some(port) => format!("{host}:{port}"),
            }
        };
        let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
        let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
        let name = config.get_dbname().map(|name| format!("/{name}")).unwrap_or_default();
        Ok(Self {
            shown: format!("postgres://{user}{}{name}", hosts.join(",")),
            password: config.get_password().map(|password| String::from_utf8_lossy(password).into_owned()),
            url: url.to_owned(),
        })
    }

    /// All of it, with the password: for connecting, and for taking it out of texts.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// The password is not shown.
impl std::fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PostgresAddress").field(&self.shown).finish()
    }
}

/// TLS parameters of the URL that the driver does not know: the mode, and the roots.
#[derive(Default)]
struct TlsSettings {
    mode: Option<String>,
    roots: Option<String>,
}

impl TlsSettings {
    fn take_from(url: &str) -> (String, Self) {
        let mut security = Self::default();
        let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), security) };
        let mut rest = Vec::new();
        for part in query.split('&') {
            match part.split_once('=') {
                Some(("sslmode", mode)) => security.mode = Some(mode.to_owned()),
                Some(("sslrootcert", file)) => security.roots = Some(file.replace("%2F", "/")),
                _ => rest.push(part),
            }
        }
        let mark = if rest.is_empty() { "" } else { "?" };
        (format!("{base}{mark}{}", rest.join("&")), security)
    }
}

fn is_here(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

/// The server's error message. Its details may repeat values, so they are left out.
pub(super) fn cause(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => match root_of(error) {
            cause if cause == error.to_string() => cause,
            cause => format!("{error}: {cause}"),
        },
    }
}

fn root_of(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

fn failed(reason: String) -> DbError {
    DbError::Failed { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str) -> Result<SslMode, String> {
        let address = DatabaseAddress::parse(url).map_err(|error| error.to_string())?;
        Ok(address.config.get_ssl_mode())
    }

    #[test]
    fn a_password_is_encrypted_on_a_network_unless_the_url_says_otherwise() {
        for url in [
            "postgres://hub:secret@db.example/hub",
            "postgres://hub:secret@db.example/hub?sslmode=require",
            "postgres://hub:secret@127.0.0.1,db.example/hub",
            "postgres://hub:secret@localhost/hub?sslmode=verify-full&application_name=x",
        ] {
            assert_eq!(check(url), Ok(SslMode::Require), "{url}");
        }
        for url in [
            "postgres://hub:secret@localhost/hub",
            "postgres://hub:secret@[::1]:5433/hub",
            "postgres://hub@/hub?host=/run/postgresql",
            "postgres://hub:secret@db.example/hub?sslmode=disable",
        ] {
            assert_eq!(check(url), Ok(SslMode::Disable), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_its_password() {
        for url in [
            "postgres://hub:secret@db.example/hub?sslmode=verify-ca",
            "postgres://hub:secret@db.example:port/hub",
            "postgres://hub:secret@/hub",
            "postgres://hub:secret@db.example/hub?sslrootcert=/nowhere/secret-roots.pem",
            "secret",
            "postgres://hub:sec%zzret@db.example/hub?secret",
        ] {
            let error = check(url).unwrap_err();
            assert!(!error.replace("secret-roots", "").contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_address_is_shown_without_its_password_wherever_that_stands() {
        for (url, shown, password) in [
            ("postgres://me:secret@db.example/work", "postgres://me@db.example/work", Some("secret")),
            (
                "postgres://me@db.example/work?password=secret",
                "postgres://me@db.example/work",
                Some("secret"),
            ),
            ("postgresql://me:%73ecret@[::1]:5433/work", "postgres://me@[::1]:5433/work", Some("secret")),
            ("postgres://db.example:5433,other/work", "postgres://db.example:5433,other/work", None),
            ("postgres://me@/work?host=/run/pg", "postgres://me@/run/pg/work", None),
        ] {
            let address = PostgresAddress::parse(url).unwrap();
            assert_eq!((address.shown.as_str(), address.password.as_deref()), (shown, password), "{url}");
            assert!(!format!("{address:?}").contains("secret"), "{address:?}");
        }
    }
}
