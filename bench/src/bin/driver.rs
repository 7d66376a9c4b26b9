//! Measures one agent beside the reference agents and prints the result as JSON.
//!
//! `driver [--quick] [--rounds N] [--scratch DIR] [--name NAME] [--subject "COMMAND ARGS"]`
//!
//! The agents take turns within every measurement (echo, echo that syncs, sdk, subject, echo, ...) and
//! each number is the median over the rounds, so that noise of the machine hits all of them alike.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use ropewalk_bench::disk;
use ropewalk_bench::measure::Target;
use ropewalk_bench::stats::Samples;
use serde_json::{Value, json};

fn main() -> anyhow::Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let mut run = Run::new(&options)?;
    run.measure(&options)?;
    println!("{}", serde_json::to_string_pretty(&run.report(&options))?);
    Ok(())
}

struct Options {
    quick: bool,
    rounds: usize,
    scratch: PathBuf,
    name: String,
    subject: Option<String>,
}

/// How much of everything: the only difference between the full and the quick form.
struct Effort {
    turns: usize,
    chunks: u64,
    memory_rounds: usize,
    load_events: &'static [u64],
}

const FULL: Effort =
    Effort { turns: 1000, chunks: 200_000, memory_rounds: 3, load_events: &[1_000, 100_000, 1_000_000] };
const QUICK: Effort = Effort { turns: 200, chunks: 20_000, memory_rounds: 1, load_events: &[1_000, 100_000] };

const SESSION_COUNTS: [usize; 3] = [1, 20, 1000];
const EVENTS_PER_TURN: u64 = 100_000;
const STARTS_PER_ROUND: usize = 5;
const CANCELS_PER_ROUND: usize = 5;
const SYNCS_PER_PROBE: usize = 50;

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let scratch = std::env::temp_dir().join("ropewalk-bench");
        let (mut quick, mut rounds, mut name) = (false, None, "ropewalk".to_owned());
        let (mut scratch, mut subject) = (scratch, None);
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--quick" => quick = true,
                "--rounds" => rounds = Some(value()?.parse()?),
                "--scratch" => scratch = value()?.into(),
                "--name" => name = value()?,
                "--subject" => subject = Some(value()?),
                _ => bail!("unknown argument {flag}"),
            }
        }
        let rounds = rounds.unwrap_or(if quick { 2 } else { 7 });
        Ok(Self { quick, rounds, scratch, name, subject })
    }

    fn effort(&self) -> &'static Effort {
        if self.quick { &QUICK } else { &FULL }
    }
}

struct Agent {
    name: String,
    command: Vec<String>,
    home: PathBuf,
    /// The references keep nothing, so there is nothing to load and nothing to lose.
    durable: bool,
    samples: BTreeMap<&'static str, Samples>,
    extra: serde_json::Map<String, Value>,
}

impl Agent {
    fn target(&self) -> Target<'_> {
        Target { command: &self.command, home: &self.home }
    }

    fn push(&mut self, name: &'static str, value: f64) {
        self.samples.entry(name).or_default().push(value);
    }
}

struct Run {
    agents: Vec<Agent>,
    disk: PathBuf,
    sync_us: Samples,
    sync_p99_us: Samples,
}

impl Run {
    fn new(options: &Options) -> anyhow::Result<Self> {
        if options.scratch.exists() {
            std::fs::remove_dir_all(&options.scratch)?;
        }
        let here = std::env::current_exe()?;
        let folder = here.parent().context("the driver has no folder")?;
        let reference = |binary: &str| vec![folder.join(binary).to_string_lossy().into_owned()];
        let mut synced = reference("echo_agent");
        synced.extend([
            "--sync".to_owned(),
            options.scratch.join("synced/turns.log").to_string_lossy().into_owned(),
        ]);
        let mut commands = vec![
            ("echo".to_owned(), reference("echo_agent"), false),
            ("synced".to_owned(), synced, false),
            ("sdk".to_owned(), reference("sdk_agent"), false),
        ];
        if let Some(subject) = &options.subject {
            let command = subject.split_whitespace().map(str::to_owned).collect();
            commands.push((options.name.clone(), command, true));
        }
        let mut agents = Vec::new();
        for (name, command, durable) in commands {
            let home = options.scratch.join(&name);
            std::fs::create_dir_all(&home)?;
            let (samples, extra) = (BTreeMap::new(), serde_json::Map::new());
            agents.push(Agent { name, command, home, durable, samples, extra });
        }
        let (sync_us, sync_p99_us) = (Samples::default(), Samples::default());
        Ok(Self { agents, disk: options.scratch.clone(), sync_us, sync_p99_us })
    }

    fn measure(&mut self, options: &Options) -> anyhow::Result<()> {
        let effort = options.effort();
        // The first start of an agent creates its files; what a user waits for is every later one.
        self.each("first start", |agent| agent.target().initialize_ms().map(drop))?;
        for round in 0..options.rounds {
            eprintln!("round {} of {}", round + 1, options.rounds);
            for _ in 0..STARTS_PER_ROUND {
                self.starts()?;
            }
            self.turns(effort)?;
            self.streams(effort)?;
            for _ in 0..CANCELS_PER_ROUND {
                self.each("cancel", |agent| {
                    let elapsed = agent.target().cancel_ms()?;
                    agent.push("cancel_ms", elapsed);
                    Ok(())
                })?;
            }
            if round < effort.memory_rounds {
                self.memory()?;
            }
        }
        self.loads(effort, options.rounds)?;
        self.kills(effort, options.rounds)
    }

