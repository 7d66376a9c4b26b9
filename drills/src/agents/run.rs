//! `cargo xtask agents [NAME..] [--short] [--direct] [--twice] [--kill N] [--write]`: real agents, offline, alone and behind the server.
//!
//! Each agent goes through the scenario alone, then behind the server, and both records are compared frame
//! by frame. `--direct` leaves the server out, `--twice` compares the agent with itself, `--kill N` kills the
//! agent and the server in the middle of turns, `--write` puts what was found into `docs/agents.md`.
//! Records stay in `target/rigs/driven`.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail, ensure};

use super::client::as_lines;
use super::compare::{self, Rules};
use super::drive::{self, Report, Route, StepResult};
use super::kills::{self, Kills};
use super::model::Model;
use super::normalize::{Marks, NormalizedFrame, normalize};
use super::scenario::{self, Step, Traits};
use super::table::{self, Row};
use super::{AGENTS, Agent, OTHERS};
use xtask::{command, setup};

/// Steps that an agent has to do to be of use at all.
const TURNS: [&str; 5] = ["open", "write", "allow", "refuse", "cancel"];
/// Steps that the server does, whatever the agent can.
const OURS: [&str; 3] = ["list", "load", "resume"];

#[derive(Default)]
struct Options {
    names: Vec<String>,
    short: bool,
    direct: bool,
    twice: bool,
    write: bool,
    kills: usize,
}

pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let options = Options::parse(arguments)?;
    let steps = scenario::steps()?;
    Model::build()?;
    let (mut failed, mut rows) = (Vec::new(), Vec::new());
    for agent in AGENTS.iter().chain(&OTHERS) {
        let Ok(traits) = scenario::traits(agent.name) else { continue };
        if !options.wants(agent.name, &traits) {
            continue;
        }
        let rig = AgentRunner { agent, traits, steps: &steps, folder: folder_of(agent)? };
        match rig.run(&options) {
            Ok((faults, row)) => {
                failed.extend(faults.iter().map(|fault| format!("{}: {fault}", agent.name)));
                rows.extend(row);
            }
            Err(error) => failed.push(format!("{}: {error:#}", agent.name)),
        }
    }
    if options.write {
        table::write(&rows)?;
    }
    if failed.is_empty() { Ok(()) } else { bail!("{} faults:\n  {}", failed.len(), failed.join("\n  ")) }
}

impl Options {
    fn parse(arguments: &[&str]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match *argument {
                "--short" => options.short = true,
                "--direct" => options.direct = true,
                "--twice" => options.twice = true,
                "--write" => options.write = true,
                "--kill" => options.kills = arguments.next().context("--kill needs a number")?.parse()?,
                flag if flag.starts_with("--") => bail!("agents does not know the argument {flag}"),
                name => options.names.push(name.to_owned()),
            }
        }
        ensure!(
            !options.direct || !options.write,
            "the table is of agents behind the server: leave out --direct"
        );
        let known = |name: &String| scenario::traits(name).map(drop);
        options.names.iter().try_for_each(known)?;
        Ok(options)
    }

    fn wants(&self, name: &str, traits: &Traits) -> bool {
        let named = self.names.is_empty() || self.names.iter().any(|wanted| wanted == name);
        named && (!self.short || traits.short)
    }
}

fn folder_of(agent: &Agent) -> anyhow::Result<PathBuf> {
    let folder = command::target_folder()?.join("rigs/driven").join(agent.folder());
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

struct AgentRunner<'a> {
    agent: &'a Agent,
    traits: Traits,
    steps: &'a [Step],
    folder: PathBuf,
}

