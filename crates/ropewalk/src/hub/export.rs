//! `ropewalk hub sessions` and `ropewalk hub export`: lists mirrored sessions and exports one to a file for
//! `ropewalk sessions import`. The database is only read, so the hub may be running.

use std::io::Write;
use std::sync::Arc;

use engine::{Clock, SessionId, SystemClock, Timestamp};
use hub::session_export::{Export, ExportError, MirroredSession};
use serde_json::json;
use store::sql::{Db, SqliteDb};

use super::{DatabaseLocation, connect, database_location, no_database};
use crate::cli::{HubExportOptions, HubSessionsOptions, HubStoreOptions};
use crate::cli_error::CliError;
use crate::output;
use crate::sessions::export::{OutputFile, unwritable};

const SEE_LIST: &str = "ropewalk hub sessions";

pub async fn sessions(options: &HubSessionsOptions) -> Result<(), CliError> {
    let db = database(&options.store).await?;
    let sessions =
        hub::session_export::sessions(&*db, options.limit).await.map_err(|error| no_database(&error))?;
    if options.json {
        return output::put_json(&json!({ "sessions": sessions }));
    }
    let mut text = String::new();
    for session in &sessions {
        let at = wire::timestamp::rfc3339(Timestamp(session.updated_at));
        let machine = session.machine_name.as_deref().or(session.machine.as_deref()).unwrap_or("-");
        let title = match (session.sealed, &session.title) {
            (true, _) => "(sealed)",
            (false, Some(title)) => title,
            (false, None) => "(no title)",
        };
        let line = format!("{}  {at}  {:>7} events  {machine}  {title}", session.session, session.head);
        text.push_str(&output::one_line(&line));
        text.push('\n');
    }
    output::put(&text)
}

pub async fn export(options: &HubExportOptions) -> Result<(), CliError> {
    let db = database(&options.store).await?;
    let mirrored = find(&*db, &options.id).await?;
    if mirrored.head == 0 {
        return Err(CliError::failed(format!("this hub has no log of {}", mirrored.session))
            .because("its bridge sends only live frames to this hub")
            .fix("run `ropewalk sessions export ID` on its machine"));
    }
    let mut export = Export::new(&*db, &mirrored, SystemClock.now());
    match &options.output {
        Some(path) => {
            let mut target = OutputFile::open(path).map_err(|error| unwritable(path, error))?;
            while let Some(piece) = export.next().await.map_err(failed)? {
                target.write(piece.as_bytes()).map_err(|error| unwritable(path, error))?;
            }
            target.finish(path).map_err(|error| unwritable(path, error))?;
        }
        None => {
            let mut out = std::io::stdout().lock();
            while let Some(piece) = export.next().await.map_err(failed)? {
                out.write_all(piece.as_bytes()).map_err(|error| CliError::from_output(&error))?;
            }
            out.flush().map_err(|error| CliError::from_output(&error))?;
        }
    }
    let Some(path) = &options.output else { return Ok(()) };
    if options.json {
        return output::put_json(&json!({
            "session_id": mirrored.session, "file": path, "events": export.events, "sealed": mirrored.sealed,
        }));
    }
    output::say(&format!("{}: {} events", path.display(), export.events));
    if mirrored.sealed {
        output::say(
            "the export is sealed: import it where the key of its machine is, or pass that key with --key",
        );
    }
    Ok(())
}

async fn find(db: &dyn Db, id: &str) -> Result<MirroredSession, CliError> {
    let mut found = hub::session_export::find(db, id).await.map_err(|error| no_database(&error))?;
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => Err(CliError::not_found(format!("session {id} not found at this hub")).fix(SEE_LIST)),
        (Some(last), false) => {
            found.push(last);
            let title = |one: &MirroredSession| one.title.clone().unwrap_or_default();
            let candidates =
                found.iter().filter_map(|one| Some((SessionId::parse(&one.session).ok()?, title(one))));
            let candidates = candidates.collect();
            Err(CliError::not_found(format!("several sessions start with {id}"))
                .fix("use more characters of the id")
                .candidates(candidates))
        }
    }
}

fn failed(error: ExportError) -> CliError {
    match error {
        ExportError::Db(error) => no_database(&error),
        error @ (ExportError::Malformed(_) | ExportError::Changed) => {
            CliError::failed("could not export the session").because(error).fix(SEE_LIST)
        }
    }
}

/// The database of an existing hub.
async fn database(options: &HubStoreOptions) -> Result<Arc<dyn Db>, CliError> {
    let file = match database_location(options)? {
        DatabaseLocation::Postgres(url) => return connect(&url, None).await,
        DatabaseLocation::File(file) => file,
    };
    if !file.is_file() {
        return Err(CliError::not_found(format!("hub database {} not found", file.display()))
            .fix("pass --store or --data as for the hub itself"));
    }
    Ok(Arc::new(SqliteDb::open_to_read(&file).map_err(|error| no_database(&error))?))
}
