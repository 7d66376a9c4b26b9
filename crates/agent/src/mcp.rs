//! MCP: the tool servers of a session, and their tools.
//!
//! Servers are named by a client when it opens a session or later, by the person's settings, or by the
//! project. They are started concurrently when a turn first needs tools, and a turn waits for them only a
//! moment: their tools appear when they are ready. A project's file may name any program, so the person is
//! asked before one of those is started.
//!
//! **Invariant:** when a session has left memory, none of its servers runs.

mod client_servers;
mod connection;
mod http;
mod server;
mod server_environment;
mod tool;
mod tool_names;
mod tool_result;

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{
    AskRequest, Body, BoxFuture, NoticeLevel, Opaque, Risk, SERVER_CONSENT, ServerStatus, ServerTransport,
    SessionId, ToolClass, ToolKind, ToolServer, ToolServers, TurnContext,
};
use sandbox::Fence;
use sha2::{Digest as _, Sha256};
use tokio_util::task::TaskTracker;

use crate::summary_without_model::{cut, one_line};
use crate::tools::{self, ToolDefinition};
use crate::turn_loop::{LoopError, unless_cancelled};
pub(crate) use client_servers::ClientServers;
use connection::LaunchContext;
use server::{Consent, NamedBy, Server, ServerSpec};

/// Servers of one session, from all sources.
const SERVERS_MAX: usize = 64;
/// How long a closing session waits for its servers. They are killed before this time is over.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// How long a turn waits for an announced new list of tools.
const LIST_WAIT: Duration = Duration::from_millis(500);

