//! What the guards add to a tool call before it may run, without the log: finding the file, judging the
//! command, asking the rules, deciding.
//!
//! A real call has a command or a file, never both. Here each has both, so the whole is more than any
//! call pays.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use engine::{
    AskRequest, Opaque, PermissionRules as _, Redactor as _, RuleHit, Ruling, Settings, ToolClass,
    approval_spec, decide,
};
use guard::{RulePaths, Rulebook, SecretRedactor, Workplace, assess_command};
use sandbox::{Files, Mode, PathAccess, Policy};
use tokio::runtime::Runtime;

use crate::stats::{Samples, micros};
use crate::workspace::Workspace;

/// The commands that the classifier is tested with: a level, a blank, the command.
const COMMANDS: &str = include_str!("../../crates/guard/tests/tables/commands.txt");
/// Text as it stands in a terminal or an answer.
const PROSE: &str = include_str!("../README.md");
pub const RULES: usize = 200;
pub const CHUNK_BYTES: usize = 100;
const CHUNKS_PER_SAMPLE: usize = 50;

/// What a tool call passes, ready to be asked.
pub struct GuardPath<'a> {
    workspace: &'a Workspace,
    roots: Vec<PathBuf>,
    files: Files,
    rulebook: Rulebook,
    settings: Settings,
    commands: Vec<Arc<str>>,
}

/// Microseconds of each part and of all of it.
#[derive(Default)]
pub struct Parts {
    pub find_file: Samples,
    pub assess: Samples,
    pub rules: Samples,
    pub decide: Samples,
    pub whole: Samples,
    /// Calls that a rule had something to say of.
    pub hits: usize,
    pub calls: usize,
}

impl<'a> GuardPath<'a> {
    pub fn new(workspace: &'a Workspace) -> anyhow::Result<Self> {
        let roots = vec![workspace.folder.clone()];
        let policy = Policy {
            mode: Mode::WorkspaceWrite,
            roots: roots.clone(),
            hidden: workspace.hidden.clone(),
            ..Policy::default()
        };
        let user = workspace.home.join("permissions.toml");
        write_rules(&user)?;
        let home = Some(workspace.home.clone());
        let rulebook = Rulebook::new(RulePaths { user, home, ..RulePaths::default() });
        let sources = rulebook.sources(&workspace.folder);
        let warnings: Vec<_> = sources.iter().flat_map(|source| &source.warnings).collect();
        ensure!(warnings.is_empty(), "the rules are not understood: {warnings:?}");
        let rules: usize = sources.iter().map(|source| source.rules.len()).sum();
        ensure!(rules == RULES, "{rules} rules were read, not {RULES}");
        Ok(Self {
            workspace,
            roots,
            files: Files::open(policy)?,
            rulebook,
            settings: Settings::defaults(&[approval_spec()]),
            commands: commands(),
        })
    }

    pub fn commands(&self) -> usize {
        self.commands.len()
    }

    /// Takes every command through all parts, `rounds` times after a first one that does not count.
    pub fn measure(&self, rounds: usize) -> anyhow::Result<Parts> {
        let mut parts = Parts::default();
        for round in 0..=rounds {
            for (nth, command) in self.commands.iter().enumerate() {
                let file = &self.workspace.files[nth % self.workspace.files.len()];
                self.call(command, file, &mut parts)?;
            }
            if round == 0 {
                parts = Parts::default();
            }
        }
        // Rules that nothing matches, or everything does, would be no fair question.
        ensure!(parts.hits > 0 && parts.hits < parts.calls, "{} of {} hit", parts.hits, parts.calls);
        Ok(parts)
    }

