//! What the agent may reach and do without asking, from options, settings and environment.
//!
//! The precedence is option, settings file, environment, default. It is decided once, when the process starts, and is the
//! same for every door.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent::ToolAccess;
use engine::{APPROVAL, FULL_APPROVAL, approval_spec, full_name};
use guard::Rulebook;
use sandbox::{Helper, Mode};
use service::BridgeStatuses;

use crate::cli::{GuardOptions, OsSandbox};
use crate::cli_error::CliError;
use crate::config::{self, Config, ResolvedSetting, SettingSource};
use crate::external_agents::ExternalAgent;
use crate::models::Models;
use crate::{doctor, hidden_paths, output, paths, run, session_store};

#[derive(Debug, Clone)]
pub struct Guards {
    pub reach: ToolAccess,
    /// The approval preset of new sessions, if not the default.
    pub approval: Option<Arc<str>>,
    /// The loosest preset that anyone may choose.
    pub approval_max: Option<Arc<str>>,
    /// The preset for a single run.
    pub approval_once: Option<Arc<str>>,
    /// The project's instruction files are ignored.
    pub no_rules: bool,
    /// Nothing is stored: sessions last as long as the process.
    pub ephemeral: bool,
    /// The folder to which sessions are also written in chimera's format.
    pub eventlog: Option<PathBuf>,
    /// If set, only these tools.
    pub allowed_tools: Option<Vec<Arc<str>>>,
    pub config: Config,
    /// The models. Only the offline model until others are looked for.
    pub models: Models,
    /// The external agent that replaces the built-in one, once chosen.
    pub external_agent: Option<ExternalAgent>,
    /// The bridge status of each session: written by the bridge, read by the agent and all doors.
    pub bridges: BridgeStatuses,
}

impl Guards {
    pub fn of(options: &GuardOptions) -> Result<Self, CliError> {
        let config = config::user()?;
        for key in &config.unknown {
            warn(&format!("unknown setting {key:?} in the settings file"));
        }
        for warning in &config.warnings {
            warn(warning);
        }
        let mode = mode(options, &config)?.value;
        let homes = homes(mode)?;
        let mut hidden = hidden_paths::paths(&homes);
        hidden.extend(session_store::address_file(&config).map(|file| file.canonicalize().unwrap_or(file)));
        let folders = options.add_dir.iter().chain(&config.add_dirs);
        let add_dirs = folders.map(|dir| run::folder(Some(dir))).collect::<Result<Vec<_>, _>>()?;
        let guards = Self {
            reach: ToolAccess {
                mode,
                add_dirs,
                hidden,
                helper: Some(helper()?),
                project: Some(config::project_mode),
                homes,
                editor_terminal: config.editor_terminal == Some(true),
            },
            approval: approval(options, &config)?.value,
            approval_max: loosest(options, &config)?.value,
            approval_once: None,
            no_rules: options.no_rules,
            ephemeral: options.ephemeral,
            eventlog: options.eventlog.as_deref().map(eventlog).transpose()?,
            allowed_tools: options.allowed_tools.as_deref().map(agent::tools_named).transpose().map_err(
                |wrong| CliError::usage(wrong).fix("list tools after --allowed-tools, separated by commas"),
            )?,
            config,
            models: Models::offline(),
            external_agent: None,
            bridges: BridgeStatuses::default(),
        };
        guards.warn_of_risks();
        guards.warn_of_rules()?;
        Ok(guards)
    }

    /// For one prompt: the approval of the command line must not outlive it in the session.
    pub fn of_one_run(options: &GuardOptions) -> Result<Self, CliError> {
        let guards = Self::of(options)?;
        Ok(Self {
            approval: usual_approval(&guards.config)?.value,
            approval_once: approval_flag(options, &guards.config)?,
            ..guards
        })
    }

