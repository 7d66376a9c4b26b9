//! The agent as a [`Backend`] of the engine: what it offers, and its sessions.
//!
//! A session's memory is a copy of what is in its log. A turn takes the memory out and puts it back at its
//! end. If a turn is ended by force, the memory is lost and the next turn reads the log again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use engine::{
    Abilities, Backend, BackendSession, Body, BoxFuture, Category, Choice, MODEL, NoticeLevel, Review, Seq,
    SessionContext, SessionId, SessionOffer, SessionSpec, SettingSpec, Stop, TEMPERATURE, THINKING, ToolInfo,
    ToolServers, TurnContext, TurnError, TurnInput, approval_spec,
};
use sandbox::Fence;
use tokio::sync::Semaphore;

use crate::background_commands::{BackgroundJob, BackgroundJobs};
use crate::budget::{Budget, Ledger};
use crate::context::Memory;
use crate::editor_reveal_hints::RevealHints;
use crate::knowledge::{self, Knowledge, KnowledgeConfig};
use crate::last_read_versions::ReadVersions;
use crate::mcp::{McpConfig, Servers};
use crate::model::{Model, ModelInfo, Offline};
use crate::review_for_clients::SessionReview;
use crate::role::{AgentInfo, Role};
use crate::tools::{self, Toolbox};
use crate::undo::UndoHistory;
use crate::web_fetch::{WebAccess, WebClient};
use crate::workspace::Workspace;
use crate::{commands, mcp, role, turn};

/// The whole configuration of the agent; it reads no environment variables and no config file.
pub struct AgentConfig {
    /// At least one. The first model of the first source is the default.
    pub sources: Vec<Arc<dyn Model>>,
    /// The default model, if it is another one.
    pub model: Option<Arc<str>>,
    pub budget: Budget,
    /// The complete environment of the commands that the agent runs.
    pub environment: Vec<(OsString, OsString)>,
    /// Model calls in one turn.
    pub steps_max: usize,
    pub output_tokens_max: Option<u64>,
    pub shell: sandbox::CommandLimits,
    pub reach: ToolAccess,
    /// If there is a list, only these tools.
    pub allowed_tools: Option<Vec<Arc<str>>>,
    pub knowledge: KnowledgeConfig,
    /// The model gives a session its title, instead of the first words of its first prompt.
    pub titles_by_model: bool,
    /// The person's rules, for the command that shows and changes them. Without them there is no such command.
    pub rules: Option<Arc<guard::Rulebook>>,
    /// Which web addresses can be read.
    pub web: WebAccess,
    /// The folder for file contents from before a turn changed them, outside of every workspace. Without it,
    /// nothing can be undone.
    pub undo: Option<PathBuf>,
    pub mcp: McpConfig,
    /// For `/audit`. Without it there is no such command.
    pub audit: Option<ReadAudit>,
    /// For `/bridge`. Without it, no session is bridged.
    pub bridge: Option<ReadBridge>,
}

/// The last rows that the audit has about a session, oldest first, a line each, when those about its log up
/// to the position are written.
pub type ReadAudit =
    Arc<dyn Fn(SessionId, Seq, usize) -> BoxFuture<'static, Result<Vec<String>, String>> + Send + Sync>;

/// How a session is bridged; nothing if it is not.
pub type ReadBridge = Arc<dyn Fn(&SessionId) -> Option<BridgeView> + Send + Sync>;

/// The state of a session's bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeView {
    pub connected: bool,
    /// The address of the receiver.
    pub url: String,
    /// The address of the session's page, if the receiver has told it.
    pub ui_url: Option<String>,
    /// Number of events that the receiver does not have yet.
    pub queued: u64,
}

