//! `ropewalk doctor`: probes what the sandbox can enforce on this machine, and checks settings and stored data.

mod sandbox_setting_checks;
mod store_checks;

use std::process::ExitCode;

use engine::Store;
use guard::{RuleDamage, Rulebook};
use sandbox::SandboxSupport;
use serde_json::{Value, json};
use store::SqliteStore;

use crate::cli::{DoctorOptions, GuardOptions};
use crate::cli_error::CliError;
use crate::guard_settings::{self, Guards};
use crate::session_store::SessionStore;
use crate::{hidden_paths, output, paths, run};

const KERNEL: &str = "use Linux 6.2 or newer with Landlock and unprivileged user namespaces";

/// The result of one check.
struct Finding {
    name: &'static str,
    /// The result, or the problem.
    outcome: Result<String, String>,
    /// What to do about it.
    fix: &'static str,
    /// Only a note: there is a fallback.
    optional: bool,
}

pub fn run(options: &DoctorOptions) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(match runtime.block_on(examine(options)) {
        Ok(code) => code,
        Err(error) => error.report(options.json),
    })
}

async fn examine(options: &DoctorOptions) -> Result<ExitCode, CliError> {
    let mut findings = basics();
    findings.extend(sandbox_setting_checks::project_sandbox());
    findings.extend(sandbox_setting_checks::editor_terminal());
    findings.extend(store_checks::findings(options.deep));
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
        output::put_json(&report)?;
    } else {
        output::put(&report(&findings, &ability))?;
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reports only the checks of stored data; the sandbox is not probed.
fn tell_stored(findings: &[Finding], as_json_text: bool) -> Result<ExitCode, CliError> {
    let well = findings.iter().all(|finding| finding.outcome.is_ok() || finding.optional);
    if as_json_text {
        let all: Vec<_> = findings.iter().map(as_json).collect();
        output::put_json(&json!({ "ok": well, "findings": all }))?;
    } else {
        output::put(&lines(findings))?;
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Probes the sandbox in the folder for temporary files.
pub async fn ability() -> Result<SandboxSupport, CliError> {
    let scratch = std::env::temp_dir().canonicalize().map_err(|error| {
        CliError::failed("could not use the folder for temporary files")
            .because(error)
            .fix("set TMPDIR to a writable folder")
    })?;
    Ok(sandbox::probe(&guard_settings::helper()?, &scratch).await)
}

/// Checks of settings, rules and the state folder.
fn basics() -> Vec<Finding> {
    let settings = Guards::of(&GuardOptions::default()).map(|guards| {
        let approval = guards.approval.unwrap_or_else(|| "auto".into());
        format!("sandbox {}, approval {approval}", guards.reach.mode)
    });
    let state = paths::state().map(|state| state.display().to_string());
    vec![
        Finding {
            name: "settings",
            outcome: settings.map_err(|error| error.text()),
            fix: "fix the settings file",
            optional: false,
        },
        Finding {
            name: "permission rules",
            outcome: rules().map_err(|error| error.text()).and_then(|damage| match damage.first() {
                None => Ok("readable".to_owned()),
                Some(RuleDamage { path, reason }) => Err(format!(
                    "{}: {reason}; until this is fixed, every action needs permission",
                    path.display()
                )),
            }),
            fix: "repair the file; `ropewalk permissions list` shows what is read from it",
            optional: false,
        },
        sandbox_setting_checks::trusted_servers(),
        Finding {
            name: "state folder",
            outcome: state.map_err(|error| error.text()),
            fix: "set HOME",
            optional: false,
        },
    ]
}

/// The damaged rule files, for the current folder.
fn rules() -> Result<Vec<RuleDamage>, CliError> {
    let book = Rulebook::new(paths::rules()?);
    drop(book.sources(&run::folder(None)?));
    Ok(book.damage())
}

/// Whether the session store works. A missing store is not created.
async fn session_store() -> Finding {
    let examine = async {
        let path = match SessionStore::chosen().map_err(|error| error.text())? {
            SessionStore::File(path) => path,
            chosen @ SessionStore::Postgres(_) => {
                let shown = chosen.location();
                let checked = chosen.open(false).check().await;
                return checked.map(|()| shown.clone()).map_err(|fault| format!("{shown}: {fault}"));
            }
        };
        let there = store::is_there(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if !there {
            return Ok(format!("{} (created with the first session)", path.display()));
        }
        let store =
            SqliteStore::open(path.clone(), store::Options { warm: true, ..store::Options::default() });
        store.check().await.map_err(|fault| fault.to_string())?;
        Ok(path.display().to_string())
    };
    let fix = "until then, no session can be opened or created; --ephemeral works without saving";
    Finding { name: "session store", outcome: examine.await, fix, optional: false }
}

fn enforced(ability: &SandboxSupport) -> Vec<Finding> {
    let works = |outcome: &Result<(), String>, text: &str| outcome.clone().map(|()| text.to_owned());
    let finding = |name, outcome, fix| Finding { name, outcome, fix, optional: false };
    vec![
        finding(
            "command sandbox",
            ability.backend.clone().map(|backend| format!("by {}", backend.name())),
            "allow user namespaces (on Ubuntu: kernel.apparmor_restrict_unprivileged_userns), or run with --sandbox off",
        ),
        finding("Landlock", ability.landlock_abi.clone().map(|abi| format!("version {abi}")), KERNEL),
        finding("writes outside the workspace", works(&ability.outside, "refused"), KERNEL),
        finding("git hooks, editor and agent settings", works(&ability.protected, "protected"), KERNEL),
        secrets(ability),
        finding("dangerous system calls", works(&ability.seccomp, "refused"), KERNEL),
        finding("refusals", works(&ability.notify, "detected and logged"), KERNEL),
        Finding {
            name: "processes of a command",
            outcome: ability.pid_limit.clone().map(|limit| format!("limited by the kernel to {limit}")),
            fix: "ropewalk counts them itself instead",
            optional: true,
        },
        finding("memory of a command", works(&ability.memory_limit, "monitored and limited"), KERNEL),
    ]
}

/// Hiding paths works only if the home folders are known.
fn secrets(ability: &SandboxSupport) -> Finding {
    let name = "keys and credentials";
    match (&ability.hidden, hidden_paths::homes()) {
        (Ok(()), Ok(homes)) => {
            let homes: Vec<_> = homes.iter().map(|home| home.display().to_string()).collect();
            let outcome = Ok(format!("hidden in {}", homes.join(" and ")));
            Finding { name, outcome, fix: "", optional: false }
        }
        (Err(why), _) => Finding { name, outcome: Err(why.clone()), fix: KERNEL, optional: false },
        (Ok(()), Err(unknown)) => {
            Finding { name, outcome: Err(unknown.text()), fix: "set HOME", optional: false }
        }
    }
}

fn report(findings: &[Finding], ability: &SandboxSupport) -> String {
    let mut text = lines(findings);
    text.push_str(if ability.holds() {
        "\nCommands run in a sandbox that the kernel enforces.\n"
    } else {
        "\nThis machine cannot enforce the sandbox, so commands are refused unless you pass --sandbox off.\n"
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
