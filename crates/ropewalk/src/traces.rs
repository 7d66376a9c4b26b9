//! Traces for a collector: each turn, from the prompt to the tools, as spans.
//!
//! One more reader of every log. A trace is made when its turn has ended, from the log's own times, and put
//! into a bounded queue; one task sends what is in it. Neither the session nor its readers ever wait for
//! the collector: what does not fit is dropped and counted.
//!
//! **Invariant:** no text of a prompt, an answer, a command or a path is in a span.

mod encode;
mod endpoint;
mod export;
mod spans;
mod weave;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use engine::{BoxFuture, Follower, MODEL, SessionHandle, SessionId, follow_log};
use metrics::{Metrics, Spans};
use tokio::sync::mpsc;

pub use self::endpoint::Endpoint;
pub use self::export::{Exporter, FLUSH_MAX, Pace};
use self::spans::Trace;
use self::weave::Weave;

/// Traces that may wait for the collector. With the limit of spans in a trace this bounds the memory.
const QUEUE_MAX: usize = 128;

/// Follows every session for the traces.
pub struct Traces {
    queue: mpsc::Sender<Trace>,
    metrics: Arc<Metrics>,
}

/// The reading end, for the registry, and the sending end, for a task of its own.
pub fn open(
    pace: Pace,
    endpoint: Endpoint,
    metrics: &Arc<Metrics>,
) -> Result<(Arc<Traces>, Exporter), reqwest::Error> {
    let (queue, waiting) = mpsc::channel(QUEUE_MAX);
    let traces = Traces { queue, metrics: Arc::clone(metrics) };
    Ok((Arc::new(traces), Exporter::new(pace, endpoint, waiting, Arc::clone(metrics))?))
}

impl Follower for Traces {
    fn follow(&self, session: SessionHandle) -> BoxFuture<'static, ()> {
        let (queue, metrics) = (self.queue.clone(), Arc::clone(&self.metrics));
        Box::pin(async move {
            let model = session.snapshot().settings.get(MODEL).to_owned();
            let mut weave = Weave::new(session.id().clone(), &model);
            follow_log(&session, |event| {
                if let Some(trace) = weave.event(event) {
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
    metrics.spans(Spans::Dropped, trace.left_out);
    if let Err(refused) = queue.try_send(trace) {
        metrics.spans(Spans::Dropped, refused.into_inner().count());
    }
}
