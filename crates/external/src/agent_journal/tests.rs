use std::time::Duration;

use engine::StreamRedactor;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use wire::external_agent::journal::{JournalReplay, Step};

use super::*;
use crate::{AgentConnection, AgentMessage, ConnectionLimits, RequestOptions};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);
const LINE_BYTES_MAX: usize = 1 << 10;

/// Knows no secrets.
struct Open;

impl Redactor for Open {
    fn redact(&self, _text: &str) -> Option<String> {
        None
    }

    fn redact_json(&self, _json: &str) -> Option<String> {
        None
    }

    fn is_in_base64(&self, _data: &str) -> bool {
        false
    }

    fn stream(&self) -> Box<dyn StreamRedactor> {
        unreachable!("a journal has no text in pieces")
    }
}

/// What an agent says after it was greeted is heard; gives how much that is, and the journal's lines.
async fn noted(says: &[u8], lines_max: usize) -> (usize, Vec<String>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    let journal = AgentJournal::begin("theirs", Arc::new(Open), move |line| {
        let mut kept = kept.lock().unwrap();
        kept.push(line.to_owned());
        kept.len() < lines_max
    });
    let tasks = TaskTracker::new();
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (input, output) = tokio::io::split(ours);
    let limits = ConnectionLimits { line_bytes_max: LINE_BYTES_MAX, ..ConnectionLimits::default() };
    let (connection, mut receiver) =
        AgentConnection::start(input, output, limits, journal.notes(&tasks), &tasks);
    let asked = connection.request("initialize", &serde_json::json!({}), RequestOptions::default());
    let (input, mut output) = tokio::io::split(theirs);
    BufReader::new(input).lines().next_line().await.unwrap();
    output.write_all(says).await.unwrap();
    output.shutdown().await.unwrap();
    drop(output);
    let mut message_count = 0;
    while !matches!(
        tokio::time::timeout(TEST_TIMEOUT, receiver.next()).await.unwrap(),
        AgentMessage::Ended(_)
    ) {
        message_count += 1;
    }
    drop((asked, receiver, connection));
    journal.close();
    tasks.close();
    tokio::time::timeout(TEST_TIMEOUT, tasks.wait()).await.unwrap();
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    (message_count, lines)
}

fn says() -> Vec<u8> {
    let long = "x".repeat(2000);
    let told = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"plan","entries":[]}}}"#;
    let lines = [r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}"#, &long, "noise", told, told];
    (lines.join("\n") + "\n{half").into_bytes()
}

#[tokio::test]
async fn everything_that_is_heard_is_noted_before_in_its_order() {
    let (message_count, lines) = noted(&says(), usize::MAX).await;
    assert_eq!(message_count, 6);
    let mut replay = JournalReplay::default();
    let steps: Vec<Step> = lines.iter().filter_map(|line| replay.read(line.as_bytes()).unwrap()).collect();
    let sound = replay.finish().unwrap();
    assert_eq!((sound.steps, sound.ended, sound.faults), (6, true, 3), "{lines:?}");
    assert_eq!(steps[0].answers.as_ref().unwrap().method, "initialize");
    assert_eq!((steps[1].bytes, &steps[1].frame), (2000, &None));
    assert_eq!(steps[1].sha256.len(), 64);
    assert_eq!(steps[5].frame.as_deref(), Some("{half"));
}

#[tokio::test]
async fn a_journal_that_cannot_be_written_ends_and_nothing_else_does() {
    let (message_count, lines) = noted(&says(), 3).await;
    assert_eq!((message_count, lines.len()), (6, 3));
}

#[tokio::test]
async fn an_agent_that_never_started_has_a_journal_without_steps() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    let journal = AgentJournal::begin("theirs", Arc::new(Open), move |line| {
        kept.lock().unwrap().push(line.to_owned());
        true
    });
    journal.close();
    assert!(journal.notes(&TaskTracker::new()).is_none(), "what is closed stays closed");
    let mut replay = JournalReplay::default();
    for line in lines.lock().unwrap().iter() {
        assert_eq!(replay.read(line.as_bytes()), Ok(None));
    }
    let sound = replay.finish().unwrap();
    assert_eq!((sound.steps, sound.ended), (0, true));
}
