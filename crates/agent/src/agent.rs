//! The agent as the engine sees it: what it offers, and its sessions.
//!
//! What a session remembers is a copy of what stands in its log. A turn takes it out and puts it
//! back; a turn that is ended by force loses it, and the next one reads the log again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use engine::{
    Abilities, Backend, BackendSession, BoxFuture, Category, Choice, MODEL, SessionSpec, SettingSpec, Stop,
    TEMPERATURE, THINKING, ToolInfo, TurnContext, TurnError, TurnInput, approval_spec,
};

use crate::context::Memory;
use crate::model::{Model, ModelInfo, Offline};
use crate::place::Place;
use crate::seen::Seen;
use crate::tools::{self, Toolbox};
use crate::{commands, role, rules, turn};

/// Everything the agent must be told; it reads no environment and no config file.
pub struct AgentConfig {
    /// At least one. The first model of the first source is the default.
    pub sources: Vec<Arc<dyn Model>>,
    /// The environment of the commands that the agent runs: what is not here, they do not see.
    pub environment: Vec<(OsString, OsString)>,
    /// Model calls in one turn.
    pub steps_max: usize,
    pub output_tokens_max: Option<u64>,
    pub shell: sandbox::Limits,
    pub reach: Reach,
    /// The person's rules, for the command that shows and changes them. Without, there is none.
    pub rules: Option<Arc<guard::Rulebook>>,
}

/// How far the tools of every session reach, fixed when the process starts.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    pub mode: sandbox::Mode,
    /// Folders that every session may work in besides its own.
    pub add_dirs: Vec<PathBuf>,
    /// What no tool and no command may see.
    pub hidden: Vec<PathBuf>,
    /// Who builds the fence around commands. Without, they run with the rights of this process.
    pub helper: Option<sandbox::Helper>,
    /// How far a project lets its own sessions reach. It can only narrow.
    pub project: Option<fn(&Path) -> Option<sandbox::Mode>>,
    /// The person's home folder, which commands are judged by.
    pub home: Option<PathBuf>,
    /// Commands run in the terminal of an editor that offers one, and so outside the fence.
    pub editor_terminal: bool,
}

impl AgentConfig {
    pub fn new(sources: Vec<Arc<dyn Model>>) -> Self {
        Self {
            sources,
            environment: Vec::new(),
            steps_max: 50,
            output_tokens_max: None,
            shell: sandbox::Limits::default(),
            reach: Reach::default(),
            rules: None,
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
    pub(crate) settings: Vec<SettingSpec>,
}

impl Shared {
    /// The model with this id, and where it comes from.
    pub(crate) fn model(&self, id: &str) -> Option<(Arc<dyn Model>, ModelInfo)> {
        let offers =
            |source: &Arc<dyn Model>| source.offers().into_iter().find(|info| info.id.as_ref() == id);
        self.config.sources.iter().find_map(|source| offers(source).map(|info| (Arc::clone(source), info)))
    }
}

impl Agent {
    pub fn new(config: AgentConfig) -> Self {
        let settings = vec![
            role::mode_spec(),
            model_spec(&config.sources),
            thinking_spec(),
            temperature_spec(),
            approval_spec(),
        ];
        let tools = Toolbox::built_in();
        let tools = tools.iter().map(|tool| ToolInfo {
            name: Arc::clone(&tool.name),
            description: Arc::clone(&tool.description),
        });
        let abilities = Abilities {
            settings: settings.clone(),
            commands: commands::specs(),
            tools: tools.collect(),
            images: true,
        };
        Self { shared: Arc::new(Shared { config, settings }), abilities }
    }
}

impl Backend for Agent {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn open(&self, spec: SessionSpec) -> Arc<dyn BackendSession> {
        // At once and not with the first turn: what the folder's path leads to may be another then.
        let place = Place::open(spec.cwd.clone(), &spec.roots, &self.shared.config.reach);
        Arc::new(AgentSession {
            shared: Arc::clone(&self.shared),
            place: Mutex::new(place),
            spec,
            memory: Mutex::new(None),
            seen: Arc::default(),
        })
    }

    fn project_rules(&self, cwd: &Path) -> Vec<String> {
        rules::names(cwd, &self.shared.config.reach.hidden)
    }
}

pub(crate) struct AgentSession {
    pub(crate) shared: Arc<Shared>,
    pub(crate) spec: SessionSpec,
    /// The folders as they could be opened last.
    place: Mutex<Place>,
    memory: Mutex<Option<Memory>>,
    pub(crate) seen: Arc<Seen>,
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
            self.keep_memory(memory);
            outcome
        })
    }
}

impl AgentSession {
    /// The folders of the session, opened again, since they may have been made anew. Where a path has
    /// come to lead elsewhere, the folder stays the one that it was.
    pub(crate) async fn place(&self, cwd: PathBuf) -> Result<Place, String> {
        let (shared, roots) = (Arc::clone(&self.shared), self.spec.roots.clone());
        let opened = tools::blocking(move || Place::open(cwd, &roots, &shared.config.reach)).await?;
        let mut known = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if known.leads_elsewhere_than(&opened) {
            return Ok(known.clone());
        }
        if opened.files().is_ok() {
            *known = opened.clone();
        }
        Ok(opened)
    }

    fn take_memory(&self) -> Option<Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn keep_memory(&self, memory: Memory) {
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = Some(memory);
    }
}

fn model_spec(sources: &[Arc<dyn Model>]) -> SettingSpec {
    let choices: Vec<_> = sources
        .iter()
        .flat_map(|source| source.offers())
        .map(|info| Choice { value: info.id, name: info.name, description: info.description })
        .collect();
    SettingSpec {
        id: MODEL.into(),
        name: "Model".into(),
        description: "Which model thinks".into(),
        category: Category::Model,
        default: choices.first().map_or_else(|| "".into(), |first| Arc::clone(&first.value)),
        choices,
    }
}

fn thinking_spec() -> SettingSpec {
    SettingSpec {
        id: THINKING.into(),
        name: "Thinking".into(),
        description: "How long the model may think before it answers".into(),
        category: Category::Model,
        choices: vec![
            choice("off", "Off", "Answers at once"),
            choice("low", "Low", "Thinks a little"),
            choice("medium", "Medium", "Thinks"),
            choice("high", "High", "Thinks as long as it needs"),
        ],
        default: "off".into(),
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
    }
}

fn choice(value: &str, name: &str, description: &str) -> Choice {
    Choice { value: value.into(), name: name.into(), description: description.into() }
}
