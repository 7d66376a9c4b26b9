//! `ropewalk run`: sends one prompt and prints the answer. Nobody can answer permission requests here.
//!
//! It is an ordinary turn of an ordinary session, which can be read, continued and copied afterwards. Printing has its own
//! task, so that a blocked reader cannot keep an interrupt from reaching the turn.

mod input;
mod printer;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use engine::{
    APPROVAL, Body, Content, Event, Input, ListQuery, MODE, MODEL, NewSessionRequest, OpenError, Principal,
    Registry, SendError, Sender, Seq, SessionHandle, SessionLimits, SettingSpec, Stop, SurfaceId, TurnId,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::printer::Printer;
use crate::cli::{RunFormat, RunOptions};
use crate::cli_error::CliError;
use crate::config::OURS;
use crate::external_agents::{self, OwnAgentOptions};
use crate::guard_settings::Guards;
use crate::models::Models;
use crate::sessions::{self, find};
use crate::{chimera_event_log, output, registry};

/// How long an interrupted turn may take to end and its last output to be printed.
const INTERRUPT_GRACE: Duration = Duration::from_secs(8);
const INTERRUPTED: u8 = 130;
/// Exit code if `--max-cost`, `--max-turns` or `--timeout` ended the turn.
const LIMITED: u8 = 2;

/// How the turn ended, and whether it could be printed.
struct TurnOutcome {
    stop: Stop,
    printed: Result<(), CliError>,
}

pub fn run(options: &RunOptions) -> anyhow::Result<ExitCode> {
    let format = if options.json { RunFormat::Json } else { options.format };
    let content = match input::content(options) {
        Ok(content) => content,
        Err(error) => return Ok(error.report(format != RunFormat::Text)),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(in_registry(options, format, content));
    // A printer that blocks in a write would keep us here forever.
    runtime.shutdown_background();
    Ok(outcome.unwrap_or_else(|error| error.report(format != RunFormat::Text)))
}

async fn in_registry(
    options: &RunOptions,
    format: RunFormat,
    content: Vec<Content>,
) -> Result<ExitCode, CliError> {
    let mut stop = StopSignals::new()?;
    if options.guard.ephemeral && resumed(options).is_some() {
        return Err(CliError::usage("--ephemeral stores no session to continue")
            .fix("remove --ephemeral, or remove --resume and --continue"));
    }
    let mut guards = Guards::of_one_run(&options.guard)?;
    guards.require_sandbox_async(&options.guard).await?;
    choose_agent(&mut guards, options)?;
    // An estimate stores nothing.
    if let Some(SessionToResume::Named(id)) = resumed(options).filter(|_| !options.estimate_cost) {
        chimera_event_log::import_named(id, &folder(options.session.cwd.as_deref())?).await?;
    }
    let chosen = options.agent.agent.is_some() || options.command.is_some();
    if let Some(start) = resumed(options).filter(|_| !chosen) {
        check_session_agent(start, &folder(options.session.cwd.as_deref())?, &guards).await?;
    }
    if guards.external_agent.is_none() {
        guards.models = Models::find(&guards.config, options.session.model.as_deref()).await?;
    }
    guards.models.limit(&options.budget);
    guards.models.budget.turn_usd = options.budget.max_cost;
    guards.models.budget.estimate_only = options.estimate_cost;
    let limits = SessionLimits { attended: false, ..SessionLimits::default() };
    let (registry, audit) = match options.estimate_cost {
        true => (registry::scratch_registry(limits, &guards)?, None),
        false => registry::audited_registry(limits, true, &guards)?,
    };
    let outcome = one_turn(&registry, (options, &guards), format, content, &mut stop).await;
    registry.shutdown().await;
    if let Some(external_agent) = &guards.external_agent {
        external_agent.end().await;
    }
    if let Some(audit) = audit {
        crate::audit::warn(&audit);
    }
    match outcome {
        // An estimate is expected to end without a model call.
        Ok(_) if options.estimate_cost => Ok(ExitCode::SUCCESS),
        outcome => outcome,
    }
}

fn choose_agent(guards: &mut Guards, options: &RunOptions) -> Result<(), CliError> {
    let command = options.command.as_deref().map(external_agents::split).transpose().map_err(|wrong| {
        CliError::usage("could not parse --command").because(wrong).fix("quote it as for a shell")
    })?;
    if command.as_ref().is_some_and(Vec::is_empty) {
        return Err(CliError::usage("--command is empty").fix("--command \"opencode acp\""));
    }
    let (budget, guard) = (&options.budget, &options.guard);
    let own_options = OwnAgentOptions { budget, guard, model: None, estimate: options.estimate_cost };
    let home = folder(options.session.cwd.as_deref())?;
    external_agents::choose(guards, &options.agent, &command.unwrap_or_default(), &own_options, &home)
}

/// Fails if another agent has worked in the session: switching agents must be requested explicitly.
pub async fn check_session_agent(
    start: SessionToResume<'_>,
    cwd: &Path,
    guards: &Guards,
) -> Result<(), CliError> {
    let registry = registry::registry(SessionLimits::default(), false, &Guards::none())?;
    let worked = async {
        let id = session(&registry, start, cwd).await?;
        sessions::agent_of(&registry, &id).await
    };
    let worked = worked.await;
    registry.shutdown().await;
    let (worked, chosen) = (worked?, guards.external_agent.as_ref().map(|agent| &agent.name));
    if worked.as_ref() == chosen {
        return Ok(());
    }
    let name = |agent: Option<&Arc<str>>| agent.map_or(OURS.to_owned(), ToString::to_string);
    let (worked, chosen) = (name(worked.as_ref()), name(chosen));
    let resumed = match external_agents::named(&guards.config, &worked) {
        Err(_) if worked != OURS => "add --command with the command that starts it".to_owned(),
        Ok(_) | Err(_) => format!("add --agent {worked}"),
    };
    Err(CliError::usage(format!("this session belongs to the agent {worked}"))
        .fix(format!("{resumed}, or add --agent {chosen} to continue with {chosen}")))
}

/// The session to continue: a named one, or the newest of the folder.
#[derive(Clone, Copy)]
pub enum SessionToResume<'a> {
    Named(&'a str),
    Newest,
}

fn resumed(options: &RunOptions) -> Option<SessionToResume<'_>> {
    options
        .session
        .resume
        .as_deref()
        .map(SessionToResume::Named)
        .or(options.session.newest.then_some(SessionToResume::Newest))
}

async fn session(
    registry: &Registry,
    resumed: SessionToResume<'_>,
    cwd: &Path,
) -> Result<engine::SessionId, CliError> {
    match resumed {
        SessionToResume::Named(id) => find::one(registry, id).await.map(|row| row.id),
        SessionToResume::Newest => newest_in(registry, cwd).await,
    }
}

async fn one_turn(
    registry: &Arc<Registry>,
    (options, guards): (&RunOptions, &Guards),
    format: RunFormat,
    content: Vec<Content>,
    stops: &mut StopSignals,
) -> Result<ExitCode, CliError> {
    let ours = guards.external_agent.is_none();
    let early = if ours {
        let offer = registry.offer(folder(options.session.cwd.as_deref())?).await;
        Some(requested(&offer.settings, options, guards)?)
    } else {
        None
    };
    let by = Sender::owner(SurfaceId::random(), "run");
    let limit = options.timeout.map(|seconds| (seconds, Instant::now() + Duration::from_secs(seconds)));
    let (handle, after) = tokio::select! {
        opened = open(registry, options, &by) => opened?,
        () = stops.recv() => return Ok(ExitCode::from(INTERRUPTED)),
        seconds = timed_out(limit) => {
            output::say(&format!("timed out after {seconds} s, before the session started"));
            return Ok(ExitCode::from(LIMITED));
        }
    };
    // The settings of an external agent are known only after its session started.
    let requested = match early.map_or_else(|| requested(&handle.snapshot().specs, options, guards), Ok) {
        Ok(requested) => requested,
        Err(error) => {
            if resumed(options).is_none() {
                // Nothing happened in it, so do not leave it behind.
                registry.delete(&Principal::local(), handle.id()).await.map_err(CliError::from_open)?;
            }
            return Err(error);
        }
    };
    let approval: Arc<str> = handle.snapshot().settings.get(APPROVAL).into();
    for (id, value) in requested {
        send(&handle, Input::Change { by: by.clone(), id: id.into(), value: value.into() }).await?;
    }
    let printer = Printer::new(format, handle.clone());
    let outcome = prompt(registry, printer, (&handle, after), &by, content, (stops, limit)).await;
    if guards.approval_once.is_some() {
        // The approval of one prompt must not outlive it in the session. If the session has closed, its log accepts
        // nothing more, so a failure is ignored.
        let back = Input::Change { by, id: APPROVAL.into(), value: approval };
        drop(handle.send(back).await);
    }
    outcome
}

/// Sends the prompt and prints its turn until the turn ends or is cancelled.
async fn prompt(
    registry: &Arc<Registry>,
    printer: Printer,
    (handle, after): (&SessionHandle, Seq),
    by: &Sender,
    content: Vec<Content>,
    (stops, limit): (&mut StopSignals, Option<(u64, Instant)>),
) -> Result<ExitCode, CliError> {
    let accepted = send(handle, Input::Prompt { by: by.clone(), content }).await?;
    let Some(turn) = accepted.turn else {
        return Err(CliError::failed("the session did not accept the prompt"));
    };
    let mut printing = registry.tracker().spawn(print(printer, handle.clone(), after, turn, by.clone()));
    let (ended, late) = tokio::select! {
        ended = &mut printing => (Some(ended), false),
        () = stops.recv() => (interrupt(handle, by, turn, stops, &mut printing).await, false),
        seconds = timed_out(limit) => {
            output::say(&format!("timed out after {seconds} s; cancelling the turn"));
            (interrupt(handle, by, turn, stops, &mut printing).await, true)
        }
    };
    match ended {
        Some(Ok(Ok(ended))) if late => ended.printed.map(|()| ExitCode::from(LIMITED)),
        None if late => Ok(ExitCode::from(LIMITED)),
        Some(Ok(Ok(ended))) => exit_code(ended),
        Some(Ok(Err(error))) => Err(error),
        Some(Err(_)) => Err(CliError::failed("printing failed; this is a bug")),
        None => Ok(ExitCode::from(INTERRUPTED)),
    }
}

/// Waits until the time limit, if there is one. Returns its seconds.
async fn timed_out(limit: Option<(u64, Instant)>) -> u64 {
    match limit {
        Some((seconds, at)) => {
            tokio::time::sleep_until(at).await;
            seconds
        }
        None => std::future::pending().await,
    }
}

fn exit_code(ended: TurnOutcome) -> Result<ExitCode, CliError> {
    ended.printed?;
    Ok(match ended.stop {
        Stop::EndTurn => ExitCode::SUCCESS,
        Stop::Cancelled => ExitCode::from(INTERRUPTED),
        Stop::MaxTurnRequests => ExitCode::from(LIMITED),
        Stop::MaxTokens | Stop::Refusal | Stop::Failed | Stop::Interrupted => ExitCode::FAILURE,
    })
}

/// Cancels the turn and waits for its end to be printed; a second signal does not wait.
async fn interrupt(
    handle: &SessionHandle,
    by: &Sender,
    turn: TurnId,
    stops: &mut StopSignals,
    printing: &mut JoinHandle<Result<TurnOutcome, CliError>>,
) -> Option<Result<Result<TurnOutcome, CliError>, tokio::task::JoinError>> {
    // A session that is closed has no turn to cancel.
    drop(handle.send(Input::Cancel { by: by.clone(), only: Some(turn) }).await);
    tokio::select! {
        ended = printing => Some(ended),
        () = stops.recv() => None,
        () = tokio::time::sleep(INTERRUPT_GRACE) => None,
    }
}

/// Prints events until the turn ends. Cancels the turn if the output is closed.
async fn print(
    mut printer: Printer,
    handle: SessionHandle,
    after: Seq,
    turn: TurnId,
    by: Sender,
) -> Result<TurnOutcome, CliError> {
    let mut reader = handle.read(after);
    let mut printed = Ok(());
    loop {
        let batch = reader.next().await.map_err(|error| CliError::from_open(OpenError::Store(error)))?;
        let Some(events) = batch else {
            return Err(CliError::failed("the session ended before the turn did")
                .because("its log could not be written, or another ropewalk process took the session over"));
        };
        let ended = events.iter().find_map(|event| ended_by(event, turn));
        if printed.is_ok() {
            printed = tokio::task::block_in_place(|| printer.observe(&events, ended.as_ref()));
            if printed.is_err() {
                // If the session has closed already, the next batch reports it.
                drop(handle.send(Input::Cancel { by: by.clone(), only: Some(turn) }).await);
            }
        }
        if let Some((stop, _)) = ended {
            return Ok(TurnOutcome { stop, printed });
        }
    }
}

/// How the turn ended, if this event says so.
fn ended_by(event: &Event, turn: TurnId) -> Option<(Stop, Option<Arc<str>>)> {
    match &event.body {
        Body::TurnEnded { stop, error } if event.turn == Some(turn) => Some((*stop, error.clone())),
        _ => None,
    }
}

/// The settings that the options request, checked against what the agent offers.
fn requested(
    specs: &[SettingSpec],
    options: &RunOptions,
    guards: &Guards,
) -> Result<Vec<(&'static str, String)>, CliError> {
    // The model's full id, however it was written.
    let found = options.session.model.as_ref().and(guards.models.model.as_ref()).map(ToString::to_string);
    let model = if guards.external_agent.is_some() { options.session.model.clone() } else { found };
    let wanted = [(MODEL, &model), (MODE, &options.mode)];
    let mut requested = Vec::new();
    for (id, value) in wanted {
        let Some(value) = value else { continue };
        let choices = specs.iter().find(|spec| *spec.id == *id).map_or(&[][..], |spec| &spec.choices);
        if !choices.iter().any(|choice| *choice.value == **value) {
            let known: Vec<_> = choices.iter().map(|choice| choice.value.as_ref()).collect();
            if known.is_empty() {
                return Err(
                    CliError::usage(format!("this agent does not support --{id}")).fix("remove the option")
                );
            }
            return Err(CliError::usage(format!("{value:?} is not a valid value for --{id}"))
                .fix(format!("use one of {}", known.join(", "))));
        }
        requested.push((id, value.clone()));
    }
    requested.extend(guards.approval_once.as_ref().map(|preset| (APPROVAL, preset.to_string())));
    Ok(requested)
}

/// The session to work in, and the last position before our own events.
async fn open(
    registry: &Registry,
    options: &RunOptions,
    by: &Sender,
) -> Result<(SessionHandle, Seq), CliError> {
    let owner = Principal::local();
    let cwd = folder(options.session.cwd.as_deref())?;
    let Some(resumed) = resumed(options) else {
        let wish = NewSessionRequest::new(owner, cwd, "run");
        let handle = registry.create(wish).await.map_err(CliError::from_open)?;
        return Ok((handle, Seq::START));
    };
    let id = session(registry, resumed, &cwd).await?;
    let handle = registry.open(&owner, &id).await.map_err(CliError::from_open)?;
    let after = handle.read(Seq::START).head();
    if options.session.cwd.is_some() && **handle.snapshot().cwd != *cwd {
        send(&handle, Input::Move { by: by.clone(), cwd }).await?;
    }
    Ok((handle, after))
}

async fn newest_in(registry: &Registry, cwd: &Path) -> Result<engine::SessionId, CliError> {
    let query = ListQuery { cwd: Some(cwd.to_owned()), limit: 1, ..ListQuery::all(Principal::local()) };
    let newest = registry.list_used(query).await.map_err(CliError::from_open)?;
    newest.into_iter().next().map(|listed| listed.row.id).ok_or_else(|| {
        CliError::not_found(format!("no session in {}", cwd.display()))
            .fix("remove --continue, or list all sessions with `ropewalk sessions list --all`")
    })
}

/// The real path of the given folder, or of the current one.
pub fn folder(named: Option<&Path>) -> Result<PathBuf, CliError> {
    let path = named.unwrap_or_else(|| Path::new("."));
    let real = path.canonicalize().map_err(|error| {
        CliError::usage(format!("could not open the folder {}", path.display())).because(error)
    })?;
    if real.is_dir() { Ok(real) } else { Err(CliError::usage(format!("{} is not a folder", path.display()))) }
}

async fn send(handle: &SessionHandle, input: Input) -> Result<engine::InputReceipt, CliError> {
    handle.send(input).await.map_err(|error| match error {
        SendError::Refused(refusal) => CliError::failed(refusal.to_string()),
        SendError::Closed => {
            CliError::failed("the session was closed").because("its log could not be written")
        }
    })
}

/// Signals that stop the run: Ctrl-C or SIGTERM.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    fn new() -> Result<Self, CliError> {
        let listen = |kind| {
            signal(kind).map_err(|error| CliError::failed("could not install signal handlers").because(error))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
