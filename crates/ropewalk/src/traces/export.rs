//! Sends the queued traces to the collector in batches.

use std::sync::Arc;
use std::time::Duration;

use access::devices::push::choose_arithmetic;
use hyper::body::Bytes;
use metrics::{Metrics, SpanFate};
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Endpoint;
use super::encode;
use super::spans::Trace;

/// A batch with this many spans is sent at once.
const BATCH_SPANS: u64 = 512;
/// From resolving the host to the response status.
const SENDING_MAX: Duration = Duration::from_secs(5);
/// How long to wait for the remaining traces when the process ends.
pub const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Timing of the exporter. Injected, because tests control the time.
#[derive(Debug, Clone, Copy)]
pub struct ExportTiming {
    /// How long the first trace of a batch waits for more.
    pub linger: Duration,
    /// Pauses before the second and the third attempt.
    pub pauses: [Duration; 2],
}

impl ExportTiming {
    pub const USUAL: Self =
        Self { linger: Duration::from_millis(500), pauses: [Duration::from_secs(1), Duration::from_secs(3)] };
}

pub struct Exporter {
    timing: ExportTiming,
    endpoint: Endpoint,
    client: Client,
    queue: mpsc::Receiver<Trace>,
    metrics: Arc<Metrics>,
    batch: Vec<Trace>,
    /// The last batch failed. Logged once, and once when sending works again.
    troubled: bool,
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("could not reach the collector")]
    Unreachable(#[source] reqwest::Error),
    #[error("the collector answered {0}")]
    Refused(StatusCode),
    #[error("the collector did not answer in time")]
    TooSlow,
}

impl SendError {
    /// Whether a retry may succeed.
    fn passes(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TooSlow => true,
            Self::Refused(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        }
    }
}

impl Exporter {
    pub fn new(
        timing: ExportTiming,
        endpoint: Endpoint,
        queue: mpsc::Receiver<Trace>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, reqwest::Error> {
        let client = client(&endpoint)?;
        Ok(Self { timing, endpoint, client, queue, metrics, batch: Vec::new(), troubled: false })
    }

    /// Sends until cancelled, then sends what is left, with one attempt per batch.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                more = self.gather() => if !more { break },
            }
            self.deliver(&stop).await;
        }
        loop {
            while self.spans() < BATCH_SPANS
                && let Ok(trace) = self.queue.try_recv()
            {
                self.batch.push(trace);
            }
            if self.batch.is_empty() {
                return;
            }
            self.deliver(&stop).await;
        }
    }

    /// Waits for a batch. Cancel-safe. Returns whether more may come.
    async fn gather(&mut self) -> bool {
        if self.batch.is_empty() {
            let Some(trace) = self.queue.recv().await else { return false };
            self.batch.push(trace);
        }
        let linger = self.timing.linger;
        let fill = async {
            while self.spans() < BATCH_SPANS
                && let Some(trace) = self.queue.recv().await
            {
                self.batch.push(trace);
            }
        };
        // Full or not, it is sent.
        drop(tokio::time::timeout(linger, fill).await);
        true
    }

    fn spans(&self) -> u64 {
        self.batch.iter().map(Trace::count).sum()
    }

    async fn deliver(&mut self, stop: &CancellationToken) {
        let spans = self.spans();
        let body = Bytes::from(encode::body(&std::mem::take(&mut self.batch)));
        let mut pauses = self.timing.pauses.into_iter();
        let error = loop {
            let sent =
                tokio::time::timeout(SENDING_MAX, send(&self.client, &self.endpoint, body.clone())).await;
            let error = match sent.unwrap_or(Err(SendError::TooSlow)) {
                Ok(()) => return self.delivered(spans),
                Err(error) => error,
            };
            let pause = pauses.next().filter(|_| error.passes() && !stop.is_cancelled());
            let Some(pause) = pause else { break error };
            tokio::select! {
                () = stop.cancelled() => break error,
                () = tokio::time::sleep(pause) => {}
            }
        };
        self.metrics.spans(SpanFate::Dropped, spans);
        if !std::mem::replace(&mut self.troubled, true) {
            let cause = innermost(&error);
            let authority = &self.endpoint.authority;
            tracing::warn!(%error, cause, collector = authority, "dropping traces until the collector accepts them");
        }
    }

    fn delivered(&mut self, spans: u64) {
        self.metrics.spans(SpanFate::Sent, spans);
        if std::mem::replace(&mut self.troubled, false) {
            tracing::info!("the collector accepts traces again");
        }
    }
}

/// Each batch uses a new connection: the collector may have restarted in between.
fn client(endpoint: &Endpoint) -> Result<Client, reqwest::Error> {
    choose_arithmetic();
    let client = Client::builder()
        .redirect(Policy::none())
        .pool_max_idle_per_host(0)
        .user_agent(concat!("ropewalk/", env!("CARGO_PKG_VERSION")));
    let client = if endpoint.is_asked_directly() { client.no_proxy() } else { client };
    client.build()
}

async fn send(client: &Client, endpoint: &Endpoint, body: Bytes) -> Result<(), SendError> {
    let request = client.post(endpoint.url()).header(CONTENT_TYPE, "application/json").body(body);
    let answer = request.send().await.map_err(SendError::Unreachable)?;
    if answer.status().is_success() { Ok(()) } else { Err(SendError::Refused(answer.status())) }
}

/// The innermost cause: the outer errors only say that a request failed.
fn innermost(error: &SendError) -> String {
    let mut cause = std::error::Error::source(error);
    while let Some(below) = cause.and_then(std::error::Error::source) {
        cause = Some(below);
    }
    cause.map(ToString::to_string).unwrap_or_default()
}
