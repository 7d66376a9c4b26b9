//! The HTTP door of `serve`: what it needs is looked at before anything is served, then it is opened.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::devices::{Devices, Places};
use access::{Client, Digest, Gate, GateParts, HostName, Listening, Names, Origin, Tls, TlsError, random};
use app::{DeskSlot, Extras};
use engine::{Follower, Registry, Timestamp};
use metrics::Metrics;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::Greeted;
use server::http::{Doors, Transports, Visits, router};
use service::Rules;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::{Identity, Spoken};

use crate::cli::HttpOptions;
use crate::config::Config;
use crate::lan::Lan;
use crate::pushes::Pushes;
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
    /// Nothing is said about it.
    quiet: bool,
    /// Ports after its own that will do, if that one is taken.
    ports_more: u16,
    lan: Option<Lan>,
    pushes: Option<Pushes>,
    /// The digest of what else the server was started with.
    options: String,
}

/// What the door shares with the others.
pub struct Shared {
    pub registry: Arc<Registry>,
    pub rules: Rules,
    pub identity: Identity,
    pub dialect: Spoken,
    pub greeted: Option<Greeted>,
    pub metrics: Arc<Metrics>,
    pub started: Timestamp,
    /// A connection that nobody uses for this long is given up.
    pub idle_timeout: Duration,
    pub hall: Arc<Devices>,
    pub extras: Extras,
}

