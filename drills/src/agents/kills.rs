//! `--kill N`: kills the agent, the server or the editor in the middle of a turn of a real agent.
//!
//! After the agent's death the turn must be answered and the next one work; after the server's or the
//! editor's death no process may be left, and a second start must show everything that was heard before
//! and go on.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::client::{Entry, Side};
use super::drive::{Drive, Route};
use super::leftover_processes::{leftover_processes, processes_with};
use super::model::{self, Model};
use super::scenario::{Step, Traits};
use super::{Agent, AgentWorkspace};

const GONE_MAX: Duration = Duration::from_secs(10);
/// What the long command is recognised by among the processes.
const LONG: &str = "sleep 600";

/// What the kills showed.
#[derive(Debug, Default)]
pub struct Kills {
    pub rounds: usize,
    pub faults: Vec<String>,
}

impl Kills {
    pub fn shown(&self) -> String {
        if self.faults.is_empty() { format!("yes, {}x", 3 * self.rounds) } else { "fails".to_owned() }
    }
}

pub fn run(
    agent: &Agent,
    traits: &Traits,
    steps: &[Step],
    rounds: usize,
    folder: &std::path::Path,
) -> anyhow::Result<Kills> {
    let mut workspace = super::workspace(folder, "kills", "")?;
    let model = Model::start(
        &workspace.home.with_file_name("rules.json"),
        &model::rules(steps, traits, &workspace.project),
    )?;
    workspace.mock.clone_from(&model.address);
    let step =
        |name: &str| steps.iter().find(|step| step.name == name).with_context(|| format!("no step {name}"));
    let (long, after) = (step("cancel")?, step("write")?);
    let mut kills = Kills { rounds, faults: Vec::new() };
    let mut round =
        Round { drive: Drive::new(agent, traits, Route::Through, &model, workspace), traits, long, after };
    round.drive.start("kill", false)?;
    round.drive.open_session()?;
    for number in 1..=rounds {
        let killed = round.agent().with_context(|| format!("kill {number} of the agent"));
        let killed =
            killed.and_then(|()| round.server().with_context(|| format!("kill {number} of the server")));
        let killed =
            killed.and_then(|()| round.editor().with_context(|| format!("kill {number} of the editor")));
        if let Err(error) = killed {
            kills.faults.push(format!("{error:#}"));
            break;
        }
    }
    round.drive.end();
    kills.faults.extend(
        leftover_processes(round.drive.workspace()).into_iter().map(|line| format!("left behind: {line}")),
    );
    Ok(kills)
}

struct Round<'a> {
    drive: Drive<'a>,
    traits: &'a Traits,
    long: &'a Step,
    after: &'a Step,
}

impl Round<'_> {
    fn agent(&mut self) -> anyhow::Result<()> {
        let own = self.drive.client()?.pid();
        let mark = mark(self.drive.workspace());
        let ended = self.interrupted(|_| {
            let first = agent_of(&mark, own).context("the agent's process is not found")?;
            kill(first)
        });
        // The turn may end with an error or as cancelled; only a turn that ended well would be a lie.
        ensure!(
            ended.as_ref().map_or(true, |ended| ended["stopReason"] != "end_turn"),
            "the turn ended well"
        );
        if let Err(error) = &ended {
            ensure!(format!("{error:#}").contains("refused"), "the turn was not answered: {error:#}");
        }
        self.gone(&mark, LONG)?;
        self.works()
    }

    fn server(&mut self) -> anyhow::Result<()> {
        self.killed()
    }

    /// The one who started the server, which sees its input end and nobody read its output.
    fn editor(&mut self) -> anyhow::Result<()> {
        self.drive.in_editor(true);
        self.drive.start("kill", false)?;
        self.drive.continued("session/load")?;
        self.drive.in_editor(false);
        self.killed()
    }

    /// Whom the client has started is killed, and nothing of it is left or lost.
    fn killed(&mut self) -> anyhow::Result<()> {
        let mark = mark(self.drive.workspace());
        let ended = self.interrupted(|client| {
            client.kill();
            bail!("killed")
        });
        ensure!(ended.is_err(), "the turn was answered by the dead");
        self.gone(&mark, "")?;
        let before = heard(&self.drive.client()?.record);
        self.drive.start("kill", false)?;
        self.drive.continued("session/load")?;
        let after = heard(&self.drive.client()?.record);
        // The session is older than this client: what it heard is the end of what is shown.
        ensure!(
            after.contains(&before),
            "what was heard before the kill is not shown: {before:?} in {after:?}"
        );
        self.works()
    }

    /// Starts the long turn, and does something when its command runs.
    fn interrupted(
        &mut self,
        mut act: impl FnMut(&mut super::client::Client) -> anyhow::Result<()>,
    ) -> anyhow::Result<Value> {
        let file = self.drive.workspace().project.join(self.long.cancel_at.as_deref().unwrap_or_default());
        drop(std::fs::remove_file(&file));
        let (session, plays) = (self.drive.session().to_owned(), self.traits.plays.is_some());
        let prompt = json!([{"type": "text", "text": self.long.text}]);
        let client = self.drive.client()?;
        let id = client.request("session/prompt", &json!({"sessionId": session, "prompt": prompt}))?;
        let mut done = false;
        client.answer_to(id, |client, frame| {
            let shown = |frame: &Value| frame["params"]["update"]["sessionUpdate"] == "tool_call";
            if !done && (file.exists() || plays && frame.is_some_and(shown)) {
                done = true;
                return act(client);
            }
            Ok(())
        })
    }

    /// A turn that ends as it should.
    fn works(&mut self) -> anyhow::Result<()> {
        let session = self.drive.session().to_owned();
        let ended = self.drive.turn(self.after, &session).context("the turn after it")?;
        ensure!(ended == self.after.ends, "the turn after it ended with {ended}");
        Ok(())
    }

    fn gone(&self, mark: &str, part: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + GONE_MAX;
        loop {
            let left: Vec<_> =
                processes_with(mark).into_iter().filter(|(_, line)| line.contains(part)).collect();
            if left.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{} processes are left: {left:?}", left.len());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn mark(workspace: &AgentWorkspace) -> String {
    format!("HOME={}", workspace.home.display())
}

/// The agent among the marked processes: it is not the server nor one of its helpers, and none of the
/// others has started it.
fn agent_of(mark: &str, server: u32) -> Option<u32> {
    let ours = |pid: &u32| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        *pid == server || program.file_name().is_some_and(|name| name == "ropewalk")
    };
    let others: Vec<u32> =
        processes_with(mark).into_iter().map(|(pid, _)| pid).filter(|pid| !ours(pid)).collect();
    others.iter().copied().find(|pid| parent(*pid).is_none_or(|parent| !others.contains(&parent)))
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn kill(pid: u32) -> anyhow::Result<()> {
    xtask::command::run(xtask::command::program("kill").args(["-9", &pid.to_string()]))
}

/// All text of the agent, in order.
fn heard(record: &[Entry]) -> String {
    let updates =
        record.iter().filter(|entry| entry.from == Side::Agent).map(|entry| &entry.frame["params"]["update"]);
    let texts = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    texts.filter_map(|update| update["content"]["text"].as_str()).collect()
}
