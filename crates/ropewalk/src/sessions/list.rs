//! `sessions list`: a table, or JSON.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::path::Path;

use engine::{ListQuery, Principal, Registry, SessionId, SessionRow, Timestamp};
use serde_json::{Value, json};
use wire::session_archive::{self, status};
use wire::transcript_text::title_of;

use super::find;
use crate::cli::ListOptions;
use crate::cli_error::CliError;
use crate::output::{self, cut, one_line};
use crate::{chimera_event_log, paths, run};

const TITLE_CHARS_MAX: usize = 44;
const FOLDER_CHARS_MAX: usize = 48;

pub async fn run(registry: &Registry, options: &ListOptions) -> Result<(), CliError> {
    let mut all = find::all(registry).await?;
    let id_chars = find::short_chars(&all);
    let stored: HashSet<_> = all.iter().map(|row| row.id.clone()).collect();
    let folders = if options.all_clis { Some("") } else { options.folders_of };
    if let Some(prefix) = folders {
        let everything = ListQuery::all(Principal::local());
        let listed = registry.list_with_folders(everything, prefix).await.map_err(CliError::from_open)?;
        let in_folders = listed.into_iter().map(|listed| listed.row).filter(|row| !stored.contains(&row.id));
        all.extend(in_folders);
        all.sort_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
    }
    if !options.all {
        let used: HashSet<_> = find::used(registry).await?.into_iter().map(|row| row.id).collect();
        all.retain(|row| used.contains(&row.id) || !stored.contains(&row.id));
    }
    let now = registry.clock().now();
    let cwd = options.cwd.as_deref().map(|cwd| run::folder(Some(cwd))).transpose()?;
    let since = options.since.map(|since| since.moment(now));
    let wanted = |row: &&SessionRow| {
        cwd.as_ref().is_none_or(|cwd| row.cwd == *cwd) && since.is_none_or(|since| row.updated_at >= since)
    };
    let limit = if options.all { usize::MAX } else { options.limit };
    let mut found: Vec<_> = all.iter().filter(wanted).collect();
    if let Some(model) = &options.model {
        found = of_model(registry, found, &stored, model).await?;
    }
    let shown = &found[..found.len().min(limit)];
    if options.json {
        let sessions: Vec<_> = shown.iter().map(|row| json(row, options, &stored)).collect();
        return output::put_json(&json!({ "sessions": sessions, "more": found.len() - shown.len() }));
    }
    if found.is_empty() {
        output::say(if all.is_empty() { "No sessions yet." } else { "No sessions match." });
        return Ok(());
    }
    output::put(&table(shown, id_chars, now))?;
    if shown.len() < found.len() && std::io::stderr().is_terminal() {
        output::say(&format!("{} more. Use --all to list them.", found.len() - shown.len()));
    }
    Ok(())
}

fn json(row: &SessionRow, options: &ListOptions, stored: &HashSet<SessionId>) -> Value {
    let mut session = session_archive::session(row);
    if options.all_clis {
        // The program that the session belongs to.
        let cli = if stored.contains(&row.id) { "ropewalk" } else { &row.source };
        session["cli"] = cli.into();
    }
    session
}

/// The sessions that chose a model with this text in its name.
async fn of_model<'a>(
    registry: &Registry,
    rows: Vec<&'a SessionRow>,
    stored: &HashSet<SessionId>,
    model: &str,
) -> Result<Vec<&'a SessionRow>, CliError> {
    let mut found = Vec::new();
    for row in rows {
        let named = match stored.contains(&row.id) {
            true => find::models(registry, &row.id).await?,
            false => chimera_event_log::model(&row.id).into_iter().collect(),
        };
        if named.iter().any(|name| name.contains(model)) {
            found.push(row);
        }
    }
    Ok(found)
}

fn table(rows: &[&SessionRow], id_chars: usize, now: Timestamp) -> String {
    let head = ["ID", "UPDATED", "STATUS", "TITLE", "FOLDER"].map(str::to_owned);
    let line = |row: &&SessionRow| {
        [
            find::shown(&row.id, id_chars),
            age(now.0.saturating_sub(row.updated_at.0)),
            status(row).to_owned(),
            cut(&one_line(title_of(row)), TITLE_CHARS_MAX),
            folder(&row.cwd),
        ]
    };
    let lines: Vec<_> = std::iter::once(head).chain(rows.iter().map(line)).collect();
    let mut widths = [0; 5];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for line in lines {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// `3 h ago`.
fn age(ms: i64) -> String {
    let minutes = ms / 60_000;
    match minutes {
        ..1 => "just now".to_owned(),
        1..60 => format!("{minutes} min ago"),
        60..2880 => format!("{} h ago", minutes / 60),
        2880..86_400 => format!("{} days ago", minutes / 1440),
        _ => format!("{} weeks ago", minutes / 10_080),
    }
}

/// The folder, relative to the home folder; a long one is cut at its start.
fn folder(path: &Path) -> String {
    let home = paths::variable("HOME").filter(|home| home != "/");
    let text = match home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    };
    let text = one_line(&text);
    let chars = text.chars().count();
    if chars <= FOLDER_CHARS_MAX {
        return text;
    }
    std::iter::once('…').chain(text.chars().skip(chars + 1 - FOLDER_CHARS_MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_the_unit_that_fits() {
        let hour = 3_600_000;
        for (ms, expected) in [
            (-5, "just now"),
            (59_000, "just now"),
            (60_000, "1 min ago"),
            (hour, "1 h ago"),
            (47 * hour, "47 h ago"),
            (48 * hour, "2 days ago"),
            (60 * 24 * hour, "8 weeks ago"),
        ] {
            assert_eq!(age(ms), expected);
        }
    }
}
