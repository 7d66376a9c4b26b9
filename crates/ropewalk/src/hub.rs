//! `ropewalk hub`: the remote side of bridges, until somebody ends it; and what is done to one on its own machine.

mod export;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use access::devices::push::Reach;
use access::{HostName, Listening, Names, Tls};
use engine::{Clock, SystemClock, Timestamp};
use hub::people::{Failure, People, PeopleOptions, PushOptions};
use hub::{Front, Hub, HubParts, NodeId};
use serde_json::json;
use store::sql::{Db, DbError, PostgresDb, SqliteDb};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{
    HubArguments, HubAuditOptions, HubCommand, HubLinkOptions, HubOptions, HubStatusOptions, HubStoreOptions,
    HubTokenOptions,
};
use crate::trouble::Trouble;
use crate::{doors, paths, server, terminal};

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8090);
/// Every bridged session and every browser has a connection.
const FILES_WANTED: u64 = 65_536;
const STATUS_WAIT: Duration = Duration::from_secs(2);
/// Whom push services may write to about our pushes. What is at this address is nobody.
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
        Err(trouble) => trouble.report(as_json),
    })
}

/// Several hubs live on such a store, and one on any other.
fn is_postgres(store: &str) -> bool {
    store.starts_with("postgres://") || store.starts_with("postgresql://")
}

/// Where a hub's database is.
enum DatabasePlace {
    Postgres(String),
    File(PathBuf),
}

async fn connect(url: &str, bus: Option<&str>) -> Result<Arc<dyn Db>, Trouble> {
    let db = PostgresDb::connect(url, bus).await;
    Ok(Arc::new(
        db.map_err(|error| no_database(&error).fix("see whether PostgreSQL runs and lets this user in"))?,
    ))
}

fn place(options: &HubStoreOptions) -> Result<DatabasePlace, Trouble> {
    let store = options.store.as_deref();
    if let Some(url) = store.filter(|store| is_postgres(store)) {
        return Ok(DatabasePlace::Postgres(url.to_owned()));
    }
    if store.is_some_and(|store| store.contains("://")) {
        return Err(
            Trouble::usage("--store is a file or a postgres:// address").fix("see `ropewalk hub --help`")
        );
    }
    if options.bus.is_some() {
        return Err(
            Trouble::usage("--bus is for several hubs on one PostgreSQL").fix("give --store postgres://...")
        );
    }
    Ok(DatabasePlace::File(match (store, &options.data) {
        (Some(file), _) => PathBuf::from(file),
        (None, Some(data)) => data.join("hub.db"),
        (None, None) => paths::state()?.join("hub.db"),
    }))
}

/// The database, made if it is not there yet.
async fn database(options: &HubStoreOptions) -> Result<Arc<dyn Db>, Trouble> {
    let file = match place(options)? {
        DatabasePlace::Postgres(url) => return connect(&url, options.bus.as_deref()).await,
        DatabasePlace::File(file) => file,
    };
    let unusable = |error| Trouble::failed(format!("{} cannot be used", file.display())).because(error);
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unusable)?;
    }
    if std::fs::metadata(&file).is_ok_and(|found| found.is_file() && found.len() == 0) {
        return Err(Trouble::failed("the hub's database cannot be used")
            .because(format!("{} is empty (0 bytes), so everything that it held is lost", file.display()))
            .fix("bring it back from a backup, or remove it to begin a new hub"));
    }
    // What else the database makes beside it has the same mode.
    let made = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&file);
    drop(made.map_err(unusable)?);
    let db = SqliteDb::open(&file).map_err(|error| no_database(&error))?;
    Ok(Arc::new(db))
}

fn no_database(error: &DbError) -> Trouble {
    Trouble::failed("the hub's database cannot be used").because(error)
}

fn failed(failure: Failure) -> Trouble {
    Trouble::failed("it was not done").because(failure.wrong().message)
}

