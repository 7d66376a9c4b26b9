//! The page about HTTP is true: its requests are sent, its answers are looked for.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;
use testkit::http_client::{HttpClient, SseEvents};
use testkit::server::{Setup, run};

struct Player {
    web: HttpClient,
    names: Names,
}

impl Player {
    async fn play(&mut self, example: &str) {
        let (request, answer) = self.names.request_and_answer(example);
        let mut lines = request.lines();
        let (method, path) = lines.next().unwrap().split_once(' ').unwrap();
        let mut web = self.web.clone();
        let mut body = None;
        for line in lines {
            match line.split_once(": ") {
                Some((name, value)) if !name.contains('"') => web = web.with(name, value),
                Some(_) | None => body = Some(line.to_owned()),
            }
        }
        let mut expected = answer.lines();
        let status: u16 = expected.next().unwrap().parse().unwrap();
        let expected: Vec<&str> = expected.collect();
        let got = web.begin(method, path, body.as_deref().map(str::as_bytes)).await;
        assert_eq!(got.status, status, "{example}");
        let headers = got.headers.clone();
        let (events, rest): (Vec<&str>, Vec<&str>) = expected
            .into_iter()
            .partition(|line| ["data: ", "id: ", "event: "].iter().any(|start| line.starts_with(start)));
        for line in &rest {
            if let Some((name, value)) = line.split_once(": ").filter(|(name, _)| !name.contains('"')) {
                let found = headers.iter().find(|(given, _)| given == name);
                let found = found.unwrap_or_else(|| panic!("no header {name}: {example}"));
                assert!(self.is(value, &found.1), "{example}\nbut {name} was {}", found.1);
            }
        }
        if !events.is_empty() {
            return self.events(SseEvents::of(got), &events, example).await;
        }
        let mut whole = Vec::new();
        let mut got = got;
        while let Some(part) = got.part().await {
            whole.extend(part);
        }
        let json = rest.iter().find(|line| line.starts_with('{'));
        if let Some(json) = json {
            let got: Value = serde_json::from_slice(&whole).unwrap();
            let expected = serde_json::from_str(json).unwrap();
            assert!(self.is_in(&expected, &got), "{example}\nbut it was {got}");
        }
    }

    /// Lines about an event stand before its data. The answers to several requests come in any order.
    async fn events(&mut self, mut stream: SseEvents, expected: &[&str], example: &str) {
        let (mut id, mut name) = (None, None);
        let mut answers = Vec::new();
        for line in expected {
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text);
            } else if let Some(text) = line.strip_prefix("event: ") {
                name = Some(text);
            } else if let Some(data) = line.strip_prefix("data: ") {
                let data: Value = serde_json::from_str(data).unwrap();
                if let Some(at) = answers.iter().position(|answer| self.is_in(&data, answer)) {
                    answers.remove(at);
                    continue;
                }
                loop {
                    let event = stream.next().await;
                    let event = event.unwrap_or_else(|| panic!("{example}\nbut there was no {data}"));
                    let json = event.json();
                    if !self.is_in(&data, &json) {
                        answers.extend(json.get("result").is_some().then_some(json));
                    } else {
                        if let Some(name) = name.take() {
                            assert_eq!(event.event.as_deref(), Some(name));
                        }
                        if let Some(id) = id.take() {
                            assert!(self.is(id, event.id.as_deref().unwrap()));
                        }
                        break;
                    }
                }
            }
        }
    }

    fn is(&mut self, expected: &str, got: &str) -> bool {
        if expected == "..." {
            return true;
        }
        if expected.starts_with('$') {
            return self.names.0.entry(expected.to_owned()).or_insert_with(|| got.to_owned()) == got;
        }
        self.names.filled(expected) == got
    }

    fn is_in(&mut self, expected: &Value, got: &Value) -> bool {
        match (expected, got) {
            (Value::String(anything), _) if anything == "..." => true,
            (Value::String(expected), Value::String(got)) => self.is(expected, got),
            (Value::Object(expected), Value::Object(got)) => {
                expected.iter().all(|(key, value)| got.get(key).is_some_and(|found| self.is_in(value, found)))
            }
            (expected, got) => expected == got,
        }
    }
}

/// What the names in the examples of a page stand for.
pub struct Names(pub HashMap<String, String>);

impl Names {
    pub fn in_folder(folder: &Path) -> Self {
        Self(HashMap::from([("$cwd".to_owned(), folder.display().to_string())]))
    }

    pub fn filled(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name.as_str(), value))
    }

    /// The request of an example with its names filled in, and the answer as it stands there.
    pub fn request_and_answer<'a>(&self, example: &'a str) -> (String, &'a str) {
        let (request, answer) = example.split_once("\n\n").unwrap_or_else(|| panic!("no answer: {example}"));
        (self.filled(request), answer)
    }
}

/// The examples of a page: what stands in its fences for HTTP.
pub fn http_blocks(page: &str) -> Vec<&str> {
    page.split("```http\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

#[tokio::test]
async fn the_pages_exchanges_are_true() {
    let page = include_str!("../../../../docs/dialects/http.md");
    let blocks = http_blocks(page);
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        run(Setup::offline(), async |server| {
            let door = server.door(0).await;
            std::fs::write(server.workspace().join("notes.txt"), "a line\n").unwrap();
            let names = Names::in_folder(&server.workspace());
            let mut player = Player { web: door.web(), names };
            for example in block.split("\n---\n") {
                player.play(example).await;
            }
            door.close().await;
        })
        .await;
    }
}
