//! `ropewalk hub`: runs a hub until it is stopped, and administers one on its own machine.

mod export;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use access::devices::push::PushAddressPolicy;
use access::{BoundListener, HostName, ServerNames, Tls};
use engine::{Clock, SystemClock, Timestamp};
use hub::people::{People, PeopleError, PeopleOptions, PushOptions};
use hub::{Hub, HubParts, NodeId, RouterOptions};
use serde_json::json;
use store::sql::{Db, DbError, PostgresDb, SqliteDb};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{
    HubArguments, HubAuditOptions, HubCommand, HubLinkOptions, HubOptions, HubStatusOptions, HubStoreOptions,
    HubTokenOptions,
};
use crate::cli_error::CliError;
use crate::{http_door, output, paths, registry};

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8090);
/// Every bridged session and every browser has a connection.
const FILES_WANTED: u64 = 65_536;
const STATUS_WAIT: Duration = Duration::from_secs(2);
/// The contact that push services are given. This address belongs to nobody.
const CONTACT: &str = "mailto:ropewalk@example.com";

pub fn run(arguments: &HubArguments) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        match &arguments.command {
            None => serve(&arguments.options).await,
            Some(HubCommand::Audit(options)) => audit(options).await,
            Some(HubCommand::Sessions(options)) => export::sessions(options).await,
            Some(HubCommand::Export(options)) => export::export(options).await,
            Some(HubCommand::Link(options)) => link(options).await,
            Some(HubCommand::Token(options)) => token(options).await,
            Some(HubCommand::Status(options)) => status(options),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    let as_json = match &arguments.command {
        Some(HubCommand::Sessions(options)) => options.json,
        Some(HubCommand::Export(options)) => options.json,
        _ => false,
    };
    Ok(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(as_json),
    })
}

/// Several hubs can share a PostgreSQL store; any other has one hub.
fn is_postgres(store: &str) -> bool {
    store.starts_with("postgres://") || store.starts_with("postgresql://")
}

/// Where the hub's database is.
enum DatabaseLocation {
    Postgres(String),
    File(PathBuf),
}

async fn connect(url: &str, bus: Option<&str>) -> Result<Arc<dyn Db>, CliError> {
    let db = PostgresDb::connect(url, bus).await;
    Ok(Arc::new(db.map_err(|error| {
        no_database(&error).fix("check that PostgreSQL is running and accepts this user")
    })?))
}

fn database_location(options: &HubStoreOptions) -> Result<DatabaseLocation, CliError> {
    let store = options.store.as_deref();
    if let Some(url) = store.filter(|store| is_postgres(store)) {
        return Ok(DatabaseLocation::Postgres(url.to_owned()));
    }
    if store.is_some_and(|store| store.contains("://")) {
        return Err(CliError::usage("--store must be a file or a postgres:// address")
            .fix("see `ropewalk hub --help`"));
    }
    if options.bus.is_some() {
        return Err(CliError::usage("--bus works only with several hubs on one PostgreSQL")
            .fix("pass --store postgres://..."));
    }
    Ok(DatabaseLocation::File(match (store, &options.data) {
        (Some(file), _) => PathBuf::from(file),
        (None, Some(data)) => data.join("hub.db"),
        (None, None) => paths::state()?.join("hub.db"),
    }))
}

/// The database, created if it is missing.
async fn database(options: &HubStoreOptions) -> Result<Arc<dyn Db>, CliError> {
    let file = match database_location(options)? {
        DatabaseLocation::Postgres(url) => return connect(&url, options.bus.as_deref()).await,
        DatabaseLocation::File(file) => file,
    };
    let unusable = |error| CliError::failed(format!("could not use {}", file.display())).because(error);
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unusable)?;
    }
    if std::fs::metadata(&file).is_ok_and(|found| found.is_file() && found.len() == 0) {
        return Err(CliError::failed("could not use the hub's database")
            .because(format!("{} is empty (0 bytes): its data is lost", file.display()))
            .fix("restore it from a backup, or delete it to start a new hub"));
    }
    // The other files that SQLite creates next to it get the same mode.
    let made = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&file);
    drop(made.map_err(unusable)?);
    let db = SqliteDb::open(&file).map_err(|error| no_database(&error))?;
    Ok(Arc::new(db))
}

fn no_database(error: &DbError) -> CliError {
    CliError::failed("could not use the hub's database").because(error)
}

fn failed(failure: PeopleError) -> CliError {
    CliError::failed("the command failed").because(failure.wrong().message)
}

