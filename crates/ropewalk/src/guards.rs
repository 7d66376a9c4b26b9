//! How far the agent reaches and what it may do unasked, from flags, settings and environment.
//!
//! The order is flag, settings file, environment, default. It is decided once, when the process
//! starts, and is the same for every door.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent::Reach;
use engine::{APPROVAL, FULL_APPROVAL, approval_spec, full_name};
use guard::Rulebook;
use sandbox::{Helper, Mode};
use service::Bridges;

use crate::cli::{GuardOptions, OsSandbox};
use crate::config::{self, Config, Setting, Source};
use crate::external::Outside;
use crate::models::Models;
use crate::trouble::Trouble;
use crate::{doctor, hidden, paths, run, session_store, terminal};

#[derive(Debug, Clone)]
pub struct Guards {
    pub reach: Reach,
    /// What the approval of a new session is, if not the usual.
    pub approval: Option<Arc<str>>,
    /// The loosest that anybody may choose.
    pub approval_max: Option<Arc<str>>,
    /// What it is for one run alone.
    pub approval_once: Option<Arc<str>>,
    /// The project's instruction files are left alone.
    pub no_rules: bool,
    /// Nothing is kept: sessions last as long as the process does.
    pub ephemeral: bool,
    /// The folder that sessions are written to in chimera's form, too.
    pub eventlog: Option<PathBuf>,
    /// No other tools, if there is a list.
    pub allowed_tools: Option<Vec<Arc<str>>>,
    pub config: Config,
    /// Who thinks. Only the offline model, until somebody looks for others.
    pub models: Models,
    /// Who works instead of our own agent, once somebody has chosen.
    pub outside: Option<Outside>,
    /// How each session is seen elsewhere: the bridge writes it, the agent and all doors say it.
    pub bridges: Bridges,
}

impl Guards {
    pub fn of(options: &GuardOptions) -> Result<Self, Trouble> {
        let config = config::user()?;
        for key in &config.unknown {
            warn(&format!("the settings file has {key:?}, which means nothing here"));
        }
        for warning in &config.warnings {
            warn(warning);
        }
        let mode = mode(options, &config)?.value;
        let homes = homes(mode)?;
        let mut hidden = hidden::paths(&homes);
        hidden.extend(session_store::address_file(&config).map(|file| file.canonicalize().unwrap_or(file)));
        let folders = options.add_dir.iter().chain(&config.add_dirs);
        let add_dirs = folders.map(|dir| run::folder(Some(dir))).collect::<Result<Vec<_>, _>>()?;
        let guards = Self {
            reach: Reach {
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
                |wrong| {
                    Trouble::usage(wrong).fix("name some of them after --allowed-tools, with commas between")
                },
            )?,
            config,
            models: Models::offline(),
            outside: None,
            bridges: Bridges::default(),
        };
        guards.be_loud();
        guards.warn_of_rules()?;
        Ok(guards)
    }

    /// For one prompt: what is allowed on the command line is not for whoever opens the session next.
    pub fn of_one_run(options: &GuardOptions) -> Result<Self, Trouble> {
        let guards = Self::of(options)?;
        Ok(Self {
            approval: customary(&guards.config)?.value,
            approval_once: within(options, &guards.config)?,
            ..guards
        })
    }

    /// With `--os-sandbox on` nothing starts where the fence cannot be kept.
    pub fn must_hold(&self, options: &GuardOptions) -> Result<(), Trouble> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Trouble::failed("nothing can be tried").because(error))?;
        runtime.block_on(self.must_hold_here(options))
    }

    pub async fn must_hold_here(&self, options: &GuardOptions) -> Result<(), Trouble> {
        if options.os_sandbox != OsSandbox::On || self.reach.mode == Mode::Off {
            return Ok(());
        }
        let ability = doctor::ability().await?;
        if ability.holds() {
            return Ok(());
        }
        let why = ability.backend.err().unwrap_or_else(|| "a part of it does not hold".to_owned());
        Err(Trouble::failed("this machine cannot enforce the sandbox")
            .because(why)
            .fix("ropewalk doctor says what is missing; --sandbox off goes without"))
    }

    /// For commands that run no tools.
    pub fn none() -> Self {
        let reach = Reach { mode: Mode::ReadOnly, ..Reach::default() };
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
            outside: None,
            bridges: Bridges::default(),
        }
    }

    /// Rules that cannot be read protect nobody, so whoever starts the program is told.
    fn warn_of_rules(&self) -> Result<(), Trouble> {
        let here = run::folder(None)?;
        for source in Rulebook::new(paths::rules()?).sources(&here) {
            for warning in &source.warnings {
                warn(&format!("{}: {warning}", source.name));
            }
        }
        Ok(())
    }

    /// What takes a fence away is said, every time.
    fn be_loud(&self) {
        if self.reach.mode == Mode::Off {
            warn("the sandbox is off: commands and tools reach whatever you can reach");
        }
        if self.approval.as_deref() == Some("full") {
            warn(FULL_APPROVAL);
        }
    }
}

/// The folder need not be there: it is made with the first session.
fn eventlog(folder: &Path) -> Result<PathBuf, Trouble> {
    std::path::absolute(folder).map_err(|error| Trouble::usage("--eventlog cannot be used").because(error))
}