/// What the tools of every session may access, fixed when the process starts.
#[derive(Debug, Clone, Default)]
pub struct ToolAccess {
    pub mode: sandbox::Mode,
    /// Additional folders that every session may work in.
    pub add_dirs: Vec<PathBuf>,
    /// Paths that no tool and no command may see.
    pub hidden: Vec<PathBuf>,
    /// Builds the sandbox around commands. Without it, they run with the rights of this process.
    pub helper: Option<sandbox::Helper>,
    /// The sandbox mode that a project sets for its own sessions. It can only restrict.
    pub project: Option<fn(&Path) -> Option<sandbox::Mode>>,
    /// The person's home folders. Commands are assessed with the first one.
    pub homes: Vec<PathBuf>,
    /// Commands run in the terminal of an editor that offers one, which is outside of the sandbox, each after
    /// the owner at the machine has allowed it.
    pub editor_terminal: bool,
}

impl AgentConfig {
    pub fn new(sources: Vec<Arc<dyn Model>>) -> Self {
        Self {
            sources,
            model: None,
            budget: Budget::default(),
            environment: Vec::new(),
            steps_max: 50,
            output_tokens_max: None,
            shell: sandbox::CommandLimits::default(),
            reach: ToolAccess::default(),
            allowed_tools: None,
            knowledge: KnowledgeConfig::default(),
            titles_by_model: false,
            rules: None,
            web: WebAccess::default(),
            undo: None,
            mcp: McpConfig::default(),
            audit: None,
            bridge: None,
        }
    }

    /// For people without a model key.
    pub fn offline() -> Self {
        Self::new(vec![Arc::new(Offline)])
    }
}

pub struct Agent {
    shared: Arc<Shared>,
    abilities: Abilities,
}

/// What all sessions of an agent share.
pub(crate) struct Shared {
    pub(crate) config: AgentConfig,
    client_servers: Arc<mcp::ClientServers>,
    pub(crate) web: WebClient,
}

impl Shared {
    pub(crate) fn new(config: AgentConfig) -> Self {
        let web = WebClient::new(config.web.clone());
        Self { config, client_servers: Arc::default(), web }
    }

    /// The settings that a person can choose, given the available roles.
    pub(crate) fn settings(&self, roles: &[Role]) -> Vec<SettingSpec> {
        vec![
            role::mode_spec(roles),
            model_spec(&self.config),
            thinking_spec(),
            temperature_spec(),
            approval_spec(),
        ]
    }

    pub(crate) fn model_ids(&self) -> Vec<Arc<str>> {
        self.config.sources.iter().flat_map(|source| source.offers()).map(|info| info.id).collect()
    }

    /// The model with this id, and its source.
    pub(crate) fn model(&self, id: &str) -> Option<(Arc<dyn Model>, ModelInfo)> {
        let offers =
            |source: &Arc<dyn Model>| source.offers().into_iter().find(|info| info.id.as_ref() == id);
        self.config.sources.iter().find_map(|source| offers(source).map(|info| (Arc::clone(source), info)))
    }
}

impl Agent {
    pub fn new(config: AgentConfig) -> Self {
        let shared = Shared::new(config);
        let tools = Toolbox::built_in().with_tasks(&role::built_in());
        let tools = tools.only(shared.config.allowed_tools.as_deref());
        let tools = tools.iter().map(|tool| ToolInfo {
            name: Arc::clone(&tool.name),
            description: Arc::clone(&tool.description),
        });
        let abilities = Abilities {
            settings: shared.settings(&role::built_in()),
            commands: commands::specs(&[]),
            tools: tools.collect(),
            images: true,
            servers: true,
        };
        Self { shared: Arc::new(shared), abilities }
    }
}

impl Agent {
    /// The agents (roles) that are available in a folder. Accesses the disk.
    pub fn agents(&self, cwd: &Path) -> Vec<AgentInfo> {
        Knowledge::read(cwd, &self.shared).roles.into_iter().map(AgentInfo::from).collect()
    }
}

impl Backend for Agent {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn offer(&self, cwd: &Path) -> SessionOffer {
        let knowledge = Knowledge::read(cwd, &self.shared);
        let free = |role: &&Role| role.primary && !role.read_only;
        SessionOffer {
            settings: self.shared.settings(&knowledge.roles),
            commands: commands::specs(&knowledge.commands),
            free_modes: knowledge.roles.iter().filter(free).map(|role| Arc::clone(&role.name)).collect(),
        }
    }

