//! `ropewalk run`: one prompt, one turn, one answer, with nobody there to be asked.
//!
//! The turn is an ordinary turn of an ordinary session: it can be read, gone on with and copied
//! afterwards like any other. Printing has a task of its own, so that a reader that does not read
//! cannot keep an interrupt from reaching the turn.

mod input;
mod printer;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use engine::{
    APPROVAL, Body, Content, Event, Input, Limits, ListQuery, MODE, MODEL, OpenError, Principal, Registry,
    SendError, Sender, Seq, SessionHandle, SettingSpec, Stop, SurfaceId, TurnId, Wish,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::printer::Printer;
use crate::cli::{RunFormat, RunOptions};
use crate::config::OURS;
use crate::external::{self, OnlyOurs};
use crate::guards::Guards;
use crate::models::Models;
use crate::sessions::{self, find};
use crate::trouble::Trouble;
use crate::{eventlog, server, terminal};

/// How long an interrupted turn may take to end, and its last words to be printed.
const INTERRUPT_GRACE: Duration = Duration::from_secs(8);
const INTERRUPTED: u8 = 130;
/// `--max-cost`, `--max-turns` or `--timeout` ended it.
const LIMITED: u8 = 2;

/// How the turn ended, and whether everything about it could be printed.
struct Ended {
    stop: Stop,
    printed: Result<(), Trouble>,
}

pub fn run(options: &RunOptions) -> anyhow::Result<ExitCode> {
    let format = if options.json { RunFormat::Json } else { options.format };
    let content = match input::content(options) {
        Ok(content) => content,
        Err(trouble) => return Ok(trouble.report(format != RunFormat::Text)),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(in_registry(options, format, content));
    // A printer that is stuck in a write would keep us here for ever.
    runtime.shutdown_background();
    Ok(outcome.unwrap_or_else(|trouble| trouble.report(format != RunFormat::Text)))
}

async fn in_registry(
    options: &RunOptions,
    format: RunFormat,
    content: Vec<Content>,
) -> Result<ExitCode, Trouble> {
    let mut stop = Stops::new()?;
    if options.guard.ephemeral && again(options).is_some() {
        return Err(Trouble::usage("--ephemeral keeps no session to go on with")
            .fix("leave --ephemeral out, or --resume and --continue"));
    }
    let mut guards = Guards::of_one_run(&options.guard)?;
    guards.must_hold_here(&options.guard).await?;
    choose_agent(&mut guards, options)?;
    // An estimate leaves nothing behind.
    if let Some(Again::Named(id)) = again(options).filter(|_| !options.estimate_cost) {
        eventlog::take_in_named(id, &folder(options.session.cwd.as_deref())?).await?;
    }
    let chosen = options.agent.agent.is_some() || options.command.is_some();
    if let Some(start) = again(options).filter(|_| !chosen) {
        must_be_theirs(start, &folder(options.session.cwd.as_deref())?, &guards).await?;
    }
    if guards.outside.is_none() {
        guards.models = Models::find(&guards.config, options.session.model.as_deref()).await?;
    }
    guards.models.limit(&options.budget);
    guards.models.budget.turn_usd = options.budget.max_cost;
    guards.models.budget.estimate_only = options.estimate_cost;
    let limits = Limits { attended: false, ..Limits::default() };
    let (registry, audit) = match options.estimate_cost {
        true => (server::passing(limits, &guards)?, None),
        false => server::audited(limits, true, &guards)?,
    };
    let outcome = one_turn(&registry, (options, &guards), format, content, &mut stop).await;
    registry.shutdown().await;
    if let Some(outside) = &guards.outside {
        outside.end().await;
    }
    if let Some(audit) = audit {
        crate::audit::warn(&audit);
    }
    match outcome {
        // That nothing was asked is what was wanted.
        Ok(_) if options.estimate_cost => Ok(ExitCode::SUCCESS),
        outcome => outcome,
    }
}

fn choose_agent(guards: &mut Guards, options: &RunOptions) -> Result<(), Trouble> {
    let command = options.command.as_deref().map(external::split).transpose().map_err(|wrong| {
        Trouble::usage("--command cannot be taken apart").because(wrong).fix("write it as for a shell")
    })?;
    if command.as_ref().is_some_and(Vec::is_empty) {
        return Err(Trouble::usage("--command is empty").fix("--command \"opencode acp\""));
    }
    let (budget, guard) = (&options.budget, &options.guard);
    let only_ours = OnlyOurs { budget, guard, model: None, estimate: options.estimate_cost };
    let home = folder(options.session.cwd.as_deref())?;
    external::choose(guards, &options.agent, &command.unwrap_or_default(), &only_ours, &home)
}

/// A session is not taken from the agent that has worked in it unless that is said.
pub async fn must_be_theirs(start: Again<'_>, cwd: &Path, guards: &Guards) -> Result<(), Trouble> {
    let registry = server::registry(Limits::default(), false, &Guards::none())?;
    let worked = async {
        let id = session(&registry, start, cwd).await?;
        sessions::agent_of(&registry, &id).await
    };
    let worked = worked.await;
    registry.shutdown().await;
    let (worked, chosen) = (worked?, guards.outside.as_ref().map(|outside| &outside.name));
    if worked.as_ref() == chosen {
        return Ok(());
    }
    let name = |agent: Option<&Arc<str>>| agent.map_or(OURS.to_owned(), ToString::to_string);
    let (worked, chosen) = (name(worked.as_ref()), name(chosen));
    let again = match external::named(&guards.config, &worked) {
        Err(_) if worked != OURS => "add --command and the command that starts it".to_owned(),
        Ok(_) | Err(_) => format!("add --agent {worked}"),
    };
    Err(Trouble::usage(format!("{worked} works in this session"))
        .fix(format!("{again}; with --agent {chosen}, {chosen} goes on from what was said")))
}

/// A session that is gone on with: one that is named, or the newest of the folder.
#[derive(Clone, Copy)]
pub enum Again<'a> {
    Named(&'a str),
    Newest,
}

fn again(options: &RunOptions) -> Option<Again<'_>> {
    options.session.resume.as_deref().map(Again::Named).or(options.session.newest.then_some(Again::Newest))
}

async fn session(registry: &Registry, again: Again<'_>, cwd: &Path) -> Result<engine::SessionId, Trouble> {
    match again {
        Again::Named(id) => find::one(registry, id).await.map(|row| row.id),
        Again::Newest => newest_in(registry, cwd).await,
    }
}

async fn one_turn(
    registry: &Arc<Registry>,
    (options, guards): (&RunOptions, &Guards),
    format: RunFormat,
    content: Vec<Content>,
    stops: &mut Stops,
) -> Result<ExitCode, Trouble> {
    let ours = guards.outside.is_none();
    let early = if ours {
        let offer = registry.offer(folder(options.session.cwd.as_deref())?).await;
        Some(wishes(&offer.settings, options, guards)?)
    } else {
        None
    };
    let by = Sender::owner(SurfaceId::random(), "run");
    let limit = options.timeout.map(|seconds| (seconds, Instant::now() + Duration::from_secs(seconds)));
    let (handle, after) = tokio::select! {
        opened = open(registry, options, &by) => opened?,
        () = stops.recv() => return Ok(ExitCode::from(INTERRUPTED)),
        seconds = over(limit) => {
            terminal::say(&format!("{seconds} s are over, and there is no session yet"));
            return Ok(ExitCode::from(LIMITED));
        }
    };
    // What an agent of another program offers is known when it has a session.
    let wishes = match early.map_or_else(|| wishes(&handle.snapshot().specs, options, guards), Ok) {
        Ok(wishes) => wishes,
        Err(trouble) => {
            if again(options).is_none() {
                // Nothing happened in it: nobody should be asked to go on with it.
                registry.delete(&Principal::local(), handle.id()).await.map_err(Trouble::open)?;
            }
            return Err(trouble);
        }
    };
    let approval: Arc<str> = handle.snapshot().settings.get(APPROVAL).into();
    for (id, value) in wishes {
        send(&handle, Input::Change { by: by.clone(), id: id.into(), value: value.into() }).await?;
    }
    let printer = Printer::new(format, handle.clone());
    let outcome = prompt(registry, printer, (&handle, after), &by, content, (stops, limit)).await;
    if guards.approval_once.is_some() {
        // What was allowed for one prompt is not for whoever opens the session next. If the session
        // has closed, its log cannot take this or anything else.
        let back = Input::Change { by, id: APPROVAL.into(), value: approval };
        drop(handle.send(back).await);
    }
    outcome
}

/// Sends the prompt and prints its turn until that ends or is given up.
async fn prompt(
    registry: &Arc<Registry>,
    printer: Printer,
    (handle, after): (&SessionHandle, Seq),
    by: &Sender,
    content: Vec<Content>,
    (stops, limit): (&mut Stops, Option<(u64, Instant)>),
) -> Result<ExitCode, Trouble> {
    let accepted = send(handle, Input::Prompt { by: by.clone(), content }).await?;
    let Some(turn) = accepted.turn else {
        return Err(Trouble::failed("the session did not take the prompt"));
    };
    let mut printing = registry.tracker().spawn(print(printer, handle.clone(), after, turn, by.clone()));
    let (ended, late) = tokio::select! {
        ended = &mut printing => (Some(ended), false),
        () = stops.recv() => (interrupt(handle, by, turn, stops, &mut printing).await, false),
        seconds = over(limit) => {
            terminal::say(&format!("{seconds} s are over: the turn is cancelled"));
            (interrupt(handle, by, turn, stops, &mut printing).await, true)
        }
    };
    match ended {
        Some(Ok(Ok(ended))) if late => ended.printed.map(|()| ExitCode::from(LIMITED)),
        None if late => Ok(ExitCode::from(LIMITED)),
        Some(Ok(Ok(ended))) => exit_code(ended),
        Some(Ok(Err(trouble))) => Err(trouble),
        Some(Err(_)) => Err(Trouble::failed("the output broke; this is a bug")),
        None => Ok(ExitCode::from(INTERRUPTED)),
    }
}

/// Waits until the time that all of it may take is over, if there is such a time.
async fn over(limit: Option<(u64, Instant)>) -> u64 {
    match limit {
        Some((seconds, at)) => {
            tokio::time::sleep_until(at).await;
            seconds
        }
        None => std::future::pending().await,
    }
}

fn exit_code(ended: Ended) -> Result<ExitCode, Trouble> {
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
    stops: &mut Stops,
    printing: &mut JoinHandle<Result<Ended, Trouble>>,
) -> Option<Result<Result<Ended, Trouble>, tokio::task::JoinError>> {
    // A session that is closed has no turn to cancel.
    drop(handle.send(Input::Cancel { by: by.clone(), only: Some(turn) }).await);
    tokio::select! {
        ended = printing => Some(ended),
        () = stops.recv() => None,
        () = tokio::time::sleep(INTERRUPT_GRACE) => None,
    }
}

/// Prints what happens until the turn ends. Where nobody reads any more, the turn is cancelled too.
async fn print(
    mut printer: Printer,
    handle: SessionHandle,
    after: Seq,
    turn: TurnId,
    by: Sender,
) -> Result<Ended, Trouble> {
    let mut reader = handle.read(after);
    let mut printed = Ok(());
    loop {
        let batch = reader.next().await.map_err(|error| Trouble::open(OpenError::Store(error)))?;
        let Some(events) = batch else {
            return Err(Trouble::failed("the session ended before the turn did")
                .because("its log could not be written, or another ropewalk took the session over"));
        };
        let ended = events.iter().find_map(|event| ended_by(event, turn));
        if printed.is_ok() {
            printed = tokio::task::block_in_place(|| printer.observe(&events, ended.as_ref()));
            if printed.is_err() {
                // Closed already: the next batch says so.
                drop(handle.send(Input::Cancel { by: by.clone(), only: Some(turn) }).await);
            }
        }
        if let Some((stop, _)) = ended {
            return Ok(Ended { stop, printed });
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

/// What the options want to be set, checked against what is offered.
fn wishes(
    specs: &[SettingSpec],
    options: &RunOptions,
    guards: &Guards,
) -> Result<Vec<(&'static str, String)>, Trouble> {
    // As it is offered, however it was written.
    let found = options.session.model.as_ref().and(guards.models.model.as_ref()).map(ToString::to_string);
    let model = if guards.outside.is_some() { options.session.model.clone() } else { found };
    let wanted = [(MODEL, &model), (MODE, &options.mode)];
    let mut wishes = Vec::new();
    for (id, value) in wanted {
        let Some(value) = value else { continue };
        let choices = specs.iter().find(|spec| *spec.id == *id).map_or(&[][..], |spec| &spec.choices);
        if !choices.iter().any(|choice| *choice.value == **value) {
            let known: Vec<_> = choices.iter().map(|choice| choice.value.as_ref()).collect();
            if known.is_empty() {
                return Err(Trouble::usage(format!("this agent has no --{id}")).fix("leave it out"));
            }
            return Err(Trouble::usage(format!("{value:?} is not a choice for --{id}"))
                .fix(format!("one of {}", known.join(", "))));
        }
        wishes.push((id, value.clone()));
    }
    wishes.extend(guards.approval_once.as_ref().map(|preset| (APPROVAL, preset.to_string())));
    Ok(wishes)
}

/// The session to work in, and the position that what we cause comes after.
async fn open(
    registry: &Registry,
    options: &RunOptions,
    by: &Sender,
) -> Result<(SessionHandle, Seq), Trouble> {
    let owner = Principal::local();
    let cwd = folder(options.session.cwd.as_deref())?;
    let Some(again) = again(options) else {
        let wish = Wish::new(owner, cwd, "run");
        let handle = registry.create(wish).await.map_err(Trouble::open)?;
        return Ok((handle, Seq::START));
    };
    let id = session(registry, again, &cwd).await?;
    let handle = registry.open(&owner, &id).await.map_err(Trouble::open)?;
    let after = handle.read(Seq::START).head();
    if options.session.cwd.is_some() && **handle.snapshot().cwd != *cwd {
        send(&handle, Input::Move { by: by.clone(), cwd }).await?;
    }
    Ok((handle, after))
}

async fn newest_in(registry: &Registry, cwd: &Path) -> Result<engine::SessionId, Trouble> {
    let query = ListQuery { cwd: Some(cwd.to_owned()), limit: 1, ..ListQuery::all(Principal::local()) };
    let newest = registry.list_used(query).await.map_err(Trouble::open)?;
    newest.into_iter().next().map(|listed| listed.row.id).ok_or_else(|| {
        Trouble::not_found(format!("there is no session of {}", cwd.display()))
            .fix("the same without --continue, or ropewalk sessions list")
    })
}

/// The folder that was named, or the current one, by its real path.
pub fn folder(named: Option<&Path>) -> Result<PathBuf, Trouble> {
    let path = named.unwrap_or_else(|| Path::new("."));
    let real = path.canonicalize().map_err(|error| {
        Trouble::usage(format!("{} cannot be used as a folder", path.display())).because(error)
    })?;
    if real.is_dir() { Ok(real) } else { Err(Trouble::usage(format!("{} is not a folder", path.display()))) }
}

async fn send(handle: &SessionHandle, input: Input) -> Result<engine::Accepted, Trouble> {
    handle.send(input).await.map_err(|error| match error {
        SendError::Refused(refusal) => Trouble::failed(refusal.to_string()),
        SendError::Closed => Trouble::failed("the session closed").because("its log could not be written"),
    })
}

/// Ctrl-C, or a polite request to end.
struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    fn new() -> Result<Self, Trouble> {
        let listen =
            |kind| signal(kind).map_err(|error| Trouble::failed("signals cannot be heard").because(error));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
