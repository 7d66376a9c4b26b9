//! What a turn costs beside other agents: `cargo xtask bench turns [--write] [--rounds N] [--agent NAME]`.
//!
//! Every agent is started anew in each round, talks ACP on its standard input and output, and thinks with
//! the same provider on this machine, which answers at once and always alike. What is left of a turn is the
//! agent's own. The others come from npm (see `agents.rs`), so this is no part of the usual bench.
//!
//! **Invariant:** a turn counts only if all of the model's text came through.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::{build, number, write_table};
use crate::agents::{self, AGENTS, AgentWorkspace};
use xtask::command;

pub(super) const TABLE_BEGIN: &str = "<!-- turns:begin -->";
pub(super) const TABLE_END: &str = "<!-- turns:end -->";
const OURS: &str = "ropewalk";
/// Of the best of the others.
const TIMES_BEST_MAX: f64 = 0.2;
/// Pieces of the model's answer.
const PIECES: usize = 40;
const TURNS_WARM: usize = 5;
const TURNS: usize = 60;
const PATIENCE: Duration = Duration::from_secs(60);
const LINES_MAX: usize = 65_536;
/// The kernel counts processor time in hundredths of a second.
const TICK_MS: f64 = 10.0;

pub fn run(args: &[String]) -> anyhow::Result<()> {
    let (mut write, mut rounds, mut only) = (false, 3, None);
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--write" => write = true,
            "--rounds" => rounds = args.next().context("--rounds needs a number")?.parse()?,
            "--agent" => only = Some(args.next().context("--agent needs a name")?.clone()),
            _ => bail!("bench turns does not know the argument {flag}"),
        }
    }
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let product = match wanted(OURS) {
        true => match command::variable("ROPEWALK_BIN") {
            Some(built) => built.into(),
            None => build(&command::root(), &["--package", "ropewalk"], OURS)?,
        },
        false => PathBuf::new(),
    };
    let mock = ProviderProcess::start()?;
    let scratch = command::target_folder()?.join("rigs/turns");
    let mut rows: Vec<(&str, Vec<Sample>)> = Vec::new();
    let mut own_ms = Vec::new();
    for round in 0..rounds {
        own_ms.push(mock.own_ms()?);
        for name in std::iter::once(OURS).chain(AGENTS.iter().map(|agent| agent.name)) {
            if !wanted(name) {
                continue;
            }
            let workspace = agents::workspace(&scratch, name, &mock.address)?;
            let measured =
                command_of(name, &product, &workspace).and_then(|command| measure(command, &workspace));
            eprintln!("round {round}: {name}: {measured:?}");
            if !rows.iter().any(|(known, _)| *known == name) {
                rows.push((name, Vec::new()));
            }
            if let (Ok(sample), Some((_, samples))) = (measured, rows.iter_mut().find(|row| row.0 == name)) {
                samples.push(sample);
            }
        }
    }
    let table = render(&rows, median(own_ms), rounds);
    println!("{table}");
    if write {
        write_table(&command::root().join("bench/README.md"), [TABLE_BEGIN, TABLE_END], &table)?;
    }
    Ok(())
}

fn command_of(name: &str, product: &Path, workspace: &AgentWorkspace) -> anyhow::Result<Command> {
    if let Some(agent) = AGENTS.iter().find(|agent| agent.name == name) {
        return agent.prepared(workspace);
    }
    let mut command = command::program(product);
    command
        .arg("serve")
        .env("ROPEWALK_HOME", workspace.home.join("state"))
        .env("OPENAI_API_KEY", "sk-mock")
        .env("OPENAI_BASE_URL", format!("http://{}/v1", workspace.mock))
        .env("ROPEWALK_MODEL", "openai:gpt-5.3-codex");
    Ok(command)
}

/// What one run of one agent showed.
#[derive(Debug, Clone, Copy)]
struct Sample {
    start_ms: f64,
    turn_ms: f64,
    cpu_ms: f64,
    memory_mb: f64,
    processes: f64,
}

fn measure(command: Command, workspace: &AgentWorkspace) -> anyhow::Result<Sample> {
    let began = Instant::now();
    let mut agent = RunningAgent::start(command, workspace)?;
    agent.ask("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}))?;
    let start_ms = ms(began.elapsed());
    let opened = agent.ask("session/new", &json!({"cwd": workspace.project, "mcpServers": []}))?;
    let session = opened["sessionId"].as_str().context("session/new gave no sessionId")?.to_owned();
    for _ in 0..TURNS_WARM {
        agent.turn(&session)?;
    }
    let cpu_before = agent.tree()?.cpu_ms;
    let mut turns = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        turns.push(agent.turn(&session)?);
    }
    let tree = agent.tree()?;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let cpu_ms = (tree.cpu_ms - cpu_before) / TURNS as f64;
    Ok(Sample {
        start_ms,
        turn_ms: median(turns),
        cpu_ms,
        memory_mb: tree.memory_kb / 1000.0,
        processes: tree.processes,
    })
}

