//! `ropewalk doctor`: what this machine can enforce, found out by trying, and what is wrong.

mod narrowing;
mod stored;

use std::process::ExitCode;

use engine::Store;
use guard::{RuleDamage, Rulebook};
use sandbox::Ability;
use serde_json::{Value, json};
use store::SqliteStore;

use crate::cli::{DoctorOptions, GuardOptions};
use crate::guards::{self, Guards};
use crate::session_store::SessionStore;
use crate::trouble::Trouble;
use crate::{hidden, paths, run, terminal};

const KERNEL: &str = "needs Linux 6.2 or newer with Landlock, and user namespaces for ordinary users";

/// One thing that was looked at.
struct Finding {
    name: &'static str,
    /// What it is, or why it is not.
    outcome: Result<String, String>,
    /// What to do about it.
    fix: &'static str,
    /// It is good to have, and something else does it otherwise.
    optional: bool,
}

pub fn run(options: &DoctorOptions) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(match runtime.block_on(look(options)) {
        Ok(code) => code,
        Err(trouble) => trouble.report(options.json),
    })
}

async fn look(options: &DoctorOptions) -> Result<ExitCode, Trouble> {
    let mut findings = kept();
    findings.extend(narrowing::project_sandbox());
    findings.extend(narrowing::editor_terminal());
    findings.extend(stored::findings(options.deep));
    if options.store {
        return tell_stored(&findings, options.json);
    }
    findings.push(session_store().await);
    let ability = ability().await?;
    findings.extend(enforced(&ability));
    let well = findings.iter().all(|finding| finding.outcome.is_ok() || finding.optional);
    if options.json {
        let all: Vec<_> = findings.iter().map(as_json).collect();
        let report = json!({ "ok": well, "enforces_sandbox": ability.holds(), "findings": all });
        terminal::put_json(&report)?;
    } else {
        terminal::put(&report(&findings, &ability))?;
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was looked at is all there is to say: nothing was tried.
fn tell_stored(findings: &[Finding], as_json_text: bool) -> Result<ExitCode, Trouble> {
    let well = findings.iter().all(|finding| finding.outcome.is_ok() || finding.optional);
    if as_json_text {
        let all: Vec<_> = findings.iter().map(as_json).collect();
        terminal::put_json(&json!({ "ok": well, "findings": all }))?;
    } else {
        terminal::put(&lines(findings))?;
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tries the fence in the folder for temporary files.
pub async fn ability() -> Result<Ability, Trouble> {
    let scratch = std::env::temp_dir().canonicalize().map_err(|error| {
        Trouble::failed("the folder for temporary files cannot be used").because(error).fix("set TMPDIR")
    })?;
    Ok(sandbox::probe(&guards::helper()?, &scratch).await)
}

/// Where things are, and whether they can be used.
fn kept() -> Vec<Finding> {
    let settings = Guards::of(&GuardOptions::default()).map(|guards| {
        let approval = guards.approval.unwrap_or_else(|| "auto".into());
        format!("sandbox {}, approval {approval}", guards.reach.mode)
    });
    let state = paths::state().map(|state| state.display().to_string());
    vec![
        Finding {
            name: "settings",
            outcome: settings.map_err(|trouble| trouble.text()),
            fix: "mend the settings file",
            optional: false,
        },
        Finding {
            name: "permission rules",
            outcome: rules().map_err(|trouble| trouble.text()).and_then(|damage| match damage.first() {
                None => Ok("readable".to_owned()),
                Some(RuleDamage { path, reason }) => {
                    Err(format!("{}: {reason}; everything is asked", path.display()))
                }
            }),
            fix: "repair the file; ropewalk permissions lists what is read of it",
            optional: false,
        },
        narrowing::trusted_servers(),
        Finding {
            name: "state folder",
            outcome: state.map_err(|trouble| trouble.text()),
            fix: "set HOME",
            optional: false,
        },
    ]
}

/// The files of rules that cannot be read, for the folder that this is run in.
fn rules() -> Result<Vec<RuleDamage>, Trouble> {
    let book = Rulebook::new(paths::rules()?);
    drop(book.sources(&run::folder(None)?));
    Ok(book.damage())
}

/// Whether sessions can be kept. A store that is not there yet is not made for this.
async fn session_store() -> Finding {
    let look = async {
        let path = match SessionStore::chosen().map_err(|trouble| trouble.text())? {
            SessionStore::File(path) => path,
            chosen @ SessionStore::Postgres(_) => {
                let shown = chosen.shown();
                let checked = chosen.open(false).check().await;
                return checked.map(|()| shown.clone()).map_err(|fault| format!("{shown}: {fault}"));
            }
        };
        let there = store::is_there(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if !there {
            return Ok(format!("{} is made with the first session", path.display()));
        }
        let store =
            SqliteStore::open(path.clone(), store::Options { warm: true, ..store::Options::default() });
        store.check().await.map_err(|fault| fault.to_string())?;
        Ok(path.display().to_string())
    };
    let fix = "no session can be opened or made until then; --ephemeral works without saving";
    Finding { name: "session store", outcome: look.await, fix, optional: false }
}

fn enforced(ability: &Ability) -> Vec<Finding> {
    let works = |outcome: &Result<(), String>, text: &str| outcome.clone().map(|()| text.to_owned());
    let finding = |name, outcome, fix| Finding { name, outcome, fix, optional: false };
    vec![
        finding(
            "fence around commands",
            ability.backend.clone().map(|backend| format!("by {}", backend.name())),
            "allow user namespaces (on Ubuntu: kernel.apparmor_restrict_unprivileged_userns), or --sandbox off",
        ),
        finding("Landlock", ability.landlock_abi.clone().map(|abi| format!("version {abi}")), KERNEL),
        finding("writes outside the workspace", works(&ability.outside, "refused"), KERNEL),
        finding("git hooks, editor and agent settings", works(&ability.protected, "protected"), KERNEL),
        secrets(ability),
        finding("dangerous system calls", works(&ability.seccomp, "refused"), KERNEL),
        finding("refusals", works(&ability.notify, "seen and logged"), KERNEL),
        Finding {
            name: "processes of a command",
            outcome: ability.pid_limit.clone().map(|limit| format!("bounded by the kernel, at most {limit}")),
            fix: "they are counted from outside instead",
            optional: true,
        },
        finding("memory of a command", works(&ability.memory_limit, "watched and bounded"), KERNEL),
    ]
}

/// That a path can be hidden is no use where nobody knows which.
fn secrets(ability: &Ability) -> Finding {
    let name = "keys and credentials";
    match (&ability.hidden, hidden::homes()) {
        (Ok(()), Ok(homes)) => {
            let homes: Vec<_> = homes.iter().map(|home| home.display().to_string()).collect();
            let outcome = Ok(format!("hidden below {}", homes.join(" and ")));
            Finding { name, outcome, fix: "", optional: false }
        }
        (Err(why), _) => Finding { name, outcome: Err(why.clone()), fix: KERNEL, optional: false },
        (Ok(()), Err(unknown)) => {
            Finding { name, outcome: Err(unknown.text()), fix: "set HOME", optional: false }
        }
    }
}

fn report(findings: &[Finding], ability: &Ability) -> String {
    let mut text = lines(findings);
    text.push_str(if ability.holds() {
        "\nCommands run behind a fence that the kernel keeps.\n"
    } else {
        "\nThis machine cannot keep the fence, so commands are refused unless --sandbox off is given.\n"
    });
    text
}

fn lines(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for Finding { name, outcome, fix, optional } in findings {
        let bad = if *optional { "note" } else { "BAD " };
        match outcome {
            Ok(what) => text.push_str(&format!("ok   {name:width$}  {what}\n")),
            Err(why) => text.push_str(&format!("{bad} {name:width$}  {why}\n     {:width$}  {fix}\n", "")),
        }
    }
    text
}

fn as_json(finding: &Finding) -> Value {
    let (ok, text) = match &finding.outcome {
        Ok(text) => (true, text),
        Err(text) => (false, text),
    };
    json!({ "name": finding.name, "ok": ok, "text": text, "fix": (!ok).then_some(finding.fix) })
}
