//! The HTTP door of `serve`: what it needs is looked at before anything is served, then it is opened.

use std::net::SocketAddr;
use std::sync::Arc;

use engine::{ListQuery, Principal, Registry, Timestamp};
use net::http::{
    Client, Digest, Doors, Gate, GateParts, HostName, Listening, Names, Origin, Tls, TlsError, Transports,
    Visits, random, router,
};
use net::{Greeted, Metrics, Rules};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::{Dialect, Identity};

use crate::cli::HttpOptions;
use crate::config::Config;
use crate::running::{self, Facts, Running};
use crate::tokens::{self, Master};
use crate::trouble::Trouble;
use crate::{paths, terminal};

/// Open files that a server with many connections needs.
const FILES_WANTED: u64 = 2048;
/// Of these, what is not for connections: the store, standard input and output, children.
const FILES_KEPT: u64 = 256;

/// A door that can be opened: everything that could be wrong with its options was looked at.
pub struct Door {
    address: SocketAddr,
    tls: Option<Tls>,
    master: Master,
    clients: Vec<Client>,
    hosts: Vec<HostName>,
    cors: Vec<Origin>,
    behind_proxy: bool,
    discovery: bool,
    secret: [u8; 32],
}

/// Whoever comes in here works below the server's own folder, or in one that its owner opened.
fn confined(rules: &Rules) -> Rules {
    let allowed = rules.allowed_dirs.clone().unwrap_or_default();
    let places: Vec<_> = std::iter::once(rules.home_dir.clone()).chain(allowed).collect();
    Rules { allowed_dirs: Some(places.clone()), places: Some(places), ..rules.clone() }
}

/// Whether everybody may ask what the server is. The variable is zeph's.
fn discovery(config: &Config) -> bool {
    let word =
        paths::variable("ZEPH_ACP_DISCOVERY_ENABLED").map(|word| word.to_string_lossy().to_lowercase());
    match word.as_deref() {
        Some("false" | "0" | "no" | "off") => false,
        Some(_) => true,
        None => config.discovery_enabled.unwrap_or(true),
    }
}

/// What the door shares with the others.
pub struct Shared {
    pub registry: Arc<Registry>,
    pub rules: Rules,
    pub identity: Identity,
    pub dialect: Option<Dialect>,
    pub greeted: Option<Greeted>,
    pub metrics: Arc<Metrics>,
    pub started: Timestamp,
}

/// A door that serves.
pub struct Open {
    stop: CancellationToken,
    serving: JoinHandle<()>,
    doors: Arc<Doors>,
    _running: Running,
}

impl Door {
    /// Nothing, if the options ask for none.
    pub fn prepare(options: &HttpOptions, config: &Config) -> Result<Option<Self>, Trouble> {
        let address = options.address().map_err(|error| Trouble::usage(error).fix("name one port"))?;
        let Some(address) = address else { return Ok(None) };
        let tls = match (&options.tls_cert, &options.tls_key) {
            (Some(certificate), Some(key)) => Some(Tls::read(certificate, key).map_err(no_tls)?),
            _ => None,
        };
        if !address.ip().is_loopback() {
            must_be_safe(options, address, tls.is_some())?;
        }
        let master = Master::find(options)?;
        if let Master::Kept(..) = master
            && !address.ip().is_loopback()
        {
            return Err(Trouble::usage(format!(
                "{address} can be reached from other machines, and no token is set"
            ))
            .fix("set ROPEWALK_SERVER_TOKEN, or listen on 127.0.0.1"));
        }
        let clients = tokens::clients(&config.clients, &master)?;
        for client in config.clients.iter().filter(|client| client.token.is_some()) {
            warn(&format!(
                "the token of client {:?} stands in the settings file; token_sha256 is safer",
                client.id
            ));
        }
        Ok(Some(Self {
            address,
            tls,
            master,
            clients,
            hosts: options.allow_host.clone(),
            cors: options.cors.clone(),
            behind_proxy: options.behind_proxy,
            discovery: discovery(config),
            secret: tokens::secret()?,
        }))
    }