async fn people(
    db: &Arc<dyn Db>,
    public_url: &str,
    node: &NodeId,
    behind_proxy: bool,
) -> Result<Arc<People>, CliError> {
    let options = PeopleOptions {
        public_url: public_url.to_owned(),
        behind_proxy,
        clock: Arc::new(SystemClock),
        node: node.as_str().into(),
        forgets: hub::forget_person,
        push: Some(PushOptions {
            reach: PushAddressPolicy {
                allows: agent::is_public,
                loopback: paths::variable("ROPEWALK_PUSH_LOOPBACK").is_some(),
            },
            contact: CONTACT.into(),
        }),
    };
    People::open(Arc::clone(db), options).await.map_err(|error| {
        let failed = CliError::failed(error.to_string());
        match std::error::Error::source(&error) {
            Some(source) => failed.because(innermost(source)),
            None => failed,
        }
    })
}

/// The innermost cause of an error: it says what happened.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

fn new_node() -> Result<NodeId, CliError> {
    NodeId::fresh()
        .map_err(|error| CliError::failed("the operating system's random generator failed").because(error))
}

async fn serve(options: &HubOptions) -> Result<(), CliError> {
    let listening = listen(options).await?;
    let public_url = public_url(options, &listening)?;
    let db = database(&options.store).await?;
    let node = new_node()?;
    let people = people(&db, &public_url, &node, options.behind_proxy).await?;
    let defaults = hub::HubOptions::default();
    let parts = HubParts {
        db,
        accounts: Arc::clone(&people) as Arc<dyn hub::authenticator::HubAuthenticator>,
        people: Some(Arc::clone(&people)),
        clock: Arc::new(SystemClock),
        node,
        owns_database: !options.store.store.as_deref().is_some_and(is_postgres),
        options: hub::HubOptions {
            public_url: Some(public_url.clone()),
            name: registry::host_name(),
            version: env!("CARGO_PKG_VERSION").into(),
            metrics_token: options.metrics_token.clone(),
            prune_after: options.prune_days.map_or(defaults.prune_after, in_days),
            forget_after: options.forget_days.map(in_days),
            audit_after: options.audit_days.map_or(defaults.audit_after, in_days),
            ..defaults
        },
    };
    let hub = Hub::open(parts).await.map_err(|error| no_database(&error))?;
    let front = front(options, &listening, &public_url)?;
    output::say(&format!("listening on {}, public URL {public_url}", listening.url()));
    match people.setup_link().await.map_err(failed)? {
        Some(link) => {
            output::say(&format!("no admin yet; whoever opens this link becomes the admin:\n  {link}"))
        }
        None => output::say("to create a sign-in link: ropewalk hub link --person NAME"),
    }
    let router = hub::router(&hub, front, Some(Arc::clone(&people)));
    let stop = hub.stopping();
    let keeping = hub.spawn(people.run_upkeep(stop.clone()));
    let serving = hub.spawn(listening.serve(router, stop.clone()));
    stopped().await?;
    output::say("stopping");
    hub.finish().await;
    drop(tokio::join!(serving, keeping));
    Ok(())
}

fn in_days(days: u64) -> Duration {
    Duration::from_secs(days * 86_400)
}

