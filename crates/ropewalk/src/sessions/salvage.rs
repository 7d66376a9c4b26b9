//! `sessions salvage`: recovers what is readable in a damaged session file into a new one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use engine::{Clock, SystemClock};
use serde_json::{Value, json};
use store::SalvagedSession;
use wire::timestamp;

use crate::cli::SalvageOptions;
use crate::cli_error::CliError;
use crate::output;
use crate::session_store::SessionStore;

pub fn run(options: &SalvageOptions) -> ExitCode {
    match save(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(options.json),
    }
}

fn save(options: &SalvageOptions) -> Result<(), CliError> {
    let damaged = match &options.file {
        Some(file) => file.clone(),
        None => match SessionStore::chosen()? {
            SessionStore::File(path) => path,
            SessionStore::Postgres(address) => {
                return Err(CliError::usage(format!(
                    "sessions are stored in {}, not in a file",
                    address.shown
                ))
                .because("repair or restore a PostgreSQL database with its own tools")
                .fix("ropewalk sessions salvage FILE, with a damaged file"));
            }
        },
    };
    if !damaged.is_file() {
        return Err(CliError::not_found(format!("file {} not found", damaged.display())));
    }
    let into = options.into.clone().unwrap_or_else(|| default_target(&damaged));
    let saved = store::salvage(&damaged, &into).map_err(|reason| {
        CliError::failed(format!("could not salvage {}", damaged.display())).because(reason)
    })?;
    if options.json {
        let sessions: Vec<_> = saved.iter().map(as_json).collect();
        return output::put_json(&json!({ "into": into, "sessions": sessions }));
    }
    for session in &saved {
        output::put(&line(session))?;
    }
    let events: u64 = saved.iter().map(|session| session.events).sum();
    output::put(&format!("{}: {} sessions with {events} events\n", into.display(), saved.len()))?;
    output::say(&format!("{} is unchanged. To use the recovered file: stop ropewalk,", damaged.display()));
    output::say(&format!("move {0} (and {0}-wal) aside, then rename the new file to it", damaged.display()));
    Ok(())
}

fn default_target(damaged: &Path) -> PathBuf {
    let mut name = damaged.file_name().unwrap_or_default().to_owned();
    name.push(format!(".salvaged-{}", timestamp::compact(SystemClock.now())));
    damaged.with_file_name(name)
}

fn line(session: &SalvagedSession) -> String {
    let title = output::one_line(session.title.as_deref().unwrap_or("(no title)"));
    let missing = match missing(session) {
        0 => "complete".to_owned(),
        count => format!("{count} missing: {}", ranges(session)),
    };
    format!("{}  {} events, {missing}  {title}\n", session.id, session.events)
}

fn missing(session: &SalvagedSession) -> u64 {
    session.missing.iter().map(|(from, upto)| upto + 1 - from).sum()
}

fn ranges(session: &SalvagedSession) -> String {
    let range = |(from, upto): &(u64, u64)| match from == upto {
        true => from.to_string(),
        false => format!("{from}-{upto}"),
    };
    session.missing.iter().map(range).collect::<Vec<_>>().join(", ")
}

fn as_json(session: &SalvagedSession) -> Value {
    let SalvagedSession { id, title, nameless, events, missing } = session;
    json!({ "id": id, "title": title, "nameless": nameless, "events": events, "missing": missing })
}
