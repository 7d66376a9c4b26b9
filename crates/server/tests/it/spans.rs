//! Traces: what is done about a call stands in a span of its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use serde_json::json;
use testkit::server::{Setup, run};

/// What a subscriber is told of spans: their name and method, and how often each was entered.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<(String, String, usize)>>>);

impl Spans {
    fn entered(&self, method: &str) -> usize {
        let spans = self.0.lock().unwrap();
        spans.iter().filter(|(name, of, _)| name == "call" && of == method).map(|(_, _, times)| times).sum()
    }
}

struct Method(String);

impl tracing::field::Visit for Method {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "method" {
            self.0 = format!("{value:?}").trim_matches('"').to_owned();
        }
    }
}

impl tracing::Subscriber for Spans {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let mut method = Method(String::new());
        span.record(&mut method);
        let mut spans = self.0.lock().unwrap();
        spans.push((span.metadata().name().to_owned(), method.0, 0));
        tracing::span::Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, span: &tracing::span::Id) {
        let at = usize::try_from(span.into_u64()).unwrap() - 1;
        self.0.lock().unwrap().get_mut(at).unwrap().2 += 1;
    }

    fn exit(&self, _: &tracing::span::Id) {}
}

/// V8.
#[tokio::test]
async fn every_call_is_worked_on_in_a_span_that_names_its_method() {
    let spans = Spans::default();
    let _guard = tracing::subscriber::set_default(spans.clone());
    run(Setup::offline(), async |server| {
        let mut client = server.client().await;
        let session = client.new_session().await;
        client.prompt(&session, "hello").await;
        client.call("session/list", json!({})).await;
    })
    .await;
    for method in ["initialize", "session/new", "session/prompt", "session/list"] {
        assert!(spans.entered(method) > 0, "{method}: {:?}", spans.0.lock().unwrap());
    }
    assert_eq!(spans.entered("session/load"), 0, "nobody called it");
}
