//! Stored events are read back unchanged: every kind of event, with and without blobs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use engine::{Body, MessageId, Origin, SurfaceId};
use proptest::prelude::*;
use wire::record::{self, RecordError};

use crate::bodies;

/// Writes a body and reads it back; strings of at least `keep_from` bytes become blobs.
fn round_trip(body: &Body, keep_from: usize) -> (String, Body) {
    let kept = RefCell::new(HashMap::<String, Arc<str>>::new());
    let mut out = Vec::new();
    let mut keep = |text: &str| {
        (text.len() >= keep_from).then(|| {
            let hash = format!("hash-of-{text}");
            kept.borrow_mut().insert(hash.clone(), text.into());
            hash
        })
    };
    record::encode(body, &mut keep, &mut out).unwrap();
    let fetch = |hash: &str| kept.borrow().get(hash).cloned();
    let back = record::decode(record::kind(body), record::VERSION, &out, &fetch).unwrap();
    (String::from_utf8(out).unwrap(), back)
}

proptest! {
    #[test]
    fn every_body_comes_back_as_it_was(body in bodies::any_body()) {
        prop_assert_eq!(&round_trip(&body, usize::MAX).1, &body);
    }

    #[test]
    fn every_body_comes_back_with_its_content_kept_elsewhere(body in bodies::any_body()) {
        prop_assert_eq!(&round_trip(&body, 3).1, &body);
    }

    #[test]
    fn the_kinds_of_the_set_up_are_those_that_say_so(body in bodies::any_body()) {
        prop_assert_eq!(record::SETUP_KINDS.contains(&record::kind(&body)), body.is_setup());
    }

    #[test]
    fn the_words_of_another_agent_come_back_beside_any_body(body in bodies::any_body(), words in ".*") {
        let relayed = Some(engine::Opaque(words.as_str().into()));
        let event = engine::Event {
            seq: engine::Seq(1), at: engine::Timestamp(1), origin: Origin::Agent, turn: None, body, relayed,
        };
        let mut out = Vec::new();
        record::encode_event(&event, &mut |_| None, &mut out).unwrap();
        let back = record::decode(record::kind(&event.body), record::VERSION, &out, &|_| None).unwrap();
        prop_assert_eq!(&back, &event.body);
        prop_assert_eq!(record::decode_relayed(&out, &|_| None).unwrap(), event.relayed);
    }

    #[test]
    fn every_origin_comes_back(id in any::<u64>(), name in ".*") {
        for origin in [Origin::Engine, Origin::Agent, Origin::Task { call: engine::CallId(name.clone().into()) }, Origin::Surface { id: SurfaceId(id), name: name.clone().into(), request: None, remote: None }] {
            let mut out = Vec::new();
            record::encode_origin(&origin, &mut out).unwrap();
            prop_assert_eq!(record::decode_origin(&out).unwrap(), origin);
        }
    }

    #[test]
    fn lists_of_paths_come_back(paths in proptest::collection::vec(bodies::path(), 0..4)) {
        prop_assert_eq!(record::decode_paths(&record::encode_paths(&paths).unwrap()).unwrap(), paths);
    }

    #[test]
    fn arbitrary_bytes_are_refused_without_a_panic(body in bodies::any_body(), bytes in any::<Vec<u8>>()) {
        drop(record::decode(record::kind(&body), record::VERSION, &bytes, &|_| None));
    }
}

#[test]
fn the_form_is_plain_json() {
    let body = Body::Text { message: MessageId(7), text: "a \"b\"\n".into() };
    assert_eq!(round_trip(&body, 100).0, r#"{"message":7,"text":"a \"b\"\n"}"#);
    let long = Body::Text { message: MessageId(7), text: "0123456789".into() };
    assert_eq!(round_trip(&long, 10).0, r#"{"message":7,"text":{"blob":"hash-of-0123456789"}}"#);
}

#[test]
fn unknown_fields_are_ignored() {
    let bytes = br#"{"later":{"x":[1]},"message":1,"text":"t","more":null}"#;
    let body = record::decode("text", 1, bytes, &|_| None).unwrap();
    assert_eq!(body, Body::Text { message: MessageId(1), text: "t".into() });
}

/// Logs from before arguments counted keep their meaning, and events without the field are written as
/// before.
#[test]
fn whether_an_answer_is_about_its_arguments_is_told_where_it_is() {
    let older = r#"{"ask":1,"resolution":"allowed_always","by":"engine"}"#;
    let read = |text: &str| record::decode("resolved", record::VERSION, text.as_bytes(), &|_| None);
    let body = read(older).unwrap();
    assert!(matches!(body, Body::Resolved { exactly: false, .. }), "{body:?}");
    assert!(!round_trip(&body, 100).0.contains("exactly"));
    let body = read(&older.replace("\"ask\"", "\"exactly\":true,\"ask\"")).unwrap();
    assert!(matches!(body, Body::Resolved { exactly: true, .. }), "{body:?}");
    assert!(round_trip(&body, 100).0.contains(r#""exactly":true"#));
}

#[test]
fn what_cannot_be_read_is_named() {
    let decode =
        |kind, version, bytes: &str| record::decode(kind, version, bytes.as_bytes(), &|_| None).unwrap_err();
    assert!(matches!(decode("song", 1, "{}"), RecordError::UnknownKind { kind } if kind == "song"));
    assert!(matches!(decode("text", record::VERSION + 1, "{}"), RecordError::Newer { .. }));
    assert!(matches!(decode("text", 1, "{}"), RecordError::Malformed(_)));
    assert!(matches!(
        decode("turn_ended", 1, r#"{"stop":"exploded"}"#),
        RecordError::UnknownWord { word, .. } if word == "exploded"
    ));
    assert!(matches!(
        decode("title", 1, r#"{"text":{"blob":"abc"}}"#),
        RecordError::MissingBlob { hash } if hash == "abc"
    ));
    assert!(matches!(decode("moved", 1, r#"{"cwd":{"bytes":"abc"}}"#), RecordError::BadPath));
}
