//! The page about this dialect is true: its requests are sent, its frames are looked for.

use std::collections::HashMap;

use app::{AppConnection, open};
use engine::Principal;
use serde_json::Value;
use testkit::server::{DEADLINE, Setup, run, write};
use wire::native::RequestEnvelope;

use testkit::app_client::{AppHarness, owner_at_machine};

struct Player {
    line: AppConnection,
    names: HashMap<String, Value>,
    /// The last frame that was looked for: what the page says next may be in it too.
    last: Option<Value>,
}

impl Player {
    async fn send(&mut self, text: &str) {
        let filled = self.names.iter().fold(text.to_owned(), |text, (name, value)| {
            let quoted = format!("\"{name}\"");
            text.replace(&quoted, &value.to_string())
        });
        let envelope: RequestEnvelope =
            serde_json::from_str(&filled).unwrap_or_else(|error| panic!("{filled}: {error}"));
        self.line.requests.send(envelope).await.expect("the line is open");
    }

    /// Reads until a frame has all that the page says.
    async fn expect(&mut self, text: &str) {
        let wanted: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut seen = Vec::new();
        let search = async {
            loop {
                let frame = match self.last.take() {
                    Some(frame) => frame,
                    None => serde_json::to_value(self.line.frames.recv().await.expect("a frame")).unwrap(),
                };
                let mut names = self.names.clone();
                if holds(&frame, &wanted, &mut names) {
                    (self.names, self.last) = (names, Some(frame));
                    return;
                }
                seen.push(frame);
            }
        };
        let found = tokio::time::timeout(DEADLINE, search).await;
        assert!(found.is_ok(), "the page says {text}, and there was only {seen:#?}");
    }
}

/// Whether every member of `part` is in `whole`; of arrays, each element somewhere. `"..."` is anything,
/// `"$name"` what was there when the name was first met.
fn holds(whole: &Value, part: &Value, names: &mut HashMap<String, Value>) -> bool {
    match (whole, part) {
        (_, Value::String(text)) if text == "..." => !whole.is_null(),
        (_, Value::String(name)) if name.starts_with('$') => {
            !whole.is_null() && names.entry(name.clone()).or_insert_with(|| whole.clone()) == whole
        }
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|whole| holds(whole, value, names)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            part.iter().all(|part| whole.iter().any(|whole| holds(whole, part, names)))
        }
        (whole, part) => whole == part,
    }
}

#[tokio::test]
async fn our_own_pages_transcripts_are_true() {
    let page = include_str!("../../../../docs/dialects/native.md");
    let blocks =
        page.split("```transcript\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let blocks: Vec<&str> = blocks.collect();
    assert!(blocks.len() >= 4);
    for block in blocks {
        run(Setup::offline(), async |server| {
            write(server.workspace().join("notes.txt"), "one\n");
            let house = AppHarness::new(server);
            let names = HashMap::from([(
                "$folder".to_owned(),
                Value::from(server.workspace().display().to_string()),
            )]);
            let mut player = Player { line: open(&house.app, owner_at_machine("phone")), names, last: None };
            for line in block.lines() {
                match line.split_once(' ') {
                    Some(("->", text)) => player.send(text).await,
                    Some(("<-", text)) => player.expect(text).await,
                    _ => panic!("a line of a transcript begins with -> or <-: {line}"),
                }
            }
            let session = player.names.get("$session").and_then(Value::as_str).expect("a session");
            let id = engine::SessionId::parse(session).unwrap();
            // A page may delete what it made.
            if server.registry().row(&Principal::local(), &id).await.is_ok() {
                server.idle(session).await;
            }
            house.close().await;
        })
        .await;
    }
}