    fn open(&self, mut spec: SessionSpec, context: SessionContext) -> Arc<dyn BackendSession> {
        let (config, named) = (&self.shared.config, std::mem::take(&mut spec.servers));
        let kept = &self.shared.client_servers;
        let servers = Servers::new(&spec.id, &spec.cwd, named, &config.mcp, &config.environment, kept);
        // Now and not with the first turn: the folder's path may lead elsewhere by then.
        let workspace = Workspace::open(spec.cwd.clone(), &spec.roots, spec.within.as_deref(), &config.reach);
        let workspace = workspace.with_rules(config.rules.as_ref());
        Arc::new(AgentSession {
            shared: Arc::clone(&self.shared),
            workspace: Arc::new(Mutex::new(workspace)),
            undo: Arc::new(UndoHistory::new(self.shared.config.undo.clone(), spec.id.clone())),
            spec,
            context,
            knowledge: Mutex::default(),
            memory: Mutex::new(None),
            read_versions: Arc::default(),
            sub_agents: Semaphore::new(tools::SUB_AGENTS_AT_ONCE_MAX),
            background: BackgroundJobs::default(),
            ledger: Ledger::default(),
            reveal_hints: RevealHints::default(),
            servers,
        })
    }

    fn project_rules(&self, cwd: &Path) -> Vec<String> {
        knowledge::rule_names(cwd, &self.shared)
    }
}

pub(crate) struct AgentSession {
    pub(crate) shared: Arc<Shared>,
    pub(crate) spec: SessionSpec,
    context: SessionContext,
    /// The folders as they were last opened.
    workspace: Arc<Mutex<Workspace>>,
    /// As it was read when the turn began.
    knowledge: Mutex<Arc<Knowledge>>,
    memory: Mutex<Option<Memory>>,
    pub(crate) read_versions: Arc<ReadVersions>,
    /// Limits the sub-agents that run at the same time.
    pub(crate) sub_agents: Semaphore,
    pub(crate) undo: Arc<UndoHistory>,
    pub(crate) background: BackgroundJobs,
    pub(crate) ledger: Ledger,
    pub(crate) reveal_hints: RevealHints,
    pub(crate) servers: Arc<Servers>,
}

impl BackendSession for AgentSession {
    fn turn(
        self: Arc<Self>,
        input: TurnInput,
        context: TurnContext,
    ) -> BoxFuture<'static, Result<Stop, TurnError>> {
        Box::pin(async move {
            let mut memory = self.take_memory().unwrap_or_default();
            let outcome = turn::run(&self, &mut memory, input, context).await;
            self.put_memory(memory);
            outcome
        })
    }

    fn servers(&self) -> Option<Arc<dyn ToolServers>> {
        Some(Arc::clone(&self.servers) as Arc<dyn ToolServers>)
    }

    fn review(&self) -> Option<Arc<dyn Review>> {
        self.shared.config.undo.as_ref()?;
        let (undo, workspace) = (Arc::clone(&self.undo), Arc::clone(&self.workspace));
        Some(Arc::new(SessionReview { undo, workspace }))
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            tokio::join!(self.background.close(), self.servers.close());
        })
    }
}

impl AgentSession {
    /// Opens the session's folders again, since they may have been recreated. If a path now leads elsewhere,
    /// the folder that was opened before is kept.
    pub(crate) async fn workspace(&self, cwd: PathBuf) -> Result<Workspace, String> {
        let (shared, roots) = (Arc::clone(&self.shared), self.spec.roots.clone());
        let within = self.spec.within.clone();
        let open = move || {
            let config = &shared.config;
            Workspace::open(cwd, &roots, within.as_deref(), &config.reach).with_rules(config.rules.as_ref())
        };
        let opened = tools::blocking(open).await?;
        let mut known = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        if known.leads_elsewhere_than(&opened) {
            return Ok(known.clone());
        }
        if opened.files().is_ok() {
            *known = opened.clone();
        }
        Ok(opened)
    }

