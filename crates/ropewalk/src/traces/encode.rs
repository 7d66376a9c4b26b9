//! Encodes traces as OTLP JSON.

use serde_json::{Value, json};

use super::spans::{Attribute, Span, Trace, TraceId};

/// The span kind for work within one process.
const KIND_INTERNAL: u8 = 1;
const STATUS_UNSET: u8 = 0;
const STATUS_ERROR: u8 = 2;
const NANOS_PER_MS: i128 = 1_000_000;

pub fn body(traces: &[Trace]) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let spans: Vec<_> =
        traces.iter().flat_map(|trace| trace.spans.iter().map(|span| span_json(trace.id, span))).collect();
    let body = json!({ "resourceSpans": [{
        "resource": { "attributes": [
            { "key": "service.name", "value": { "stringValue": "ropewalk" } },
            { "key": "service.version", "value": { "stringValue": version } },
        ] },
        "scopeSpans": [{ "scope": { "name": "ropewalk", "version": version }, "spans": spans }],
    }] });
    body.to_string().into_bytes()
}

fn span_json(trace: TraceId, span: &Span) -> Value {
    let attributes: Vec<_> = span
        .attributes
        .iter()
        .map(|(key, attribute)| json!({ "key": key, "value": value(attribute) }))
        .collect();
    let mut span_json = json!({
        "traceId": trace.hex(),
        "spanId": span.id.hex(),
        "name": span.name,
        "kind": KIND_INTERNAL,
        // OTLP JSON encodes 64-bit numbers as strings.
        "startTimeUnixNano": (i128::from(span.start.0) * NANOS_PER_MS).to_string(),
        "endTimeUnixNano": (i128::from(span.end.0) * NANOS_PER_MS).to_string(),
        "attributes": attributes,
        "status": { "code": if span.failed { STATUS_ERROR } else { STATUS_UNSET } },
    });
    if let Some(parent) = span.parent {
        span_json["parentSpanId"] = parent.hex().into();
    }
    span_json
}

fn value(attribute: &Attribute) -> Value {
    match attribute {
        Attribute::Word(word) => json!({ "stringValue": **word }),
        Attribute::Number(number) => json!({ "intValue": number.to_string() }),
        Attribute::Amount(amount) => json!({ "doubleValue": amount }),
        Attribute::Truth(truth) => json!({ "boolValue": truth }),
    }
}