async fn people(
    db: &Arc<dyn Db>,
    public_url: &str,
    node: &NodeId,
    behind_proxy: bool,
) -> Result<Arc<People>, Trouble> {
    let options = PeopleOptions {
        public_url: public_url.to_owned(),
        behind_proxy,
        clock: Arc::new(SystemClock),
        node: node.as_str().into(),
        forgets: hub::forget_person,
        push: Some(PushOptions {
            reach: Reach {
                allows: agent::is_public,
                loopback: paths::variable("ROPEWALK_PUSH_LOOPBACK").is_some(),
            },
            contact: CONTACT.into(),
        }),
    };
    People::open(Arc::clone(db), options).await.map_err(|error| {
        let trouble = Trouble::failed(error.to_string());
        match std::error::Error::source(&error) {
            Some(source) => trouble.because(innermost(source)),
            None => trouble,
        }
    })
}

/// What is at the bottom of an error says what happened; what stands above it says where.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

fn new_node() -> Result<NodeId, Trouble> {
    NodeId::fresh().map_err(|error| Trouble::failed("there are no random bytes").because(error))
}

async fn serve(options: &HubOptions) -> Result<(), Trouble> {
    let listening = listen(options).await?;
    let public_url = public_url(options, &listening)?;
    let db = database(&options.store).await?;
    let node = new_node()?;
    let people = people(&db, &public_url, &node, options.behind_proxy).await?;
    let defaults = hub::HubOptions::default();
    let parts = HubParts {
        db,
        door: Arc::clone(&people) as Arc<dyn hub::guest::Doorkeeper>,
        people: Some(Arc::clone(&people)),
        clock: Arc::new(SystemClock),
        node,
        alone: !options.store.store.as_deref().is_some_and(is_postgres),
        options: hub::HubOptions {
            public_url: Some(public_url.clone()),
            name: server::host_name(),
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
    terminal::say(&format!("listening on {}, for people and machines at {public_url}", listening.url()));
    match people.setup_link().await.map_err(failed)? {
        Some(link) => {
            terminal::say(&format!("nobody is here yet; whoever opens this link is the admin:\n  {link}"))
        }
        None => terminal::say("`ropewalk hub link --person NAME` signs somebody in"),
    }
    let router = hub::router(&hub, front, Some(Arc::clone(&people)));
    let stop = hub.stopping();
    let keeping = hub.spawn(people.keep_up(stop.clone()));
    let serving = hub.spawn(listening.serve(router, stop.clone()));
    stopped().await?;
    terminal::say("stopping");
    hub.finish().await;
    drop(tokio::join!(serving, keeping));
    Ok(())
}

fn in_days(days: u64) -> Duration {
    Duration::from_secs(days * 86_400)
}

/// Until somebody ends it.
async fn stopped() -> Result<(), Trouble> {
    let unheard = |error| Trouble::failed("signals cannot be heard").because(error);
    let mut terminate = signal(SignalKind::terminate()).map_err(unheard)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unheard)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

async fn listen(options: &HubOptions) -> Result<Listening, Trouble> {
    let address = options.listen.unwrap_or(LISTEN);
    let tls = match (&options.tls_cert, &options.tls_key) {
        (Some(certificate), Some(key)) => Some(Tls::read(certificate, key).map_err(doors::no_tls)?),
        (None, None) => None,
        _ => {
            return Err(
                Trouble::usage("a certificate and its key go together").fix("give --tls-cert and --tls-key")
            );
        }
    };
    if !address.ip().is_loopback() && tls.is_none() && !options.behind_proxy {
        let what =
            format!("{address} can be reached from other machines, and tokens would be sent in the clear");
        return Err(Trouble::usage(what)
            .fix("give --tls-cert and --tls-key; or --behind-proxy, if a proxy speaks TLS for it"));
    }
    let connections = doors::raise_files(FILES_WANTED);
    let listening = Listening::bind(address, tls).await.map_err(|error| {
        Trouble::failed(format!("{address} cannot be listened on"))
            .because(error)
            .fix("choose another with --listen")
    })?;
    Ok(listening.with_room(connections, connections))
}

/// What was said, or where it listens, if that is a place that others can name.
fn public_url(options: &HubOptions, listening: &Listening) -> Result<String, Trouble> {
    if let Some(url) = &options.store.public_url {
        let url = url.trim_end_matches('/');
        let secure = url.starts_with("https://");
        let own = listening.local_addr().ip().is_loopback();
        let plain = url.starts_with("http://") && own && !options.behind_proxy;
        if !secure && !plain {
            return Err(Trouble::usage("--public-url must be https://")
                .fix("people sign in there, and machines send tokens"));
        }
        return Ok(url.to_owned());
    }
    let bound = listening.local_addr();
    if bound.ip().is_unspecified() || options.behind_proxy {
        return Err(
            Trouble::usage("nobody can be told where this hub is").fix("give --public-url https://...")
        );
    }
    // A passkey belongs to a name, and loopback's is this one.
    let host =
        if bound.ip().is_loopback() { format!("localhost:{}", bound.port()) } else { bound.to_string() };
    Ok(format!("{}://{host}", if listening.is_secure() { "https" } else { "http" }))
}

fn front(options: &HubOptions, listening: &Listening, public_url: &str) -> Result<Front, Trouble> {
    let host = public_url.split_once("://").map_or(public_url, |(_, host)| host);
    let host: HostName = host.parse().map_err(|error| {
        Trouble::usage("--public-url has no path and no user")
            .because(error)
            .fix("as in https://hub.example.com")
    })?;
    let names = Names {
        bound: listening.local_addr(),
        secure: listening.is_secure(),
        hosts: vec![host],
        cors: Vec::new(),
    };
    Ok(Front { names, behind_proxy: options.behind_proxy })
}

async fn audit(options: &HubAuditOptions) -> Result<(), Trouble> {
    let db = database(&options.store).await?;
    let lines = hub::audit::read(db.as_ref(), options.limit).await.map_err(|error| no_database(&error))?;
    let mut text = String::new();
    for line in lines {
        if options.json {
            terminal::put_json(&json!(line))?;
            continue;
        }
        let at = wire::timestamp::rfc3339(Timestamp(line.at));
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let (person, about, address) = (or_dash(line.person), or_dash(line.about), or_dash(line.address));
        text.push_str(&format!("{at}  {:20}  {person:14}  {address:15}  {about}\n", line.what));
    }
    terminal::put(&text)
}

async fn at_home(options: &HubStoreOptions) -> Result<Arc<People>, Trouble> {
    let db = database(options).await?;
    let usual = || format!("http://localhost:{}", LISTEN.port());
    let public_url = options.public_url.clone().unwrap_or_else(usual);
    people(&db, public_url.trim_end_matches('/'), &new_node()?, false).await
}

async fn link(options: &HubLinkOptions) -> Result<(), Trouble> {
    let people = at_home(&options.store).await?;
    let link = people.link_for(&options.person).await.map_err(failed)?;
    terminal::put(&format!("{link}\n"))
}

async fn token(options: &HubTokenOptions) -> Result<(), Trouble> {
    let people = at_home(&options.store).await?;
    let until = options.days.map(|days| Timestamp(SystemClock.now().0 + i64::from(days) * 86_400_000));
    let token = people.token_for(&options.person, &options.name, until).await.map_err(failed)?;
    terminal::put(&format!("{token}\n"))
}

/// Asks the hub of this machine whether it can serve.
fn status(options: &HubStatusOptions) -> Result<(), Trouble> {
    let listen = options.listen.unwrap_or(LISTEN);
    let host = if listen.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { listen.ip() };
    let address = SocketAddr::new(host, listen.port());
    let asked = ask(address);
    let answer =
        asked.map_err(|error| Trouble::failed(format!("no hub answers at {address}")).because(error))?;
    let status = answer.lines().next().unwrap_or_default();
    // A hub with a certificate of its own does not speak plainly; that it listens must do.
    if status.contains(" 200 ")
        || (paths::variable("ROPEWALK_HUB_TLS_CERT").is_some() && !status.contains(" 503 "))
    {
        return terminal::put("ready\n");
    }
    Err(Trouble::failed("the hub cannot serve").because(status.to_owned()))
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