impl AgentRunner<'_> {
    /// Everything that is wanted of one agent; gives what is wrong, and the row of the table.
    fn run(&self, options: &Options) -> anyhow::Result<(Vec<String>, Option<Row>)> {
        let direct = self.drive(Route::Direct)?;
        let mut found = faults(&direct, None);
        if options.twice {
            found.extend(self.compare(&direct, &self.drive(Route::Direct)?)?);
        }
        if options.direct {
            return Ok((found, None));
        }
        let through = self.drive(Route::Through)?;
        found.extend(faults(&through, Some(&direct)));
        found.extend(self.compare(&direct, &through)?);
        found.extend(self.schema().err().map(|error| format!("{error:#}")));
        let kills = self.kills(options.kills)?;
        found.extend(kills.iter().flat_map(|kills| kills.faults.clone()));
        Ok((found, Some(table::row(self.agent.name, &direct, &through, kills.as_ref()))))
    }

    /// What the official schema says of both records.
    fn schema(&self) -> anyhow::Result<()> {
        let mut judge = command::program(setup::python());
        judge.arg("tests/agents/schema_compare.py").env("PYTHONDONTWRITEBYTECODE", "1");
        judge.args(["direct", "through"].map(|name| self.folder.join(format!("{name}.jsonl"))));
        command::run(&mut judge).context("the server sends what the schema does not allow")
    }

    /// A turn that is over at once cannot be interrupted.
    fn kills(&self, rounds: usize) -> anyhow::Result<Option<Kills>> {
        if rounds == 0 || self.traits.lacks.contains_key("cancel") {
            return Ok(None);
        }
        let began = Instant::now();
        let kills = kills::run(self.agent, &self.traits, self.steps, rounds, &self.folder)?;
        println!("{} kills: {:.1} s, {kills:?}", self.agent.name, began.elapsed().as_secs_f64());
        Ok(Some(kills))
    }

    /// Where two records differ and must not.
    fn compare(&self, one: &Report, other: &Report) -> anyhow::Result<Vec<String>> {
        let rules = Rules::read(&self.traits.varies)?;
        let of =
            |report: &Report| -> Vec<NormalizedFrame> { normalize(&report.record, &marks(report), &rules) };
        Ok(compare::differences(&of(one), &of(other), &rules))
    }

    fn drive(&self, way: Route) -> anyhow::Result<Report> {
        let began = Instant::now();
        let report = drive::run(self.agent, &self.traits, self.steps, way, &self.folder)?;
        let name = if way == Route::Direct { "direct" } else { "through" };
        std::fs::write(self.folder.join(format!("{name}.jsonl")), as_lines(&report.record))?;
        println!("{} {name}: {:.1} s", self.agent.name, began.elapsed().as_secs_f64());
        for (step, verdict) in &report.found {
            println!("  {step:11} {verdict:?}");
        }
        report.left.iter().for_each(|line| println!("  left behind: {line}"));
        Ok(report)
    }
}

/// What is different in each run because it is another place.
fn marks(report: &Report) -> Marks {
    let workspace = &report.workspace;
    vec![
        (workspace.project.to_string_lossy().into_owned(), "PROJECT"),
        (below_root(&workspace.project), "PROJECT"),
        (workspace.home.to_string_lossy().into_owned(), "HOME"),
        (workspace.home.with_file_name("state").to_string_lossy().into_owned(), "STATE"),
        (workspace.mock.clone(), "MOCK"),
    ]
}

/// Agents also name files from the root of the repository that they find themselves in.
fn below_root(folder: &std::path::Path) -> String {
    let below = folder.strip_prefix(command::root()).unwrap_or(folder);
    below.to_string_lossy().into_owned()
}

/// What is wrong in a run. Alone, an agent has to do the turns; what else it can do is found out, not judged.
/// Behind the server it has to do all that it can do alone.
fn faults(report: &Report, alone: Option<&Report>) -> Vec<String> {
    let excused = |step: &str| match alone {
        None => !TURNS.contains(&step),
        Some(alone) => !OURS.contains(&step) && alone.fails(step),
    };
    let failed = report.found.iter().filter_map(|(step, verdict)| match verdict {
        StepResult::Fails(reason) if !excused(step) => Some(format!("{step}: {reason}")),
        StepResult::Fails(_) | StepResult::Works(_) | StepResult::Lacks(_) => None,
    });
    let left = report.left.iter().filter(|_| alone.is_some());
    failed.chain(left.map(|line| format!("left behind: {line}"))).collect()
}
