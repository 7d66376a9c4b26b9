//! Metrics of a server, and traces if a collector is configured.

use std::sync::Arc;

use engine::{Clock, Follower, SystemClock};
use metrics::{Metrics, MetricsFollower};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::traces::{self, Endpoint, ExportTiming, Exporter, FLUSH_MAX, Traces};
use crate::{cli_error::CliError, paths};

/// The standard variable for the collector.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

pub struct ServerMetrics {
    pub metrics: Arc<Metrics>,
    traces: Option<Arc<Traces>>,
    exporter: Option<Exporter>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl ServerMetrics {
    /// `otlp` is the collector of the command line, if any.
    pub fn new(otlp: Option<&str>) -> Result<Self, CliError> {
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), SystemClock.now());
        let (traces, exporter) = match endpoint(otlp)? {
            Some(endpoint) => {
                let opened = traces::open(ExportTiming::USUAL, endpoint, &metrics);
                let (traces, exporter) = opened.map_err(|error| {
                    CliError::failed("could not set up the trace exporter").because(error)
                })?;
                (Some(traces), Some(exporter))
            }
            None => (None, None),
        };
        Ok(Self { metrics, traces, exporter, tasks: TaskTracker::new(), stop: CancellationToken::new() })
    }

    /// The followers of every session.
    pub fn followers(&self) -> Vec<Arc<dyn Follower>> {
        let counting = Arc::new(MetricsFollower(Arc::clone(&self.metrics))) as Arc<dyn Follower>;
        let traces = self.traces.clone().map(|traces| traces as Arc<dyn Follower>);
        std::iter::once(counting).chain(traces).collect()
    }

    /// Starts sending traces. Must be called on the runtime.
    pub fn start(&mut self) {
        if let Some(exporter) = self.exporter.take() {
            drop(self.tasks.spawn(exporter.run(self.stop.clone())));
        }
    }

    /// Sends what is left, within a limit. Called after all sessions have ended.
    pub async fn finish(self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(FLUSH_MAX, self.tasks.wait()).await.is_err() {
            tracing::warn!("the collector did not accept the last traces in time");
        }
    }
}

fn endpoint(named: Option<&str>) -> Result<Option<Endpoint>, CliError> {
    let (text, source) = match named {
        Some(text) => (text.to_owned(), "--otlp"),
        None => match paths::variable(ENDPOINT) {
            Some(text) => (text.to_string_lossy().into_owned(), ENDPOINT),
            None => return Ok(None),
        },
    };
    let endpoint = Endpoint::parse(&text).map_err(|error| {
        CliError::usage(format!("{source} is not a valid collector URL"))
            .because(error)
            .fix("use the URL of a collector, e.g. --otlp http://127.0.0.1:4318")
    })?;
    Ok(Some(endpoint))
}
