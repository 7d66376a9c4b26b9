//! Whole pieces of work, written down in `tests/trajectories/*.txt`: what the models say, what people do
//! meanwhile, which files must be there at the end and what must stand in the log.
//!
//! A line is an order. `file`, `<`, `NAME<` and `answer` set the scene; the rest happens in its order:
//!
//! ```text
//! file PATH TEXT       the file is there (or somebody else writes it); \n in the text is a line end
//! < DO ;; DO           the next reply of the model: say, think, call TOOL JSON, fail, hang, cut, refuse
//! left< DO ;; DO       the next reply of the sub-agent that was told "left"
//! answer allow|deny    how people answer from here on
//! > TEXT               a prompt, to the end of its turn
//! >> TEXT              a prompt
//! until TEXT           waits for an event with this in it
//! cancel | restart | set ID VALUE | end (waits for the turn's end)
//! = PATH TEXT          the file is so at the end; `= PATH` alone: there is none
//! ~ TEXT               a line with this is in the log, after the one of the `~` before
//! !~ TEXT              no line with this is in the log
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent::{Message, Model, ModelError, ModelEvent, ModelInfo, ModelRequest, ModelStop, ModelStream};
use engine::{Body, BoxFuture, CallId, Content, Event, PermissionAnswer};
use testkit::{Line, Script, call, fail, say, think};

use crate::harness::Harness;

/// The agent and its sub-agents, each with lines of its own, whoever speaks first.
#[derive(Clone)]
struct Cast {
    agent: Script,
    others: BTreeMap<String, Script>,
}

impl Cast {
    fn of(&self, request: &ModelRequest) -> &Script {
        let told = match request.messages.first() {
            Some(Message::User { text, .. }) => text.as_ref(),
            _ => "",
        };
        self.others.get(told).unwrap_or(&self.agent)
    }

    fn all(&self) -> impl Iterator<Item = &Script> {
        std::iter::once(&self.agent).chain(self.others.values())
    }
}

impl Model for Cast {
    fn offers(&self) -> Vec<ModelInfo> {
        self.agent.offers()
    }

    fn stream(&self, request: ModelRequest) -> Box<dyn ModelStream> {
        self.of(&request).stream(request)
    }
}

fn reply(text: &str) -> Vec<Line> {
    let line = |order: &str| {
        let (word, rest) = order.trim().split_once(' ').unwrap_or((order.trim(), ""));
        match word {
            "say" => say(rest.replace("\\n", "\n")),
            "think" => think(rest),
            "call" => {
                let (tool, arguments) = rest.split_once(' ').unwrap_or((rest, ""));
                call(tool, arguments)
            }
            "fail" => fail(rest),
            "hang" => Line::Hang,
            "cut" => Line::Stop(ModelStop::MaxTokens),
            "refuse" => Line::Stop(ModelStop::Refusal),
            other => panic!("a model cannot {other:?}"),
        }
    };
    text.split(";;").filter(|order| !order.trim().is_empty()).map(line).collect()
}

fn cast(script: &str) -> Cast {
    let mut cast = Cast { agent: Script::new([]), others: BTreeMap::new() };
    for line in script.lines() {
        if let Some(text) = line.strip_prefix('<') {
            cast.agent.then(reply(text));
        } else if let Some((name, text)) = line.split_once('<')
            && !name.contains(' ')
        {
            cast.others.entry(name.to_owned()).or_insert_with(|| Script::new([])).then(reply(text));
        }
    }
    cast
}

async fn act(harness: &mut Harness, line: &str) {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "file" => {
            let (path, text) = rest.split_once(' ').unwrap_or((rest, ""));
            harness.write(path, &text.replace("\\n", "\n"));
        }
        "answer" => {
            harness.answer =
                if rest == "allow" { PermissionAnswer::AllowOnce } else { PermissionAnswer::DenyOnce }
        }
        ">" => drop(harness.prompt(rest).await),
        ">>" => harness.send(vec![Content::text(rest)]).await,
        "until" => drop(harness.until(|body| format!("{body:?}").contains(rest)).await),
        "end" => drop(harness.turn().await),
        "cancel" => harness.cancel().await,
        "restart" => harness.restart().await,
        "set" => {
            let (id, value) = rest.split_once(' ').unwrap();
            harness.change(id, value).await;
        }
        other => panic!("nobody can {other:?}"),
    }
}

async fn check(name: &str, script: &str) {
    let cast = cast(script);
    let mut harness = Harness::with(cast.clone()).await;
    for line in script.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let scene = line.starts_with(['=', '~', '!']) || line.split(' ').next().unwrap().contains('<');
        if !scene {
            act(&mut harness, line).await;
        }
    }
    check_files(name, script, &harness);
    let events = harness.log().await;
    let lines = harness.lines(&events);
    check_lines(name, script, &lines);
    check_log(name, &events);
    // Whatever happened, the next turn has a conversation that every provider takes.
    harness.restart().await;
    harness.prompt("and now?").await;
    for script in cast.all() {
        script.requests().iter().for_each(|request| check_conversation(name, &request.messages));
    }
}

fn check_files(name: &str, script: &str, harness: &Harness) {
    for line in script.lines() {
        let Some(rest) = line.strip_prefix("= ") else { continue };
        match rest.split_once(' ') {
            None => assert!(!harness.dir.join(rest).exists(), "{name}: {rest} is there"),
            Some((path, text)) => assert_eq!(harness.read(path), text.replace("\\n", "\n"), "{name}: {path}"),
        }
    }
}

