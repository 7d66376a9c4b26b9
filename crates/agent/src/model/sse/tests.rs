use super::*;

/// Cuts `body` whole, by single bytes and by threes: the events must be the same.
fn check(framing: Framing, body: &[u8], expected: &[(Option<&str>, &str)]) {
    for size in [body.len().max(1), 1, 3] {
        let mut frames = Frames::new(framing);
        for piece in body.chunks(size) {
            frames.push(piece).unwrap();
        }
        frames.finish();
        let events: Vec<Event> = std::iter::from_fn(|| frames.next()).collect();
        let events: Vec<_> =
            events.iter().map(|event| (event.name.as_deref(), event.data.as_str())).collect();
        assert_eq!(events, expected, "in pieces of {size}");
    }
}

#[test]
fn events_end_with_an_empty_line_of_any_kind() {
    check(
        Framing::Events,
        b"data: a\n\ndata:b\r\n\r\ndata: c\r\rdata: d\n\n",
        &[(None, "a"), (None, "b"), (None, "c"), (None, "d")],
    );
}

#[test]
fn names_comments_unknown_fields_and_several_lines() {
    let body = b"\xEF\xBB\xBF: hello\nevent: x\nid: 7\nretry: 3\ndata: 1\ndata\ndata:  2\n\nevent: lonely\n\ndata: 3\n\n";
    check(Framing::Events, body, &[(Some("x"), "1\n\n 2"), (None, "3")]);
}

#[test]
fn characters_are_split_anywhere() {
    check(Framing::Events, "data: żółw 🐢\n\n".as_bytes(), &[(None, "żółw 🐢")]);
}

#[test]
fn a_last_event_without_its_end_counts() {
    check(Framing::Events, b"data: a\n\ndata: b", &[(None, "a"), (None, "b")]);
    check(Framing::Events, b"data: a\r", &[(None, "a")]);
    check(Framing::Events, b"", &[]);
}

#[test]
fn a_plain_value_is_one_event() {
    check(Framing::Events, b"\n {\"error\":\n\n{}}", &[(None, "{\"error\":\n\n{}}")]);
}

#[test]
fn lines_are_values() {
    check(Framing::Lines, b"{\"a\":1}\r\n\n{\"b\":2}", &[(None, "{\"a\":1}"), (None, "{\"b\":2}")]);
}

#[test]
fn what_never_ends_is_refused() {
    let mut frames = Frames::new(Framing::Events);
    let piece = vec![b'x'; 1024 * 1024];
    let mut pushed = 0;
    let error = loop {
        match frames.push(&piece) {
            Ok(()) => pushed += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((pushed, error), (16, FrameError::EventTooLong));
    let mut frames = Frames::new(Framing::Events);
    let piece = b"data: 0123456789\n".repeat(65536);
    let refused = (0..200).find_map(|_| frames.push(&piece).err());
    assert_eq!(refused, Some(FrameError::EventTooLong));
    let mut frames = Frames::new(Framing::Events);
    let piece = b"data: 0123456789\n\n".repeat(65536);
    let refused = (0..200).find_map(|_| {
        let pushed = frames.push(&piece).err();
        while frames.next().is_some() {}
        pushed
    });
    assert_eq!(refused, Some(FrameError::ReplyTooLong));
}
