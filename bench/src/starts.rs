//! What it costs to start `true` and wait for its end: plainly, through the product without a fence,
//! and with a fence in each mode.
//!
//! All kinds take turns within a round, each round beginning with another one, so that noise of the
//! machine and the cache that one leaves to the next hit all alike.
//!
//! **Invariant:** a mode is only measured after its fence was seen to stand.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use sandbox::{
    ChildCommand, CommandExit, CommandLimits, EndCause, Fence, HELPER_ARGUMENT, Helper, Mode, Policy,
    Program, StartError,
};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::stats::{Samples, micros, millis};
use crate::workspace::Workspace;

/// Before anything counts: programs and libraries are in memory, threads are there.
const WARM_UP_ROUNDS: usize = 5;
const OUTPUT_MAX: usize = 16;
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Where commands are started, and by whom.
pub struct Place<'a> {
    pub workspace: &'a Workspace,
    /// The program that builds fences: the product's release binary.
    pub helper: PathBuf,
    pub runtime: &'a Runtime,
}

/// How `true` is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By the standard library, with the same pipes and environment.
    Plain,
    /// By the product, without a helper.
    Unfenced,
    Fenced(Mode),
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Unfenced => "unfenced",
            Self::Fenced(mode) => mode.name(),
        }
    }
}

/// What a kind of start took, or why it cannot be had here.
pub struct Measured {
    pub kind: Kind,
    pub ms: Result<Samples, String>,
}

/// Starts `true` in every way, `rounds` times.
pub fn measure(place: &Place<'_>, rounds: usize) -> anyhow::Result<Vec<Measured>> {
    let program = first_existing(&["/bin/true", "/usr/bin/true"])?;
    let mut all = vec![Measured { kind: Kind::Plain, ms: Ok(Samples::default()) }];
    all.push(Measured { kind: Kind::Unfenced, ms: Ok(Samples::default()) });
    for mode in Mode::ALL {
        let ms = place.try_fence(mode)?.map(|()| Samples::default());
        all.push(Measured { kind: Kind::Fenced(mode), ms });
    }
    let count = all.len();
    for round in 0..WARM_UP_ROUNDS + rounds {
        for nth in 0..count {
            let Measured { kind, ms: Ok(samples) } = &mut all[(round + nth) % count] else { continue };
            let elapsed =
                place.start(*kind, &program).with_context(|| format!("start of {}", kind.name()))?;
            if round >= WARM_UP_ROUNDS {
                samples.push(elapsed);
            }
        }
    }
    Ok(all)
}

/// What a process that runs as `kind` needs to open an existing file for writing and close it again.
/// `probe` is a program that prints that in microseconds, one number per line.
pub fn open_for_writing(place: &Place<'_>, kind: Kind, probe: &[OsString]) -> anyhow::Result<Samples> {
    let (program, arguments) = probe.split_first().context("there is no probe")?;
    let program = Program::Exec { program: program.into(), arguments: arguments.to_vec() };
    let (ended, text) = place.run(place.command(kind, program));
    let ended = ended?;
    ensure!(ended.code == Some(0), "the probe failed as {}: {text}", kind.name());
    let mut samples = Samples::default();
    for line in text.lines() {
        samples.push(line.parse().with_context(|| format!("the probe said {line:?}"))?);
    }
    ensure!(!samples.is_empty(), "the probe said nothing");
    Ok(samples)
}

/// The probe's part, in its own process.
pub fn probe_open(file: &Path, count: usize) -> anyhow::Result<()> {
    for _ in 0..count {
        let began = Instant::now();
        drop(std::fs::OpenOptions::new().write(true).open(file)?);
        println!("{}", micros(began.elapsed()));
    }
    Ok(())
}

