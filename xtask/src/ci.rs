//! `cargo xtask ci`: all that CI runs.
//!
//! A failed check does not stop the others, so that one run tells everything. Only when there is
//! nothing to test (no tools, no binary) the rest is left out. The summary comes last.
//!
//! Each step is a process of its own (`cargo xtask ci STEP`), so that its output can be kept together and shown
//! when it ends, whoever else is at work. What compiles or fills all cores goes one after the other; what mostly
//! waits (for a browser, for a process that is killed, for a package that is fetched) goes beside it.
//!
//! **Invariant:** two steps share nothing but the built binary: no port, no folder, no process.

mod plan;
mod slowest;

use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use self::plan::{Load, STEPS, Step};
use xtask::command;

/// So many steps that mostly wait go beside one that fills the cores, and so many when there is none.
const WAITING_MAX: usize = 2;
const WAITING_ALONE_MAX: usize = 3;
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    match arguments {
        [] => Run::new()?.finish(),
        [name] => plan::find(name)?.work(),
        _ => bail!("ci takes the name of one step, or nothing"),
    }
}

struct Run {
    started: Instant,
    /// Where the output of steps is until they end.
    folder: PathBuf,
    waiting: VecDeque<&'static Step>,
    running: Vec<Running>,
    ended: Vec<Ended>,
}

struct Running {
    step: &'static Step,
    child: Child,
    output: PathBuf,
    started: Instant,
}

struct Ended {
    step: &'static Step,
    /// After the beginning of the whole.
    from: Duration,
    time: Duration,
    failure: Option<String>,
}

impl Run {
    fn new() -> anyhow::Result<Self> {
        let folder = command::target_folder()?.join("ci");
        if folder.exists() {
            fs::remove_dir_all(&folder).context("removing the last run's output")?;
        }
        fs::create_dir_all(&folder).context("making a folder for the steps' output")?;
        let waiting = STEPS.iter().filter(|step| step.is_possible()).collect();
        let mut run =
            Self { started: Instant::now(), folder, waiting, running: Vec::new(), ended: Vec::new() };
        while run.start_what_can()? || !run.running.is_empty() {
            run.take_ended()?;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(run)
    }

    /// Starts what has all that it needs and a place; in the plan's order. Returns whether there was any.
    fn start_what_can(&mut self) -> anyhow::Result<bool> {
        let mut started = false;
        for step in std::mem::take(&mut self.waiting) {
            match self.fate(step) {
                Fate::Never => {}
                Fate::Later => self.waiting.push_back(step),
                Fate::Now => {
                    self.start(step)?;
                    started = true;
                }
            }
        }
        Ok(started)
    }

    fn fate(&self, step: &Step) -> Fate {
        let over = |name: &str| self.ended.iter().find(|ended| ended.step.name == name);
        if step.needs.iter().any(|name| over(name).is_some_and(|ended| ended.failure.is_some())) {
            return Fate::Never;
        }
        let coming = |name: &str| {
            self.waiting.iter().any(|step| step.name == name)
                || self.running.iter().any(|running| running.step.name == name)
        };
        let missing = |name: &&str| over(name).is_none();
        if step.needs.iter().any(|name| missing(name) && !coming(name)) {
            // What it needs was itself left out.
            return Fate::Never;
        }
        let awaited = step.after.iter().any(|name| missing(name) && coming(name));
        if awaited || step.needs.iter().any(missing) || !self.has_place(step.load) {
            return Fate::Later;
        }
        Fate::Now
    }

    fn has_place(&self, load: Load) -> bool {
        let count = |load| self.running.iter().filter(|running| running.step.load == load).count();
        let calm = count(Load::AllCores) == 0;
        match load {
            _ if count(Load::Alone) > 0 => false,
            Load::Alone => self.running.is_empty(),
            Load::AllCores => calm,
            Load::Waits => count(Load::Waits) < if calm { WAITING_ALONE_MAX } else { WAITING_MAX },
        }
    }

    fn start(&mut self, step: &'static Step) -> anyhow::Result<()> {
        let output = self.folder.join(step.name.replace(' ', "-"));
        let file = fs::File::create(&output).with_context(|| format!("creating {}", output.display()))?;
        let mut command = command::itself()?;
        command.args(["ci", step.name]).stdin(Stdio::null());
        command.stdout(file.try_clone().context("one file for both")?).stderr(file);
        let child = command.spawn().with_context(|| format!("starting {}", step.name))?;
        println!("==> {} began at {:.0} s", step.name, self.started.elapsed().as_secs_f64());
        self.running.push(Running { step, child, output, started: Instant::now() });
        Ok(())
    }

    fn take_ended(&mut self) -> anyhow::Result<()> {
        let mut at = 0;
        while at < self.running.len() {
            let status = self.running[at].child.try_wait().context("waiting for a step")?;
            let Some(status) = status else {
                at += 1;
                continue;
            };
            let Running { step, output, started, .. } = self.running.remove(at);
            let time = started.elapsed();
            println!("\n==> {} ({:.1} s)", step.name, time.as_secs_f64());
            show(&output)?;
            let failure = (!status.success()).then(|| status.to_string());
            if let Some(failure) = &failure {
                println!("==> {} failed: {failure}", step.name);
            }
            self.ended.push(Ended { step, from: started - self.started, time, failure });
        }
        Ok(())
    }

    fn finish(self) -> anyhow::Result<()> {
        println!("\n==> the slowest tests");
        slowest::print();
        println!("\n==> summary (seconds that it took, and when it began)");
        for Ended { step, from, time, failure } in &self.ended {
            let outcome = failure.as_ref().map_or("ok", |_| "FAILED");
            let (time, from) = (time.as_secs_f64(), from.as_secs_f64());
            println!("{time:>7.1} s  {outcome:6}  {:20} from {from:>6.0}", step.name);
        }
        println!("{:>7.1} s  in all", self.started.elapsed().as_secs_f64());
        let failed = self.ended.iter().filter(|ended| ended.failure.is_some());
        let failed: Vec<&str> = failed.map(|ended| ended.step.name).collect();
        println!("steps: {} passed, {} failed", self.ended.len() - failed.len(), failed.len());
        if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
    }
}

enum Fate {
    Now,
    Later,
    /// What it needs failed, so there is nothing to try.
    Never,
}

fn show(output: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(output).with_context(|| format!("reading {}", output.display()))?;
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes).and_then(|()| out.flush()).context("showing a step's output")
}
