//! `ropewalk mcp trust` and `untrust`: the owner's consent to programs that a project names, given ahead.

use std::fmt::Write as _;
use std::path::Path;

use agent::{consent_digest, consent_subject};
use guard::{Rulebook, TrustedServer};
use serde_json::{Value, json};

use crate::cli::{McpTrustOptions, McpUntrustOptions};
use crate::config::{self, ServerEntry};
use crate::permissions::audited;
use crate::terminal::{self, one_line};
use crate::trouble::Trouble;
use crate::{paths, run};

pub fn trust(options: &McpTrustOptions) -> Result<(), Trouble> {
    if options.list {
        return list(options.json);
    }
    let folder = run::folder(options.cwd.as_deref())?;
    let entries = config::project_entries(&folder)
        .map_err(|reason| Trouble::failed("the project's settings cannot be read").because(reason))?;
    match &options.name {
        Some(name) => give(&folder, name, &entries, options.json),
        None => offer(&folder, &entries, options.json),
    }
}

/// Everything that is trusted on this machine.
fn list(as_json: bool) -> Result<(), Trouble> {
    let (servers, warnings) = Rulebook::new(paths::rules()?).trusted();
    for warning in &warnings {
        terminal::say(&format!("{} {}", terminal::stderr_paint().warn("warning:"), one_line(warning)));
    }
    if as_json {
        return terminal::put_json(
            &json!({ "trusted": servers.iter().map(trusted_json).collect::<Vec<_>>() }),
        );
    }
    if servers.is_empty() {
        return terminal::put("No project's MCP server is trusted. ropewalk mcp trust NAME trusts one.\n");
    }
    let mut out = String::new();
    for TrustedServer { folder, name, digest } in &servers {
        writeln!(out, "{}  in {}  {digest}", one_line(name), folder.display()).ok();
    }
    terminal::put(&out)
}

/// What this project names, for the person to judge.
fn offer(folder: &Path, entries: &[ServerEntry], as_json: bool) -> Result<(), Trouble> {
    let book = Rulebook::new(paths::rules()?);
    let trusted = |entry: &ServerEntry| book.trusts(folder, &consent_digest(&entry.server));
    if as_json {
        let entry = |entry: &ServerEntry| {
            json!({
                "name": entry.server.name.as_ref(), "entry": entry.shown(),
                "digest": consent_digest(&entry.server), "trusted": trusted(entry),
            })
        };
        return terminal::put_json(&json!({ "servers": entries.iter().map(entry).collect::<Vec<_>>() }));
    }
    if entries.is_empty() {
        return terminal::put("This project names no MCP servers.\n");
    }
    let mut out = String::new();
    for entry in entries {
        let state = if trusted(entry) { "trusted" } else { "not trusted" };
        writeln!(out, "{state}: {}", one_line(&entry.shown())).ok();
    }
    out.push_str(
        "ropewalk mcp trust NAME trusts one: it then starts here without asking, inside the sandbox.\n",
    );
    terminal::put(&out)
}

fn give(folder: &Path, name: &str, entries: &[ServerEntry], as_json: bool) -> Result<(), Trouble> {
    let Some(entry) = entries.iter().find(|entry| *entry.server.name == *name) else {
        return Err(Trouble::not_found(format!("this project names no MCP server {name:?}"))
            .fix("ropewalk mcp trust shows what it names; -C DIR looks at another folder"));
    };
    let digest = consent_digest(&entry.server);
    let new = audited(|book| book.trust(folder, name, &digest))?;
    if as_json {
        return terminal::put_json(&json!({
            "trusted": name, "folder": folder, "entry": entry.shown(), "digest": digest, "changed": new,
        }));
    }
    let how = if new { "is trusted" } else { "was trusted already" };
    terminal::put(&format!(
        "{}\n{} {how} in {}.\n",
        one_line(&entry.shown()),
        one_line(name),
        folder.display()
    ))
}

pub fn untrust(options: &McpUntrustOptions) -> Result<(), Trouble> {
    let folder = options.cwd.as_deref().map(|cwd| run::folder(Some(cwd))).transpose()?;
    let gone = audited(|book| book.untrust(&options.name, folder.as_deref()))?;
    if gone.is_empty() {
        return Err(Trouble::not_found(format!("no MCP server {:?} is trusted", options.name))
            .fix("ropewalk mcp trust --list shows what is"));
    }
    if options.json {
        return terminal::put_json(
            &json!({ "untrusted": gone.iter().map(trusted_json).collect::<Vec<_>>() }),
        );
    }
    let line = |server: &TrustedServer| {
        format!("{} is not trusted any more in {}.\n", one_line(&server.name), server.folder.display())
    };
    terminal::put(&gone.iter().map(line).collect::<String>())
}

fn trusted_json(TrustedServer { folder, name, digest }: &TrustedServer) -> Value {
    json!({ "name": name, "folder": folder, "digest": digest })
}

/// What a person should hear of an entry of a project: a rule of an earlier version that counts as consent
/// from here on, and variables that are not looked up.
pub fn news(folder: &Path, entry: &ServerEntry) -> Vec<String> {
    let mut news = Vec::new();
    if entry.has_variables() {
        news.push("it has ${..} in it, which is passed on as it is: a project's entry does not see the variables of this program".to_owned());
    }
    let carried = paths::rules().ok().and_then(|paths| {
        let (server, subject) = (&entry.server, consent_subject(&entry.shown()));
        Rulebook::new(paths).carry_over(folder, &server.name, &consent_digest(server), &subject)
    });
    if let Some(rule) = carried {
        news.push(format!(
            "your rule {} allowed exactly this program, so it is trusted from here on (ropewalk mcp trust --list); rules allow no program of a project any more, and this one can be taken out",
            one_line(&rule)
        ));
    }
    news
}
