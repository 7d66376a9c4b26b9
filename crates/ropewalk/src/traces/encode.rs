//! Traces in the collector's language: OTLP, as JSON.

use serde_json::{Value, json};

use super::spans::{Fact, Span, Trace, TraceId};

/// A span within one process, as opposed to a request to another.
const KIND_INTERNAL: u8 = 1;
const STATUS_UNSET: u8 = 0;
const STATUS_ERROR: u8 = 2;
const NANOS_PER_MS: i128 = 1_000_000;

pub fn body(traces: &[Trace]) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let spans: Vec<_> =
        traces.iter().flat_map(|trace| trace.spans.iter().map(|span| shown(trace.id, span))).collect();
    let body = json!({ "resourceSpans": [{
        "resource": { "attributes": [
            { "key": "service.name", "value": { "stringValue": "ropewalk" } },
            { "key": "service.version", "value": { "stringValue": version } },
        ] },
        "scopeSpans": [{ "scope": { "name": "ropewalk", "version": version }, "spans": spans }],
    }] });
    body.to_string().into_bytes()
}

fn shown(trace: TraceId, span: &Span) -> Value {
    let attributes: Vec<_> =
        span.facts.iter().map(|(key, fact)| json!({ "key": key, "value": value(fact) })).collect();
    let mut shown = json!({
        "traceId": trace.hex(),
        "spanId": span.id.hex(),
        "name": span.name,
        "kind": KIND_INTERNAL,
        // Numbers of 64 bits are texts in this language.
        "startTimeUnixNano": (i128::from(span.start.0) * NANOS_PER_MS).to_string(),
        "endTimeUnixNano": (i128::from(span.end.0) * NANOS_PER_MS).to_string(),
        "attributes": attributes,
        "status": { "code": if span.failed { STATUS_ERROR } else { STATUS_UNSET } },
    });
    if let Some(parent) = span.parent {
        shown["parentSpanId"] = parent.hex().into();
    }
    shown
}

fn value(fact: &Fact) -> Value {
    match fact {
        Fact::Word(word) => json!({ "stringValue": **word }),
        Fact::Number(number) => json!({ "intValue": number.to_string() }),
        Fact::Amount(amount) => json!({ "doubleValue": amount }),
        Fact::Truth(truth) => json!({ "boolValue": truth }),
    }
}