/// An agent, ended with the value.
pub struct RunningAgent {
    child: Child,
    input: ChildStdin,
    lines: Receiver<Value>,
    last_id: u64,
    /// How long an answer may take.
    pub patience: Duration,
}

impl RunningAgent {
    pub fn start(mut command: Command, workspace: &AgentWorkspace) -> anyhow::Result<Self> {
        command::at_home(&mut command, &workspace.home);
        let log = std::fs::File::create(workspace.home.with_file_name("stderr.log"))?;
        command.current_dir(&workspace.project).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().context("the agent cannot be started")?;
        let input = child.stdin.take().context("the agent has no input")?;
        let output = child.stdout.take().context("the agent has no output")?;
        let (sender, lines) = sync_channel(LINES_MAX);
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for value in lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok()) {
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, input, lines, last_id: 0, patience: PATIENCE })
    }

    pub fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        self.input.write_all(format!("{message}\n").as_bytes()).context("the agent does not listen")
    }

    pub fn ask(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.ask_hearing(method, params, &mut |_| {})
    }

    /// A request, its answer, and what is said on the way.
    pub fn ask_hearing(
        &mut self,
        method: &str,
        params: &Value,
        hear: &mut dyn FnMut(&Value),
    ) -> anyhow::Result<Value> {
        let id = self.request(method, params)?;
        let mut answer = self.wait_for(|line| {
            if line["method"].is_string() {
                hear(&line["params"]["update"]);
            }
            line["id"] == id && line["method"].is_null()
        })?;
        ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        Ok(answer["result"].take())
    }

    pub fn send_prompt(&mut self, session: &str, text: &str) -> anyhow::Result<u64> {
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
        self.request("session/prompt", &prompt)
    }

    /// The next line that is wanted. What the agent asks on the way is declined.
    pub fn wait_for(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> anyhow::Result<Value> {
        let deadline = Instant::now() + self.patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).context("the agent says nothing more")?;
            if line["method"].is_string() && !line["id"].is_null() {
                let error = json!({"code": -32601, "message": "this client only listens"});
                self.send(&json!({"jsonrpc": "2.0", "id": line["id"], "error": error}))?;
            } else if wanted(&line) {
                return Ok(line);
            }
        }
    }

    fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<u64> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    /// One turn, in milliseconds.
    fn turn(&mut self, session: &str) -> anyhow::Result<f64> {
        let mut said = String::new();
        let mut hear = |update: &Value| {
            if update["sessionUpdate"] == "agent_message_chunk" {
                said.push_str(update["content"]["text"].as_str().unwrap_or_default());
            }
        };
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "Say it again."}]});
        let began = Instant::now();
        let ended = self.ask_hearing("session/prompt", &prompt, &mut hear)?;
        let elapsed = ms(began.elapsed());
        ensure!(ended["stopReason"] == "end_turn", "a turn ended with {ended}");
        ensure!(said.contains(&answer()), "the model's text did not come through: {said:?}");
        Ok(elapsed)
    }

    fn tree(&self) -> anyhow::Result<ProcessTree> {
        ProcessTree::of(self.child.id())
    }
}

impl Drop for RunningAgent {
    fn drop(&mut self) {
        // Children first known, then ended: some agents leave theirs behind.
        let children = ProcessTree::pids(self.child.id());
        drop(self.child.kill());
        drop(self.child.wait());
        for pid in children {
            drop(command::output(command::program("kill").args(["-9", &pid.to_string()])));
        }
    }
}

/// A process and everything it has started.
struct ProcessTree {
    cpu_ms: f64,
    memory_kb: f64,
    processes: f64,
}

impl ProcessTree {
    fn of(root: u32) -> anyhow::Result<Self> {
        let mut tree = Self { cpu_ms: 0.0, memory_kb: 0.0, processes: 0.0 };
        for pid in std::iter::once(root).chain(Self::pids(root)) {
            let Some(stat) = stat(pid) else { continue };
            // Processor time of its own and of children that are gone, user and system.
            tree.cpu_ms +=
                stat[11..15].iter().filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() * TICK_MS;
            tree.memory_kb += resident_kb(pid);
            tree.processes += 1.0;
        }
        ensure!(tree.processes > 0.0, "the agent is gone");
        Ok(tree)
    }

    /// All descendants.
    fn pids(root: u32) -> Vec<u32> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            let parent = pid.and_then(stat).and_then(|stat| stat.get(1)?.parse().ok());
            if let (Some(pid), Some(parent)) = (pid, parent) {
                children.entry(parent).or_default().push(pid);
            }
        }
        let mut found = children.remove(&root).unwrap_or_default();
        let mut at = 0;
        while let Some(pid) = found.get(at) {
            found.extend(children.remove(pid).unwrap_or_default());
            at += 1;
        }
        found
    }
}

/// The fields of a process after its name, which may hold spaces itself.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<String> = text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect();
    (fields.len() > 20).then_some(fields)
}

