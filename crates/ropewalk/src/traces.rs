//! OpenTelemetry traces: each turn as a trace, with spans for model calls, tools and permission requests.
//!
//! A follower of every session log. When a turn has ended, its trace is built from the times in the log and put into a
//! bounded queue, which one task sends. Sessions never wait for the collector: what does not fit is dropped and counted.
//!
//! **Invariant:** no text of a prompt, an answer, a command or a path is in a span.

mod encode;
mod endpoint;
mod export;
mod spans;
mod trace_builder;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use engine::{BoxFuture, Follower, MODEL, SessionHandle, SessionId, follow_log};
use metrics::{Metrics, SpanFate};
use tokio::sync::mpsc;

pub use self::endpoint::Endpoint;
pub use self::export::{ExportTiming, Exporter, FLUSH_MAX};
use self::spans::Trace;
use self::trace_builder::TraceBuilder;

/// Maximum number of queued traces. Together with the limit of spans per trace, this bounds the memory.
const QUEUE_MAX: usize = 128;

/// Follows every session for the traces.
pub struct Traces {
    queue: mpsc::Sender<Trace>,
    metrics: Arc<Metrics>,
}

/// Returns the follower, for the registry, and the exporter, to run in its own task.
pub fn open(
    timing: ExportTiming,
    endpoint: Endpoint,
    metrics: &Arc<Metrics>,
) -> Result<(Arc<Traces>, Exporter), reqwest::Error> {
    let (queue, waiting) = mpsc::channel(QUEUE_MAX);
    let traces = Traces { queue, metrics: Arc::clone(metrics) };
    Ok((Arc::new(traces), Exporter::new(timing, endpoint, waiting, Arc::clone(metrics))?))
}

impl Follower for Traces {
    fn follow(&self, session: SessionHandle) -> BoxFuture<'static, ()> {
        let (queue, metrics) = (self.queue.clone(), Arc::clone(&self.metrics));
        Box::pin(async move {
            let model = session.snapshot().settings.get(MODEL).to_owned();
            let mut builder = TraceBuilder::new(session.id().clone(), &model);
            follow_log(&session, |event| {
                if let Some(trace) = builder.event(event) {
                    hand_over(&queue, &metrics, trace);
                }
            })
            .await;
        })
    }

    fn deleted(&self, _: &SessionId) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn hand_over(queue: &mpsc::Sender<Trace>, metrics: &Metrics, trace: Trace) {
    metrics.spans(SpanFate::Dropped, trace.left_out);
    if let Err(refused) = queue.try_send(trace) {
        metrics.spans(SpanFate::Dropped, refused.into_inner().count());
    }
}
