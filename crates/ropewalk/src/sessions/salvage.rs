//! `sessions salvage`: what can be read of a damaged file, in a new one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use engine::{Clock, SystemClock};
use serde_json::{Value, json};
use store::Salvaged;
use wire::timestamp;

use crate::cli::SalvageOptions;
use crate::session_store::SessionStore;
use crate::terminal;
use crate::trouble::Trouble;

pub fn run(options: &SalvageOptions) -> ExitCode {
    match save(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => trouble.report(options.json),
    }
}

fn save(options: &SalvageOptions) -> Result<(), Trouble> {
    let damaged = match &options.file {
        Some(file) => file.clone(),
        None => match SessionStore::chosen()? {
            SessionStore::File(path) => path,
            SessionStore::Postgres(address) => {
                return Err(Trouble::usage(format!("sessions are on {}, not in a file", address.shown))
                    .because("what is damaged in a PostgreSQL is repaired or restored by its own tools")
                    .fix("name a damaged file: ropewalk sessions salvage FILE"));
            }
        },
    };
    if !damaged.is_file() {
        return Err(Trouble::not_found(format!("there is no file {}", damaged.display())));
    }
    let into = options.into.clone().unwrap_or_else(|| beside(&damaged));
    let saved = store::salvage(&damaged, &into).map_err(|reason| {
        Trouble::failed(format!("{} could not be salvaged", damaged.display())).because(reason)
    })?;
    if options.json {
        let sessions: Vec<_> = saved.iter().map(as_json).collect();
        return terminal::put_json(&json!({ "into": into, "sessions": sessions }));
    }
    for session in &saved {
        terminal::put(&line(session))?;
    }
    let events: u64 = saved.iter().map(|session| session.events).sum();
    terminal::put(&format!("{}: {} sessions with {events} events\n", into.display(), saved.len()))?;
    terminal::say(&format!("{} is as it was. To use what was saved: stop ropewalk,", damaged.display()));
    terminal::say(&format!("move {0} (and {0}-wal) aside, and rename the new file to it", damaged.display()));
    Ok(())
}

fn beside(damaged: &Path) -> PathBuf {
    let mut name = damaged.file_name().unwrap_or_default().to_owned();
    name.push(format!(".salvaged-{}", timestamp::compact(SystemClock.now())));
    damaged.with_file_name(name)
}

fn line(session: &Salvaged) -> String {
    let title = terminal::one_line(session.title.as_deref().unwrap_or("(no title)"));
    let missing = match missing(session) {
        0 => "complete".to_owned(),
        count => format!("{count} missing: {}", ranges(session)),
    };
    format!("{}  {} events, {missing}  {title}\n", session.id, session.events)
}

fn missing(session: &Salvaged) -> u64 {
    session.missing.iter().map(|(from, upto)| upto + 1 - from).sum()
}

fn ranges(session: &Salvaged) -> String {
    let range = |(from, upto): &(u64, u64)| match from == upto {
        true => from.to_string(),
        false => format!("{from}-{upto}"),
    };
    session.missing.iter().map(range).collect::<Vec<_>>().join(", ")
}

fn as_json(session: &Salvaged) -> Value {
    let Salvaged { id, title, nameless, events, missing } = session;
    json!({ "id": id, "title": title, "nameless": nameless, "events": events, "missing": missing })
}