/// The configuration of tool servers.
#[derive(Clone)]
pub struct McpConfig {
    /// The servers in the person's settings, for every session.
    pub servers: Vec<ToolServer>,
    /// Reads the servers that a project names, given the folder that a session works in.
    pub project: Option<ReadProject>,
    /// The time from the start to the list of tools.
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

/// Reads the tool servers of a folder's project, or fails with the reason.
pub type ReadProject = fn(&Path) -> Result<Vec<ProjectServer>, String>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectServer {
    pub server: ToolServer,
    /// The whole entry as written, for the person to judge.
    pub shown: String,
    /// Notices for the person about it.
    pub notices: Vec<String>,
}

/// A digest of a project's entry: the server's name, and its command, arguments and variables, or its address
/// and header names. Consent is given to this digest.
pub fn consent_digest(server: &ToolServer) -> String {
    let mut hash = Sha256::new();
    // Each part is prefixed by its length, so that different entries give different bytes.
    let mut part = |bytes: &[u8]| {
        hash.update(bytes.len().to_le_bytes());
        hash.update(bytes);
    };
    part(server.name.as_bytes());
    match &server.transport {
        ServerTransport::Child { command, arguments, environment } => {
            part(b"program");
            part(command.as_os_str().as_encoded_bytes());
            part(&arguments.len().to_le_bytes());
            arguments.iter().for_each(|argument| part(argument.as_bytes()));
            for (name, value) in environment {
                part(name.as_bytes());
                part(value.as_bytes());
            }
        }
        ServerTransport::Http { url, headers } => {
            part(b"address");
            part(url.as_bytes());
            headers.iter().for_each(|(name, _)| part(name.as_bytes()));
        }
    }
    let digest = hash.finalize();
    digest.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// The subject of rules and answers about a project's server.
pub fn consent_subject(shown: &str) -> String {
    one_line(shown)
}

/// Starts the servers of the settings, and returns their state and tools. They are ended again.
pub async fn check_servers(
    config: &McpConfig,
    environment: &[(OsString, OsString)],
    cwd: &Path,
) -> Vec<ServerStatus> {
    let id = SessionId::random();
    let servers = Servers::new(&id, cwd, Vec::new(), config, environment, &Arc::default());
    for server in servers.servers() {
        server.start();
    }
    for server in servers.servers() {
        server.start_finished().await;
    }
    let views = servers.list();
    servers.close().await;
    views
}

/// The tool servers of one session.
pub(crate) struct Servers {
    session: SessionId,
    config: McpConfig,
    client_servers: Arc<ClientServers>,
    launch_context: LaunchContext,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    servers: Vec<Arc<Server>>,
    /// No server may be started any more.
    closed: bool,
    /// The folder whose project file was read.
    project: Option<PathBuf>,
}

impl Servers {
    pub(crate) fn new(
        session: &SessionId,
        cwd: &Path,
        named: Vec<ToolServer>,
        config: &McpConfig,
        environment: &[(OsString, OsString)],
        client_servers: &Arc<ClientServers>,
    ) -> Arc<Self> {
        let launch_context = LaunchContext {
            environment: environment.to_vec(),
            cwd: cwd.to_owned(),
            fence: None,
            tasks: TaskTracker::new(),
        };
        let servers = Arc::new(Self {
            session: session.clone(),
            config: config.clone(),
            client_servers: Arc::clone(client_servers),
            launch_context,
            state: Mutex::default(),
        });
        for server in &config.servers {
            servers.insert(server.clone(), NamedBy::Person).ok();
        }
        for server in client_servers.get(session).into_iter().chain(named) {
            // An error in one entry must not prevent the session.
            if let Err(reason) = servers.insert(server, NamedBy::Client) {
                tracing::warn!(reason, "could not use a tool server");
            }
        }
        servers.remember_client_servers();
        servers
    }

    /// Starts the servers that are due and waits a moment for them, then reports errors to the person. In a
    /// read-only session, servers of a project are not started.
    pub(crate) async fn prepare(
        &self,
        context: &TurnContext,
        read_only: bool,
        fence: Result<Option<Fence>, String>,
    ) -> Result<(), LoopError> {
        if !read_only {
            self.load_project_servers(context, fence).await?;
            for server in self.servers().iter().filter(|server| server.awaits_consent()) {
                self.ask(server, context).await?;
            }
        }
        let servers = self.servers();
        let first: Vec<_> = servers.iter().filter(|server| server.start_first()).collect();
        if !first.is_empty() {
            let settled = async {
                for server in &first {
                    server.start_finished().await;
                }
            };
            if unless_cancelled(context, tokio::time::timeout(self.config.grace, settled)).await?.is_err() {
                let late: Vec<_> = first.iter().filter(|server| server.is_starting()).collect();
                let names: Vec<_> = late.iter().map(|server| server.name.as_ref()).collect();
                let text = format!(
                    "still starting: MCP server {}; tools are added when it is ready",
                    names.join(", ")
                );
                context.emit(Body::Notice { level: NoticeLevel::Info, text: text.into() }).await?;
            }
        }
        let listed = async {
            for server in &servers {
                server.listed().await;
            }
        };
        // A slow server is reported elsewhere; the model gets the previous list.
        drop(unless_cancelled(context, tokio::time::timeout(LIST_WAIT, listed)).await?);
        for server in &servers {
            for notice in server.take_notices() {
                let text = format!("MCP server {}: {notice}", one_line_excerpt(&server.name, 64));
                context.emit(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await?;
            }
        }
        Ok(())
    }

    /// The tools that the servers have now.
    pub(crate) fn tools(&self) -> Vec<Arc<ToolDefinition>> {
        self.servers().iter().flat_map(|server| server.tools().to_vec()).collect()
    }

    /// Ends all servers.
    pub(crate) fn close(&self) -> BoxFuture<'static, ()> {
        self.stop();
        let tasks = self.launch_context.tasks.clone();
        Box::pin(async move {
            if tokio::time::timeout(CLOSE_WAIT, tasks.wait()).await.is_err() {
                tracing::warn!("some tool servers did not end in time");
            }
        })
    }

    fn stop(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.servers.iter().for_each(|server| server.stop());
        self.launch_context.tasks.close();
    }

    async fn load_project_servers(
        &self,
        context: &TurnContext,
        fence: Result<Option<Fence>, String>,
    ) -> Result<(), LoopError> {
        let cwd = context.cwd();
        let Some(project) = self.config.project.filter(|_| self.lock().project.as_ref() != Some(&cwd)) else {
            return Ok(());
        };
        let folder = cwd.as_ref().clone();
        let read = unless_cancelled(context, tools::blocking(move || project(&folder))).await?;
        self.lock().project = Some(cwd.as_ref().clone());
        // A server that cannot be sandboxed is not started.
        let named = match read.and_then(|named| named).and_then(|named| Ok((named, fence?))) {
            Ok(named) => named,
            Err(reason) => {
                let text = format!("could not read the project's MCP servers: {reason}");
                context.emit(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await?;
                return Ok(());
            }
        };
        let (named, fence) = named;
        let folder = fence.as_ref().and_then(|fence| fence.policy.roots.first());
        let launch_context = LaunchContext {
            cwd: folder.unwrap_or(&self.launch_context.cwd).clone(),
            fence: fence.clone(),
            ..self.launch_context.clone()
        };
        for ProjectServer { server, shown, notices } in named {
            // A server of the person or of their editor is never replaced by one of a project.
            if self.servers().iter().any(|known| known.name == server.name) {
                continue;
            }
            let consent = Consent { digest: consent_digest(&server).into(), shown };
            match self.insert_at(&launch_context, server, NamedBy::Project, Some(consent)) {
                Ok(server) => notices.into_iter().for_each(|notice| server.notice(notice)),
                Err(reason) => {
                    let text = format!("could not use an MCP server of the project: {reason}");
                    context.emit(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await?;
                }
            }
        }
        Ok(())
    }

    /// Asks the owner at the machine for consent to exactly this entry.
    async fn ask(&self, server: &Server, context: &TurnContext) -> Result<(), LoopError> {
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
            reason: "the project configures this program; the owner at the machine decides whether it starts"
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

    fn insert(&self, server: ToolServer, named_by: NamedBy) -> Result<Arc<Server>, String> {
        self.insert_at(&self.launch_context, server, named_by, None)
    }

    fn insert_at(
        &self,
        launch_context: &LaunchContext,
        server: ToolServer,
        named_by: NamedBy,
        consent: Option<Consent>,
    ) -> Result<Arc<Server>, String> {
        let ToolServer { name, transport } = server;
        let (way, notices) = check_entry(transport, named_by)?;
        let mut state = self.lock();
        if state.closed {
            return Err("the session is closed".into());
        }
        let at = state.servers.iter().position(|known| known.name == name);
        if let Some(same) = at.map(|at| &state.servers[at]).filter(|known| known.way == way) {
            return Ok(Arc::clone(same));
        }
        // The same server name keeps the same tool prefix, so that rules continue to match.
        let replaced = at.map(|at| state.servers.remove(at));
        if let Some(replaced) = &replaced {
            replaced.stop();
        }
        if state.servers.len() >= SERVERS_MAX {
            return Err(format!("a session has at most {SERVERS_MAX} tool servers"));
        }
        let taken: HashSet<_> =
            state.servers.iter().map(|known| tool_names::key(&known.tool_prefix)).collect();
        let server = Server::new(ServerSpec {
            tool_prefix: tool_names::server(&name, &taken),
            name,
            way,
            named_by,
            consent,
            start_timeout: self.config.start_timeout,
            call_timeout: self.config.call_timeout,
            launch_context: launch_context.clone(),
            notices,
        });
        state.servers.push(Arc::clone(&server));
        Ok(server)
    }

    /// Stores the servers that clients named, for the next time the session is opened in this process.
    fn remember_client_servers(&self) {
        let named = |server: &Arc<Server>| {
            let named = server.named_by == NamedBy::Client;
            named.then(|| ToolServer { name: Arc::clone(&server.name), transport: server.way.clone() })
        };
        self.client_servers.put(&self.session, self.servers().iter().filter_map(named).collect());
    }

    fn servers(&self) -> Vec<Arc<Server>> {
        self.lock().servers.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToolServers for Servers {
    fn list(&self) -> Vec<ServerStatus> {
        self.servers().iter().map(|server| server.view()).collect()
    }

    fn add(&self, server: ToolServer) -> Result<(), String> {
        self.insert(server, NamedBy::Client)?;
        self.remember_client_servers();
        Ok(())
    }

    fn remove(&self, name: &str) -> bool {
        let mut state = self.lock();
        let at = state.servers.iter().position(|known| known.name.as_ref() == name);
        let removed = at.map(|at| state.servers.remove(at));
        drop(state);
        if let Some(server) = &removed {
            server.stop();
            self.remember_client_servers();
        }
        removed.is_some()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An entry without the variables that it may not set, and notices about those.
fn check_entry(way: ServerTransport, named_by: NamedBy) -> Result<(ServerTransport, Vec<String>), String> {
    match way {
        ServerTransport::Child { command, .. } if command.as_os_str().is_empty() => {
            Err("the command is empty".into())
        }
        // The person's own file may set anything: it could as well name a script that does.
        ServerTransport::Child { .. } if named_by == NamedBy::Person => Ok((way, Vec::new())),
        ServerTransport::Child { command, arguments, environment } => {
            let (environment, dropped) = server_environment::admitted(&environment);
            let notices = match dropped.is_empty() {
                true => Vec::new(),
                false => vec![format!(
                    "these variables are not passed on, since they change which code runs: {}",
                    dropped.join(", ")
                )],
            };
            Ok((ServerTransport::Child { command, arguments, environment }, notices))
        }
        ServerTransport::Http { .. } => Ok((way, Vec::new())),
    }
}

/// Text of others: shortened, on one line and without control characters.
fn one_line_excerpt(text: &str, chars_max: usize) -> String {
    let plain = text.trim().chars().map(|c| if c == '\n' || c == '\t' { ' ' } else { c });
    let plain: String = plain.filter(|c| !c.is_control()).take(chars_max + 1).collect();
    if plain.chars().count() > chars_max { cut(&plain, chars_max) } else { plain }
}
