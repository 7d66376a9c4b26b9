//! The page about this surface is true: its requests are sent, its answers are looked for.
//!
//! An example is a request (a line, headers, a body), an empty line, and the answer: its status and
//! then, in JSON, what must be in it. `"..."` stands for anything, `"$name"` for what was there when
//! the name was first met. Frames of a stream are looked for in the order given.

use axum::http::StatusCode;
use serde_json::Value;
use testkit::server::{Setup, run};

use crate::http_pages::{Names, http_blocks};
use crate::rest::door::{Door, MASTER};

struct Player<'a> {
    door: &'a Door,
    names: Names,
}

impl Player<'_> {
    async fn play(&mut self, example: &str) {
        let (request, answer) = self.names.request_and_answer(example);
        let mut lines = request.lines();
        let (method, path) = lines.next().unwrap().split_once(' ').unwrap();
        let method = ["GET", "POST", "PATCH", "DELETE"].into_iter().find(|known| *known == method).unwrap();
        let rest: Vec<&str> = lines.collect();
        let (headers, body): (Vec<&str>, Vec<&str>) = rest
            .into_iter()
            .partition(|line| line.split_once(": ").is_some_and(|(name, _)| !name.contains('"')));
        let mut ask = self.door.send(method, path, Value::Null).by(MASTER).raw(body.join("\n").as_bytes());
        for header in headers {
            let (name, value) = header.split_once(": ").unwrap();
            assert_eq!(name, "Last-Event-ID", "the only header that a page needs");
            ask = ask.header("last-event-id", value);
        }
        let (status, expected) = answer.split_once('\n').unwrap_or((answer, ""));
        if expected.starts_with("event: ") {
            assert_eq!(status, "200");
            let mut stream = ask.stream().await;
            for frame in expected.split("\n\n") {
                let (event, data) = frame.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
                self.find(&mut stream, event, &serde_json::from_str(data).unwrap()).await;
            }
            return;
        }
        let answer = ask.answer().await;
        let got = answer.is(StatusCode::from_u16(status.parse().unwrap()).unwrap());
        if !expected.is_empty() {
            let expected =
                serde_json::from_str(expected).unwrap_or_else(|error| panic!("{error}: {expected}"));
            assert!(self.is_in(&expected, &got), "{example}\nbut it was {got}");
        }
    }

    async fn find(&mut self, stream: &mut crate::rest::door::Frames, event: &str, expected: &Value) {
        while let Some(frame) = stream.next().await {
            if frame.event == event && self.is_in(expected, &frame.data) {
                return;
            }
        }
        panic!("no {event} with {expected}");
    }

    fn is_in(&mut self, expected: &Value, got: &Value) -> bool {
        match (expected, got) {
            (Value::String(any), _) if any == "..." => true,
            (Value::String(name), Value::String(got)) if name.starts_with('$') && !name.contains('/') => {
                self.names.0.entry(name.clone()).or_insert_with(|| got.clone()) == got
            }
            (Value::String(text), Value::String(got)) => self.names.filled(text) == *got,
            (Value::Object(expected), Value::Object(got)) => {
                expected.iter().all(|(key, value)| got.get(key).is_some_and(|found| self.is_in(value, found)))
            }
            (Value::Array(expected), Value::Array(got)) => {
                expected.len() <= got.len() && expected.iter().zip(got).all(|(a, b)| self.is_in(a, b))
            }
            (expected, got) => expected == got,
        }
    }
}

#[tokio::test]
async fn the_pages_requests_and_answers_are_true() {
    let page = include_str!("../../../../../docs/dialects/rest.md");
    let blocks = http_blocks(page);
    assert!(blocks.len() >= 6);
    for block in blocks {
        run(Setup::offline(), async |server| {
            let door = Door::open(server);
            std::fs::write(server.workspace().join("notes.txt"), "a line\n").unwrap();
            let names = Names::in_folder(&server.workspace());
            let mut player = Player { door: &door, names };
            for example in block.split("\n---\n") {
                player.play(example).await;
            }
            let sessions = door.get("/session").answer().await.is(StatusCode::OK);
            for id in sessions["sessions"].as_array().unwrap() {
                server.idle(id.as_str().unwrap()).await;
            }
            door.close().await;
        })
        .await;
    }
}
