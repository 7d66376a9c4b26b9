//! `/metrics`: the metrics of this process, for scrapers.

use std::sync::Arc;

use axum::Router;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName};
use axum::routing::get;
use metrics::{Metrics, OPEN_METRICS, PLAIN_TEXT};

/// The name under which a scraper asks for the newer form.
const OPEN_METRICS_NAME: &str = "application/openmetrics-text";

pub fn routes<S: Clone + Send + Sync + 'static>(metrics: Arc<Metrics>) -> Router<S> {
    Router::new().route("/metrics", get(move |headers: HeaderMap| async move { page(&metrics, &headers) }))
}

fn page(metrics: &Metrics, headers: &HeaderMap) -> ([(HeaderName, &'static str); 2], String) {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let open = accepted.into_iter().any(|value| value.contains(OPEN_METRICS_NAME));
    let (kind, text) = match open {
        true => (OPEN_METRICS, metrics.render()),
        false => (PLAIN_TEXT, metrics.render_plain()),
    };
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store")], text)
}
