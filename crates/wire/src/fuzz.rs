//! The functions behind the fuzz targets. The seeds under `fuzz/corpus/` run through the same functions as
//! an ordinary test, so a finding stays fixed. Not part of the crate's public interface.

use std::sync::Arc;

use engine::{Event, Origin, Seq, SessionId, Snapshot, SurfaceId, Timestamp, TurnId};
use serde_json::value::RawValue;

use crate::Encoder as _;
use crate::acp::{self, ClientAbilities, Updates};
use crate::client_request::RequestError;
use crate::dialect::{
    Client, ConnectionEvent, Decoder, Dialect, EncodeContext, Identity, Replies, SandboxBackends, UpdateStart,
};
use crate::line_frames::{Frame, FrameBuffer};
use crate::rest::{RestStream, StreamFormat};
use crate::rpc::{RpcId, RpcMessage, parse};
use crate::{bernstein, event_json, ferret, otter, record};

/// The first two bytes are the limit and the size of a read; the rest is the stream.
pub fn frames(data: &[u8]) {
    let [limit, step, stream @ ..] = data else { return };
    let (limit, step) = (usize::from(*limit) + 1, usize::from(*step) + 1);
    let cut = cut(limit, stream.chunks(step));
    assert_eq!(cut, self::cut(limit, [stream].into_iter()), "how the stream is read must not matter");
    for frame in cut {
        let Frame::Line(line) = frame else { continue };
        assert!(line.len() <= limit && !line.contains(&b'\n'), "a line is one line within the limit");
        message(&line);
    }
    message(stream);
}

fn cut<'a>(limit: usize, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Frame> {
    let mut buffer = FrameBuffer::new(limit);
    let mut frames = Vec::new();
    for piece in pieces {
        buffer.push(piece);
        frames.extend(std::iter::from_fn(|| buffer.next_frame()));
    }
    frames.extend(buffer.finish());
    frames
}

fn message(line: &[u8]) {
    match parse(line) {
        Ok(RpcMessage::Request { id, .. }) => answer(&id, &RequestError::UnknownMethod("m".into())),
        Ok(RpcMessage::Response { id, .. }) => {
            assert!(RpcId::from_json(id.as_json()).is_some(), "an id can be compared with ours");
        }
        Ok(RpcMessage::Notification { .. }) => {}
        Err((id, fault)) => answer(&id, &fault),
    }
}

/// A method, a line end, and its parameters.
pub fn acp(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (method, params) = text.split_once('\n').unwrap_or((text, ""));
    let params = serde_json::from_str::<&RawValue>(params).ok();
    for only in [None].into_iter().chain(Dialect::ALL.map(Some)) {
        let mut fresh = Decoder::new(only.into());
        for outcome in [fresh.request("initialize", params, data.len()), fresh.notification(method, params)] {
            drop(outcome.map_err(|fault| answer(&RpcId::number(1), &fault)));
        }
        let mut ready =
            Decoder::for_client(Client { dialect: only.unwrap_or_default(), ..Client::default() });
        drop(ready.request(method, params, data.len()).map_err(|fault| answer(&RpcId::null(), &fault)));
    }
    if let Some(params) = params {
        for expected in [acp::ExpectedAnswer::Permission, acp::ExpectedAnswer::ForeignOption(Vec::new())] {
            acp::ask_answer(&expected, false, Ok(params));
        }
    }
}

/// A kind, a line end, and a body of that kind; or a whole event as in an export.
pub fn record(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(event) = event_json::decode(text) {
        let again = event_json::decode(&event_json::encode(&event).to_string());
        assert_eq!(again.ok().as_ref(), Some(&event), "an event comes back from its own export");
    }
    let Some((kind, body)) = text.split_once('\n') else { return };
    let Ok(body) = record::decode(kind, record::VERSION, body.as_bytes(), &|hash| Some(hash.into())) else {
        return;
    };
    let mut out = Vec::new();
    assert!(record::encode(&body, &mut |_| None, &mut out).is_ok(), "what was read can be written");
    let again = record::decode(record::kind(&body), record::VERSION, &out, &|_| None);
    assert_eq!(again.ok().as_ref(), Some(&body), "a body comes back from its own record");
    encode_everywhere(Arc::new(Event {
        seq: Seq(1),
        at: Timestamp(0),
        origin: Origin::Agent,
        turn: Some(TurnId(1)),
        body,
        relayed: None,
    }));
}

