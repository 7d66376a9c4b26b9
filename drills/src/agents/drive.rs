//! Runs one agent through the scenario, alone or behind the server, and checks each step.
//!
//! Abilities that an agent does not claim (`initialize`), and exceptions with a reason in
//! `tests/agents/agents.json`, are not faults. Every other deviation from the scenario is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::client::{Client, Entry};
use super::leftover_processes::leftover_processes;
use super::model::{self, Model};
use super::scenario::{Action, Step, Traits};
use super::{Agent, AgentWorkspace};
use xtask::{command, setup};

/// A picture of one pixel.
const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/// What follows an answer unasked comes soon.
const SETTLE: Duration = Duration::from_millis(500);

/// Whom the client starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    Direct,
    Through,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepResult {
    Works(String),
    /// It is known that it cannot.
    Lacks(String),
    Fails(String),
}

/// What one run showed.
pub struct Report {
    pub found: Vec<(String, StepResult)>,
    pub initialize: Value,
    pub opened: Value,
    /// From the start to the answer to `initialize`.
    pub start: Duration,
    /// Processes that were left when the client had gone.
    pub left: Vec<String>,
    pub record: Vec<Entry>,
    pub workspace: AgentWorkspace,
    pub session: String,
}

impl Report {
    pub fn fails(&self, step: &str) -> bool {
        self.found.iter().any(|(name, verdict)| name == step && matches!(verdict, StepResult::Fails(_)))
    }
}

pub struct Drive<'a> {
    agent: &'a Agent,
    traits: &'a Traits,
    way: Route,
    /// The next client is started by an editor of its own, which can be killed.
    editor: bool,
    model: &'a Model,
    client: Option<Client>,
    clients: usize,
    /// The prompts that were really sent.
    agent_texts: Vec<String>,
    report: Report,
}

/// Runs all steps below a folder.
pub fn run(
    agent: &Agent,
    traits: &Traits,
    steps: &[Step],
    way: Route,
    folder: &Path,
) -> anyhow::Result<Report> {
    let mut workspace = super::workspace(folder, if way == Route::Direct { "direct" } else { "behind" }, "")?;
    let rules = model::rules(steps, traits, &workspace.project);
    let model = Model::start(&workspace.home.with_file_name("rules.json"), &rules)?;
    workspace.mock.clone_from(&model.address);
    let mut drive = Drive::new(agent, traits, way, &model, workspace);
    for step in steps {
        let verdict = drive.step(step).unwrap_or_else(|error| StepResult::Fails(format!("{error:#}")));
        let failed = matches!(verdict, StepResult::Fails(_));
        drive.report.found.push((step.name.clone(), verdict));
        if failed && step.action == Action::Open {
            break;
        }
    }
    let report = drive.finish();
    let requests = Value::Array(model.requests().unwrap_or_default());
    std::fs::write(report.workspace.home.with_file_name("requests.json"), requests.to_string())?;
    Ok(report)
}

impl<'a> Drive<'a> {
    pub fn new(
        agent: &'a Agent,
        traits: &'a Traits,
        way: Route,
        model: &'a Model,
        workspace: AgentWorkspace,
    ) -> Self {
        let report = Report {
            found: Vec::new(),
            initialize: Value::Null,
            opened: Value::Null,
            start: Duration::ZERO,
            left: Vec::new(),
            record: Vec::new(),
            workspace,
            session: String::new(),
        };
        Self {
            agent,
            traits,
            way,
            editor: false,
            model,
            client: None,
            clients: 0,
            agent_texts: Vec::new(),
            report,
        }
    }

    fn step(&mut self, step: &Step) -> anyhow::Result<StepResult> {
        if let Some(client) = &mut self.client {
            client.step.clone_from(&step.name);
        }
        // Through the server there is nothing of the protocol that an agent's own lack excuses.
        if let (Some(reason), true) = (self.traits.lacks.get(&step.name), self.excused(step)) {
            return Ok(StepResult::Lacks(reason.clone()));
        }
        match step.action {
            Action::Open => self.open(step, true),
            Action::Bare => self.open(step, false),
            Action::Prompt => self.prompt(step),
            Action::Mode => self.mode(),
            Action::Option => self.option(),
            Action::List => self.list(),
            Action::Mcp => self.mcp(step),
            Action::Load => self.load(step),
            Action::Resume => self.again(step, "session/resume", "resume"),
            Action::Fork => self.again(step, "session/fork", "fork"),
        }
    }

