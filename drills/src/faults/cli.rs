//! Commands that are killed: each leaves the state as it was before, or as it should be after.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;

use super::machine::{Fault, Tally};
use super::state_folder::{CommandEnd, StateFolder};
use crate::random::Random;

const TEXTS: usize = 1500;
const KINDS: [&str; 8] = ["import", "fork", "delete", "export", "rename", "rules", "settings", "run"];

struct CliRun<'a> {
    world: StateFolder,
    random: &'a mut Random,
    /// The session that is copied, and its texts.
    base: String,
    texts: Vec<String>,
    archive: String,
    /// Rules and servers that were acknowledged.
    rules: BTreeSet<String>,
    servers: BTreeSet<String>,
    /// How long a command took that ended by itself, by its words.
    takes: BTreeMap<String, Duration>,
}

pub fn kills(home: &Path, count: u64, random: &mut Random) -> anyhow::Result<Vec<Tally>> {
    let world = StateFolder::new(home)?;
    let (archive, texts) = world.archive("base", TEXTS)?;
    let archive = archive.to_string_lossy().into_owned();
    let base = world.said(&["sessions", "import", &archive])?.trim().to_owned();
    let mut scene = CliRun {
        world,
        random,
        base,
        texts,
        archive,
        rules: BTreeSet::new(),
        servers: BTreeSet::new(),
        takes: BTreeMap::new(),
    };
    let mut tallies = Vec::new();
    for (kind, name) in KINDS.iter().enumerate() {
        let share = count / KINDS.len() as u64 + u64::from((kind as u64) < count % KINDS.len() as u64);
        let mut tally = Tally::new(format!("`kill -9` of `{name}`"));
        for round in 0..share {
            scene.round(name, round, &mut tally).with_context(|| format!("{name}, round {round}"))?;
        }
        tallies.push(tally);
    }
    Ok(tallies)
}

/// A server on standard input and output, in turns, loads and starts. The check is that of `cargo xtask crash`.
pub fn stdio(count: u64, seed: u64) -> anyhow::Result<Tally> {
    let mut tally = Tally::new("`kill -9` of `serve` on standard input, in turns, loads, starts");
    tally.runs = count;
    tally.hit = count;
    let args = ["--rounds".to_owned(), count.to_string(), "--seed".to_owned(), seed.to_string()];
    if count > 0
        && let Err(error) = crate::crash::run(&args)
    {
        tally.fault(Fault::Wrong, format!("{error:#}"));
    }
    Ok(tally)
}