fn resident_kb(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

/// The provider that all think with.
struct ProviderProcess {
    child: Child,
    address: String,
}

impl ProviderProcess {
    fn start() -> anyhow::Result<Self> {
        // Not the release profile: it would be built a second time for it, and its time is taken off anyhow.
        command::run(command::cargo().args(["build", "--package", "testkit", "--bin", "mock-provider"]))?;
        let program = command::target_folder()?.join("debug/mock-provider");
        let script = program.with_file_name("turns-script.json");
        let pieces: Vec<Value> = (0..PIECES).map(|n| json!({"text": piece(n)})).collect();
        let mut reply = pieces;
        reply.push(json!({"usage": {"input": 100, "output": PIECES}}));
        std::fs::write(&script, json!([reply]).to_string())?;
        let mut command = command::program(&program);
        command.arg("--script").arg(&script).arg("--repeat").stdout(Stdio::piped());
        let mut child = command.spawn().context("the provider cannot be started")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the provider has no output")?).read_line(&mut line)?;
        let address = line.trim().rsplit("//").next().unwrap_or_default().to_owned();
        Ok(Self { child, address })
    }

    /// How long the answer itself takes, without any agent.
    fn own_ms(&self) -> anyhow::Result<f64> {
        let body = r#"{"model":"mock-model","stream":true,"messages":[{"role":"user","content":"x"}]}"#;
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let mut times = Vec::new();
        for _ in 0..20 {
            let began = Instant::now();
            let mut stream = TcpStream::connect(&self.address)?;
            stream.write_all(request.as_bytes())?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            ensure!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
            times.push(ms(began.elapsed()));
        }
        Ok(median(times))
    }
}

impl Drop for ProviderProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn piece(n: usize) -> String {
    format!("piece {n} of what the model says, ")
}

fn answer() -> String {
    (0..PIECES).map(piece).collect::<String>().trim_end().to_owned()
}

fn render(rows: &[(&str, Vec<Sample>)], own_ms: f64, rounds: usize) -> String {
    let of = |samples: &[Sample], value: fn(&Sample) -> f64| {
        (!samples.is_empty()).then(|| median(samples.iter().map(value).collect()))
    };
    let mut lines = vec![
        format!(
            "{rounds} rounds, {TURNS} turns of {PIECES} pieces of text per round; the provider's own time, {} ms, is taken off each turn.",
            number(own_ms)
        ),
        String::new(),
        "| agent | start to `initialize` reply, ms | turn, p50, ms | processor time per turn, ms | memory, MB | processes |".to_owned(),
        "|---|--:|--:|--:|--:|--:|".to_owned(),
    ];
    let values: [fn(&Sample) -> f64; 5] = [
        |sample| sample.start_ms,
        |sample| sample.turn_ms,
        |sample| sample.cpu_ms,
        |sample| sample.memory_mb,
        |sample| sample.processes,
    ];
    for (name, samples) in rows {
        let cells: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(at, value)| {
                let less = if at == 1 { own_ms } else { 0.0 };
                of(samples, *value).map_or("not measured".into(), |value| number((value - less).max(0.0)))
            })
            .collect();
        lines.push(format!("| {name} | {} |", cells.join(" | ")));
    }
    let ratio = |value: fn(&Sample) -> f64| {
        let ours = rows.iter().find(|row| row.0 == OURS).and_then(|row| of(&row.1, value))?;
        let others = rows.iter().filter(|row| row.0 != OURS).filter_map(|row| of(&row.1, value));
        Some(ours / others.min_by(f64::total_cmp)?)
    };
    let judged = |ratio: Option<f64>| match ratio {
        Some(ratio) if ratio <= TIMES_BEST_MAX => format!("{ratio:.3}x (goal <= {TIMES_BEST_MAX}x: hit)"),
        Some(ratio) => format!("{ratio:.3}x (goal <= {TIMES_BEST_MAX}x: MISS)"),
        None => "not measured".to_owned(),
    };
    lines.push(format!(
        "| ropewalk / best of the others |  |  | {} | {} |  |",
        judged(ratio(values[2])),
        judged(ratio(values[3]))
    ));
    lines.join("\n")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn ms(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_the_others_is_what_counts() {
        let sample =
            |cpu_ms, memory_mb| Sample { start_ms: 5.0, turn_ms: 3.0, cpu_ms, memory_mb, processes: 1.0 };
        let rows = [
            (OURS, vec![sample(2.0, 20.0)]),
            ("slow", vec![sample(100.0, 400.0)]),
            ("quick", vec![sample(10.0, 60.0), sample(10.0, 60.0), sample(99.0, 99.0)]),
            ("absent", Vec::new()),
        ];
        let text = render(&rows, 1.0, 3);
        let last = text.lines().last().unwrap_or_default();
        assert!(last.contains("0.200x (goal <= 0.2x: hit) | 0.333x (goal <= 0.2x: MISS)"), "{text}");
        assert!(text.contains("| absent | not measured |"), "{text}");
    }

    #[test]
    fn a_tree_is_found_by_its_root() {
        let tree = ProcessTree::of(std::process::id()).ok();
        assert!(tree.is_some_and(|tree| tree.processes >= 1.0 && tree.memory_kb > 100.0));
    }
}
