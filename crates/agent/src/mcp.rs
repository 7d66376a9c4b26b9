//! MCP: the tool servers of a session, and their tools among ours.
//!
//! Servers are named by a client when it opens a session or later, by the person's settings, or by the
//! project. They are started side by side when a turn first needs tools, and a turn waits for them a
//! moment only: tools come when they come. A file of a project may name any program, so the person is
//! asked before one of those is started.
//!
//! **Invariant:** when a session has left memory, no server of it runs.

mod environment;
mod kept;
mod link;
mod names;
mod result;
mod server;
mod tool;
mod web;

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{
    AskRequest, Body, BoxFuture, NoticeLevel, Opaque, Risk, SERVER_CONSENT, ServerView, ServerWay, SessionId,
    ToolClass, ToolKind, ToolServer, ToolServers, TurnContext,
};
use sandbox::Fence;
use sha2::{Digest as _, Sha256};
use tokio_util::task::TaskTracker;

use crate::summary::{cut, one_line};
use crate::thinker::{Broken, unless_cancelled};
use crate::tools::{self, Tool};
pub(crate) use kept::Kept;
use link::Base;
use server::{Consent, NamedBy, Parts, Server};

/// Servers of one session, named by whomever.
const SERVERS_MAX: usize = 64;
/// How long a session that ends waits for its servers. They are killed before this.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// How long a turn waits for a new list of tools that was announced.
const LIST_WAIT: Duration = Duration::from_millis(500);

/// What the agent must be told of tool servers.
#[derive(Clone)]
pub struct McpConfig {
    /// Those that the person's settings name, for every session.
    pub servers: Vec<ToolServer>,
    /// Those that a project names, given the folder that a session works in. Reads files.
    pub project: Option<ReadProject>,
    /// From the start to the list of tools.
    pub start_timeout: Duration,
    pub call_timeout: Duration,
    /// How long a turn waits for servers that are being started.
    pub grace: Duration,
}

impl Default for McpConfig {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            project: None,
            start_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_secs(300),
            grace: Duration::from_secs(5),
        }
    }
}

/// The tool servers that the project of a folder names, or why they cannot be read.
pub type ReadProject = fn(&Path) -> Result<Vec<ProjectServer>, String>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectServer {
    pub server: ToolServer,
    /// The whole entry as it is written, for the person to judge.
    pub shown: String,
    /// What the person should hear of it.
    pub news: Vec<String>,
}

