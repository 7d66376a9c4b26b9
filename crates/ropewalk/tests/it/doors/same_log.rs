//! One scenario through every door: whichever a client comes through, the same conversation is recorded.
//!
//! The scenario is data (`tests/doors/scenario.json`), with what a dialect has no word for. The measure is
//! the log that an editor on standard input leaves when it does the same.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::doors::clients::{Client, client};
use crate::doors::web::{Server, run};

const SCENARIO: &str = include_str!("../../../../../tests/doors/scenario.json");
const MEASURE: &str = "official stdio";

/// Each has a test below.
const DOORS: [&str; 10] = [
    "bernstein http",
    "bernstein stdio",
    "ferret stdio",
    "ferret websocket",
    "official http",
    "official stdio",
    "official websocket",
    "otter stdio",
    "rest",
    "zeph http",
];

#[test]
fn every_door_of_the_scenario_has_its_test() {
    let mut doors: Vec<String> = scenario()["doors"].as_object().unwrap().keys().cloned().collect();
    doors.sort();
    assert_eq!(doors, DOORS);
}

#[test]
fn the_measure_has_all_that_the_scenario_is_about() {
    let [log] = walk(MEASURE, "one session").try_into().unwrap();
    let kinds: Vec<&str> = log.iter().map(|event| event["event_type"].as_str().unwrap()).collect();
    let count = |kind: &str| kinds.iter().filter(|each| **each == kind).count();
    assert_eq!((count("turn_started"), count("turn_ended")), (4, 4), "{kinds:?}");
    assert_eq!((count("user_message"), count("file_edited"), count("tool_ended")), (4, 1, 4), "{kinds:?}");
    let by_people = log.iter().filter(|event| event["payload"]["by"] == "surface").count();
    assert_eq!((count("asked"), by_people, count("cancel_requested")), (3, 3, 1), "{kinds:?}");
}

#[test]
fn official_http_records_what_official_stdio_does() {
    check("official http");
}

#[test]
fn official_websocket_records_what_official_stdio_does() {
    check("official websocket");
}

#[test]
fn zeph_http_records_what_official_stdio_does() {
    check("zeph http");
}

#[test]
fn ferret_stdio_records_what_official_stdio_does() {
    check("ferret stdio");
}

#[test]
fn ferret_websocket_records_what_official_stdio_does() {
    check("ferret websocket");
}

#[test]
fn otter_stdio_records_what_official_stdio_does() {
    check("otter stdio");
}

#[test]
fn rest_records_what_official_stdio_does() {
    check("rest");
}

#[test]
fn bernstein_stdio_records_what_official_stdio_does() {
    check("bernstein stdio");
}

#[test]
fn bernstein_http_records_what_official_stdio_does() {
    check("bernstein http");
}

fn scenario() -> Value {
    serde_json::from_str(SCENARIO).unwrap()
}

#[track_caller]
fn check(door: &str) {
    let shape = scenario()["doors"][door]["shape"].as_str().unwrap().to_owned();
    let (expected, found) = (walk(MEASURE, &shape), walk(door, &shape));
    assert_eq!(expected.len(), found.len(), "sessions");
    for (expected, found) in expected.iter().zip(&found) {
        let lines = |log: &[Value]| log.iter().map(|event| format!("{event}\n")).collect::<String>();
        assert_eq!(difference(&lines(expected), &lines(found)), None, "{door} differs");
    }
}

/// Where two logs part, and how each goes on.
fn difference(expected: &str, found: &str) -> Option<(usize, String, String)> {
    let at = expected.lines().zip(found.lines()).take_while(|(one, other)| one == other).count();
    let line = |text: &str| text.lines().nth(at).unwrap_or("the end").to_owned();
    (expected != found).then(|| (at, line(expected), line(found)))
}

/// Goes through the scenario, and gives the log of each session that was made, in order.
fn walk(door: &str, shape: &str) -> Vec<Vec<Value>> {
    let scenario = scenario();
    let of_door = &scenario["doors"][door];
    let extra = of_door["serve"].as_array().into_iter().flatten().map(|word| word.as_str().unwrap());
    let arguments: Vec<&str> = ["--stdio"].into_iter().chain(extra).collect();
    let mut server = Server::start(&arguments);
    let folder = server.home.path().canonicalize().unwrap().join("project");
    fs::create_dir(&folder).unwrap();
    let client = client(door, &mut server);
    let mut walk = Walk { door, shape, client, folder, sessions: Vec::new() };
    for step in scenario["steps"].as_array().unwrap() {
        let kind = step["do"].as_str().unwrap();
        if of_door["no_word_for"][kind].is_null() {
            walk.step(kind, step, &scenario, &mut server);
        }
    }
    let (home, folder) = (server.home.clone(), walk.folder);
    assert_eq!(server.stop().0, Some(0));
    walk.sessions.iter().map(|session| log(&home, session, &folder)).collect()
}

struct Walk<'a> {
    door: &'a str,
    shape: &'a str,
    client: Box<dyn Client>,
    folder: PathBuf,
    sessions: Vec<String>,
}

