//! The stored sessions as runs, and what they cost.

use std::sync::Arc;

use axum::routing::get;
use axum::{Json, Router};
use engine::{ListQuery, Page, Seq, SessionRow};
use serde_json::Value;
use service::ServiceError;
use wire::rest::{Filter, Run, cost, list};
use wire::since::Since;

use super::reach::{Reach, refusal};
use super::words::{Words, bad_query};
use crate::http::{Doors, Refusal};

/// Sessions that one answer is made from, the latest. Each one's log is read, without what was streamed.
const RUNS_MAX: usize = 1000;

pub(super) fn routes() -> Router<Arc<Doors>> {
    Router::new().route("/runs", get(all)).route("/runs/cost", get(costs))
}

async fn all(reach: Reach, words: Words) -> Result<Json<Value>, Refusal> {
    let filter = filter(&reach, &words)?;
    Ok(Json(list(&runs(&reach, &filter).await?)))
}

async fn costs(reach: Reach, words: Words) -> Result<Json<Value>, Refusal> {
    let filter = filter(&reach, &words)?;
    Ok(Json(cost(&runs(&reach, &filter).await?, &filter)))
}

fn filter(reach: &Reach, words: &Words) -> Result<Filter, Refusal> {
    let now = reach.doors.registry.clock().now();
    let since = words.get("since").map(Since::parse).transpose();
    let since = since.map_err(|hint| bad_query(&format!("since is not a time; {hint}")))?;
    Ok(Filter {
        since: words.get("since").map(str::to_owned),
        since_at: since.map(|since| since.moment(now)),
        model: words.get("model").map(str::to_owned),
        limit: words.number("limit")?.filter(|limit| *limit > 0),
    })
}

async fn runs(reach: &Reach, filter: &Filter) -> Result<Vec<Run>, Refusal> {
    let query = ListQuery { limit: RUNS_MAX, ..ListQuery::all(reach.by.principal.clone()) };
    let rows = reach.service.list(&reach.by, query, None).await.map_err(refusal)?;
    let recent = rows.into_iter().map(|listed| listed.row);
    let recent = recent.filter(|row| filter.since_at.is_none_or(|since| row.updated_at >= since));
    let limit = filter.limit.unwrap_or(usize::MAX);
    let mut found = Vec::new();
    for row in recent {
        if found.len() >= limit {
            break;
        }
        // A session that is deleted in this moment has no run.
        let Some(run) = run(reach, row).await? else { continue };
        if filter.admits(&run) {
            found.push(run);
        }
    }
    Ok(found)
}

async fn run(reach: &Reach, row: SessionRow) -> Result<Option<Run>, Refusal> {
    let (id, mut after) = (row.id.clone(), Seq::START);
    let mut run = Run::new(row, reach.usual_model());
    loop {
        let read = reach.service.read(&reach.by, &id, after, Page::OUTLINE).await;
        let events = match read {
            Ok(events) => events,
            Err(ServiceError::Open(engine::OpenError::NotFound(_))) => return Ok(None),
            Err(error) => return Err(refusal(error)),
        };
        let Some(last) = events.last() else { return Ok(Some(run)) };
        after = last.seq;
        events.iter().for_each(|event| run.observe(event));
    }
}