/// A door that serves.
pub struct Open {
    stop: CancellationToken,
    serving: Vec<JoinHandle<()>>,
    doors: Arc<Doors>,
    outside: Option<String>,
    fingerprint: Option<String>,
    /// Cancelled when whoever comes is let in.
    ready: CancellationToken,
    pushes: Option<Pushes>,
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
            discovery: config.discovery_enabled.unwrap_or(true),
            secret: tokens::secret()?,
            quiet: false,
            ports_more: 0,
            lan: None,
            pushes: Pushes::prepare(config)?,
            options: String::new(),
        }))
    }

    /// Whoever finds it running can compare what it was started with.
    pub fn started_with(self, options: String) -> Self {
        Self { options, ..self }
    }

    /// Somebody else says where it is.
    pub fn quiet(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// If its port is taken, one of the next will do.
    pub fn or_next_ports(self, ports_more: u16) -> Self {
        Self { ports_more, ..self }
    }

    /// It listens there too, on the same port.
    pub fn with_lan(self, lan: Option<Lan>) -> Self {
        Self { lan, ..self }
    }

    async fn bind(&self) -> Result<Listening, Trouble> {
        let mut address = self.address;
        let last = address.port().saturating_add(self.ports_more);
        loop {
            match Listening::bind(address, self.tls.clone()).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse && address.port() < last => {
                    address.set_port(address.port() + 1);
                }
                bound => return bound.map_err(|error| taken(address, &error)),
            }
        }
    }

    /// Reads along on every session, so that devices which come in here can be told.
    pub fn follower(&self) -> Option<Arc<dyn Follower>> {
        self.pushes.as_ref().map(Pushes::follower)
    }

    pub async fn open(mut self, shared: &Shared) -> Result<Open, Trouble> {
        let connections = raise_files(FILES_WANTED);
        let fit = |listening: Listening| listening.at_most(connections).counted(Arc::clone(&shared.metrics));
        let listening = fit(self.bind().await?);
        let bound = listening.local_addr();
        let lan = match self.lan.take() {
            None => None,
            Some(Lan { address, tls, fingerprint }) => {
                let address = SocketAddr::new(address, bound.port());
                let listening = Listening::bind(address, Some(tls)).await;
                Some((fit(listening.map_err(|error| taken(address, &error))?), fingerprint))
            }
        };
        let outside = lan.as_ref().map(|(listening, _)| listening.url());
        let places = self.places(&listening, outside);
        let outside = places.outside.clone();
        shared.hall.stands_at(places);
        let lan_listening = lan.as_ref().map(|(listening, _)| listening);
        let gate = Arc::new(self.gate(&shared.hall, &listening, lan_listening)?);
        let running = running::claim(&Facts {
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
        let pushes = self.pushes.take().map(|pushes| pushes.start(&shared.hall));
        let doors = Arc::new(self.doors(shared, gate));
        let (hall, stopped) = (Arc::clone(&shared.hall), doors.stop.clone());
        drop(doors.tasks.spawn(async move { hall.keep_up(stopped).await }));
        let serve = |listening: Listening| {
            let router = router(Arc::clone(&doors));
            shared.registry.tracker().spawn(listening.serve(router, doors.stop.clone()))
        };
        let (lan, fingerprint) = lan.unzip();
        let serving = std::iter::once(listening).chain(lan).map(serve).collect();
        let stop = doors.stop.clone();
        let fingerprint = fingerprint.flatten();
        Ok(Open { stop, serving, doors, outside, fingerprint, ready, pushes, _running: running })
    }

    fn gate(
        &mut self,
        hall: &Devices,
        listening: &Listening,
        lan: Option<&Listening>,
    ) -> Result<Gate, Trouble> {
        let seed = random().map_err(|error| Trouble::failed("there are no random bytes").because(error))?;
        let names = |listening: &Listening| Names {
            bound: listening.local_addr(),
            secure: listening.is_secure(),
            hosts: self.hosts.clone(),
            cors: self.cors.clone(),
        };
        let (own, lan) = (names(listening), lan.map(names));
        let keys = self.master.keys(std::mem::take(&mut self.clients));
        hall.opens_by(keys.clone());
        let gate = Gate::new(GateParts { keys, names: own, behind_proxy: self.behind_proxy, seed });
        Ok(match lan {
            Some(lan) => gate.also(lan),
            None => gate,
        })
    }

    /// Where browsers find it: this machine's, and others'.
    fn places(&self, listening: &Listening, lan: Option<String>) -> Places {
        let bound = listening.local_addr();
        let secure = listening.is_secure() || self.behind_proxy || lan.is_some();
        let scheme = if secure { "https" } else { "http" };
        // A proxy has its own port; without one a name is reached at ours.
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
        Places { own: own.unwrap_or_else(|| listening.url()), outside: named.or(lan).or(reached) }
    }

    fn doors(&self, shared: &Shared, gate: Arc<Gate>) -> Doors {
        Doors {
            registry: Arc::clone(&shared.registry),
            rules: Rules { source: "http".into(), discovery: self.discovery, ..shared.rules.confined() },
            identity: shared.identity.clone(),
            dialect: shared.dialect,
            greeted: shared.greeted.clone(),
            gate,
            secret: self.secret,
            visits: Visits::default(),
            transports: Transports::new(shared.idle_timeout),
            sockets: server::http::sockets(),
            desk: DeskSlot::new(shared.extras.clone()),
            hall: Arc::clone(&shared.hall),
            metrics: Arc::clone(&shared.metrics),
            started: shared.started,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }
}

impl Open {
    /// Where others find it, if they can.
    pub fn outside(&self) -> Option<&str> {
        self.outside.as_deref()
    }

    /// Waits until whoever comes is let in.
    pub async fn ready(&self) {
        self.ready.cancelled().await;
    }

    /// Of the certificate that we signed ourselves.
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// Takes no more requests, and ends the long answers.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub async fn finish(self) {
        self.stop();
        for serving in self.serving {
            // It has its own deadline.
            drop(serving.await);
        }
        self.doors.finish().await;
        if let Some(pushes) = self.pushes {
            pushes.finish().await;
        }
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

pub fn no_tls(error: TlsError) -> Trouble {
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
    terminal::say("a browser signs in by a link: ropewalk link");
    if let Ok(state) = paths::state() {
        tracing::info!(state = %state.display(), "serving HTTP");
    }
}

fn warn(text: &str) {
    terminal::say(&format!("{} {text}", terminal::stderr_paint().warn("warning:")));
}

/// Whoever comes is let in when the sessions have answered once.
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

/// As many open files as many connections need, where the system lets us; and how many connections
/// that makes.
pub fn raise_files(wanted: u64) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let mut current = limit.current.unwrap_or(u64::MAX);
    if current < wanted && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).is_ok() {
        current = wanted;
    }
    usize::try_from(current.saturating_sub(FILES_KEPT)).unwrap_or(usize::MAX)
}
