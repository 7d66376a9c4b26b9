//! The HTTP door of `serve`: its options are checked before anything is served, then it is opened.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::devices::{Devices, ServerUrls};
use access::{
    BoundListener, Client, Digest, Gate, GateParts, HostName, Origin, ServerNames, Tls, TlsError, random,
};
use app::{AppServerExtras, AppServerSlot};
use engine::{Follower, Registry, Timestamp};
use metrics::Metrics;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::OnInitialize;
use server::http::{HttpState, OfficialConnections, ZephConnections, router};
use service::ServiceRules;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::{DialectSelection, Identity};

use crate::cli::HttpOptions;
use crate::cli_error::CliError;
use crate::config::Config;
use crate::http_tokens::{self, MasterToken};
use crate::lan::Lan;
use crate::pushes::Pushes;
use crate::running_servers::{self, ServerFile, ServerInfo};
use crate::{output, paths};

/// Open files that a server with many connections needs.
const FILES_WANTED: u64 = 2048;
/// The part of these that is not for connections: the store, standard streams, child processes.
const FILES_KEPT: u64 = 256;

/// A door that is ready to be opened: its options are checked.
pub struct HttpDoor {
    address: SocketAddr,
    tls: Option<Tls>,
    master: MasterToken,
    clients: Vec<Client>,
    hosts: Vec<HostName>,
    cors: Vec<Origin>,
    behind_proxy: bool,
    discovery: bool,
    secret: [u8; 32],
    /// Print nothing when it is opened.
    quiet: bool,
    /// How many following ports to try if its own is taken.
    ports_more: u16,
    lan: Option<Lan>,
    pushes: Option<Pushes>,
    /// The digest of the options that the server was started with.
    options: String,
}

/// What all doors share.
pub struct Shared {
    pub registry: Arc<Registry>,
    pub rules: ServiceRules,
    pub identity: Identity,
    pub dialect: DialectSelection,
    pub greeted: Option<OnInitialize>,
    pub metrics: Arc<Metrics>,
    pub started: Timestamp,
    /// A connection that is idle for this long is closed.
    pub idle_timeout: Duration,
    pub devices: Arc<Devices>,
    pub extras: AppServerExtras,
}

/// A door that is serving.
pub struct OpenHttpDoor {
    stop: CancellationToken,
    serving: Vec<JoinHandle<()>>,
    doors: Arc<HttpState>,
    outside: Option<String>,
    fingerprint: Option<String>,
    /// Cancelled when the door accepts requests.
    ready: CancellationToken,
    pushes: Option<Pushes>,
    _running: ServerFile,
}

impl HttpDoor {
    /// `None` if the options ask for no HTTP door.
    pub fn prepare(options: &HttpOptions, config: &Config) -> Result<Option<Self>, CliError> {
        let address = options.address().map_err(|error| CliError::usage(error).fix("give one port only"))?;
        let Some(address) = address else { return Ok(None) };
        let tls = match (&options.tls_cert, &options.tls_key) {
            (Some(certificate), Some(key)) => Some(Tls::read(certificate, key).map_err(tls_error)?),
            _ => None,
        };
        if !address.ip().is_loopback() {
            require_token_and_tls(options, address, tls.is_some())?;
        }
        let master = MasterToken::find(options)?;
        if let MasterToken::Stored(..) = master
            && !address.ip().is_loopback()
        {
            return Err(CliError::usage(format!(
                "{address} is reachable from other machines, but no token is set"
            ))
            .fix("set ROPEWALK_SERVER_TOKEN, or listen on 127.0.0.1"));
        }
        let clients = http_tokens::clients(&config.clients, &master)?;
        for client in config.clients.iter().filter(|client| client.token.is_some()) {
            warn(&format!(
                "the settings file contains the token of client {:?}; use token_sha256 instead",
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
            discovery: config.discovery_enabled.unwrap_or(true),
            secret: http_tokens::secret()?,
            quiet: false,
            ports_more: 0,
            lan: None,
            pushes: Pushes::prepare(config)?,
            options: String::new(),
        }))
    }

    /// Sets the options digest, for other processes to compare.
    pub fn started_with(self, options: String) -> Self {
        Self { options, ..self }
    }