    fn excused(&self, step: &Step) -> bool {
        self.way == Route::Direct || !matches!(step.action, Action::List | Action::Load | Action::Resume)
    }

    fn open(&mut self, step: &Step, offers: bool) -> anyhow::Result<StepResult> {
        self.start(&step.name, offers)?;
        self.open_session()?;
        if !offers && let Some(mode) = &self.traits.mode {
            let mode = json!({"sessionId": self.report.session, "modeId": mode});
            self.client()?.call("session/set_mode", &mode)?;
        }
        self.client()?.settle(SETTLE)?;
        Ok(StepResult::Works(format!("{} ms", self.report.start.as_millis())))
    }

    pub fn open_session(&mut self) -> anyhow::Result<()> {
        self.report.opened = self.new_session(&json!([]))?;
        self.report.session = session_of(&self.report.opened)?;
        Ok(())
    }

    pub fn in_editor(&mut self, editor: bool) {
        self.editor = editor;
    }

    pub fn workspace(&self) -> &AgentWorkspace {
        &self.report.workspace
    }

    pub fn session(&self) -> &str {
        &self.report.session
    }

    /// Ends the client there is, and starts another one.
    pub fn start(&mut self, step: &str, offers: bool) -> anyhow::Result<()> {
        self.end();
        self.clients += 1;
        let command = self.command()?;
        let (began, log) = (Instant::now(), format!("stderr-{}.log", self.clients));
        let mut client = Client::start(command, &self.report.workspace, offers, &log)?;
        client.files = self.traits.files;
        step.clone_into(&mut client.step);
        let initialize = client.initialize()?;
        ensure!(initialize["protocolVersion"] == 1, "initialize was answered with {initialize}");
        if self.clients == 1 {
            self.report.start = began.elapsed();
            self.report.initialize = initialize;
        }
        self.client = Some(client);
        Ok(())
    }

    fn command(&self) -> anyhow::Result<Command> {
        let workspace = &self.report.workspace;
        let mut command = self.agent.prepared(workspace)?;
        command.envs(&self.traits.environment);
        for (file, text) in &self.traits.project {
            std::fs::write(workspace.project.join(file), text)?;
        }
        for [file, from, to] in &self.traits.edits {
            let file = workspace.home.join(file);
            let text = std::fs::read_to_string(&file)?;
            ensure!(text.contains(from), "{} has no {from}", file.display());
            std::fs::write(file, text.replace(from, to))?;
        }
        if self.way == Route::Direct {
            return Ok(command);
        }
        let serve = super::behind_as(self.agent.name, &command, workspace, &command::server()?)?;
        Ok(if self.editor { within_editor(&serve) } else { serve })
    }

    pub fn client(&mut self) -> anyhow::Result<&mut Client> {
        self.client.as_mut().context("no client is there")
    }

    pub fn new_session(&mut self, servers: &Value) -> anyhow::Result<Value> {
        let params = json!({"cwd": self.report.workspace.project, "mcpServers": servers});
        self.client()?.call("session/new", &params)
    }

    fn able(&self, name: &str) -> bool {
        self.report.initialize["agentCapabilities"]["sessionCapabilities"][name].is_object()
    }

    fn mode(&mut self) -> anyhow::Result<StepResult> {
        let modes = self.report.opened["modes"].clone();
        let Some(current) = self.traits.mode.as_deref().or(modes["currentModeId"].as_str()) else {
            return Ok(StepResult::Lacks("it has no modes".into()));
        };
        let params = json!({"sessionId": self.report.session, "modeId": current});
        self.client()?.call("session/set_mode", &params)?;
        self.client()?.settle(SETTLE)?;
        let count = modes["availableModes"].as_array().map_or(0, Vec::len);
        Ok(StepResult::Works(format!("{count} modes")))
    }

