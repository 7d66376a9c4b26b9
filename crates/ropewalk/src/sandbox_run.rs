//! `ropewalk sandbox run MODE -- CMD`: runs a command in the sandbox.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use sandbox::{
    ChildCommand, CommandExit, CommandLimits, EndCause, Fence, Mode, Output, Policy, Program, StartError,
    StdStream,
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cli::{SandboxCommand, SandboxRunOptions};
use crate::cli_error::CliError;
use crate::{guard_settings, hidden_paths, output, paths, run};

/// Maximum number of queued output chunks; a full queue slows the command down.
const OUTPUT_MAX: usize = 16;
/// The same exit codes as `env` and `timeout`: the command was not started.
const NOT_STARTED: u8 = 125;
const NOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
const INTERRUPTED: u8 = 130;

pub fn run(command: SandboxCommand) -> anyhow::Result<ExitCode> {
    let SandboxCommand::Run(options) = command;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(fenced(options));
    runtime.shutdown_background();
    Ok(outcome.unwrap_or_else(|error| {
        error.report(false);
        ExitCode::from(NOT_STARTED)
    }))
}

async fn fenced(options: SandboxRunOptions) -> Result<ExitCode, CliError> {
    if options.mode == Mode::Off {
        guard_settings::warn("the sandbox is off: the command can access everything that you can");
    }
    let command = command(&options)?;
    let cancel = CancellationToken::new();
    let (sender, receiver) = mpsc::channel(OUTPUT_MAX);
    // A reader that blocks holds up the printing, but not the time limit or an interrupt.
    let as_json = options.json;
    let unheard = cancel.clone();
    let shown = tokio::task::spawn_blocking(move || show(receiver, as_json, &unheard));
    let interrupted = Ok(ExitCode::from(INTERRUPTED));
    let ended = tokio::select! {
        ended = sandbox::run(command, cancel, sender) => ended,
        _ = tokio::signal::ctrl_c() => return interrupted,
    };
    tokio::select! {
        // Ends when everything is printed.
        printed = shown => drop(printed),
        _ = tokio::signal::ctrl_c() => return interrupted,
    }
    let ended = match ended {
        Ok(ended) => ended,
        Err(StartError::Spawn(error)) => {
            let name = options.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
            CliError::failed(format!("could not start {name:?}")).because(&error).report(false);
            return Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN }));
        }
        Err(error) => return Err(CliError::failed("could not start the command").because(error)),
    };
    Ok(exit_code(&ended))
}

fn command(options: &SandboxRunOptions) -> Result<ChildCommand, CliError> {
    let cwd = run::folder(options.cwd.as_deref())?;
    let added = options.add_dir.iter().map(|dir| run::folder(Some(dir)));
    let mut roots = added.collect::<Result<Vec<PathBuf>, _>>()?;
    roots.insert(0, cwd.clone());
    let mut words = options.command.iter().cloned();
    let program = words.next().ok_or_else(|| CliError::usage("no command given"))?;
    let homes = guard_settings::homes(options.mode)?;
    Ok(ChildCommand {
        program: Program::Exec { program: program.into(), arguments: words.collect() },
        cwd,
        environment: paths::passed_on(&[]),
        limits: CommandLimits {
            wall: Duration::from_secs(options.timeout),
            forward_bytes_max: u64::MAX,
            ..CommandLimits::default()
        },
        fence: Some(Fence {
            policy: Policy {
                mode: options.mode,
                roots,
                hidden: hidden_paths::paths(&homes),
                homes,
                ..Policy::default()
            },
            helper: guard_settings::helper()?,
        }),
    })
}

/// Forwards the output as it arrives, and prints refusals.
fn show(mut output: mpsc::Receiver<Output>, as_json: bool, unheard: &CancellationToken) {
    while let Some(output) = output.blocking_recv() {
        match output {
            Output::Chunk(chunk) => {
                let written = match chunk.stream {
                    StdStream::Stdout => {
                        let mut out = std::io::stdout().lock();
                        out.write_all(&chunk.bytes).and_then(|()| out.flush())
                    }
                    StdStream::Stderr => std::io::stderr().write_all(&chunk.bytes),
                };
                if written.is_err() {
                    // The reader is gone, so end the command, as in every pipe.
                    unheard.cancel();
                }
            }
            Output::Refused(violation) if as_json => {
                let path = violation.path.as_ref().map(|path| path.to_string_lossy());
                let line =
                    json!({ "refused": violation.op.name(), "path": path, "text": violation.to_string() });
                eprintln!("{line}");
            }
            Output::Refused(violation) => {
                eprintln!("{} {violation}", output::stderr_paint().warn("sandbox:"));
            }
        }
    }
}

fn exit_code(ended: &CommandExit) -> ExitCode {
    let note = match ended.cause {
        EndCause::Itself => None,
        EndCause::TimedOut => Some("stopped after the time limit"),
        // The reader of the output is gone.
        EndCause::Cancelled => None,
        EndCause::TooMuchOutput => Some("stopped because of too much output"),
        EndCause::TooMuchMemory => Some("stopped because it used too much memory"),
        EndCause::TooManyProcesses => Some("stopped because it started too many processes"),
    };
    if let Some(note) = note {
        eprintln!("{} {note}", output::stderr_paint().warn("sandbox:"));
    }
    let code = ended.code.or_else(|| Some(128 + ended.signal_number()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