    /// Prints nothing when it is opened: the caller does.
    pub fn quiet(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// Tries the following ports if its own is taken.
    pub fn or_next_ports(self, ports_more: u16) -> Self {
        Self { ports_more, ..self }
    }

    /// Also listens on the local network, on the same port.
    pub fn with_lan(self, lan: Option<Lan>) -> Self {
        Self { lan, ..self }
    }

    async fn bind(&self) -> Result<BoundListener, CliError> {
        let mut address = self.address;
        let last = address.port().saturating_add(self.ports_more);
        loop {
            match BoundListener::bind(address, self.tls.clone()).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse && address.port() < last => {
                    address.set_port(address.port() + 1);
                }
                bound => return bound.map_err(|error| listen_error(address, &error)),
            }
        }
    }

    /// The follower of all sessions that sends push notifications.
    pub fn follower(&self) -> Option<Arc<dyn Follower>> {
        self.pushes.as_ref().map(Pushes::follower)
    }

    pub async fn open(mut self, shared: &Shared) -> Result<OpenHttpDoor, CliError> {
        let connections = raise_open_files(FILES_WANTED);
        let fit =
            |listening: BoundListener| listening.at_most(connections).counted(Arc::clone(&shared.metrics));
        let listening = fit(self.bind().await?);
        let bound = listening.local_addr();
        let lan = match self.lan.take() {
            None => None,
            Some(Lan { address, tls, fingerprint }) => {
                let address = SocketAddr::new(address, bound.port());
                let listening = BoundListener::bind(address, Some(tls)).await;
                Some((fit(listening.map_err(|error| listen_error(address, &error))?), fingerprint))
            }
        };
        let outside = lan.as_ref().map(|(listening, _)| listening.url());
        let places = self.places(&listening, outside);
        let outside = places.outside.clone();
        shared.devices.set_urls(places);
        let lan_listening = lan.as_ref().map(|(listening, _)| listening);
        let gate = Arc::new(self.gate(&shared.devices, &listening, lan_listening)?);
        let running = running_servers::claim(&ServerInfo {
            url: listening.url(),
            port: bound.port(),
            started_at: shared.started.0,
            folder: shared.rules.home_dir.clone(),
            token_sha256: self.master.digest().as_ref().map(Digest::hex),
            certificate_sha256: self.tls.as_ref().map(|tls| tls.fingerprint().hex()),
            options_sha256: std::mem::take(&mut self.options),
        })?;
        if !self.quiet {
            announce(&listening, &self.master);
        }
        let ready = open_when_ready(&shared.registry, &gate);
        let pushes = self.pushes.take().map(|pushes| pushes.start(&shared.devices));
        let doors = Arc::new(self.doors(shared, gate));
        let (devices, stopped) = (Arc::clone(&shared.devices), doors.stop.clone());
        drop(doors.tasks.spawn(async move { devices.watch_file(stopped).await }));
        let serve = |listening: BoundListener| {
            let router = router(Arc::clone(&doors));
            shared.registry.tracker().spawn(listening.serve(router, doors.stop.clone()))
        };
        let (lan, fingerprint) = lan.unzip();
        let serving = std::iter::once(listening).chain(lan).map(serve).collect();
        let stop = doors.stop.clone();
        let fingerprint = fingerprint.flatten();
        Ok(OpenHttpDoor { stop, serving, doors, outside, fingerprint, ready, pushes, _running: running })
    }

    fn gate(
        &mut self,
        devices: &Devices,
        listening: &BoundListener,
        lan: Option<&BoundListener>,
    ) -> Result<Gate, CliError> {
        let seed = random().map_err(|error| {
            CliError::failed("the operating system's random generator failed").because(error)
        })?;
        let names = |listening: &BoundListener| ServerNames {
            bound: listening.local_addr(),
            secure: listening.is_secure(),
            hosts: self.hosts.clone(),
            cors: self.cors.clone(),
        };
        let (own, lan) = (names(listening), lan.map(names));
        let keys = self.master.keys(std::mem::take(&mut self.clients));
        devices.set_accepted_tokens(keys.clone());
        let gate = Gate::new(GateParts { keys, names: own, behind_proxy: self.behind_proxy, seed });
        Ok(match lan {
            Some(lan) => gate.also(lan),
            None => gate,
        })
    }

    /// The URLs at which browsers find it, on this machine and on others.
    fn places(&self, listening: &BoundListener, lan: Option<String>) -> ServerUrls {
        let bound = listening.local_addr();
        let secure = listening.is_secure() || self.behind_proxy || lan.is_some();
        let scheme = if secure { "https" } else { "http" };
        // A proxy has its own port; without one, the name is reached at ours.
        let named = self.hosts.first().map(|host| match host.has_port() || self.behind_proxy {
            true => format!("{scheme}://{host}"),
            false => format!("{scheme}://{host}:{}", bound.port()),
        });
        let ip = bound.ip();
        let reached = (!ip.is_loopback() && !ip.is_unspecified()).then(|| listening.url());
        let own = match ip.is_unspecified() {
            true if listening.is_secure() => named.clone(),
            true => Some(format!("http://127.0.0.1:{}", bound.port())),
            false => None,
        };
        ServerUrls { own: own.unwrap_or_else(|| listening.url()), outside: named.or(lan).or(reached) }
    }