    /// With `--os-sandbox on`, nothing starts if the sandbox cannot be enforced.
    pub fn require_sandbox(&self, options: &GuardOptions) -> Result<(), CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| CliError::failed("could not start the async runtime").because(error))?;
        runtime.block_on(self.require_sandbox_async(options))
    }

    pub async fn require_sandbox_async(&self, options: &GuardOptions) -> Result<(), CliError> {
        if options.os_sandbox != OsSandbox::On || self.reach.mode == Mode::Off {
            return Ok(());
        }
        let ability = doctor::ability().await?;
        if ability.holds() {
            return Ok(());
        }
        let why = ability.backend.err().unwrap_or_else(|| "a part of it does not work".to_owned());
        Err(CliError::failed("this machine cannot enforce the sandbox")
            .because(why)
            .fix("run `ropewalk doctor` to see what is missing, or pass --sandbox off to run without it"))
    }

    /// For commands that run no tools.
    pub fn none() -> Self {
        let reach = ToolAccess { mode: Mode::ReadOnly, ..ToolAccess::default() };
        Self {
            reach,
            approval: None,
            approval_max: None,
            approval_once: None,
            no_rules: false,
            ephemeral: false,
            eventlog: None,
            allowed_tools: None,
            config: Config::default(),
            models: Models::offline(),
            external_agent: None,
            bridges: BridgeStatuses::default(),
        }
    }

    /// Warns about rules that cannot be read: they protect nobody.
    fn warn_of_rules(&self) -> Result<(), CliError> {
        let here = run::folder(None)?;
        for source in Rulebook::new(paths::rules()?).sources(&here) {
            for warning in &source.warnings {
                warn(&format!("{}: {warning}", source.name));
            }
        }
        Ok(())
    }

    /// Warns every time the sandbox or the approval is off.
    fn warn_of_risks(&self) {
        if self.reach.mode == Mode::Off {
            warn("the sandbox is off: commands and tools can access everything that you can");
        }
        if self.approval.as_deref() == Some("full") {
            warn(FULL_APPROVAL);
        }
    }
}

/// The folder need not exist: it is created with the first session.
fn eventlog(folder: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(folder).map_err(|error| CliError::usage("invalid --eventlog folder").because(error))
}

/// How to start this program again as the sandbox helper.
pub fn helper() -> Result<Helper, CliError> {
    // On Linux, this stays the running program even if its file is replaced by an update.
    let own = PathBuf::from("/proc/self/exe");
    let program = if own.exists() {
        own
    } else {
        std::env::current_exe()
            .map_err(|error| CliError::failed("could not locate the ropewalk executable").because(error))?
    };
    Ok(Helper { program, arguments: vec![sandbox::HELPER_ARGUMENT.into()] })
}

/// The home folders. They may be unknown if the sandbox is off, because nothing is hidden then.
pub fn homes(mode: Mode) -> Result<Vec<PathBuf>, CliError> {
    match (mode, hidden_paths::homes()) {
        (Mode::Off, homes) => Ok(homes.unwrap_or_default()),
        (Mode::ReadOnly | Mode::WorkspaceWrite | Mode::WorkspaceWriteNetwork, homes) => homes,
    }
}

pub fn mode(options: &GuardOptions, config: &Config) -> Result<ResolvedSetting<Mode>, CliError> {
    if options.os_sandbox == OsSandbox::Off {
        return Ok(ResolvedSetting::new(Mode::Off, SettingSource::Flag("os-sandbox")));
    }
    if let Some(mode) = options.sandbox {
        return Ok(ResolvedSetting::new(mode, SettingSource::Flag("sandbox")));
    }
    if let Some(mode) = config.sandbox {
        return Ok(ResolvedSetting::new(mode, config.sources.of("sandbox")));
    }
    if let Some((name, value)) = first_variable(["ROPEWALK_SANDBOX", "FERRET_SANDBOX"]) {
        let unusable = |error| CliError::usage(format!("invalid value of {name}")).because(error);
        return Ok(ResolvedSetting::new(value.parse().map_err(unusable)?, SettingSource::Variable(name)));
    }
    let usual = || ResolvedSetting::new(Mode::default(), SettingSource::Default);
    Ok(config.codex.sandbox.clone().unwrap_or_else(usual))
}