/// How this program is started again to build a fence from within.
pub fn helper() -> Result<Helper, Trouble> {
    // On Linux this stays the program that runs, also when the file is replaced by a newer one.
    let own = PathBuf::from("/proc/self/exe");
    let program = if own.exists() {
        own
    } else {
        std::env::current_exe()
            .map_err(|error| Trouble::failed("the program cannot find itself").because(error))?
    };
    Ok(Helper { program, arguments: vec![sandbox::HELPER_ARGUMENT.into()] })
}

/// Where nothing is hidden anyway, nobody needs to know where the secrets are.
pub fn homes(mode: Mode) -> Result<Vec<PathBuf>, Trouble> {
    match (mode, hidden::homes()) {
        (Mode::Off, homes) => Ok(homes.unwrap_or_default()),
        (Mode::ReadOnly | Mode::WorkspaceWrite | Mode::WorkspaceWriteNetwork, homes) => homes,
    }
}

pub fn mode(options: &GuardOptions, config: &Config) -> Result<Setting<Mode>, Trouble> {
    if options.os_sandbox == OsSandbox::Off {
        return Ok(Setting::new(Mode::Off, Source::Flag("os-sandbox")));
    }
    if let Some(mode) = options.sandbox {
        return Ok(Setting::new(mode, Source::Flag("sandbox")));
    }
    if let Some(mode) = config.sandbox {
        return Ok(Setting::new(mode, config.sources.of("sandbox")));
    }
    if let Some((name, value)) = first_variable(["ROPEWALK_SANDBOX", "FERRET_SANDBOX"]) {
        let unusable = |error| Trouble::usage(format!("{name} cannot be used")).because(error);
        return Ok(Setting::new(value.parse().map_err(unusable)?, Source::Variable(name)));
    }
    let usual = || Setting::new(Mode::default(), Source::Default);
    Ok(config.codex.sandbox.clone().unwrap_or_else(usual))
}

/// What new sessions begin with.
pub fn approval(options: &GuardOptions, config: &Config) -> Result<Setting<Option<Arc<str>>>, Trouble> {
    match within(options, config)? {
        Some(named) => Ok(Setting::new(Some(named), Source::Flag("approval"))),
        None => customary(config),
    }
}

/// What the command line says, under one of its names.
fn named(options: &GuardOptions) -> Result<Option<Arc<str>>, Trouble> {
    let loosest = (options.yolo || options.full_auto).then(|| "full".to_owned());
    let named = options.permission_mode.clone().or(loosest).or_else(|| options.approval.clone());
    named.as_deref().map(preset).transpose()
}

/// The same, if it is not looser than what may be chosen.
fn within(options: &GuardOptions, config: &Config) -> Result<Option<Arc<str>>, Trouble> {
    let (Some(named), Some(max)) = (named(options)?, loosest(options, config)?.value) else {
        return named(options);
    };
    let spec = approval_spec();
    let rank = |value: &str| spec.choices.iter().position(|choice| *choice.value == *value);
    if rank(&named) <= rank(&max) {
        return Ok(Some(named));
    }
    Err(Trouble::usage(format!("approval {named} is looser than {max}, the loosest that may be chosen here"))
        .fix("choose a stricter one, or another --approval-max (approval_max in the settings)"))
}

/// The loosest preset that anybody may choose, if it is not any.
pub fn loosest(options: &GuardOptions, config: &Config) -> Result<Setting<Option<Arc<str>>>, Trouble> {
    if let Some(named) = &options.approval_max {
        return Ok(Setting::new(Some(preset(named)?), Source::Flag("approval-max")));
    }
    if let Some(named) = &config.approval_max {
        return Ok(Setting::new(Some(preset(named)?), config.sources.of("approval_max")));
    }
    match paths::variable("ROPEWALK_APPROVAL_MAX") {
        Some(value) => {
            let named = preset(&value.to_string_lossy())?;
            Ok(Setting::new(Some(named), Source::Variable("ROPEWALK_APPROVAL_MAX")))
        }
        None => Ok(Setting::new(None, Source::Default)),
    }
}

/// What the person has chosen for every session.
fn customary(config: &Config) -> Result<Setting<Option<Arc<str>>>, Trouble> {
    if let Some(named) = &config.approval {
        return Ok(Setting::new(Some(preset(named)?), config.sources.of("approval")));
    }
    if let Some((name, value)) = first_variable(["ROPEWALK_APPROVAL", "FERRET_APPROVAL"]) {
        return Ok(Setting::new(Some(preset(&value)?), Source::Variable(name)));
    }
    Ok(match config.codex.approval.clone() {
        Some(Setting { value, source }) => Setting::new(Some(value), source),
        None => Setting::new(None, Source::Default),
    })
}

fn preset(named: &str) -> Result<Arc<str>, Trouble> {
    let value = full_name(APPROVAL, named.into());
    let choices = approval_spec().choices;
    if choices.iter().any(|choice| choice.value == value) {
        return Ok(value);
    }
    let known: Vec<_> = choices.iter().map(|choice| choice.value.as_ref()).collect();
    Err(Trouble::usage(format!("{named:?} is not a choice for --approval"))
        .fix(format!("one of {}", known.join(", "))))
}

fn first_variable(names: [&'static str; 2]) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| {
        let value = paths::variable(name)?;
        Some((name, value.to_string_lossy().into_owned()))
    })
}

pub fn warn(text: &str) {
    let paint = terminal::stderr_paint();
    eprintln!("{} {text}", paint.warn("ropewalk: warning:"));
}
