use super::*;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn events(after: u64, seqs: &[u64]) -> MirrorBatch {
    let entry = |seq: &u64| EventEntry { seq: *seq, body: raw(&format!("{{\"seq\":{seq}}}")) };
    MirrorBatch {
        after,
        events: seqs.iter().map(entry).collect(),
        view: None,
        card: None,
        mark: None,
        source: None,
    }
}

fn view(from: Option<u64>, upto: u64) -> MirrorBatch {
    let body = raw(&format!("{{\"session\":\"s\",\"upto\":{upto}}}"));
    MirrorBatch {
        after: 0,
        events: Vec::new(),
        view: Some(ViewEntry { from, upto, body }),
        card: None,
        mark: None,
        source: None,
    }
}

fn intake(head: u64) -> BatchIntake {
    BatchIntake::new("s", false, MirrorPosition { head, ..MirrorPosition::default() })
}

fn pending_seqs(intake: &BatchIntake) -> Vec<u64> {
    intake.pending.events.iter().map(|entry| entry.seq).collect()
}

#[test]
fn what_comes_twice_is_in_line_once() {
    let mut intake = intake(2);
    intake.take(events(0, &[1, 2])).unwrap();
    assert!(pending_seqs(&intake).is_empty());
    intake.take(events(1, &[2, 3, 4])).unwrap();
    intake.take(events(2, &[3, 4])).unwrap();
    intake.take(events(4, &[5])).unwrap();
    assert_eq!(pending_seqs(&intake), [3, 4, 5]);
}

#[test]
fn a_gap_in_the_numbers_is_taken_and_a_missing_batch_is_not() {
    let mut intake = intake(2);
    intake.take(events(2, &[65, 66])).unwrap();
    assert_eq!(intake.take(events(70, &[71])), Err(BridgeFrameError::Gap(66)));
    // It ends where the mirror has something else.
    assert_eq!(intake.take(events(50, &[51, 67])), Err(BridgeFrameError::Gap(66)));
    assert_eq!(pending_seqs(&intake), [65, 66]);
}

#[test]
fn positions_that_do_not_rise_are_refused() {
    for wrong in [&[3, 3][..], &[4, 3], &[2], &[u64::MAX]] {
        assert_eq!(intake(2).take(events(2, wrong)), Err(BridgeFrameError::Disorder), "{wrong:?}");
    }
}

#[test]
fn views_chain_and_one_that_does_not_asks_for_a_whole_one() {
    let mut intake = intake(0);
    intake.take(view(Some(0), 3)).unwrap();
    assert!(intake.needs_snapshot && intake.pending.views.is_empty());
    intake.take(view(None, 3)).unwrap();
    intake.take(view(Some(3), 3)).unwrap();
    intake.take(view(Some(3), 7)).unwrap();
    assert!(!intake.needs_snapshot);
    intake.take(view(Some(6), 8)).unwrap();
    assert!(intake.needs_snapshot);
    intake.take(view(None, 8)).unwrap();
    let numbers: Vec<_> = intake.pending.views.iter().map(|view| (view.number, view.view.upto)).collect();
    assert_eq!(numbers, [(1, 3), (2, 3), (3, 7), (4, 8)]);
    assert_eq!((intake.next.snapshot_before, intake.next.snapshot), (1, 4));
    assert_eq!(intake.next.continues(), Some(8));
}

#[test]
fn a_view_that_could_pass_for_something_else_is_refused() {
    for body in [
        r#"{"session":"t","upto":1}"#,
        r#"{"session":"s","upto":2}"#,
        r#"{"session":"s","upto":1,"on":"hello"}"#,
        r#"{"session":"s","upto":1,"\u006fn":"hello"}"#,
        r#"{"session":"s","upto":1,"re":1}"#,
        r#"{"session":"s","session":"t","upto":1}"#,
        r#"["s"]"#,
        r#""s""#,
    ] {
        let view = ViewEntry { from: None, upto: 1, body: raw(body) };
        let batch = MirrorBatch {
            after: 0,
            events: Vec::new(),
            view: Some(view),
            card: None,
            mark: None,
            source: None,
        };
        assert_eq!(intake(0).take(batch), Err(BridgeFrameError::Foreign("a view")), "{body}");
    }
}

#[test]
fn what_is_sealed_is_nothing_else() {
    let batch = |body: &str| MirrorBatch {
        after: 0,
        events: vec![EventEntry { seq: 1, body: raw(body) }],
        view: None,
        card: None,
        mark: None,
        source: None,
    };
    let mut sealed = BatchIntake::new("s", true, MirrorPosition::default());
    assert_eq!(
        sealed.take(batch(r#"{"sealed":"a","text":"b"}"#)),
        Err(BridgeFrameError::Foreign("an event"))
    );
    assert_eq!(sealed.take(batch(r#"{"text":"b"}"#)), Err(BridgeFrameError::Foreign("an event")));
    sealed.take(batch(r#"{"sealed":"a"}"#)).unwrap();
}

#[test]
fn deltas_without_end_are_left_out_until_there_is_a_whole_view() {
    let mut intake = intake(0);
    intake.take(view(None, 1)).unwrap();
    let text = "x".repeat(DELTA_BYTES_MAX as usize / 2);
    for upto in 1..20 {
        let body = raw(&format!("{{\"session\":\"s\",\"upto\":{upto},\"text\":\"{text}\"}}"));
        let entry = ViewEntry { from: Some(upto.max(2) - 1), upto, body };
        intake
            .take(MirrorBatch {
                after: 0,
                events: Vec::new(),
                view: Some(entry),
                card: None,
                mark: None,
                source: None,
            })
            .unwrap();
    }
    assert!(intake.needs_snapshot && intake.next.view_bytes <= DELTA_BYTES_TAKEN);
    assert_eq!(intake.pending.views.len(), 1 + 7);
    intake.take(view(None, 30)).unwrap();
    intake.take(view(Some(30), 31)).unwrap();
    assert!(!intake.needs_snapshot);
    assert_eq!(intake.next.view_upto, Some(31));
}