    /// Sets an option to what it is: what others do would be another story for each agent.
    fn option(&mut self) -> anyhow::Result<StepResult> {
        let options = self.report.opened["configOptions"].as_array().cloned().unwrap_or_default();
        // The server's own option is none of the agent's.
        let options: Vec<_> = options.into_iter().filter(|option| option["id"] != "approval").collect();
        let model = options.iter().find(|option| option["category"] == "model");
        let Some(option) = model.or(options.first()) else {
            return Ok(StepResult::Lacks("it has no options".into()));
        };
        let params = json!({"sessionId": self.report.session, "configId": option["id"], "value": option["currentValue"]});
        let answer = self.client()?.call("session/set_config_option", &params)?;
        ensure!(answer["configOptions"].is_array(), "the answer has no configOptions: {answer}");
        self.client()?.settle(SETTLE)?;
        Ok(StepResult::Works(format!("{} options", options.len())))
    }

    fn list(&mut self) -> anyhow::Result<StepResult> {
        if !self.able("list") {
            return Ok(StepResult::Lacks("it offers no list".into()));
        }
        let params = json!({"cwd": self.report.workspace.project});
        let answer = self.client()?.call("session/list", &params)?;
        let sessions = answer["sessions"].as_array().context("the answer has no sessions")?;
        let listed = sessions.iter().any(|session| session["sessionId"] == self.report.session.as_str());
        ensure!(listed, "the session is not in the list of {}", sessions.len());
        Ok(StepResult::Works(format!("{} listed", sessions.len())))
    }

    fn prompt(&mut self, step: &Step) -> anyhow::Result<StepResult> {
        let pictures = &self.report.initialize["agentCapabilities"]["promptCapabilities"]["image"];
        if step.picture && *pictures != true {
            return Ok(StepResult::Lacks("it takes no pictures".into()));
        }
        let session = self.report.session.clone();
        let called = self.client()?.called.len();
        let ended = self.turn(step, &session)?;
        let wanted = self.traits.ends.get(&step.name).map_or(step.ends.as_str(), |(ends, _)| ends);
        ensure!(ended == wanted, "the turn ended with {ended}, not with {wanted}");
        self.judge(step)?;
        let asked = self.client()?.asked;
        if let Some(reason) = self.traits.never_asks.get(&step.name) {
            // What it does by its client, the server asks for.
            ensure!(
                asked == 0 || self.way == Route::Through,
                "it asks, though it was known not to: {reason}"
            );
        } else {
            ensure!(!step.asks || asked > 0, "it did not ask");
        }
        let called = self.client()?.called[called..].join(" ");
        Ok(StepResult::Works(called))
    }

    /// One turn; says how it ended.
    pub fn turn(&mut self, step: &Step, session: &str) -> anyhow::Result<String> {
        let mut prompt = vec![json!({"type": "text", "text": step.text})];
        self.agent_texts.push(step.text.clone());
        if step.picture {
            prompt.push(json!({"type": "image", "mimeType": "image/png", "data": PICTURE}));
        }
        let moment: Option<PathBuf> =
            step.cancel_at.as_ref().map(|file| self.report.workspace.project.join(file));
        let plays = self.traits.plays.is_some();
        let client = self.client()?;
        (client.answer, client.asked) = (step.answer, 0);
        let id = client.request("session/prompt", &json!({"sessionId": session, "prompt": prompt}))?;
        let mut cancelled = moment.is_none();
        let ended = client.answer_to(id, |client, frame| {
            let shown = |frame: &Value| frame["params"]["update"]["sessionUpdate"] == "tool_call";
            let now = moment.as_ref().is_some_and(|file| file.exists()) || plays && frame.is_some_and(shown);
            if !cancelled && now {
                cancelled = true;
                client.notify("session/cancel", &json!({"sessionId": session}))?;
            }
            Ok(())
        })?;
        client.settle(SETTLE)?;
        ended["stopReason"].as_str().map(str::to_owned).with_context(|| format!("no stopReason in {ended}"))
    }

    fn judge(&self, step: &Step) -> anyhow::Result<()> {
        if self.traits.plays.is_some() {
            return Ok(());
        }
        for (file, wanted) in &step.leaves {
            let there = self.report.workspace.project.join(file).exists();
            ensure!(there == *wanted, "{file} is {}there", if there { "" } else { "not " });
        }
        if step.picture {
            let seen = self.model.requests()?.iter().any(|request| request.to_string().contains(PICTURE));
            ensure!(seen, "the model was not shown the picture");
        }
        Ok(())
    }

