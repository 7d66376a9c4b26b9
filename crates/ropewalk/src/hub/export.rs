//! `ropewalk hub sessions` and `ropewalk hub export`: what is mirrored at a hub, and one session of it in a file that
//! `ropewalk sessions import` takes. The database is only read, so the hub may run meanwhile.

use std::io::Write;
use std::sync::Arc;

use engine::{Clock, SessionId, SystemClock, Timestamp};
use hub::export::{Export, ExportError, Mirrored};
use serde_json::json;
use store::sql::{Db, SqliteDb};

use super::{DatabasePlace, connect, no_database, place};
use crate::cli::{HubExportOptions, HubSessionsOptions, HubStoreOptions};
use crate::sessions::export::{Target, unwritable};
use crate::terminal;
use crate::trouble::Trouble;

const SEE_LIST: &str = "ropewalk hub sessions lists what this hub has";

pub async fn sessions(options: &HubSessionsOptions) -> Result<(), Trouble> {
    let db = database(&options.store).await?;
    let sessions = hub::export::sessions(&*db, options.limit).await.map_err(|error| no_database(&error))?;
    if options.json {
        return terminal::put_json(&json!({ "sessions": sessions }));
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
        text.push_str(&terminal::one_line(&line));
        text.push('\n');
    }
    terminal::put(&text)
}

pub async fn export(options: &HubExportOptions) -> Result<(), Trouble> {
    let db = database(&options.store).await?;
    let mirrored = find(&*db, &options.id).await?;
    if mirrored.head == 0 {
        return Err(Trouble::failed(format!("nothing of {} is mirrored here", mirrored.session))
            .because("its bridge sends frames to this hub, and not its log")
            .fix("export it at its machine: ropewalk sessions export ID"));
    }
    let mut export = Export::new(&*db, &mirrored, SystemClock.now());
    match &options.output {
        Some(path) => {
            let mut target = Target::open(path).map_err(|error| unwritable(path, error))?;
            while let Some(piece) = export.next().await.map_err(failed)? {
                target.write(piece.as_bytes()).map_err(|error| unwritable(path, error))?;
            }
            target.finish(path).map_err(|error| unwritable(path, error))?;
        }
        None => {
            let mut out = std::io::stdout().lock();
            while let Some(piece) = export.next().await.map_err(failed)? {
                out.write_all(piece.as_bytes()).map_err(|error| Trouble::output(&error))?;
            }
            out.flush().map_err(|error| Trouble::output(&error))?;
        }
    }
    let Some(path) = &options.output else { return Ok(()) };
    if options.json {
        return terminal::put_json(&json!({
            "session_id": mirrored.session, "file": path, "events": export.events, "sealed": mirrored.sealed,
        }));
    }
    terminal::say(&format!("{}: {} events", path.display(), export.events));
    if mirrored.sealed {
        terminal::say("it is sealed: import it where the key of its machine is, or name that with --key");
    }
    Ok(())
}

async fn find(db: &dyn Db, id: &str) -> Result<Mirrored, Trouble> {
    let mut found = hub::export::find(db, id).await.map_err(|error| no_database(&error))?;
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => Err(Trouble::not_found(format!("this hub has no session {id}")).fix(SEE_LIST)),
        (Some(last), false) => {
            found.push(last);
            let title = |one: &Mirrored| one.title.clone().unwrap_or_default();
            let candidates =
                found.iter().filter_map(|one| Some((SessionId::parse(&one.session).ok()?, title(one))));
            let candidates = candidates.collect();
            Err(Trouble::not_found(format!("several sessions begin with {id}"))
                .fix("write more of the id")
                .candidates(candidates))
        }
    }
}

fn failed(error: ExportError) -> Trouble {
    match error {
        ExportError::Db(error) => no_database(&error),
        error @ (ExportError::Malformed(_) | ExportError::Changed) => {
            Trouble::failed("the session was not exported").because(error).fix(SEE_LIST)
        }
    }
}

/// The database of a hub, which is not made for this.
async fn database(options: &HubStoreOptions) -> Result<Arc<dyn Db>, Trouble> {
    let file = match place(options)? {
        DatabasePlace::Postgres(url) => return connect(&url, None).await,
        DatabasePlace::File(file) => file,
    };
    if !file.is_file() {
        return Err(Trouble::not_found(format!("there is no hub's database {}", file.display()))
            .fix("name it with --store or --data, as the hub was started with"));
    }
    Ok(Arc::new(SqliteDb::open_to_read(&file).map_err(|error| no_database(&error))?))
}
