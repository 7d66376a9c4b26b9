//! Backup, restore and consent commands that are killed: each leaves the state as it was before, or as it should be
//! after.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;

use super::machine::{Fault, Tally};
use super::state_folder::{CommandEnd, StateFolder};
use crate::peer::{Frame, Peer};
use crate::random::Random;

const TEXTS: usize = 300;
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// The state of a restored machine is left alone before what it sets aside fills the disk.
const ROUNDS_PER_HOME: u64 = 20;

/// `kill -9` of `backup`, `restore`, `sessions salvage` and `mcp trust`, and of a server as soon as an answer for good
/// is seen to count.
pub fn kills(home: &Path, count: u64, random: &mut Random) -> anyhow::Result<Vec<Tally>> {
    let kinds: [(&str, Round); 5] = [
        ("`backup`", Machine::backed_up),
        ("`restore --force`", Machine::restored),
        ("`sessions salvage`", Machine::salvaged),
        ("`mcp trust`", Machine::trusted),
        ("`serve` when an answer for good is seen", Machine::answered),
    ];
    let mut tallies = Vec::new();
    for (at, (name, round)) in kinds.into_iter().enumerate() {
        let mut tally = Tally::new(format!("`kill -9` of {name}"));
        let share = count / 5 + u64::from((at as u64) < count % 5);
        let mut machine = None;
        for number in 0..share {
            let machine = match &mut machine {
                Some(machine) if number % ROUNDS_PER_HOME != 0 => machine,
                old => old.insert(Machine::new(&home.join(format!("{at}-{number}")))?),
            };
            tally.runs += 1;
            round(machine, number, random, &mut tally).with_context(|| format!("{name}, round {number}"))?;
        }
        tallies.push(tally);
    }
    Ok(tallies)
}

type Round = fn(&mut Machine, u64, &mut Random, &mut Tally) -> anyhow::Result<()>;

struct Machine {
    world: StateFolder,
    session: String,
    texts: Vec<String>,
    /// How long the command took that ended by itself.
    takes: Duration,
    /// Projects whose server is trusted, rules that were answered for good.
    acknowledged: Vec<String>,
}

impl Machine {
    fn new(home: &Path) -> anyhow::Result<Self> {
        let world = StateFolder::new(home)?;
        let (archive, texts) = world.archive("base", TEXTS)?;
        let session = world.said(&["sessions", "import", &archive.to_string_lossy()])?.trim().to_owned();
        world.said(&["permissions", "add", "deny", "shell(base:*)"])?;
        Ok(Self { world, session, texts, takes: Duration::from_millis(300), acknowledged: Vec::new() })
    }

    fn kill(&mut self, args: &[&str], random: &mut Random, tally: &mut Tally) -> anyhow::Result<CommandEnd> {
        let start = Instant::now();
        let after = Duration::from_micros(random.below(self.takes.as_micros().max(1) as u64));
        let ended = self.world.killed(args, after)?;
        if ended == CommandEnd::Done {
            self.takes = start.elapsed().mul_f64(1.2);
        }
        tally.hit += u64::from(ended == CommandEnd::Killed);
        Ok(ended)
    }

    /// The sessions and rules that were there before are there, and the file is whole or not there.
    fn backed_up(&mut self, round: u64, random: &mut Random, tally: &mut Tally) -> anyhow::Result<()> {
        let file = self.world.home.join(format!("{round}.backup"));
        let name = file.to_string_lossy().into_owned();
        let ended = self.kill(&["backup", &name], random, tally)?;
        self.check_base(tally)?;
        if file.exists() {
            let into = self.world.home.join(format!("from-{round}"));
            let restored = self.world.output(&["restore", &name, "--into", &into.to_string_lossy()])?;
            if !restored.status.success() {
                tally.fault(Fault::Wrong, String::from_utf8_lossy(&restored.stderr).trim().to_owned());
            }
            std::fs::remove_dir_all(into)?;
            std::fs::remove_file(file)?;
        } else if ended == CommandEnd::Done {
            tally.fault(Fault::Lost, "a backup was acknowledged and is not there");
        }
        Ok(())
    }

    /// Either the newer session is there and the older rules are not, or the other way round.
    fn restored(&mut self, round: u64, random: &mut Random, tally: &mut Tally) -> anyhow::Result<()> {
        let file = self.world.home.join(format!("{round}.backup"));
        let name = file.to_string_lossy().into_owned();
        self.world.said(&["backup", &name])?;
        let newer = self.world.said(&["sessions", "fork", &self.session])?.trim().to_owned();
        let rule = format!("shell(newer-{round}:*)");
        self.world.said(&["permissions", "add", "deny", &rule])?;
        let ended = self.kill(&["restore", &name, "--force"], random, tally)?;
        let sessions = self.world.sessions()?;
        let session = sessions.iter().any(|session| session["id"] == newer.as_str());
        let ruled = self.world.said(&["permissions", "list", "--json"])?.contains(&rule);
        if session != ruled {
            tally.fault(Fault::Wrong, format!("the newer session: {session}, the newer rule: {ruled}"));
        }
        if session && ended == CommandEnd::Done {
            tally.fault(Fault::Lost, "a restore was acknowledged and did not happen");
        }
        self.check_base(tally)?;
        let verified = self.world.output(&["audit", "verify"])?;
        if !verified.status.success() {
            let told = String::from_utf8_lossy(&verified.stderr).trim().to_owned();
            tally.fault(Fault::Wrong, format!("the audit: {told}"));
        }
        if session {
            self.world.said(&["sessions", "delete", &newer, "--yes"])?;
            self.world.said(&["permissions", "remove", &rule])?;
        }
        Ok(std::fs::remove_file(file)?)
    }

