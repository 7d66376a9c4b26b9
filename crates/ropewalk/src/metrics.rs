//! What measures a server: the metrics, and the traces if somebody wants them.

use std::sync::Arc;

use engine::{Clock, Follower, SystemClock};
use metrics::{Counting, Metrics};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::traces::{self, Endpoint, Exporter, FLUSH_MAX, Pace, Traces};
use crate::{paths, trouble::Trouble};

/// Where everybody who sends traces looks for the collector.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

pub struct Meters {
    pub metrics: Arc<Metrics>,
    traces: Option<Arc<Traces>>,
    exporter: Option<Exporter>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Meters {
    /// `otlp` is the collector that the command line names, if it names one.
    pub fn new(otlp: Option<&str>) -> Result<Self, Trouble> {
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), SystemClock.now());
        let (traces, exporter) = match endpoint(otlp)? {
            Some(endpoint) => {
                let opened = traces::open(Pace::USUAL, endpoint, &metrics);
                let (traces, exporter) = opened
                    .map_err(|error| Trouble::failed("traces cannot be sent from here").because(error))?;
                (Some(traces), Some(exporter))
            }
            None => (None, None),
        };
        Ok(Self { metrics, traces, exporter, tasks: TaskTracker::new(), stop: CancellationToken::new() })
    }

    /// Whoever reads along on every session.
    pub fn followers(&self) -> Vec<Arc<dyn Follower>> {
        let counting = Arc::new(Counting(Arc::clone(&self.metrics))) as Arc<dyn Follower>;
        let traces = self.traces.clone().map(|traces| traces as Arc<dyn Follower>);
        std::iter::once(counting).chain(traces).collect()
    }

    /// From here on traces are sent. Called on the runtime.
    pub fn start(&mut self) {
        if let Some(exporter) = self.exporter.take() {
            drop(self.tasks.spawn(exporter.run(self.stop.clone())));
        }
    }

    /// Sends what is left, within bounds. Called when no session has anything more to say.
    pub async fn finish(self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(FLUSH_MAX, self.tasks.wait()).await.is_err() {
            tracing::warn!("the collector did not take the last traces in time");
        }
    }
}

fn endpoint(named: Option<&str>) -> Result<Option<Endpoint>, Trouble> {
    let (text, source) = match named {
        Some(text) => (text.to_owned(), "--otlp"),
        None => match paths::variable(ENDPOINT) {
            Some(text) => (text.to_string_lossy().into_owned(), ENDPOINT),
            None => return Ok(None),
        },
    };
    let endpoint = Endpoint::parse(&text).map_err(|error| {
        Trouble::usage(format!("{source} names no collector that traces can be sent to"))
            .because(error)
            .fix("give the address of a collector: --otlp http://127.0.0.1:4318")
    })?;
    Ok(Some(endpoint))
}
