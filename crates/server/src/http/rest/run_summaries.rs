//! The stored sessions as runs, and their costs.

use std::sync::Arc;

use axum::routing::get;
use axum::{Json, Router};
use engine::{ListQuery, PageRequest, Seq, SessionRow};
use serde_json::Value;
use service::ServiceError;
use wire::parse_past_time::PastTime;
use wire::rest::{RunFilter, RunSummary, cost, list};

use super::request_params::{QueryParams, bad_query};
use super::rest_context::{RestContext, refusal};
use crate::http::{HttpState, Refusal};

/// Sessions that one answer is made from, the latest. Each one's log is read, without what was streamed.
const RUNS_MAX: usize = 1000;

pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new().route("/runs", get(all)).route("/runs/cost", get(costs))
}

async fn all(context: RestContext, params: QueryParams) -> Result<Json<Value>, Refusal> {
    let filter = filter(&context, &params)?;
    Ok(Json(list(&runs(&context, &filter).await?)))
}

async fn costs(context: RestContext, params: QueryParams) -> Result<Json<Value>, Refusal> {
    let filter = filter(&context, &params)?;
    Ok(Json(cost(&runs(&context, &filter).await?, &filter)))
}

fn filter(context: &RestContext, params: &QueryParams) -> Result<RunFilter, Refusal> {
    let now = context.state.registry.clock().now();
    let since = params.get("since").map(PastTime::parse).transpose();
    let since = since.map_err(|hint| bad_query(&format!("since is not a valid time; {hint}")))?;
    Ok(RunFilter {
        since: params.get("since").map(str::to_owned),
        since_at: since.map(|since| since.moment(now)),
        model: params.get("model").map(str::to_owned),
        limit: params.number("limit")?.filter(|limit| *limit > 0),
    })
}

async fn runs(context: &RestContext, filter: &RunFilter) -> Result<Vec<RunSummary>, Refusal> {
    let query = ListQuery { limit: RUNS_MAX, ..ListQuery::all(context.caller.principal.clone()) };
    let rows = context.service.list(&context.caller, query, None).await.map_err(refusal)?;
    let recent = rows.into_iter().map(|listed| listed.row);
    let recent = recent.filter(|row| filter.since_at.is_none_or(|since| row.updated_at >= since));
    let limit = filter.limit.unwrap_or(usize::MAX);
    let mut found = Vec::new();
    for row in recent {
        if found.len() >= limit {
            break;
        }
        // A session that is deleted in this moment has no run.
        let Some(run) = run(context, row).await? else { continue };
        if filter.admits(&run) {
            found.push(run);
        }
    }
    Ok(found)
}

async fn run(context: &RestContext, row: SessionRow) -> Result<Option<RunSummary>, Refusal> {
    let (id, mut after) = (row.id.clone(), Seq::START);
    let mut run = RunSummary::new(row, context.usual_model());
    loop {
        let read = context.service.read(&context.caller, &id, after, PageRequest::OUTLINE).await;
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
