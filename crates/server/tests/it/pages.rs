//! The transcripts in `docs/dialects/` are executed, so a page cannot say what the server does not do.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use engine::Principal;
use serde_json::Value;
use server::{Connection, ConnectionParts};
use testkit::server::{Server, Setup, run};
use wire::{Dialect, Frame, FrameBuffer};

const DEADLINE: Duration = Duration::from_secs(10);

/// One line of a transcript.
enum Line {
    Send(String),
    Expect(String),
}

struct Played {
    peer: server::memory::LinkPeer,
    buffer: FrameBuffer,
    cwd: String,
    session: Option<String>,
}

impl Played {
    fn filled_in(&self, text: &str) -> String {
        let text = text.replace("$cwd", &self.cwd);
        match &self.session {
            Some(session) => text.replace("$session", session),
            None => text,
        }
    }

    async fn send(&self, text: &str) {
        self.peer.frames.send(Frame::Line(self.filled_in(text).into_bytes())).await.unwrap();
    }

    /// Reads until a frame contains what the page says.
    async fn expect(&mut self, text: &str) {
        let mut seen = Vec::new();
        let search = async {
            loop {
                while let Some(Frame::Line(line)) = self.buffer.next_frame() {
                    let frame: Value = serde_json::from_slice(&line).unwrap();
                    if self.session.is_none() {
                        self.session = frame["result"]["sessionId"].as_str().map(str::to_owned);
                    }
                    let wanted: Value = serde_json::from_str(&self.filled_in(text)).unwrap();
                    if contains(&frame, &wanted) {
                        return;
                    }
                    seen.push(frame);
                }
                let bytes = self.peer.batches.recv().await.unwrap().bytes;
                self.buffer.push(&bytes);
            }
        };
        let found = tokio::time::timeout(DEADLINE, search).await;
        assert!(found.is_ok(), "the page says {text}, and there was only {seen:#?}");
    }
}

/// Whether every member of `part` is in `whole`; of arrays, the first elements.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|whole| contains(whole, value)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            part.len() <= whole.len() && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
        }
        (whole, part) => whole == part,
    }
}

fn transcripts(page: &str) -> Vec<Vec<Line>> {
    let line = |line: &str| match line.split_once(' ') {
        Some(("->", rest)) => Line::Send(rest.to_owned()),
        Some(("<-", rest)) => Line::Expect(rest.to_owned()),
        _ => panic!("a line of a transcript begins with -> or <-: {line}"),
    };
    let blocks =
        page.split("```transcript\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    blocks.map(|block| block.lines().map(line).collect()).collect()
}

async fn play(server: &mut Server, dialect: Option<Dialect>, transcript: Vec<Line>) {
    let (link, peer) = server::memory::pair();
    let parts = ConnectionParts { dialect: dialect.into(), ..server.connection_parts(Principal::local()) };
    let connection = Connection::start(parts, link);
    let cwd = server.workspace().to_str().unwrap().to_owned();
    let mut played = Played { peer, buffer: FrameBuffer::new(1 << 20), cwd, session: None };
    for line in transcript {
        match line {
            Line::Send(text) => played.send(&text).await,
            Line::Expect(text) => played.expect(&text).await,
        }
    }
    drop(played);
    connection.finish().await;
}

/// Plays every transcript of a page, each against a server of its own.
async fn check(page: &str, dialect: Option<Dialect>) {
    let transcripts = transcripts(page);
    assert!(transcripts.len() >= 4);
    for transcript in transcripts {
        run(Setup::offline(), async |server| play(server, dialect, transcript).await).await;
    }
}

#[tokio::test]
async fn the_pages_transcripts_are_true() {
    check(include_str!("../../../../docs/dialects/acp.md"), None).await;
}

#[tokio::test]
async fn ferrets_transcripts_are_true() {
    check(include_str!("../../../../docs/dialects/ferret.md"), None).await;
}

#[tokio::test]
async fn otters_transcripts_are_true() {
    check(include_str!("../../../../docs/dialects/otter.md"), Some(Dialect::Otter)).await;
}

#[tokio::test]
async fn bernsteins_transcripts_are_true() {
    check(include_str!("../../../../docs/dialects/bernstein.md"), None).await;
}