/// A digest of everything that a project's entry says of its server: its name, and command, arguments and
/// variables, or address and names of headers. Consent is given to this.
pub fn consent_digest(server: &ToolServer) -> String {
    let mut hash = Sha256::new();
    // Each part with its length, so that no two entries are the same bytes.
    let mut part = |bytes: &[u8]| {
        hash.update(bytes.len().to_le_bytes());
        hash.update(bytes);
    };
    part(server.name.as_bytes());
    match &server.way {
        ServerWay::Child { command, arguments, environment } => {
            part(b"program");
            part(command.as_os_str().as_encoded_bytes());
            part(&arguments.len().to_le_bytes());
            arguments.iter().for_each(|argument| part(argument.as_bytes()));
            for (name, value) in environment {
                part(name.as_bytes());
                part(value.as_bytes());
            }
        }
        ServerWay::Http { url, headers } => {
            part(b"address");
            part(url.as_bytes());
            headers.iter().for_each(|(name, _)| part(name.as_bytes()));
        }
    }
    let digest = hash.finalize();
    digest.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// What a rule or an answer is about where it is about a project's server.
pub fn consent_subject(shown: &str) -> String {
    one_line(shown)
}

/// Starts the servers of the settings, and says what came of it and what they bring. They are ended again.
pub async fn check_servers(
    config: &McpConfig,
    environment: &[(OsString, OsString)],
    cwd: &Path,
) -> Vec<ServerView> {
    let id = SessionId::random();
    let servers = Servers::new(&id, cwd, Vec::new(), config, environment, &Arc::default());
    for server in servers.servers() {
        server.start();
    }
    for server in servers.servers() {
        server.settled().await;
    }
    let views = servers.list();
    servers.close().await;
    views
}

/// The tool servers of one session.
pub(crate) struct Servers {
    session: SessionId,
    config: McpConfig,
    kept: Arc<Kept>,
    base: Base,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    servers: Vec<Arc<Server>>,
    /// Nothing is started any more.
    closed: bool,
    /// The folder whose project was looked at.
    project: Option<PathBuf>,
}

impl Servers {
    pub(crate) fn new(
        session: &SessionId,
        cwd: &Path,
        named: Vec<ToolServer>,
        config: &McpConfig,
        environment: &[(OsString, OsString)],
        kept: &Arc<Kept>,
    ) -> Arc<Self> {
        let base = Base {
            environment: environment.to_vec(),
            cwd: cwd.to_owned(),
            fence: None,
            tasks: TaskTracker::new(),
        };
        let servers = Arc::new(Self {
            session: session.clone(),
            config: config.clone(),
            kept: Arc::clone(kept),
            base,
            held: Mutex::default(),
        });
        for server in &config.servers {
            servers.put(server.clone(), NamedBy::Person).ok();
        }
        for server in kept.get(session).into_iter().chain(named) {
            // What is wrong with one is no reason to do without the session.
            if let Err(reason) = servers.put(server, NamedBy::Client) {
                tracing::warn!(reason, "a tool server cannot be used");
            }
        }
        servers.remember();
        servers
    }

    /// Starts what is to be started and waits a moment for it; then tells the person what went wrong.
    /// Where only reading is allowed, nothing that a project names is started.
    pub(crate) async fn prepare(
        &self,
        context: &TurnContext,
        only_reading: bool,
        fence: Result<Option<Fence>, String>,
    ) -> Result<(), Broken> {
        if !only_reading {
            self.look_at_project(context, fence).await?;
            for server in self.servers().iter().filter(|server| server.awaits_consent()) {
                self.ask(server, context).await?;
            }
        }
        let servers = self.servers();
        let first: Vec<_> = servers.iter().filter(|server| server.starts_first()).collect();
        if !first.is_empty() {
            let settled = async {
                for server in &first {
                    server.settled().await;
                }
            };
            if unless_cancelled(context, tokio::time::timeout(self.config.grace, settled)).await?.is_err() {
                let late: Vec<_> = first.iter().filter(|server| server.is_starting()).collect();
                let names: Vec<_> = late.iter().map(|server| server.name.as_ref()).collect();
                let text = format!("still starting: MCP server {}; its tools come later", names.join(", "));
                context.emit(Body::Notice { level: NoticeLevel::Info, text: text.into() }).await?;
            }
        }
        let listed = async {
            for server in &servers {
                server.listed().await;
            }
        };
        // A server that is slow here is told of elsewhere; the model gets the list it had.
        drop(unless_cancelled(context, tokio::time::timeout(LIST_WAIT, listed)).await?);
        for server in &servers {
            for news in server.take_news() {
                let text = format!("MCP server {}: {news}", cleaned(&server.name, 64));
                context.emit(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await?;
            }
        }
        Ok(())
    }

    /// What the servers bring at this moment.
    pub(crate) fn tools(&self) -> Vec<Arc<Tool>> {
        self.servers().iter().flat_map(|server| server.tools().to_vec()).collect()
    }

    /// Ends all servers.
    pub(crate) fn close(&self) -> BoxFuture<'static, ()> {
        self.stop();
        let tasks = self.base.tasks.clone();
        Box::pin(async move {
            if tokio::time::timeout(CLOSE_WAIT, tasks.wait()).await.is_err() {
                tracing::warn!("some tool servers did not end in time");
            }
        })
    }

    fn stop(&self) {
        let mut held = self.lock();
        held.closed = true;
        held.servers.iter().for_each(|server| server.stop());
        self.base.tasks.close();
    }

    async fn look_at_project(
        &self,
        context: &TurnContext,
        fence: Result<Option<Fence>, String>,
    ) -> Result<(), Broken> {
        let cwd = context.cwd();
        let Some(project) = self.config.project.filter(|_| self.lock().project.as_ref() != Some(&cwd)) else {
            return Ok(());
        };
        let folder = cwd.as_ref().clone();
        let read = unless_cancelled(context, tools::blocking(move || project(&folder))).await?;
        self.lock().project = Some(cwd.as_ref().clone());
        // What cannot be fenced is not started.
        let named = match read.and_then(|named| named).and_then(|named| Ok((named, fence?))) {
            Ok(named) => named,
            Err(reason) => {
                let text = format!("the project's MCP servers cannot be read: {reason}");
                context.emit(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await?;
                return Ok(());
            }
        };
        let (named, fence) = named;
        let folder = fence.as_ref().and_then(|fence| fence.policy.roots.first());
        let base =
            Base { cwd: folder.unwrap_or(&self.base.cwd).clone(), fence: fence.clone(), ..self.base.clone() };
        for ProjectServer { server, shown, news } in named {
            // What the person or their editor calls by this name is never replaced by a project.
            if self.servers().iter().any(|known| known.name == server.name) {
                continue;
            }
            let consent = Consent { digest: consent_digest(&server).into(), shown };
            match self.put_at(&base, server, NamedBy::Project, Some(consent)) {
                Ok(server) => news.into_iter().for_each(|news| server.tell(news)),
                Err(reason) => {
                    let text = format!("an MCP server of the project cannot be used: {reason}");
                    context.emit(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await?;
                }
            }
        }
        Ok(())
    }

    /// Asks for the consent of the owner at the machine, to exactly this entry.
    async fn ask(&self, server: &Server, context: &TurnContext) -> Result<(), Broken> {
        let Some(Consent { digest, shown }) = &server.consent else { return Ok(()) };
        let input = serde_json::json!({ "server": server.name.as_ref(), "entry": shown });
        let request = AskRequest {
            call: None,
            tool: SERVER_CONSENT.into(),
            title: cut(&one_line(&format!("Start the project's MCP server {}", server.name)), 120).into(),
            kind: ToolKind::Execute,
            class: ToolClass::Execute,
            path: None,
            subject: consent_subject(shown).into(),
            input: Opaque(input.to_string().into()),
            risk: Risk::High,
            reason: "the project names this program; the owner at the machine decides whether it starts"
                .into(),
            preview: Vec::new(),
            question: None,
            foreign: None,
            consent: Some(Arc::clone(digest)),
            rule: None,
        };
        server.answer_consent(&unless_cancelled(context, context.ask(request)).await??);
        Ok(())
    }

    fn put(&self, server: ToolServer, named_by: NamedBy) -> Result<Arc<Server>, String> {
        self.put_at(&self.base, server, named_by, None)
    }

    fn put_at(
        &self,
        base: &Base,
        server: ToolServer,
        named_by: NamedBy,
        consent: Option<Consent>,
    ) -> Result<Arc<Server>, String> {
        let ToolServer { name, way } = server;
        let (way, news) = usable(way, named_by)?;
        let mut held = self.lock();
        if held.closed {
            return Err("the session is closed".into());
        }
        let at = held.servers.iter().position(|known| known.name == name);
        if let Some(same) = at.map(|at| &held.servers[at]).filter(|known| known.way == way) {
            return Ok(Arc::clone(same));
        }
        // The same name has the same place among the names of tools, so that rules go on to hold.
        let replaced = at.map(|at| held.servers.remove(at));
        if let Some(replaced) = &replaced {
            replaced.stop();
        }
        if held.servers.len() >= SERVERS_MAX {
            return Err(format!("a session has at most {SERVERS_MAX} tool servers"));
        }
        let taken: HashSet<_> = held.servers.iter().map(|known| names::key(&known.slug)).collect();
        let server = Server::new(Parts {
            slug: names::server(&name, &taken),
            name,
            way,
            named_by,
            consent,
            start_timeout: self.config.start_timeout,
            call_timeout: self.config.call_timeout,
            base: base.clone(),
            news,
        });
        held.servers.push(Arc::clone(&server));
        Ok(server)
    }

    /// What clients named goes with the session, wherever it is opened next in this process.
    fn remember(&self) {
        let named = |server: &Arc<Server>| {
            let named = server.named_by == NamedBy::Client;
            named.then(|| ToolServer { name: Arc::clone(&server.name), way: server.way.clone() })
        };
        self.kept.put(&self.session, self.servers().iter().filter_map(named).collect());
    }

    fn servers(&self) -> Vec<Arc<Server>> {
        self.lock().servers.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToolServers for Servers {
    fn list(&self) -> Vec<ServerView> {
        self.servers().iter().map(|server| server.view()).collect()
    }

    fn add(&self, server: ToolServer) -> Result<(), String> {
        self.put(server, NamedBy::Client)?;
        self.remember();
        Ok(())
    }

    fn remove(&self, name: &str) -> bool {
        let mut held = self.lock();
        let at = held.servers.iter().position(|known| known.name.as_ref() == name);
        let removed = at.map(|at| held.servers.remove(at));
        drop(held);
        if let Some(server) = &removed {
            server.stop();
            self.remember();
        }
        removed.is_some()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An entry without what it may not have, and what the person should hear of that.
fn usable(way: ServerWay, named_by: NamedBy) -> Result<(ServerWay, Vec<String>), String> {
    match way {
        ServerWay::Child { command, .. } if command.as_os_str().is_empty() => {
            Err("the command is empty".into())
        }
        // The person's own file may say anything: it could as well name a script that does.
        ServerWay::Child { .. } if named_by == NamedBy::Person => Ok((way, Vec::new())),
        ServerWay::Child { command, arguments, environment } => {
            let (environment, dropped) = environment::admitted(&environment);
            let news = match dropped.is_empty() {
                true => Vec::new(),
                false => vec![format!(
                    "these variables are not passed on, since they change which code runs: {}",
                    dropped.join(", ")
                )],
            };
            Ok((ServerWay::Child { command, arguments, environment }, news))
        }
        ServerWay::Http { .. } => Ok((way, Vec::new())),
    }
}

/// What somebody else wrote, short, on one line and without what a terminal would obey.
fn cleaned(text: &str, chars_max: usize) -> String {
    let plain = text.trim().chars().map(|c| if c == '\n' || c == '\t' { ' ' } else { c });
    let plain: String = plain.filter(|c| !c.is_control()).take(chars_max + 1).collect();
    if plain.chars().count() > chars_max { cut(&plain, chars_max) } else { plain }
}
