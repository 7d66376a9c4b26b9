//! `sessions fork`, `rename` and `delete`.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use engine::{
    Input, NewSessionRequest, OpenError, Principal, Registry, Sender, SessionRow, StoreError, SurfaceId,
};
use serde_json::json;
use wire::transcript_text::title_of;

use super::find;
use crate::cli::{DeleteOptions, ForkOptions, RenameOptions};
use crate::cli_error::CliError;
use crate::output::{self, one_line};

const TITLE_CHARS_MAX: usize = 200;

pub async fn fork(registry: &Registry, options: &ForkOptions) -> Result<(), CliError> {
    let source = match &options.id {
        Some(id) => find::one(registry, id).await?,
        None => {
            let newest = find::all(registry).await?.into_iter().next();
            newest.ok_or_else(|| CliError::not_found("no sessions yet"))?
        }
    };
    let wish = NewSessionRequest {
        owner: Principal::local(),
        cwd: source.cwd.clone(),
        servers: Vec::new(),
        roots: source.roots.clone(),
        within: None,
        source: "fork".into(),
    };
    let handle = registry.fork(&source.id, wish).await.map_err(CliError::from_open)?;
    if options.json {
        let report = json!({ "session_id": handle.id().as_str(), "parent_id": source.id.as_str() });
        return output::put_json(&report);
    }
    output::put(&format!("{}\n", handle.id()))
}

/// The new title is written to the log, so that every client sees it.
pub async fn rename(registry: &Registry, options: &RenameOptions) -> Result<(), CliError> {
    let title = one_line(&options.title);
    if title.is_empty() || title.chars().count() > TITLE_CHARS_MAX {
        return Err(CliError::usage(format!("a title must have 1 to {TITLE_CHARS_MAX} characters")));
    }
    let row = find::one(registry, &options.id).await?;
    let handle = registry.open(&Principal::local(), &row.id).await.map_err(CliError::from_open)?;
    let by = Sender::owner(SurfaceId::random(), "cli");
    let renamed = handle.send(Input::Rename { by, title: Arc::from(title.as_str()) }).await;
    renamed.map_err(|error| CliError::failed("could not rename the session").because(error))?;
    if options.json {
        return output::put_json(&json!({ "session_id": row.id.as_str(), "title": title }));
    }
    output::say(&format!("renamed {} to {title}", row.id));
    Ok(())
}

pub async fn delete(registry: &Registry, options: &DeleteOptions) -> Result<(), CliError> {
    let mut rows: Vec<SessionRow> = Vec::new();
    for id in &options.ids {
        let row = find::one(registry, id).await?;
        if !rows.iter().any(|known| known.id == row.id) {
            rows.push(row);
        }
    }
    if !options.yes && !confirmed(&rows)? {
        output::say("Nothing was deleted.");
        return Ok(());
    }
    for row in &rows {
        refuse_busy(registry, row).await?;
        registry.delete(&Principal::local(), &row.id).await.map_err(CliError::from_open)?;
        if !options.json {
            output::say(&format!("deleted {}  {}", row.id, one_line(title_of(row))));
        }
    }
    if options.json {
        let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
        return output::put_json(&json!({ "deleted": ids }));
    }
    Ok(())
}

/// Refuses to delete a session in the middle of a turn, by trying to take it over. Any other error does not prevent
/// the deletion.
async fn refuse_busy(registry: &Registry, row: &SessionRow) -> Result<(), CliError> {
    match registry.open(&Principal::local(), &row.id).await {
        Err(error @ OpenError::Store(StoreError::BusyElsewhere)) => {
            Err(CliError::from_open(error).fix("end the turn first, then delete the session"))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn confirmed(rows: &[SessionRow]) -> Result<bool, CliError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CliError::usage("deleting needs confirmation, but there is no terminal")
            .fix("pass --yes to delete without asking"));
    }
    for row in rows {
        output::say(&format!("  {}  {}", row.id, one_line(title_of(row))));
    }
    let what =
        if rows.len() == 1 { "this session".to_owned() } else { format!("these {} sessions", rows.len()) };
    output::says_yes(&format!("Permanently delete {what}?"))
}