    /// The damaged file is only read, and the new one is whole or not there.
    fn salvaged(&mut self, round: u64, random: &mut Random, tally: &mut Tally) -> anyhow::Result<()> {
        let (store, into) =
            (self.world.state().join("sessions.db"), self.world.home.join(format!("{round}.db")));
        let before = std::fs::read(&store)?;
        let ended = self.kill(&["sessions", "salvage", "--into", &into.to_string_lossy()], random, tally)?;
        if std::fs::read(&store)? != before {
            tally.fault(Fault::Wrong, "the file that is salvaged from was changed");
        }
        if !into.exists() {
            if ended == CommandEnd::Done {
                tally.fault(Fault::Lost, "what was salvaged is not there");
            }
            return Ok(());
        }
        let home = self.world.home.join(format!("salvaged-{round}"));
        let saved = StateFolder::new(&home)?;
        std::fs::create_dir_all(saved.state())?;
        std::fs::rename(&into, saved.state().join("sessions.db"))?;
        let texts = saved.texts(&self.session)?.unwrap_or_default();
        if texts != self.texts {
            tally.fault(Fault::Wrong, format!("{} of {} texts were salvaged", texts.len(), self.texts.len()));
        }
        Ok(std::fs::remove_dir_all(home)?)
    }

    fn trusted(&mut self, round: u64, random: &mut Random, tally: &mut Tally) -> anyhow::Result<()> {
        let project = self.world.home.join(format!("project-{round}"));
        std::fs::create_dir_all(project.join(".ropewalk"))?;
        let settings = format!("[mcp.servers.s{round}]\ncommand = \"true\"\nargs = [\"{round}\"]\n");
        std::fs::write(project.join(".ropewalk/config.toml"), settings)?;
        let (name, folder) = (format!("s{round}"), project.to_string_lossy().into_owned());
        let ended = self.kill(&["mcp", "trust", &name, "-C", &folder], random, tally)?;
        let listed = self.world.json(&["mcp", "trust", "--list", "--json"])?;
        let there: Vec<_> = listed["trusted"].as_array().context("a list of trusted servers")?.clone();
        let there: Vec<_> = there.iter().filter_map(|server| server["name"].as_str()).collect();
        self.compare(&there, (ended == CommandEnd::Done, name), tally);
        Ok(())
    }

    /// A rule is kept by the time that its answer is seen to count.
    fn answered(&mut self, round: u64, random: &mut Random, tally: &mut Tally) -> anyhow::Result<()> {
        let mut peer = Peer::spawn(&self.world.words(&["serve"]), &self.world.home)?;
        peer.initialize(ANSWER_MAX)?;
        let session = peer.new_session(ANSWER_MAX)?;
        let prompt = peer.send_prompt(&session, &format!("run command-{round} now"))?;
        let (deadline, mut asked) = (Instant::now() + ANSWER_MAX, false);
        let mut seen = false;
        while !seen {
            match peer.next(deadline)?.context("the answer was not seen to count in time")? {
                Frame::Request { id, params, .. } if !asked => {
                    let option =
                        json!({ "outcome": { "outcome": "selected", "optionId": always(&params)? } });
                    peer.respond(&id, &option)?;
                    asked = true;
                }
                // Other news may have been on their way before the answer.
                Frame::Update(params) => {
                    let status = params["update"]["status"].as_str();
                    seen = asked && matches!(status, Some("in_progress" | "completed"));
                }
                Frame::Response { id, .. } if id == prompt => seen = true,
                Frame::Response { .. } | Frame::Request { .. } | Frame::Broken(_) => {}
            }
        }
        ensure!(asked, "nobody was asked about the command");
        std::thread::sleep(Duration::from_micros(random.below(1500)));
        peer.kill()?;
        tally.hit += 1;
        let listed = self.world.said(&["permissions", "list", "--json"])?;
        let rule = format!("command-{round}");
        if !listed.contains(&rule) {
            tally.fault(Fault::Lost, format!("the rule for {rule}"));
        }
        let gone = self.acknowledged.iter().find(|rule| !listed.contains(rule.as_str()));
        if let Some(gone) = gone {
            tally.fault(Fault::Lost, format!("the older rule for {gone}"));
        }
        self.acknowledged.push(rule);
        Ok(())
    }

    fn compare(&mut self, there: &[&str], (done, new): (bool, String), tally: &mut Tally) {
        for gone in self.acknowledged.iter().filter(|name| !there.contains(&name.as_str())) {
            tally.fault(Fault::Lost, gone.clone());
        }
        if done && !there.contains(&new.as_str()) {
            tally.fault(Fault::Lost, new);
        }
        let count = there.len();
        self.acknowledged = there.iter().map(|name| (*name).to_owned()).collect();
        self.acknowledged.sort();
        self.acknowledged.dedup();
        if self.acknowledged.len() < count {
            tally.fault(Fault::Doubled, format!("{there:?}"));
        }
    }

    fn check_base(&self, tally: &mut Tally) -> anyhow::Result<()> {
        let texts = self.world.texts(&self.session)?.unwrap_or_default();
        if texts != self.texts {
            tally.fault(Fault::Lost, format!("{} of {} texts are left", texts.len(), self.texts.len()));
        }
        if !self.world.said(&["permissions", "list", "--json"])?.contains("shell(base:*)") {
            tally.fault(Fault::Lost, "a rule that was there before");
        }
        Ok(())
    }
}

/// The option that allows for good.
fn always(params: &serde_json::Value) -> anyhow::Result<serde_json::Value> {
    let options = params["options"].as_array().context("a permission request without options")?;
    let option = options.iter().find(|option| option["kind"] == "allow_always");
    Ok(option.context("a permission request without an option that allows for good")?["optionId"].clone())
}
