//! `ropewalk sandbox run MODE -- CMD`: the fence, for anybody to try.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use sandbox::{Cause, Command, Ended, Fence, Limits, Mode, Output, Policy, Program, StartError, Stream};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cli::{SandboxCommand, SandboxRunOptions};
use crate::trouble::Trouble;
use crate::{guards, hidden, paths, run, terminal};

/// Output on its way to the terminal; a full queue slows the command down.
const OUTPUT_MAX: usize = 16;
/// As `env` and `timeout` say it: the command was not even started.
const NOT_STARTED: u8 = 125;
const NOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
const INTERRUPTED: u8 = 130;

pub fn run(command: SandboxCommand) -> anyhow::Result<ExitCode> {
    let SandboxCommand::Run(options) = command;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(fenced(options));
    runtime.shutdown_background();
    Ok(outcome.unwrap_or_else(|trouble| {
        trouble.report(false);
        ExitCode::from(NOT_STARTED)
    }))
}

async fn fenced(options: SandboxRunOptions) -> Result<ExitCode, Trouble> {
    if options.mode == Mode::Off {
        guards::warn("the sandbox is off: the command reaches whatever you can reach");
    }
    let command = command(&options)?;
    let cancel = CancellationToken::new();
    let (sender, receiver) = mpsc::channel(OUTPUT_MAX);
    // A reader that does not read holds up the printing, but neither the time limit nor an interrupt.
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
            Trouble::failed(format!("{name:?} cannot be started")).because(&error).report(false);
            return Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN }));
        }
        Err(error) => return Err(Trouble::failed("the command was not started").because(error)),
    };
    Ok(exit_code(&ended))
}

fn command(options: &SandboxRunOptions) -> Result<Command, Trouble> {
    let cwd = run::folder(options.cwd.as_deref())?;
    let added = options.add_dir.iter().map(|dir| run::folder(Some(dir)));
    let mut roots = added.collect::<Result<Vec<PathBuf>, _>>()?;
    roots.insert(0, cwd.clone());
    let mut words = options.command.iter().cloned();
    let program = words.next().ok_or_else(|| Trouble::usage("there is no command"))?;
    let homes = guards::homes(options.mode)?;
    Ok(Command {
        program: Program::Exec { program: program.into(), arguments: words.collect() },
        cwd,
        environment: paths::passed_on(&[]),
        limits: Limits {
            wall: Duration::from_secs(options.timeout),
            forward_bytes_max: u64::MAX,
            ..Limits::default()
        },
        fence: Some(Fence {
            policy: Policy {
                mode: options.mode,
                roots,
                hidden: hidden::paths(&homes),
                homes,
                ..Policy::default()
            },
            helper: guards::helper()?,
        }),
    })
}

/// Passes the output on as it comes, and says what was refused.
fn show(mut output: mpsc::Receiver<Output>, as_json: bool, unheard: &CancellationToken) {
    while let Some(output) = output.blocking_recv() {
        match output {
            Output::Chunk(chunk) => {
                let written = match chunk.stream {
                    Stream::Stdout => {
                        let mut out = std::io::stdout().lock();
                        out.write_all(&chunk.bytes).and_then(|()| out.flush())
                    }
                    Stream::Stderr => std::io::stderr().write_all(&chunk.bytes),
                };
                if written.is_err() {
                    // Nobody reads any more, as with every command in a pipe.
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
                eprintln!("{} {violation}", terminal::stderr_paint().warn("sandbox:"));
            }
        }
    }
}

fn exit_code(ended: &Ended) -> ExitCode {
    let note = match ended.cause {
        Cause::Itself => None,
        Cause::TimedOut => Some("it took too long and was ended"),
        // Whoever read the output has gone.
        Cause::Cancelled => None,
        Cause::TooMuchOutput => Some("it wrote too much and was ended"),
        Cause::TooMuchMemory => Some("it held too much memory and was ended"),
        Cause::TooManyProcesses => Some("it started too many processes and was ended"),
    };
    if let Some(note) = note {
        eprintln!("{} {note}", terminal::stderr_paint().warn("sandbox:"));
    }
    let code = ended.code.or_else(|| Some(128 + ended.signal_number()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