fn check_lines(name: &str, script: &str, lines: &str) {
    let mut rest = lines.lines();
    for wanted in script.lines().filter_map(|line| line.strip_prefix("~ ")) {
        assert!(rest.any(|line| line.contains(wanted)), "{name}: no {wanted:?} (in its place) in\n{lines}");
    }
    for unwanted in script.lines().filter_map(|line| line.strip_prefix("!~ ")) {
        assert!(!lines.contains(unwanted), "{name}: {unwanted:?} is in\n{lines}");
    }
}

/// Every call, ask and turn ends exactly once, and a sub-agent works while its call is open.
fn check_log(name: &str, events: &[Arc<Event>]) {
    let (mut calls, mut asks, mut turns) = (HashSet::new(), HashSet::new(), HashSet::new());
    let mut ever: HashSet<&CallId> = HashSet::new();
    for event in events {
        if let Some(call) = event.origin.task() {
            assert!(calls.contains(call), "{name}: {event:?} comes from a sub-agent of no open call");
        }
        match &event.body {
            Body::ToolStarted(start) => assert!(ever.insert(&start.call) && calls.insert(start.call.clone())),
            Body::ToolOutput { call, .. } => assert!(calls.contains(call), "{name}: {event:?}"),
            Body::ToolEnded(end) => assert!(calls.remove(&end.call), "{name}: {event:?}"),
            Body::Asked { ask, .. } => assert!(asks.insert(*ask), "{name}: {event:?}"),
            Body::Resolved { ask, .. } => drop(asks.remove(ask)),
            Body::TurnStarted => assert!(turns.insert(event.turn), "{name}: {event:?}"),
            Body::TurnEnded { .. } => {
                assert!(turns.remove(&event.turn), "{name}: {event:?}");
                assert!(calls.is_empty() && asks.is_empty(), "{name}: {calls:?} {asks:?} are open");
            }
            _ => {}
        }
    }
    assert!(turns.is_empty(), "{name}: {turns:?} did not end");
}

/// What all providers demand: a person begins, and each call is followed by its result.
fn check_conversation(name: &str, messages: &[Message]) {
    assert!(matches!(messages[0], Message::User { .. } | Message::Summary(_)), "{name}: {messages:#?}");
    let mut open: HashMap<&str, &str> = HashMap::new();
    for message in messages {
        match message {
            Message::ToolResult { call, tool, .. } => {
                assert_eq!(open.remove(call.as_ref()), Some(tool.as_ref()), "{name}: {messages:#?}");
            }
            Message::Assistant { calls, .. } => {
                assert!(open.is_empty(), "{name}: {messages:#?}");
                open.extend(calls.iter().map(|call| (call.id.as_ref(), call.name.as_ref())));
                for call in calls {
                    assert!(serde_json::from_str::<serde_json::Value>(&call.arguments).is_ok(), "{name}");
                }
            }
            Message::User { .. } | Message::Summary(_) => assert!(open.is_empty(), "{name}: {messages:#?}"),
        }
    }
    assert!(open.is_empty(), "{name}: {messages:#?}");
}

#[tokio::test]
async fn each_leaves_the_files_and_the_log_that_it_should() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trajectories");
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 20, "{} trajectories", paths.len());
    for path in paths {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        check(&name, &std::fs::read_to_string(&path).unwrap()).await;
    }
}

/// Twelve sub-agents, of whom each waits until eight are at work.
struct Crowd {
    agent: Script,
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

struct One {
    said: bool,
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Model for Crowd {
    fn offers(&self) -> Vec<ModelInfo> {
        self.agent.offers()
    }

    fn stream(&self, request: ModelRequest) -> Box<dyn ModelStream> {
        if !matches!(&request.messages[0], Message::User { text, .. } if text.as_ref() == "one of many") {
            return self.agent.stream(request);
        }
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(open, Ordering::SeqCst);
        Box::new(One { said: false, open: Arc::clone(&self.open), most: Arc::clone(&self.most) })
    }
}

impl ModelStream for One {
    fn next(&mut self) -> BoxFuture<'_, Result<ModelEvent, ModelError>> {
        Box::pin(async move {
            while self.most.load(Ordering::SeqCst) < 8 {
                tokio::task::yield_now().await;
            }
            Ok(match std::mem::replace(&mut self.said, true) {
                false => ModelEvent::Text("here".into()),
                true => ModelEvent::Done { stop: ModelStop::Finished },
            })
        })
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn eight_sub_agents_work_at_once_and_the_others_wait() {
    let task = call("task", r#"{"description":"One","prompt":"one of many"}"#);
    let agent = Script::new([vec![task; 12], vec![say("All were here.")]]);
    let most = Arc::new(AtomicUsize::new(0));
    let crowd = Crowd { agent: agent.clone(), open: Arc::default(), most: Arc::clone(&most) };
    let mut harness = Harness::with(crowd).await;
    let events = harness.prompt("ask many").await;
    let came = events.iter().filter(|event| matches!(&event.body, Body::ToolEnded(end) if !end.failed));
    assert_eq!(came.count(), 12);
    assert_eq!(most.load(Ordering::SeqCst), 8);
    let told = &agent.requests()[1].messages;
    assert!(matches!(&told[13], Message::ToolResult { text, .. } if text.as_ref() == "here"), "{told:#?}");
}
