//! Finds a session by its id or a unique prefix of it.

use engine::{Body, ListQuery, MODEL, PageRequest, Principal, Registry, Seq, SessionId, SessionRow};
use wire::transcript_text::{short_id, title_of};

use crate::cli_error::CliError;

/// Maximum number of sessions to list for an ambiguous id.
const CANDIDATES_MAX: usize = 10;
/// The minimum number of shown id characters.
const SHORT_CHARS_MIN: usize = 8;

pub async fn one(registry: &Registry, text: &str) -> Result<SessionRow, CliError> {
    let id = SessionId::parse(text).map_err(|error| {
        CliError::usage(format!("{text:?} is not a session id")).because(error).fix("ropewalk sessions list")
    })?;
    match registry.row(&Principal::local(), &id).await {
        Err(engine::OpenError::NotFound(_)) => {}
        found => return found.map_err(CliError::from_open),
    }
    let mut rows = all(registry).await?;
    rows.retain(|row| row.id.as_str().starts_with(text));
    if rows.len() > 1 {
        let named = rows.iter().take(CANDIDATES_MAX).map(|row| (row.id.clone(), title_of(row).to_owned()));
        return Err(CliError::usage(format!("{} sessions start with {text}", rows.len()))
            .candidates(named.collect())
            .fix("use more characters of the id"));
    }
    let none =
        || CliError::not_found(format!("session {text} not found")).fix("ropewalk sessions list --all");
    rows.pop().ok_or_else(none)
}

/// Every session, the latest first.
pub async fn all(registry: &Registry) -> Result<Vec<SessionRow>, CliError> {
    let owner = Principal::local();
    let listed = registry.list(ListQuery::all(owner.clone())).await.map_err(CliError::from_open)?;
    if listed.is_empty() {
        // A listing is also empty if the store cannot be used; looking up any session shows that.
        match registry.row(&owner, &SessionId::random()).await {
            Ok(_) | Err(engine::OpenError::NotFound(_)) => {}
            Err(error) => return Err(CliError::from_open(error)),
        }
    }
    Ok(listed.into_iter().map(|listed| listed.row).collect())
}

/// Every session that was prompted at least once.
pub async fn used(registry: &Registry) -> Result<Vec<SessionRow>, CliError> {
    let listed = registry.list_used(ListQuery::all(Principal::local())).await.map_err(CliError::from_open)?;
    Ok(listed.into_iter().map(|listed| listed.row).collect())
}

/// The models that were chosen in a session.
pub async fn models(registry: &Registry, id: &SessionId) -> Result<Vec<String>, CliError> {
    let (mut after, mut found) = (Seq::START, Vec::new());
    loop {
        let page = registry.read(&Principal::local(), id, after, PageRequest::OUTLINE).await;
        let page = page.map_err(CliError::from_open)?;
        let Some(last) = page.last() else { return Ok(found) };
        after = last.seq;
        for event in &page {
            if let Body::SettingChanged { id, value } = &event.body
                && **id == *MODEL
            {
                found.push(value.to_string());
            }
        }
    }
}

/// How many characters of random ids make all of these unique.
pub fn short_chars(rows: &[SessionRow]) -> usize {
    let mut ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).filter(|id| is_random(id)).collect();
    ids.sort_unstable();
    let shared = |pair: &[&str]| pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count() + 1;
    ids.windows(2).map(shared).max().unwrap_or(0).max(SHORT_CHARS_MIN)
}

/// An id for a table: a prefix of a random one, all of an id with a common prefix.
pub fn shown(id: &SessionId, chars: usize) -> String {
    let chars = if is_random(id.as_str()) { chars } else { usize::MAX };
    id.as_str().chars().take(chars).collect()
}

fn is_random(id: &str) -> bool {
    short_id(id) != id
}