impl Walk<'_> {
    fn step(&mut self, kind: &str, step: &Value, scenario: &Value, server: &mut Server) {
        match kind {
            "open" if self.shape == "one session" => self.sessions.push(self.client.open(&self.folder)),
            // Each prompt opens its own.
            "open" => {}
            "prompt" => self.prompt(step, &scenario["shapes"][self.shape]),
            "list" => {
                let listed = self.client.list();
                assert!(self.sessions.iter().all(|session| listed.contains(session)), "{listed:?}");
            }
            "second client" => self.second(step, server),
            _ => panic!("the scenario has an unknown step {kind:?}"),
        }
    }

    fn prompt(&mut self, step: &Value, shape: &Value) {
        let session = self.place(shape["approval"].as_str());
        let text = step["text"].as_str().unwrap();
        let used = self.client.prompt(session.as_deref(), &self.folder, text);
        if session.is_none() {
            self.sessions.push(used.clone());
        }
        let answer = step["answer_in"][self.shape].as_str().or(step["answer"].as_str());
        if let Some(answer) = answer {
            let asked = self.client.asked();
            assert_eq!(asked.session, used);
            assert!(self.client.answer(&asked, answer == "allow"), "the answer counts");
        }
        if let Some(text) = step["cancel_at"].as_str() {
            self.client.hears(text);
            // Where a dialect's cancel is the end of the session, the measure ends it too.
            if self.door == MEASURE && shape["cancel"] == "closes the session" {
                self.client.close(&used);
            } else {
                self.client.cancel(&used);
            }
        }
        assert_eq!(self.client.stopped(), step["ends"].as_str().unwrap(), "{}: {text}", self.door);
        for (file, there) in step["leaves"].as_object().unwrap_or(&Map::new()) {
            assert_eq!(self.folder.join(file).exists(), there.as_bool().unwrap(), "{file}");
        }
    }

    /// The session to prompt in; none where a prompt opens its own.
    fn place(&mut self, approval: Option<&str>) -> Option<String> {
        if self.shape == "one session" {
            return self.sessions.last().cloned();
        }
        if self.door != MEASURE {
            return None;
        }
        let session = self.client.open(&self.folder);
        if let Some(approval) = approval {
            self.client.set_approval(&session, approval);
        }
        self.sessions.push(session.clone());
        Some(session)
    }

    /// There is one standard input, so the second client takes the dialect's way over the network.
    fn second(&self, step: &Value, server: &mut Server) {
        let dialect = self.door.split(' ').next().unwrap();
        let door = match self.door {
            "rest" | "zeph http" | "official http" => self.door.to_owned(),
            // otter is told from others by the flag that only standard input heeds.
            "otter stdio" => "rest".to_owned(),
            _ => format!("{dialect} websocket"),
        };
        let mut second = client(&door, server);
        for session in &self.sessions {
            second.join(session, &self.folder);
        }
        for text in step["hears"].as_array().unwrap() {
            second.hears(text.as_str().unwrap());
        }
    }
}

/// A session's log without what differs each time, and without who came how.
fn log(home: &TempDir, session: &str, folder: &Path) -> Vec<Value> {
    let exported = run(home, &["sessions", "export", session]).with(0).json();
    let text = exported["events"].to_string();
    let mut text = text.replace(folder.to_str().unwrap(), "FOLDER").replace(session, "SESSION");
    let started =
        exported["events"].as_array().unwrap().iter().filter(|event| event["event_type"] == "tool_started");
    for (number, event) in started.enumerate() {
        text = text.replace(event["payload"]["call"].as_str().unwrap(), &format!("CALL {number}"));
    }
    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut plain: Vec<Value> = Vec::new();
    for mut event in events {
        strip(&mut event);
        match plain.last_mut() {
            // How a text was cut into pieces is a matter of time.
            Some(last) if is_more_of(last, &event) => {
                let text = format!("{}{}", said(last), said(&event));
                last["payload"]["text"] = text.into();
            }
            Some(_) | None => plain.push(event),
        }
    }
    plain
}

fn strip(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        for field in ["seq", "at", "origin", "elapsed_ms"] {
            fields.remove(field);
        }
        if fields.get("by").is_some_and(|by| by.get("surface").is_some()) {
            fields.insert("by".into(), "surface".into());
        }
        fields.values_mut().for_each(strip);
    } else if let Some(items) = value.as_array_mut() {
        items.iter_mut().for_each(strip);
    }
}

fn said(event: &Value) -> &str {
    event["payload"]["text"].as_str().unwrap_or_default()
}

fn is_more_of(last: &Value, next: &Value) -> bool {
    let streamed = matches!(next["event_type"].as_str(), Some("text" | "thought" | "tool_output"));
    let same = |field: &str| last["payload"][field] == next["payload"][field];
    streamed
        && last["event_type"] == next["event_type"]
        && ["message", "call", "stream"].iter().all(|field| same(field))
}
