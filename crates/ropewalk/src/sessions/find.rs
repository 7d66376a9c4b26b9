//! Which session is meant: a whole id, or as much of its beginning as no other has.

use engine::{Body, ListQuery, MODEL, Page, Principal, Registry, Seq, SessionId, SessionRow};
use wire::plain::{short_id, title_of};

use crate::trouble::Trouble;

/// Sessions that are named when an id is not clear.
const CANDIDATES_MAX: usize = 10;
/// Fewer characters of an id are never shown.
const SHORT_CHARS_MIN: usize = 8;

pub async fn one(registry: &Registry, text: &str) -> Result<SessionRow, Trouble> {
    let id = SessionId::parse(text).map_err(|error| {
        Trouble::usage(format!("{text:?} cannot be a session")).because(error).fix("ropewalk sessions list")
    })?;
    match registry.row(&Principal::local(), &id).await {
        Err(engine::OpenError::NotFound(_)) => {}
        found => return found.map_err(Trouble::open),
    }
    let mut rows = all(registry).await?;
    rows.retain(|row| row.id.as_str().starts_with(text));
    if rows.len() > 1 {
        let named = rows.iter().take(CANDIDATES_MAX).map(|row| (row.id.clone(), title_of(row).to_owned()));
        return Err(Trouble::usage(format!("{} sessions begin with {text}", rows.len()))
            .candidates(named.collect())
            .fix("more characters of the id"));
    }
    let none =
        || Trouble::not_found(format!("there is no session {text}")).fix("ropewalk sessions list --all");
    rows.pop().ok_or_else(none)
}

/// Every session, the latest first.
pub async fn all(registry: &Registry) -> Result<Vec<SessionRow>, Trouble> {
    let owner = Principal::local();
    let listed = registry.list(ListQuery::all(owner.clone())).await.map_err(Trouble::open)?;
    if listed.is_empty() {
        // A listing is empty, too, where the store cannot be used; looking for any session tells.
        match registry.row(&owner, &SessionId::random()).await {
            Ok(_) | Err(engine::OpenError::NotFound(_)) => {}
            Err(error) => return Err(Trouble::open(error)),
        }
    }
    Ok(listed.into_iter().map(|listed| listed.row).collect())
}

/// The same without those that were never prompted.
pub async fn used(registry: &Registry) -> Result<Vec<SessionRow>, Trouble> {
    let listed = registry.list_used(ListQuery::all(Principal::local())).await.map_err(Trouble::open)?;
    Ok(listed.into_iter().map(|listed| listed.row).collect())
}

/// The models that were chosen in a session.
pub async fn models(registry: &Registry, id: &SessionId) -> Result<Vec<String>, Trouble> {
    let (mut after, mut found) = (Seq::START, Vec::new());
    loop {
        let page = registry.read(&Principal::local(), id, after, Page::OUTLINE).await;
        let page = page.map_err(Trouble::open)?;
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

/// How many characters of a random id tell all of these apart.
pub fn short_chars(rows: &[SessionRow]) -> usize {
    let mut ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).filter(|id| is_random(id)).collect();
    ids.sort_unstable();
    let shared = |pair: &[&str]| pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count() + 1;
    ids.windows(2).map(shared).max().unwrap_or(0).max(SHORT_CHARS_MIN)
}

/// An id in a table: so much of a random one, all of one that begins like others of its kind.
pub fn shown(id: &SessionId, chars: usize) -> String {
    let chars = if is_random(id.as_str()) { chars } else { usize::MAX };
    id.as_str().chars().take(chars).collect()
}

fn is_random(id: &str) -> bool {
    short_id(id) != id
}