    pub async fn open(self, shared: &Shared) -> Result<Open, Trouble> {
        let connections = raise_files();
        let listening = Listening::bind(self.address, self.tls.clone()).await;
        let listening = listening.map_err(|error| taken(self.address, &error))?.at_most(connections);
        let listening = listening.counted(Arc::clone(&shared.metrics));
        let bound = listening.local_addr();
        let seed = random().map_err(|error| Trouble::failed("there are no random bytes").because(error))?;
        let names = Names { bound, secure: listening.is_secure(), hosts: self.hosts, cors: self.cors };
        let keys = self.master.keys(self.clients);
        let gate = Arc::new(Gate::new(GateParts { keys, names, behind_proxy: self.behind_proxy, seed }));
        let running = running::claim(&Facts {
            url: listening.url(),
            port: bound.port(),
            started_at: shared.started.0,
            token_sha256: self.master.digest().as_ref().map(Digest::hex),
        })?;
        let stop = CancellationToken::new();
        announce(&listening, &self.master);
        open_when_ready(&shared.registry, &gate);
        let doors = Arc::new(Doors {
            registry: Arc::clone(&shared.registry),
            rules: Rules { source: "http".into(), discovery: self.discovery, ..confined(&shared.rules) },
            identity: shared.identity.clone(),
            dialect: shared.dialect,
            greeted: shared.greeted.clone(),
            gate,
            secret: self.secret,
            visits: Visits::default(),
            transports: Transports::default(),
            sockets: net::http::sockets(),
            hall: Arc::default(),
            desk: net::native::DeskSlot::default(),
            metrics: Arc::clone(&shared.metrics),
            started: shared.started,
            tasks: TaskTracker::new(),
            stop: stop.clone(),
        });
        let serving =
            shared.registry.tracker().spawn(listening.serve(router(Arc::clone(&doors)), stop.clone()));
        Ok(Open { stop, serving, doors, _running: running })
    }
}

impl Open {
    /// Takes no more requests, and ends the long answers.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub async fn finish(self) {
        self.stop();
        // It has its own deadline.
        drop(self.serving.await);
        self.doors.finish().await;
    }
}

/// What others can reach needs a token and TLS.
fn must_be_safe(options: &HttpOptions, address: SocketAddr, tls: bool) -> Result<(), Trouble> {
    let reachable = format!("{address} can be reached from other machines");
    if options.no_auth {
        return Err(Trouble::usage(format!("{reachable}: --no-auth is for loopback only"))
            .fix("leave --no-auth out, or listen on 127.0.0.1"));
    }
    if !tls && !options.behind_proxy {
        return Err(Trouble::usage(format!("{reachable}, and tokens would be sent in the clear"))
            .fix("give --tls-cert and --tls-key; or --behind-proxy, if a proxy speaks TLS for it"));
    }
    Ok(())
}

fn no_tls(error: TlsError) -> Trouble {
    let trouble = Trouble::usage(error.to_string()).fix("give --tls-cert and --tls-key files in PEM form");
    match std::error::Error::source(&error) {
        Some(source) => trouble.because(source),
        None => trouble,
    }
}

fn taken(address: SocketAddr, error: &std::io::Error) -> Trouble {
    Trouble::failed(format!("{address} cannot be listened on"))
        .because(error)
        .fix("choose another with --port, or see who is there: ropewalk serve status")
}

/// Says where, and where the token is; never the token.
fn announce(listening: &Listening, master: &Master) {
    terminal::say(&format!("listening on {}", listening.url()));
    match master {
        Master::None => warn(
            "no token is asked for: every program on this machine may run commands as you, through this server",
        ),
        Master::Kept(_, path) => terminal::say(&format!("the token is in {}", path.display())),
        Master::Given(_, place) => terminal::say(&format!("the token is the one in {place}")),
    }
    if let Ok(state) = paths::state() {
        tracing::info!(state = %state.display(), "serving HTTP");
    }
}

fn warn(text: &str) {
    terminal::say(&format!("{} {text}", terminal::stderr_paint().warn("warning:")));
}

/// Whoever comes is let in when the sessions have answered once.
fn open_when_ready(registry: &Arc<Registry>, gate: &Arc<Gate>) {
    let (asked, gate) = (Arc::clone(registry), Arc::clone(gate));
    registry.tracker().spawn(async move {
        let query = ListQuery { limit: 1, ..ListQuery::all(Principal::local()) };
        if let Err(error) = asked.list(query).await {
            tracing::warn!(%error, "the sessions cannot be listed");
        }
        gate.open();
    });
}

/// As many open files as many connections need, where the system lets us; and how many connections
/// that makes.
fn raise_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(FILES_WANTED, |maximum| maximum.min(FILES_WANTED));
    let mut current = limit.current.unwrap_or(u64::MAX);
    if current < wanted && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).is_ok() {
        current = wanted;
    }
    usize::try_from(current.saturating_sub(FILES_KEPT)).unwrap_or(usize::MAX)
}