/// Waits for a signal to stop.
async fn stopped() -> Result<(), CliError> {
    let failed = |error| CliError::failed("could not install signal handlers").because(error);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

async fn listen(options: &HubOptions) -> Result<BoundListener, CliError> {
    let address = options.listen.unwrap_or(LISTEN);
    let tls = match (&options.tls_cert, &options.tls_key) {
        (Some(certificate), Some(key)) => Some(Tls::read(certificate, key).map_err(http_door::tls_error)?),
        (None, None) => None,
        _ => {
            return Err(CliError::usage("--tls-cert and --tls-key must be used together")
                .fix("pass both, or neither"));
        }
    };
    if !address.ip().is_loopback() && tls.is_none() && !options.behind_proxy {
        let what =
            format!("{address} is reachable from other machines, but tokens would be sent unencrypted");
        return Err(CliError::usage(what)
            .fix("pass --tls-cert and --tls-key, or --behind-proxy if a proxy handles TLS"));
    }
    let connections = http_door::raise_open_files(FILES_WANTED);
    let listening = BoundListener::bind(address, tls).await.map_err(|error| {
        CliError::failed(format!("could not listen on {address}"))
            .because(error)
            .fix("choose another address with --listen")
    })?;
    Ok(listening.with_room(connections, connections))
}

/// The URL of the option, or the listen address if others can use it.
fn public_url(options: &HubOptions, listening: &BoundListener) -> Result<String, CliError> {
    if let Some(url) = &options.store.public_url {
        let url = url.trim_end_matches('/');
        let secure = url.starts_with("https://");
        let own = listening.local_addr().ip().is_loopback();
        let plain = url.starts_with("http://") && own && !options.behind_proxy;
        if !secure && !plain {
            return Err(CliError::usage("--public-url must be https://")
                .because("people sign in there and machines send tokens")
                .fix("use an https:// URL"));
        }
        return Ok(url.to_owned());
    }
    let bound = listening.local_addr();
    if bound.ip().is_unspecified() || options.behind_proxy {
        return Err(
            CliError::usage("the public URL of this hub is not known").fix("pass --public-url https://...")
        );
    }
    // Passkeys need a host name; the one of loopback is localhost.
    let host =
        if bound.ip().is_loopback() { format!("localhost:{}", bound.port()) } else { bound.to_string() };
    Ok(format!("{}://{host}", if listening.is_secure() { "https" } else { "http" }))
}

fn front(
    options: &HubOptions,
    listening: &BoundListener,
    public_url: &str,
) -> Result<RouterOptions, CliError> {
    let host = public_url.split_once("://").map_or(public_url, |(_, host)| host);
    let host: HostName = host.parse().map_err(|error| {
        CliError::usage("--public-url must not contain a path or a user name")
            .because(error)
            .fix("use a URL such as https://hub.example.com")
    })?;
    let names = ServerNames {
        bound: listening.local_addr(),
        secure: listening.is_secure(),
        hosts: vec![host],
        cors: Vec::new(),
    };
    Ok(RouterOptions { names, behind_proxy: options.behind_proxy })
}

async fn audit(options: &HubAuditOptions) -> Result<(), CliError> {
    let db = database(&options.store).await?;
    let lines = hub::audit::read(db.as_ref(), options.limit).await.map_err(|error| no_database(&error))?;
    let mut text = String::new();
    for line in lines {
        if options.json {
            output::put_json(&json!(line))?;
            continue;
        }
        let at = wire::timestamp::rfc3339(Timestamp(line.at));
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let (person, about, address) = (or_dash(line.person), or_dash(line.about), or_dash(line.address));
        text.push_str(&format!("{at}  {:20}  {person:14}  {address:15}  {about}\n", line.what));
    }
    output::put(&text)
}

async fn local_people(options: &HubStoreOptions) -> Result<Arc<People>, CliError> {
    let db = database(options).await?;
    let usual = || format!("http://localhost:{}", LISTEN.port());
    let public_url = options.public_url.clone().unwrap_or_else(usual);
    people(&db, public_url.trim_end_matches('/'), &new_node()?, false).await
}

async fn link(options: &HubLinkOptions) -> Result<(), CliError> {
    let people = local_people(&options.store).await?;
    let link = people.link_for(&options.person).await.map_err(failed)?;
    output::put(&format!("{link}\n"))
}

async fn token(options: &HubTokenOptions) -> Result<(), CliError> {
    let people = local_people(&options.store).await?;
    let until = options.days.map(|days| Timestamp(SystemClock.now().0 + i64::from(days) * 86_400_000));
    let token = people.token_for(&options.person, &options.name, until).await.map_err(failed)?;
    output::put(&format!("{token}\n"))
}

/// Asks the hub on this machine whether it is ready.
fn status(options: &HubStatusOptions) -> Result<(), CliError> {
    let listen = options.listen.unwrap_or(LISTEN);
    let host = if listen.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { listen.ip() };
    let address = SocketAddr::new(host, listen.port());
    let asked = ask(address);
    let answer =
        asked.map_err(|error| CliError::failed(format!("no hub answers at {address}")).because(error))?;
    let status = answer.lines().next().unwrap_or_default();
    // A hub with its own certificate does not answer plain HTTP; that it listens is enough.
    if status.contains(" 200 ")
        || (paths::variable("ROPEWALK_HUB_TLS_CERT").is_some() && !status.contains(" 503 "))
    {
        return output::put("ready\n");
    }
    Err(CliError::failed("the hub is not ready").because(status.to_owned()))
}

fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, STATUS_WAIT)?;
    stream.set_read_timeout(Some(STATUS_WAIT))?;
    stream.write_all(
        format!("GET /ready HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = String::new();
    stream.take(4096).read_to_string(&mut answer)?;
    Ok(answer)
}