    /// Takes one sample of every agent, one after the other.
    fn each(&mut self, what: &str, sample: impl Fn(&mut Agent) -> anyhow::Result<()>) -> anyhow::Result<()> {
        for agent in &mut self.agents {
            sample(agent).with_context(|| format!("{what} of {}", agent.name))?;
        }
        Ok(())
    }

    fn starts(&mut self) -> anyhow::Result<()> {
        self.each("initialize", |agent| {
            let elapsed = agent.target().initialize_ms()?;
            agent.push("initialize_ms", elapsed);
            Ok(())
        })?;
        self.each("first chunk", |agent| {
            let elapsed = agent.target().first_chunk_ms()?;
            agent.push("first_chunk_ms", elapsed);
            Ok(())
        })
    }

    fn turns(&mut self, effort: &Effort) -> anyhow::Result<()> {
        self.syncs()?;
        self.each("turns", |agent| {
            let turns = agent.target().turns_us(effort.turns)?;
            agent.push("turn_p50_us", turns.median());
            agent.push("turn_p99_us", turns.percentile(99.0));
            Ok(())
        })?;
        self.syncs()
    }

    /// Before and after the turns: the cost of a sync drifts with what else the disk is doing.
    fn syncs(&mut self) -> anyhow::Result<()> {
        let syncs = disk::append_and_sync(&self.disk, SYNCS_PER_PROBE)?;
        self.sync_us.push(syncs.median());
        self.sync_p99_us.push(syncs.percentile(99.0));
        Ok(())
    }

    fn streams(&mut self, effort: &Effort) -> anyhow::Result<()> {
        self.each("stream", |agent| {
            let stream = agent.target().stream(effort.chunks)?;
            agent.push("chunks_per_s", stream.chunks_per_s);
            agent.push("stream_notifications", stream.notifications as f64);
            agent.push("stream_text_bytes", stream.text_bytes as f64);
            agent.push("stream_peak_kb", stream.peak_kb as f64);
            Ok(())
        })
    }

    fn memory(&mut self) -> anyhow::Result<()> {
        self.each("memory", |agent| {
            let memory = agent.target().memory_kb(&SESSION_COUNTS)?;
            for (name, kilobytes) in ["memory_1_kb", "memory_20_kb", "memory_1000_kb"].into_iter().zip(memory)
            {
                agent.push(name, kilobytes as f64);
            }
            Ok(())
        })
    }

    fn loads(&mut self, effort: &Effort, rounds: usize) -> anyhow::Result<()> {
        for agent in self.agents.iter_mut().filter(|agent| agent.durable) {
            let mut rows = Vec::new();
            for &events in effort.load_events {
                eprintln!("load of {events} events");
                let (session, text) = agent.target().fill(events, EVENTS_PER_TURN)?;
                let (mut elapsed, mut complete, mut notifications) = (Samples::default(), true, 0);
                for _ in 0..rounds.min(3) {
                    let load = agent.target().load(&session, &text)?;
                    elapsed.push(load.ms);
                    complete &= load.complete;
                    notifications = load.notifications;
                }
                // A list of a million events is no fair question; the smallest session shows the ratio.
                let stored = if events <= 1_000 { agent.target().stored_events(&session)? } else { None };
                rows.push(json!({
                    "events": events, "stored_events": stored, "ms": elapsed.median(), "complete": complete,
                    "text_bytes": text.len(), "notifications": notifications,
                }));
            }
            agent.extra.insert("load".to_owned(), Value::Array(rows));
        }
        Ok(())
    }

    fn kills(&mut self, effort: &Effort, rounds: usize) -> anyhow::Result<()> {
        for agent in self.agents.iter_mut().filter(|agent| agent.durable) {
            let (mut chunks, mut bytes, mut lost) = (0, 0, 0);
            for round in 0..rounds {
                let kill = agent.target().kill(effort.chunks, round)?;
                chunks += kill.received_chunks;
                bytes += kill.received_bytes;
                lost += kill.lost_bytes;
            }
            let kill = json!({
                "kills": rounds, "received_notifications": chunks, "received_bytes": bytes, "lost_bytes": lost,
            });
            agent.extra.insert("kill".to_owned(), kill);
        }
        Ok(())
    }

    fn report(&self, options: &Options) -> Value {
        let effort = options.effort();
        let agents: serde_json::Map<String, Value> = self
            .agents
            .iter()
            .map(|agent| {
                let mut values = agent.extra.clone();
                values.insert("command".to_owned(), json!(agent.command));
                for (name, samples) in &agent.samples {
                    values.insert((*name).to_owned(), json!(samples.median()));
                }
                (agent.name.clone(), Value::Object(values))
            })
            .collect();
        json!({
            "quick": options.quick, "rounds": options.rounds, "subject": options.name,
            "stream_chunks": effort.chunks, "turns_per_round": effort.turns,
            "fdatasync_p50_us": self.sync_us.median(), "fdatasync_p99_us": self.sync_p99_us.median(),
            "agents": agents,
        })
    }
}