impl Place<'_> {
    /// Whether a fence stands here and refuses what it should; an answer is no failure, a fence with a
    /// hole in it is.
    fn try_fence(&self, mode: Mode) -> anyhow::Result<Result<(), String>> {
        let probe = self.workspace.folder.join("written");
        let line = Program::Shell("echo text > written".into());
        let (ended, text) = self.run(self.command(Kind::Fenced(mode), line));
        let written = probe.exists();
        if written {
            std::fs::remove_file(probe)?;
        }
        match ended {
            Err(StartError::NoFence(reason)) => return Ok(Err(reason)),
            Err(error) => return Err(error.into()),
            Ok(ended) if ended.cause != EndCause::Itself => {
                bail!("{mode}: the trial ended by {:?}", ended.cause)
            }
            Ok(_) => {}
        }
        ensure!(written == mode.writes(), "{mode}: a file was written: {written}; {text}");
        Ok(Ok(()))
    }

    /// One start until its end, in milliseconds.
    fn start(&self, kind: Kind, program: &Path) -> anyhow::Result<f64> {
        if kind == Kind::Plain {
            return self.start_plain(program);
        }
        let exec = Program::Exec { program: program.to_owned(), arguments: Vec::new() };
        let command = self.command(kind, exec);
        let timed = self.runtime.spawn(async move {
            let (sender, mut receiver) = mpsc::channel(OUTPUT_MAX);
            let began = Instant::now();
            let ended = sandbox::run(command, CancellationToken::new(), sender).await;
            let elapsed = began.elapsed();
            receiver.close();
            (ended, elapsed)
        });
        let (ended, elapsed) = self.runtime.block_on(timed)?;
        let ended = ended?;
        ensure!(ended.code == Some(0) && ended.cause == EndCause::Itself, "true ended as {ended:?}");
        Ok(millis(elapsed))
    }

    #[expect(clippy::disallowed_methods, reason = "the plain start is what the product's is compared with")]
    fn start_plain(&self, program: &Path) -> anyhow::Result<f64> {
        let mut command = std::process::Command::new(program);
        command.env_clear().envs(self.environment()).current_dir(&self.workspace.folder);
        command.stdin(Stdio::null());
        let began = Instant::now();
        let output = command.output()?;
        let elapsed = began.elapsed();
        ensure!(output.status.success(), "true ended with {}", output.status);
        Ok(millis(elapsed))
    }

    fn command(&self, kind: Kind, program: Program) -> ChildCommand {
        let fence = match kind {
            Kind::Plain | Kind::Unfenced => None,
            Kind::Fenced(mode) => Some(Fence {
                policy: self.policy(mode),
                helper: Helper { program: self.helper.clone(), arguments: vec![HELPER_ARGUMENT.into()] },
            }),
        };
        let cwd = self.workspace.folder.clone();
        ChildCommand {
            program,
            cwd,
            environment: self.environment(),
            limits: CommandLimits::default(),
            fence,
        }
    }

    fn policy(&self, mode: Mode) -> Policy {
        let Workspace { folder, hidden, .. } = self.workspace;
        Policy { mode, roots: vec![folder.clone()], hidden: hidden.clone(), ..Policy::default() }
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![("PATH".into(), PATH.into()), ("HOME".into(), self.workspace.home.clone().into())]
    }

    /// Runs a command to its end, with what it wrote.
    fn run(&self, command: ChildCommand) -> (Result<CommandExit, StartError>, String) {
        let (sender, mut receiver) = mpsc::channel(OUTPUT_MAX);
        let collect = async move {
            let mut text = Vec::new();
            while let Some(output) = receiver.recv().await {
                match output {
                    sandbox::Output::Chunk(chunk) => text.extend(chunk.bytes),
                    sandbox::Output::Refused(violation) => {
                        text.extend(format!("{violation:?}\n").into_bytes())
                    }
                }
            }
            String::from_utf8_lossy(&text).into_owned()
        };
        let both = async { tokio::join!(sandbox::run(command, CancellationToken::new(), sender), collect) };
        self.runtime.block_on(both)
    }
}

fn first_existing(paths: &[&str]) -> anyhow::Result<PathBuf> {
    let found = paths.iter().map(PathBuf::from).find(|path| path.exists());
    found.with_context(|| format!("none of {} exists", paths.join(", ")))
}