    fn doors(&self, shared: &Shared, gate: Arc<Gate>) -> HttpState {
        HttpState {
            registry: Arc::clone(&shared.registry),
            rules: ServiceRules {
                source: "http".into(),
                discovery: self.discovery,
                ..shared.rules.confined()
            },
            identity: shared.identity.clone(),
            dialect: shared.dialect,
            on_initialize: shared.greeted.clone(),
            gate,
            secret: self.secret,
            official_connections: OfficialConnections::default(),
            zeph_connections: ZephConnections::new(shared.idle_timeout),
            sockets: server::http::sockets(),
            app: AppServerSlot::new(shared.extras.clone()),
            devices: Arc::clone(&shared.devices),
            metrics: Arc::clone(&shared.metrics),
            started: shared.started,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }
}

impl OpenHttpDoor {
    /// The URL for other machines, if they can reach it.
    pub fn outside(&self) -> Option<&str> {
        self.outside.as_deref()
    }

    /// Waits until the door accepts requests.
    pub async fn ready(&self) {
        self.ready.cancelled().await;
    }

    /// The fingerprint of our self-signed certificate.
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// Accepts no more requests and ends streaming responses.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub async fn finish(self) {
        self.stop();
        for serving in self.serving {
            // It has a deadline of its own.
            drop(serving.await);
        }
        self.doors.finish().await;
        if let Some(pushes) = self.pushes {
            pushes.finish().await;
        }
    }
}

/// An address that other machines can reach needs a token and TLS.
fn require_token_and_tls(options: &HttpOptions, address: SocketAddr, tls: bool) -> Result<(), CliError> {
    let reachable = format!("{address} is reachable from other machines");
    if options.no_auth {
        return Err(CliError::usage(format!("{reachable}, but --no-auth is for loopback only"))
            .fix("remove --no-auth, or listen on 127.0.0.1"));
    }
    if !tls && !options.behind_proxy {
        return Err(CliError::usage(format!("{reachable}, but tokens would be sent unencrypted"))
            .fix("pass --tls-cert and --tls-key, or --behind-proxy if a proxy handles TLS"));
    }
    Ok(())
}

pub fn tls_error(error: TlsError) -> CliError {
    let wrong = CliError::usage(error.to_string()).fix("pass --tls-cert and --tls-key files in PEM format");
    match std::error::Error::source(&error) {
        Some(source) => wrong.because(source),
        None => wrong,
    }
}

fn listen_error(address: SocketAddr, error: &std::io::Error) -> CliError {
    CliError::failed(format!("could not listen on {address}"))
        .because(error)
        .fix("choose another port with --port, or list running servers with `ropewalk serve status`")
}

/// Prints the address and where the token is, never the token itself.
fn announce(listening: &BoundListener, master: &MasterToken) {
    output::say(&format!("listening on {}", listening.url()));
    match master {
        MasterToken::None => warn(
            "no token is required: every program on this machine can run commands as you through this server",
        ),
        MasterToken::Stored(_, path) => output::say(&format!("the token is in {}", path.display())),
        MasterToken::Given(_, place) => output::say(&format!("using the token from {place}")),
    }
    output::say("sign a browser in: ropewalk link");
    if let Ok(state) = paths::state() {
        tracing::info!(state = %state.display(), "serving HTTP");
    }
}

fn warn(text: &str) {
    output::say(&format!("{} {text}", output::stderr_paint().warn("warning:")));
}

/// Opens the gate once the session store has answered.
fn open_when_ready(registry: &Arc<Registry>, gate: &Arc<Gate>) -> CancellationToken {
    let (asked, gate) = (Arc::clone(registry), Arc::clone(gate));
    let ready = CancellationToken::new();
    let opened = ready.clone();
    registry.tracker().spawn(async move {
        gate.open_after(&asked).await;
        opened.cancel();
    });
    ready
}

/// Raises the limit of open files as far as the system allows. Returns how many connections that is enough for.
pub fn raise_open_files(wanted: u64) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let mut current = limit.current.unwrap_or(u64::MAX);
    if current < wanted && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).is_ok() {
        current = wanted;
    }
    usize::try_from(current.saturating_sub(FILES_KEPT)).unwrap_or(usize::MAX)
}