/// The approval preset of new sessions.
pub fn approval(
    options: &GuardOptions,
    config: &Config,
) -> Result<ResolvedSetting<Option<Arc<str>>>, CliError> {
    match approval_flag(options, config)? {
        Some(named) => Ok(ResolvedSetting::new(Some(named), SettingSource::Flag("approval"))),
        None => usual_approval(config),
    }
}

/// The approval preset of the command line, under any of its option names.
fn named(options: &GuardOptions) -> Result<Option<Arc<str>>, CliError> {
    let loosest = (options.yolo || options.full_auto).then(|| "full".to_owned());
    let named = options.permission_mode.clone().or(loosest).or_else(|| options.approval.clone());
    named.as_deref().map(preset).transpose()
}

/// The same, unless it is looser than the allowed maximum.
fn approval_flag(options: &GuardOptions, config: &Config) -> Result<Option<Arc<str>>, CliError> {
    let (Some(named), Some(max)) = (named(options)?, loosest(options, config)?.value) else {
        return named(options);
    };
    let spec = approval_spec();
    let rank = |value: &str| spec.choices.iter().position(|choice| *choice.value == *value);
    if rank(&named) <= rank(&max) {
        return Ok(Some(named));
    }
    Err(CliError::usage(format!("approval {named} is looser than the maximum {max}"))
        .fix("choose a stricter preset, or raise --approval-max (approval_max in the settings)"))
}

/// The loosest preset that anyone may choose, if limited.
pub fn loosest(
    options: &GuardOptions,
    config: &Config,
) -> Result<ResolvedSetting<Option<Arc<str>>>, CliError> {
    if let Some(named) = &options.approval_max {
        return Ok(ResolvedSetting::new(Some(preset(named)?), SettingSource::Flag("approval-max")));
    }
    if let Some(named) = &config.approval_max {
        return Ok(ResolvedSetting::new(Some(preset(named)?), config.sources.of("approval_max")));
    }
    match paths::variable("ROPEWALK_APPROVAL_MAX") {
        Some(value) => {
            let named = preset(&value.to_string_lossy())?;
            Ok(ResolvedSetting::new(Some(named), SettingSource::Variable("ROPEWALK_APPROVAL_MAX")))
        }
        None => Ok(ResolvedSetting::new(None, SettingSource::Default)),
    }
}

/// The approval preset from settings and environment.
fn usual_approval(config: &Config) -> Result<ResolvedSetting<Option<Arc<str>>>, CliError> {
    if let Some(named) = &config.approval {
        return Ok(ResolvedSetting::new(Some(preset(named)?), config.sources.of("approval")));
    }
    if let Some((name, value)) = first_variable(["ROPEWALK_APPROVAL", "FERRET_APPROVAL"]) {
        return Ok(ResolvedSetting::new(Some(preset(&value)?), SettingSource::Variable(name)));
    }
    Ok(match config.codex.approval.clone() {
        Some(ResolvedSetting { value, source }) => ResolvedSetting::new(Some(value), source),
        None => ResolvedSetting::new(None, SettingSource::Default),
    })
}

fn preset(named: &str) -> Result<Arc<str>, CliError> {
    let value = full_name(APPROVAL, named.into());
    let choices = approval_spec().choices;
    if choices.iter().any(|choice| choice.value == value) {
        return Ok(value);
    }
    let known: Vec<_> = choices.iter().map(|choice| choice.value.as_ref()).collect();
    Err(CliError::usage(format!("{named:?} is not an approval preset"))
        .fix(format!("use one of {}", known.join(", "))))
}

fn first_variable(names: [&'static str; 2]) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| {
        let value = paths::variable(name)?;
        Some((name, value.to_string_lossy().into_owned()))
    })
}

pub fn warn(text: &str) {
    let paint = output::stderr_paint();
    eprintln!("{} {text}", paint.warn("ropewalk: warning:"));
}