    /// The context for work that continues after the turn.
    pub(crate) fn outside_turns(&self) -> SessionContext {
        self.context.clone()
    }

    /// When a background command has ended, reports files it created that can make another program run
    /// something: nobody may read its output any more.
    pub(crate) fn report_new_entries(&self, job: &Arc<BackgroundJob>) {
        let (job, context) = (Arc::clone(job), self.context.clone());
        self.context.spawn(async move {
            job.until_ended().await;
            if let Some(text) = job.new_entries().await {
                // If the session is gone, there is no log to write to.
                context.emit(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await.ok();
            }
        });
    }

    /// The sandbox of the session's commands, if there is one.
    pub(crate) fn fence(&self) -> Result<Option<Fence>, String> {
        let workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = workspace.policy().map_err(|error| error.to_string())?;
        let helper = self.shared.config.reach.helper.as_ref();
        Ok(helper.map(|helper| Fence { policy: policy.clone(), helper: helper.clone() }))
    }

    /// Reads instructions, roles, commands and skills again: once per turn.
    pub(crate) async fn reload_knowledge(&self, cwd: PathBuf) -> Result<Arc<Knowledge>, String> {
        let shared = Arc::clone(&self.shared);
        let read = Arc::new(tools::blocking(move || Knowledge::read(&cwd, &shared)).await?);
        *self.knowledge.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&read);
        Ok(read)
    }

    pub(crate) fn knowledge(&self) -> Arc<Knowledge> {
        Arc::clone(&self.knowledge.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take_memory(&self) -> Option<Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put_memory(&self, memory: Memory) {
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = Some(memory);
    }
}

fn model_spec(config: &AgentConfig) -> SettingSpec {
    let choices: Vec<_> = config
        .sources
        .iter()
        .flat_map(|source| source.offers())
        .map(|info| Choice { value: info.id, name: info.name, description: info.description })
        .collect();
    SettingSpec {
        id: MODEL.into(),
        name: "Model".into(),
        description: "Model that answers".into(),
        category: Category::Model,
        default: config
            .model
            .clone()
            .filter(|chosen| choices.iter().any(|choice| choice.value == *chosen))
            .or_else(|| choices.first().map(|first| Arc::clone(&first.value)))
            .unwrap_or_else(|| "".into()),
        choices,
        words: None,
    }
}

fn thinking_spec() -> SettingSpec {
    SettingSpec {
        id: THINKING.into(),
        name: "Thinking".into(),
        description: "How long the model may think before it answers".into(),
        category: Category::ThoughtLevel,
        choices: vec![
            choice("off", "Off", "Answers at once"),
            choice("low", "Low", "Thinks a little"),
            choice("medium", "Medium", "Thinks"),
            choice("high", "High", "Thinks as long as it needs"),
        ],
        default: "off".into(),
        words: None,
    }
}

fn temperature_spec() -> SettingSpec {
    SettingSpec {
        id: TEMPERATURE.into(),
        name: "Temperature".into(),
        description: "How freely the model chooses its words".into(),
        category: Category::ModelConfig,
        choices: vec![
            choice("default", "Default", "As the model's maker set it"),
            choice("precise", "Precise", "0.2"),
            choice("balanced", "Balanced", "0.7"),
            choice("creative", "Creative", "1.0"),
        ],
        default: "default".into(),
        words: None,
    }
}

fn choice(value: &str, name: &str, description: &str) -> Choice {
    Choice { value: value.into(), name: name.into(), description: description.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H10.
    #[test]
    fn settings_have_their_categories() {
        let shared = Shared::new(AgentConfig::offline());
        let specs = shared.settings(&role::built_in());
        let categories: Vec<_> = specs.iter().map(|spec| (spec.id.as_ref(), spec.category)).collect();
        let expected = [
            ("mode", Category::Mode),
            ("model", Category::Model),
            ("thinking", Category::ThoughtLevel),
            ("temperature", Category::ModelConfig),
            ("approval", Category::Other),
        ];
        assert_eq!(categories, expected);
    }
}