/// Every event in a log can be encoded for every client.
fn encode_everywhere(event: Arc<Event>) {
    let Ok(id) = SessionId::parse("s") else { return };
    let snapshot = Snapshot::new(Arc::new([]), "/".into());
    for able in [false, true] {
        let client = ClientAbilities {
            notices: able,
            compaction: able,
            terminal_output: able,
            cursors: able,
            forms: able,
            host: Default::default(),
            zeph: able,
        };
        let mut updates = Updates::of(client, &id, Arc::new([]), &snapshot);
        let mut out = Vec::new();
        let events = [Arc::clone(&event)];
        let view = EncodeContext { replay: false, own: SurfaceId(1) };
        if let (_, Some(ConnectionEvent::Asked { ask, request })) =
            updates.encode(&events, view, &mut Vec::new(), &mut out)
        {
            updates.ask(ask, request).write(&RpcId::number(1), &mut out);
        }
        check_lines(&out);
    }
    for replay in [false, true] {
        let mut out = Vec::new();
        let mut updates = ferret::Updates::of(&id, &[], &snapshot);
        let events = [Arc::clone(&event)];
        let view = EncodeContext { replay, own: SurfaceId(1) };
        let (_, piece) = updates.encode(&events, view, &mut Vec::new(), &mut out);
        if let Some(ConnectionEvent::Asked { ask, request }) = piece {
            out.extend(updates.ask(ask, request));
        }
        check_lines(&out);
        let mut out = Vec::new();
        let mut updates = bernstein::Updates::new(&id);
        let (_, piece) = updates.encode(&events, view, &mut Vec::new(), &mut out);
        if let Some(ConnectionEvent::Asked { ask, request }) = piece {
            out.extend(updates.ask(ask, request));
        }
        check_lines(&out);
    }
    let mut out = Vec::new();
    otter::Updates::new(&id, UpdateStart::default()).encode(&[Arc::clone(&event)], &mut Vec::new(), &mut out);
    check_lines(&out);
    let count = memchr::memchr_iter(b'\n', &out).count();
    assert_eq!(
        u64::try_from(count).ok(),
        Some(otter::updates_of(&event)),
        "what is counted is what is shown"
    );
    streamed(&id, &event);
}

/// A frame is always three lines and an empty one.
fn streamed(id: &SessionId, event: &Event) {
    for form in [StreamFormat::Loop, StreamFormat::Delta] {
        let (mut stream, mut out) = (RestStream::new(id, form, 0), Vec::new());
        stream.write(event, 0, &mut out);
        let lines = memchr::memchr_iter(b'\n', &out).count();
        assert_eq!(
            u64::try_from(lines).ok(),
            Some(stream.frame_count() * 4),
            "frames are counted as they are told"
        );
    }
}

fn answer(id: &RpcId, fault: &RequestError) {
    let identity = Identity {
        name: "n".into(),
        title: "t".into(),
        version: "1".into(),
        sandbox: "off".into(),
        sandbox_backends: SandboxBackends::default(),
        adapters: Vec::new(),
        disabled: Vec::new(),
    };
    let replies = Replies::new(identity);
    for dialect in Dialect::ALL {
        let mut out = Vec::new();
        let client = Client { dialect, ..Client::default() };
        replies.write(client, id, Err(fault), &mut out);
        check_lines(&out);
        assert_eq!(memchr::memchr_iter(b'\n', &out).count(), 1, "an answer is one line");
    }
}

fn check_lines(out: &[u8]) {
    for line in out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let read = serde_json::from_slice::<serde::de::IgnoredAny>(line);
        assert!(read.is_ok(), "not one JSON value: {}", String::from_utf8_lossy(line));
    }
}