impl CliRun<'_> {
    fn round(&mut self, kind: &str, round: u64, tally: &mut Tally) -> anyhow::Result<()> {
        tally.runs += 1;
        match kind {
            "import" => self.copied(&["sessions", "import", &self.archive.clone()], tally),
            "fork" => self.copied(&["sessions", "fork", &self.base.clone()], tally),
            "delete" => self.deleted(tally),
            "export" => self.exported(round, tally),
            "rename" => self.renamed(round, tally),
            "rules" => self.ruled(round, tally),
            "settings" => self.configured(round, tally),
            _ => self.ran(tally),
        }
    }

    /// Kills a command somewhere in the time that it takes.
    fn kill(&mut self, args: &[&str], longest: Duration, tally: &mut Tally) -> anyhow::Result<CommandEnd> {
        let name = args.iter().take(2).copied().collect::<Vec<_>>().join(" ");
        let longest = self.takes.get(&name).copied().unwrap_or(longest);
        let after = self.random.below(longest.as_micros().max(1) as u64);
        let start = Instant::now();
        let ended = self.world.killed(args, Duration::from_micros(after))?;
        if ended == CommandEnd::Done {
            // The last moments count too: that is where things are acknowledged.
            self.takes.insert(name, start.elapsed().mul_f64(1.2));
        }
        tally.hit += u64::from(ended == CommandEnd::Killed);
        Ok(ended)
    }

    /// A new session is whole or not there.
    fn copied(&mut self, args: &[&str], tally: &mut Tally) -> anyhow::Result<()> {
        let before = self.ids()?;
        let ended = self.kill(args, Duration::from_millis(250), tally)?;
        let new: Vec<_> = self.ids()?.difference(&before).cloned().collect();
        if new.len() > 1 {
            tally.fault(Fault::Doubled, format!("{} new sessions", new.len()));
        }
        if new.is_empty() && ended == CommandEnd::Done {
            tally.fault(Fault::Lost, "it was acknowledged and is not there");
        }
        for id in new {
            let texts = self.world.texts(&id)?.unwrap_or_default();
            if texts != self.texts {
                tally.fault(Fault::Wrong, format!("{} of {} texts", texts.len(), self.texts.len()));
            }
            self.world.said(&["sessions", "delete", &id, "--yes"])?;
        }
        Ok(())
    }

    fn deleted(&mut self, tally: &mut Tally) -> anyhow::Result<()> {
        let victim = self.world.said(&["sessions", "fork", &self.base.clone()])?.trim().to_owned();
        let ended =
            self.kill(&["sessions", "delete", &victim, "--yes"], Duration::from_millis(120), tally)?;
        match self.world.texts(&victim)? {
            None => return Ok(()),
            Some(_) if ended == CommandEnd::Done => tally.fault(Fault::Lost, "it was deleted and is there"),
            Some(texts) if texts != self.texts => {
                tally.fault(Fault::Wrong, format!("{} of {} texts are left", texts.len(), self.texts.len()));
            }
            Some(_) => {}
        }
        self.world.said(&["sessions", "delete", &victim, "--yes"]).map(drop)
    }

    fn exported(&mut self, round: u64, tally: &mut Tally) -> anyhow::Result<()> {
        let (extension, format) =
            [("json", "json"), ("md", "markdown"), ("html", "html")][round as usize % 3];
        let path = self.world.home.join(format!("export-{round}.{extension}"));
        let target = path.to_string_lossy().into_owned();
        let base = self.base.clone();
        let args = ["sessions", "export", &base, "--format", format, "--output", &target];
        let ended = self.kill(&args, Duration::from_millis(250), tally)?;
        match std::fs::read_to_string(&path) {
            Err(_) if ended == CommandEnd::Done => {
                tally.fault(Fault::Lost, "it was written and is not there")
            }
            Err(_) => {}
            Ok(text) => {
                let whole = self.texts.iter().all(|line| text.contains(line.as_str()));
                let json = format != "json" || serde_json::from_str::<Value>(&text).is_ok();
                if !whole || !json {
                    tally.fault(Fault::Wrong, format!("a part of {} bytes", text.len()));
                }
            }
        }
        Ok(())
    }

    fn renamed(&mut self, round: u64, tally: &mut Tally) -> anyhow::Result<()> {
        let old = self.title()?;
        let new = format!("title {round}");
        let base = self.base.clone();
        let ended = self.kill(&["sessions", "rename", &base, &new], Duration::from_millis(120), tally)?;
        let title = self.title()?;
        if title != new && ended == CommandEnd::Done {
            tally.fault(Fault::Lost, format!("{new} was acknowledged, and it is {title}"));
        } else if title != new && title != old {
            tally.fault(Fault::Wrong, format!("neither {old} nor {new} but {title}"));
        }
        Ok(())
    }

    fn ruled(&mut self, round: u64, tally: &mut Tally) -> anyhow::Result<()> {
        let rule = format!("shell(command-{round}:*)");
        let args = ["permissions", "add", "allow", &rule];
        let ended = self.kill(&args, Duration::from_millis(60), tally)?;
        let listed = self.world.json(&["permissions", "list", "--json"])?;
        let own = &listed["sources"][0];
        if own["warnings"].as_array().is_some_and(|warnings| !warnings.is_empty()) {
            tally.fault(Fault::Wrong, format!("the file is damaged: {}", own["warnings"]));
        }
        let rules = own["rules"].as_array().into_iter().flatten();
        let rules: BTreeSet<_> = rules.filter_map(|rule| rule["rule"].as_str().map(str::to_owned)).collect();
        known(&mut self.rules, rules, (ended, rule), tally);
        Ok(())
    }

    fn configured(&mut self, round: u64, tally: &mut Tally) -> anyhow::Result<()> {
        let name = format!("server-{round}");
        let ended = self.kill(&["mcp", "add", &name, "--", "true"], Duration::from_millis(60), tally)?;
        let listed = self.world.json(&["mcp", "list", "--json"])?;
        let servers = listed["servers"].as_array().into_iter().flatten();
        let servers = servers.filter_map(|server| server["name"].as_str().map(str::to_owned)).collect();
        known(&mut self.servers, servers, (ended, name), tally);
        Ok(())
    }

    /// A prompt whose answer was seen is in the log with its answer.
    fn ran(&mut self, tally: &mut Tally) -> anyhow::Result<()> {
        let before = self.ids()?;
        let ended = self.kill(&["run", "stream 400"], Duration::from_millis(400), tally)?;
        let new: Vec<_> = self.ids()?.difference(&before).cloned().collect();
        if new.is_empty() && ended == CommandEnd::Done {
            tally.fault(Fault::Lost, "a run that was answered left no session");
        }
        for id in new {
            let texts = self.world.texts(&id)?.unwrap_or_default();
            if ended == CommandEnd::Done && texts.concat().is_empty() {
                tally.fault(Fault::Lost, "a run that was answered has no answer in its log");
            }
            self.world.said(&["sessions", "delete", &id, "--yes"])?;
        }
        Ok(())
    }

    fn ids(&self) -> anyhow::Result<BTreeSet<String>> {
        let sessions = self.world.sessions()?;
        Ok(sessions.iter().filter_map(|session| session["id"].as_str().map(str::to_owned)).collect())
    }

    fn title(&self) -> anyhow::Result<String> {
        let sessions = self.world.sessions()?;
        let base = sessions.iter().find(|session| session["id"] == self.base.as_str());
        Ok(base.and_then(|base| base["title"].as_str()).unwrap_or_default().to_owned())
    }
}

/// What was acknowledged is there, and nothing else but what was being added.
fn known(
    acknowledged: &mut BTreeSet<String>,
    there: BTreeSet<String>,
    (ended, new): (CommandEnd, String),
    tally: &mut Tally,
) {
    for gone in acknowledged.difference(&there) {
        tally.fault(Fault::Lost, gone.clone());
    }
    for stranger in there.difference(acknowledged).filter(|name| **name != new) {
        tally.fault(Fault::Wrong, stranger.clone());
    }
    if ended == CommandEnd::Done && !there.contains(&new) {
        tally.fault(Fault::Lost, new);
    }
    *acknowledged = there;
}