    fn call(&self, command: &Arc<str>, file: &Path, parts: &mut Parts) -> anyhow::Result<()> {
        let folder = &self.workspace.folder;
        let began = Instant::now();
        let spot = self.files.find(black_box(file), PathAccess::Write)?;
        let found = Instant::now();
        let place = Workplace { cwd: folder, roots: &self.roots, home: Some(&self.workspace.home) };
        let assessment = assess_command(black_box(command), &place);
        let assessed = Instant::now();
        let request = AskRequest {
            path: Some(spot.real().to_owned()),
            input: Opaque(Arc::clone(command)),
            risk: assessment.risk,
            reason: assessment.reason.into(),
            ..AskRequest::new("shell", Arc::clone(command), ToolClass::Execute)
        };
        let asking = Instant::now();
        let hit: Option<RuleHit> = self.rulebook.find(folder, black_box(&request));
        let asked = Instant::now();
        let ruling: Ruling = decide(&self.settings, black_box(&request), hit.as_ref());
        let decided = Instant::now();
        black_box(ruling);
        parts.find_file.push(micros(found - began));
        parts.assess.push(micros(assessed - found));
        parts.rules.push(micros(asked - asking));
        parts.decide.push(micros(decided - asked));
        parts.whole.push(micros(decided - began));
        parts.hits += usize::from(hit.is_some());
        parts.calls += 1;
        Ok(())
    }
}

/// What it costs to hand work to a thread that may wait for the disk, and to get the answer back. The
/// product does so once per call to find a file or to judge a command.
pub fn hand_over(runtime: &Runtime, count: usize) -> anyhow::Result<Samples> {
    let all = runtime.spawn(async move {
        let mut samples = Samples::default();
        for _ in 0..count {
            let began = Instant::now();
            tokio::task::spawn_blocking(|| black_box(())).await?;
            samples.push(micros(began.elapsed()));
        }
        anyhow::Ok(samples)
    });
    runtime.block_on(all)?
}

/// Nanoseconds to look through a chunk of streamed text, in the middle of a stream.
pub fn redaction(count: usize) -> anyhow::Result<Samples> {
    let known = ["a-value-that-is-secret-wherever-it-stands".to_owned()];
    let secrets = SecretRedactor::new(known).map_err(anyhow::Error::msg)?;
    let plain: String = PROSE.chars().filter(char::is_ascii).collect();
    let pieces: Vec<&str> = (0..CHUNKS_PER_SAMPLE)
        .filter_map(|nth| plain.get(nth * CHUNK_BYTES..(nth + 1) * CHUNK_BYTES))
        .collect();
    ensure!(pieces.len() == CHUNKS_PER_SAMPLE, "the text is too short for {CHUNKS_PER_SAMPLE} chunks");
    let mut samples = Samples::default();
    for _ in 0..count {
        let mut stream = secrets.stream();
        let began = Instant::now();
        for text in &pieces {
            black_box(stream.push(black_box(text)));
        }
        samples.push(micros(began.elapsed()) * 1e3 / CHUNKS_PER_SAMPLE as f64);
    }
    Ok(samples)
}

fn commands() -> Vec<Arc<str>> {
    let lines = COMMANDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let commands = lines.filter_map(|line| line.split_once(' ')).map(|(_, command)| command);
    commands.map(|command| command.replace('␤', "\n").replace('␍', "\r").into()).collect()
}

/// As many rules as somebody has who answers "always" for a year: commands above all, some paths.
fn write_rules(path: &Path) -> anyhow::Result<()> {
    let mut deny = vec!["shell(rm -rf:*)".to_owned(), "shell(git push --force:*)".to_owned()];
    deny.extend((0..18).map(|nth| format!("read(private/{nth}/**)")));
    let mut ask = vec!["shell(git push:*)".to_owned(), "shell(docker run:*)".to_owned()];
    ask.extend((0..38).map(|nth| format!("shell(deploy-{nth} * --now)")));
    let mut allow: Vec<String> = Vec::new();
    for program in ["cargo", "npm", "git", "go", "make", "pnpm", "kubectl", "docker", "just", "uv"] {
        for word in ["build", "test", "status", "run check", "fmt", "get", "list", "show", "log", "version"] {
            allow.push(format!("shell({program} {word}:*)"));
        }
    }
    allow.extend((0..40).map(|nth| format!("edit(src/module_{nth}/**)")));
    let mut text = String::new();
    for (name, rules) in [("deny", deny), ("ask", ask), ("allow", allow)] {
        writeln!(text, "{name} = {rules:?}")?;
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{commands, redaction};

    #[test]
    fn there_are_hundreds_of_commands_without_their_levels() {
        let commands = commands();
        assert!(commands.len() >= 500, "{}", commands.len());
        assert_eq!(commands.first().map(AsRef::as_ref), Some("ls"));
    }

    #[test]
    fn there_is_text_enough_to_look_through() {
        assert!(redaction(1).is_ok_and(|samples| !samples.is_empty()));
    }
}