    fn mcp(&mut self, step: &Step) -> anyhow::Result<StepResult> {
        if self.traits.plays.is_some() {
            return Ok(StepResult::Lacks("it has no tools".into()));
        }
        let script = command::root().join("tests/agents/marker.mjs");
        let arguments = json!([script, self.report.workspace.project]);
        let servers = json!([{"name": "rig", "command": super::node()?, "args": arguments, "env": []}]);
        let session = session_of(&self.new_session(&servers)?)?;
        if let Some(mode) = &self.traits.mode {
            let mode = json!({"sessionId": session, "modeId": mode});
            self.client()?.call("session/set_mode", &mode)?;
        }
        self.client()?.settle(SETTLE)?;
        let ended = self.turn(step, &session)?;
        ensure!(ended == step.ends, "the turn ended with {ended}");
        self.judge(step)
            .with_context(|| format!("of its tools, these have the name: {:?}", self.offered("mark")))?;
        Ok(StepResult::Works(String::new()))
    }

    /// Names of the tools that the model was last offered.
    fn offered(&self, part: &str) -> Vec<String> {
        let requests = self.model.requests().unwrap_or_default();
        let tools = requests.last().map(|request| request["body"]["tools"].to_string()).unwrap_or_default();
        let words = tools.split('"').filter(|word| word.contains(part) && !word.contains(' '));
        words.map(str::to_owned).collect()
    }

    /// Another client sees what was said.
    fn load(&mut self, step: &Step) -> anyhow::Result<StepResult> {
        if self.report.initialize["agentCapabilities"]["loadSession"] != true {
            return Ok(StepResult::Lacks("it cannot load".into()));
        }
        self.start(&step.name, true)?;
        self.continued("session/load")?;
        self.client()?.settle(SETTLE)?;
        let events: Vec<String> = self.client()?.record.iter().map(|entry| entry.line.clone()).collect();
        let knows = |text: &&String| events.iter().any(|line| line.contains(text.as_str()));
        let told = step.hears.iter().filter(|text| self.agent_texts.contains(text));
        let unheard: Vec<&String> = told.filter(|text| !knows(text)).collect();
        if self.way == Route::Through || unheard.is_empty() {
            let played = self.traits.plays.is_some() && self.way == Route::Direct;
            ensure!(unheard.is_empty() || played, "the history has no {unheard:?}");
            return Ok(StepResult::Works(String::new()));
        }
        Ok(StepResult::Lacks(format!("its history has no {unheard:?}")))
    }

    /// The session goes on for another client, itself or as a copy.
    fn again(&mut self, step: &Step, method: &str, ability: &str) -> anyhow::Result<StepResult> {
        if !self.able(ability) {
            return Ok(StepResult::Lacks(format!("it offers no {ability}")));
        }
        self.start(&step.name, true)?;
        let answer = self.continued(method)?;
        let session = answer["sessionId"].as_str().unwrap_or(&self.report.session).to_owned();
        let ended = self.turn(step, &session)?;
        ensure!(ended == step.ends, "a turn in it ended with {ended}");
        Ok(StepResult::Works(String::new()))
    }

    pub fn continued(&mut self, method: &str) -> anyhow::Result<Value> {
        let params =
            json!({"sessionId": self.report.session, "cwd": self.report.workspace.project, "mcpServers": []});
        self.client()?.call(method, &params)
    }

    pub fn end(&mut self) {
        if let Some(mut client) = self.client.take() {
            self.report.record.extend(client.end());
        }
    }

    fn finish(mut self) -> Report {
        self.end();
        self.report.left = leftover_processes(&self.report.workspace);
        self.report
    }
}

/// The same command, started by a process that stands for an editor.
fn within_editor(serve: &Command) -> Command {
    let mut editor = command::program(setup::python());
    editor
        .arg(command::root().join("tests/agents/editor.py"))
        .arg(serve.get_program())
        .args(serve.get_args());
    editor.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    editor
}

fn session_of(opened: &Value) -> anyhow::Result<String> {
    opened["sessionId"].as_str().map(str::to_owned).context("session/new gave no sessionId")
}
