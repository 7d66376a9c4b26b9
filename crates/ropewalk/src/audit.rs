//! `ropewalk audit`: reads and verifies the audit log.

mod export;
mod show;
mod verify;

use std::process::ExitCode;
use std::sync::Arc;

use access::devices::DeviceEvent;
use engine::{Clock, RuleEffect, SystemClock, Timestamp};
use guard::RuleChange;
use serde_json::{Map, Value, json};
use store::audit::{Audit, AuditEntry, AuditKeyError};
use wire::ClientInfo;

use crate::cli::{AuditArchiveOptions, AuditCommand};
use crate::cli_error::CliError;
use crate::session_store::SessionStore;
use crate::{output, paths};

pub use show::{StartedAudit, reader};

/// Exit code if the key is missing or cannot be trusted.
const NO_KEY: u8 = 3;

/// Why a command about the audit failed.
enum AuditCommandError {
    Key(AuditKeyError),
    Other(CliError),
}

impl From<CliError> for AuditCommandError {
    fn from(error: CliError) -> Self {
        Self::Other(error)
    }
}

pub fn run(command: AuditCommand) -> anyhow::Result<ExitCode> {
    let (as_json, outcome) = match command {
        AuditCommand::Show(options) => {
            (options.json, show::latest(&options).map_err(AuditCommandError::from))
        }
        AuditCommand::Query(options) => {
            (options.json, show::query(&options).map_err(AuditCommandError::from))
        }
        AuditCommand::Verify(options) => (options.json, verify::verify(&options)),
        AuditCommand::Acknowledge(options) => (false, verify::acknowledge(&options)),
        AuditCommand::Seal(options) => (false, verify::seal(&options)),
        AuditCommand::Export(options) => (false, export::run(&options).map_err(AuditCommandError::from)),
        AuditCommand::Archive(options) => (options.json, archive(&options).map_err(AuditCommandError::from)),
    };
    Ok(outcome.unwrap_or_else(|failed| match failed {
        AuditCommandError::Key(error) => {
            // Its own exit code: a script must not confuse a missing key with a changed row.
            CliError::from_key(error).report(as_json);
            ExitCode::from(NO_KEY)
        }
        AuditCommandError::Other(error) => error.report(as_json),
    }))
}

/// Prints warnings about the audit log, for commands without logging.
pub fn warn(audit: &Audit) {
    let say = |text: &str| {
        output::say(&format!("{} {}", output::stderr_paint().warn("warning:"), output::one_line(text)));
    };
    if let Some(error) = audit.trouble() {
        say(&format!("could not write the audit log: {}", error.full));
    }
    if audit.was_rewound() {
        say(
            "rows are missing in the audit log: it was deleted, cut or restored from a copy; run ropewalk audit verify",
        );
    }
}

/// One line for each session of which the audit log has more events than the store.
pub fn store_behind_audit() -> Result<Vec<String>, String> {
    let text = |error: CliError| error.text();
    let folder = paths::audit().map_err(text)?;
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let SessionStore::File(sessions) = SessionStore::chosen().map_err(text)? else {
        // A restored database is detected when a session is opened.
        return Ok(Vec::new());
    };
    // Read first: what is audited meanwhile is already in the store.
    let audited =
        store::audit::last_positions(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let stored = store::last_positions(&sessions)?;
    let behind = stored.into_iter().filter_map(|(id, last)| {
        let seen = audited.get(&id).copied().filter(|seen| *seen > last)?;
        Some(format!(
            "session {id}: the audit log has events up to {seen}, but the store ends at {last}: it was restored from \
             a copy, or its end is damaged"
        ))
    });
    Ok(behind.collect())
}

/// The row for a client that introduces itself.
pub fn initialized(at: Timestamp, hello: &ClientInfo) -> AuditEntry {
    let mut details = Map::new();
    details.insert("peer".into(), Value::from(hello.name.as_ref()));
    details.insert("version".into(), hello.version.map_or(Value::Null, |version| version.to_string().into()));
    AuditEntry {
        at,
        event_type: "acp.initialize",
        actor: "acp_bridge".into(),
        resource_type: "session",
        resource_id: "session".into(),
        details,
    }
}

/// The row for a rule that was added or removed.
pub fn rule_changed(at: Timestamp, change: &RuleChange) -> AuditEntry {
    let mut details = Map::new();
    let effect = change.effect.map(RuleEffect::as_str);
    details.insert("effect".into(), effect.into());
    details.insert("folder".into(), change.folder.as_ref().map(|folder| folder.to_string_lossy()).into());
    details.insert("file".into(), change.file.to_string_lossy().into());
    AuditEntry {
        at,
        event_type: if change.effect.is_some() { "rule.added" } else { "rule.removed" },
        actor: "local".into(),
        resource_type: "rule",
        resource_id: crate::secrets_to_redact::redacted(&change.rule).into_owned(),
        details,
    }
}

/// The row for a device that was paired, declined or revoked.
pub fn device(at: Timestamp, happened: &DeviceEvent) -> AuditEntry {
    let mut details = Map::new();
    let (event_type, actor, device, name) = match happened {
        DeviceEvent::Entered { device, name, role, principal, knocked } => {
            details.insert("role".into(), json!(role));
            details.insert("by".into(), if *knocked { "pairing" } else { "link" }.into());
            ("device.entered", Arc::clone(&principal.0), Some(device), name)
        }
        DeviceEvent::Refused { name, by } => ("device.refused", Arc::clone(by), None, name),
        DeviceEvent::Revoked { device, name, by } => ("device.revoked", Arc::clone(by), Some(device), name),
    };
    details.insert("name".into(), Value::from(name.as_ref()));
    AuditEntry {
        at,
        event_type,
        actor: actor.as_ref().into(),
        resource_type: "device",
        resource_id: device.map_or("unknown", |device| device.as_ref()).into(),
        details,
    }
}

fn archive(options: &AuditArchiveOptions) -> Result<ExitCode, CliError> {
    let folder = paths::audit()?;
    let done = if folder.is_dir() {
        store::audit::archive(&folder, SystemClock.now(), options.retention).map_err(unreadable)?
    } else {
        Vec::new()
    };
    if options.json {
        output::put_json(&json!({ "archived": done }))?;
    } else if done.is_empty() {
        output::say(&format!("No file is older than {} days.", options.retention));
    } else {
        output::say(&format!("compressed {}", done.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}

fn unreadable(error: std::io::Error) -> CliError {
    CliError::failed("could not read the audit log").because(error)
}
