//! `ropewalk mcp trust` and `untrust`: the owner's advance consent to MCP servers that a project names.

use std::fmt::Write as _;
use std::path::Path;

use agent::{consent_digest, consent_subject};
use guard::{Rulebook, TrustedServer};
use serde_json::{Value, json};

use crate::cli::{McpTrustOptions, McpUntrustOptions};
use crate::cli_error::CliError;
use crate::config::{self, ServerEntry};
use crate::output::{self, one_line};
use crate::permissions::with_audit;
use crate::{paths, run};

pub fn trust(options: &McpTrustOptions) -> Result<(), CliError> {
    if options.list {
        return list(options.json);
    }
    let folder = run::folder(options.cwd.as_deref())?;
    let entries = config::project_entries(&folder)
        .map_err(|reason| CliError::failed("could not read the project's settings").because(reason))?;
    match &options.name {
        Some(name) => trust_one(&folder, name, &entries, options.json),
        None => show_project(&folder, &entries, options.json),
    }
}

/// Lists all trusted servers on this machine.
fn list(as_json: bool) -> Result<(), CliError> {
    let (servers, warnings) = Rulebook::new(paths::rules()?).trusted();
    for warning in &warnings {
        output::say(&format!("{} {}", output::stderr_paint().warn("warning:"), one_line(warning)));
    }
    if as_json {
        return output::put_json(&json!({ "trusted": servers.iter().map(trusted_json).collect::<Vec<_>>() }));
    }
    if servers.is_empty() {
        return output::put("No project's MCP server is trusted. To trust one: ropewalk mcp trust NAME\n");
    }
    let mut out = String::new();
    for TrustedServer { folder, name, digest } in &servers {
        writeln!(out, "{}  in {}  {digest}", one_line(name), folder.display()).ok();
    }
    output::put(&out)
}

/// Lists the servers of this project, for the person to review.
fn show_project(folder: &Path, entries: &[ServerEntry], as_json: bool) -> Result<(), CliError> {
    let book = Rulebook::new(paths::rules()?);
    let trusted = |entry: &ServerEntry| book.trusts(folder, &consent_digest(&entry.server));
    if as_json {
        let entry = |entry: &ServerEntry| {
            json!({
                "name": entry.server.name.as_ref(), "entry": entry.one_line(),
                "digest": consent_digest(&entry.server), "trusted": trusted(entry),
            })
        };
        return output::put_json(&json!({ "servers": entries.iter().map(entry).collect::<Vec<_>>() }));
    }
    if entries.is_empty() {
        return output::put("This project has no MCP servers.\n");
    }
    let mut out = String::new();
    for entry in entries {
        let state = if trusted(entry) { "trusted" } else { "not trusted" };
        writeln!(out, "{state}: {}", one_line(&entry.one_line())).ok();
    }
    out.push_str("To let one start here without asking, inside the sandbox: ropewalk mcp trust NAME\n");
    output::put(&out)
}

fn trust_one(folder: &Path, name: &str, entries: &[ServerEntry], as_json: bool) -> Result<(), CliError> {
    let Some(entry) = entries.iter().find(|entry| *entry.server.name == *name) else {
        return Err(CliError::not_found(format!("MCP server {name:?} not found in this project"))
            .fix("list its servers with `ropewalk mcp trust`, or pass -C DIR for another folder"));
    };
    let digest = consent_digest(&entry.server);
    let new = with_audit(|book| book.trust(folder, name, &digest))?;
    if as_json {
        return output::put_json(&json!({
            "trusted": name, "folder": folder, "entry": entry.one_line(), "digest": digest, "changed": new,
        }));
    }
    let how = if new { "is now trusted" } else { "was already trusted" };
    output::put(&format!(
        "{}\n{} {how} in {}.\n",
        one_line(&entry.one_line()),
        one_line(name),
        folder.display()
    ))
}

pub fn untrust(options: &McpUntrustOptions) -> Result<(), CliError> {
    let folder = options.cwd.as_deref().map(|cwd| run::folder(Some(cwd))).transpose()?;
    let gone = with_audit(|book| book.untrust(&options.name, folder.as_deref()))?;
    if gone.is_empty() {
        return Err(CliError::not_found(format!("no trusted MCP server {:?}", options.name))
            .fix("ropewalk mcp trust --list"));
    }
    if options.json {
        return output::put_json(&json!({ "untrusted": gone.iter().map(trusted_json).collect::<Vec<_>>() }));
    }
    let line = |server: &TrustedServer| {
        format!("{} is no longer trusted in {}.\n", one_line(&server.name), server.folder.display())
    };
    output::put(&gone.iter().map(line).collect::<String>())
}

fn trusted_json(TrustedServer { folder, name, digest }: &TrustedServer) -> Value {
    json!({ "name": name, "folder": folder, "digest": digest })
}

/// Notices about an entry of a project: a rule of an earlier version that now counts as consent, and variables that are
/// not expanded.
pub fn notices(folder: &Path, entry: &ServerEntry) -> Vec<String> {
    let mut notices = Vec::new();
    if entry.has_variables() {
        notices.push(
            "it contains ${..}, which is not replaced: a project's server cannot read your variables"
                .to_owned(),
        );
    }
    let carried = paths::rules().ok().and_then(|paths| {
        let (server, subject) = (&entry.server, consent_subject(&entry.one_line()));
        Rulebook::new(paths).carry_over(folder, &server.name, &consent_digest(server), &subject)
    });
    if let Some(rule) = carried {
        notices.push(format!(
            "your rule {} allowed exactly this program, so it is now trusted (see ropewalk mcp trust --list); rules no longer allow programs of a project, so you can remove this one",
            one_line(&rule)
        ));
    }
    notices
}
