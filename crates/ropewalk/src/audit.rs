//! `ropewalk audit`: who did what, and whether the record of it is whole.

mod export;
mod show;
mod verify;

use std::process::ExitCode;
use std::sync::Arc;

use access::devices::Happened;
use engine::{Clock, RuleEffect, SystemClock, Timestamp};
use guard::RuleChange;
use serde_json::{Map, Value, json};
use store::audit::{Audit, Entry, KeyError};
use wire::Hello;

use crate::cli::{AuditArchiveOptions, AuditCommand};
use crate::session_store::SessionStore;
use crate::trouble::Trouble;
use crate::{paths, terminal};

pub use show::{StartedAudit, reader};

/// The key is missing, or is none that could be trusted.
const NO_KEY: u8 = 3;

/// How a command about the audit could not be carried out.
enum Failed {
    Key(KeyError),
    Other(Trouble),
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Self {
        Self::Other(trouble)
    }
}

pub fn run(command: AuditCommand) -> anyhow::Result<ExitCode> {
    let (as_json, outcome) = match command {
        AuditCommand::Show(options) => (options.json, show::latest(&options).map_err(Failed::from)),
        AuditCommand::Query(options) => (options.json, show::query(&options).map_err(Failed::from)),
        AuditCommand::Verify(options) => (options.json, verify::verify(&options)),
        AuditCommand::Acknowledge(options) => (false, verify::acknowledge(&options)),
        AuditCommand::Seal(options) => (false, verify::seal(&options)),
        AuditCommand::Export(options) => (false, export::run(&options).map_err(Failed::from)),
        AuditCommand::Archive(options) => (options.json, archive(&options).map_err(Failed::from)),
    };
    Ok(outcome.unwrap_or_else(|failed| match failed {
        Failed::Key(error) => {
            // Its own code: a script must not take a missing key for a changed row.
            Trouble::key(error).report(as_json);
            ExitCode::from(NO_KEY)
        }
        Failed::Other(trouble) => trouble.report(as_json),
    }))
}

/// Says what is wrong with the record, for those whose log is not read.
pub fn warn(audit: &Audit) {
    let say = |text: &str| {
        terminal::say(&format!("{} {}", terminal::stderr_paint().warn("warning:"), terminal::one_line(text)));
    };
    if let Some(trouble) = audit.trouble() {
        say(&format!("the audit cannot be written: {}", trouble.full));
    }
    if audit.was_rewound() {
        say("rows of the audit are missing: it was removed, cut or put back; see ropewalk audit verify");
    }
}

/// The sessions of which the audit tells more than the store has, a line for each.
pub fn behind() -> Result<Vec<String>, String> {
    let text = |trouble: Trouble| trouble.text();
    let folder = paths::audit().map_err(text)?;
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let SessionStore::File(sessions) = SessionStore::chosen().map_err(text)? else {
        // The marks of a database that was put back are looked at when a session is opened.
        return Ok(Vec::new());
    };
    // First: what is audited meanwhile is in the store already.
    let audited =
        store::audit::last_positions(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let stored = store::last_positions(&sessions)?;
    let behind = stored.into_iter().filter_map(|(id, last)| {
        let seen = audited.get(&id).copied().filter(|seen| *seen > last)?;
        Some(format!(
            "session {id}: the audit tells of events up to {seen}, and the store has none after {last}: it was put \
             back from a copy, or its end is damaged"
        ))
    });
    Ok(behind.collect())
}

/// The row for a client that says who it is.
pub fn initialized(at: Timestamp, hello: &Hello) -> Entry {
    let mut details = Map::new();
    details.insert("peer".into(), Value::from(hello.name.as_ref()));
    details.insert("version".into(), hello.version.map_or(Value::Null, |version| version.to_string().into()));
    Entry {
        at,
        event_type: "acp.initialize",
        actor: "acp_bridge".into(),
        resource_type: "session",
        resource_id: "session".into(),
        details,
    }
}

/// A rule that somebody wrote or took out.
pub fn rule_changed(at: Timestamp, change: &RuleChange) -> Entry {
    let mut details = Map::new();
    let effect = change.effect.map(RuleEffect::as_str);
    details.insert("effect".into(), effect.into());
    details.insert("folder".into(), change.folder.as_ref().map(|folder| folder.to_string_lossy()).into());
    details.insert("file".into(), change.file.to_string_lossy().into());
    Entry {
        at,
        event_type: if change.effect.is_some() { "rule.added" } else { "rule.removed" },
        actor: "local".into(),
        resource_type: "rule",
        resource_id: crate::secrets::without(&change.rule).into_owned(),
        details,
    }
}

/// A device that came in, was not let in, or was shut out.
pub fn device(at: Timestamp, happened: &Happened) -> Entry {
    let mut details = Map::new();
    let (event_type, actor, device, name) = match happened {
        Happened::Entered { device, name, role, principal, knocked } => {
            details.insert("role".into(), json!(role));
            details.insert("by".into(), if *knocked { "pairing" } else { "link" }.into());
            ("device.entered", Arc::clone(&principal.0), Some(device), name)
        }
        Happened::Refused { name, by } => ("device.refused", Arc::clone(by), None, name),
        Happened::Revoked { device, name, by } => ("device.revoked", Arc::clone(by), Some(device), name),
    };
    details.insert("name".into(), Value::from(name.as_ref()));
    Entry {
        at,
        event_type,
        actor: actor.as_ref().into(),
        resource_type: "device",
        resource_id: device.map_or("unknown", |device| device.as_ref()).into(),
        details,
    }
}

fn archive(options: &AuditArchiveOptions) -> Result<ExitCode, Trouble> {
    let folder = paths::audit()?;
    let done = if folder.is_dir() {
        store::audit::archive(&folder, SystemClock.now(), options.retention).map_err(unreadable)?
    } else {
        Vec::new()
    };
    if options.json {
        terminal::put_json(&json!({ "archived": done }))?;
    } else if done.is_empty() {
        terminal::say(&format!("No file is older than {} days.", options.retention));
    } else {
        terminal::say(&format!("compressed {}", done.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}

fn unreadable(error: std::io::Error) -> Trouble {
    Trouble::failed("the audit cannot be read").because(error)
}
