//! From a session's log to a collector on this machine, and what a bad collector costs: nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use engine::{
    AskId, AskRequest, Body, CallId, Clock, Content, Follower, Input, MemoryStore, NewSessionRequest, Opaque,
    PermissionAnswer, Principal, Registry, RegistryParts, Risk, Sender, Seq, SessionHandle, Stop, SurfaceId,
    Timestamp, ToolClass, ToolEnd, ToolKind, ToolStart, TurnContext, Usage,
};
use metrics::Metrics;
use serde_json::Value;
use testkit::Turns;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Endpoint, ExportTiming, Exporter, QUEUE_MAX, open};

const DEADLINE: Duration = Duration::from_secs(60);
const AT_ONCE: ExportTiming = ExportTiming { linger: Duration::ZERO, pauses: [Duration::ZERO; 2] };

struct Ticks(AtomicI64);

impl Clock for Ticks {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

/// A registry whose turns are traced, and the exporter, which a test runs if it wants to.
struct House {
    metrics: Arc<Metrics>,
    registry: Arc<Registry>,
    exporter: Option<Exporter>,
    sending: JoinSet<()>,
    stop: CancellationToken,
}

impl House {
    fn new(port: u16, backend: Turns) -> Self {
        let metrics = Metrics::new("1.2.3", Timestamp(0));
        let endpoint = Endpoint::parse(&format!("http://127.0.0.1:{port}")).unwrap();
        let (traces, exporter) = open(AT_ONCE, endpoint, &metrics).unwrap();
        let clock = Arc::new(Ticks(AtomicI64::new(1_700_000_000_000)));
        let parts = RegistryParts::new(Arc::new(MemoryStore::default()), Arc::new(backend), clock);
        let followers = vec![traces as Arc<dyn Follower>];
        Self {
            metrics,
            registry: Registry::new(RegistryParts { followers, ..parts }),
            exporter: Some(exporter),
            sending: JoinSet::new(),
            stop: CancellationToken::new(),
        }
    }

    /// From here on traces are sent as they come.
    fn send(mut self) -> Self {
        self.sending.spawn(self.exporter.take().unwrap().run(self.stop.clone()));
        self
    }

    /// Ends the sessions and then the sending; says what became of the spans: sent, dropped.
    async fn end(mut self) -> (u64, u64) {
        self.registry.shutdown().await;
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.sending.join_next()).await.expect("the sending ends");
        (spans(&self.metrics, "sent"), spans(&self.metrics, "dropped"))
    }

    async fn session(&self) -> SessionHandle {
        let wish = NewSessionRequest::new(Principal::local(), "/".into(), "acp");
        self.registry.create(wish).await.unwrap()
    }
}

fn spans(metrics: &Metrics, fate: &str) -> u64 {
    let series = format!("ropewalk_trace_spans_total{{fate=\"{fate}\"}} ");
    let text = metrics.render();
    text.lines().find_map(|line| line.strip_prefix(&series)).unwrap().parse().unwrap()
}

fn sender() -> Sender {
    Sender::new(SurfaceId(1), "editor")
}

async fn prompt(session: &SessionHandle) {
    let content = vec![Content::text("the secret plan")];
    session.send(Input::Prompt { by: sender(), content }).await.unwrap();
}

/// Waits until the session has ended this many turns.
async fn turns_end(session: &SessionHandle, count: usize) {
    let mut reader = session.read(Seq::START);
    let mut ended = 0;
    let all = async {
        while ended < count {
            let events = reader.next().await.unwrap().unwrap();
            ended += events.iter().filter(|event| matches!(event.body, Body::TurnEnded { .. })).count();
        }
    };
    tokio::time::timeout(DEADLINE, all).await.expect("the turns end");
}

/// Answers each request with the next status, the last one again and again, and shows the bodies.
struct Collector {
    port: u16,
    bodies: mpsc::Receiver<Value>,
    _tasks: JoinSet<()>,
}

impl Collector {
    async fn start(statuses: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (shown, bodies) = mpsc::channel(64);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            for at in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let status = statuses.get(at).or(statuses.last()).unwrap();
                shown.send(serve(stream, status).await).await.unwrap();
            }
        });
        Self { port, bodies, _tasks: tasks }
    }

    async fn next(&mut self) -> Value {
        tokio::time::timeout(DEADLINE, self.bodies.recv()).await.expect("a request").unwrap()
    }
}

async fn serve(mut stream: TcpStream, status: &str) -> Value {
    let mut bytes = Vec::new();
    loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await.unwrap();
        assert!(count > 0, "the request is whole");
        bytes.extend_from_slice(&part[..count]);
        let text = String::from_utf8(bytes.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() < length.parse().unwrap() {
            continue;
        }
        assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/json"), "{head}");
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}");
        stream.write_all(answer.as_bytes()).await.unwrap();
        return serde_json::from_str(body).unwrap();
    }
}

fn spans_of(body: &Value) -> Vec<Value> {
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}

fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    let mut found = spans.iter().filter(|span| span["name"] == name);
    let one = found.next().unwrap_or_else(|| panic!("no {name} in {spans:#?}"));
    assert!(found.next().is_none(), "{name} twice");
    one
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().unwrap();
    &attributes
        .iter()
        .find(|attribute| attribute["key"] == key)
        .unwrap_or_else(|| panic!("no {key} in {span:#}"))["value"]
}

fn nanos(span: &Value, key: &str) -> i64 {
    span[key].as_str().unwrap().parse().unwrap()
}

fn tool_start(call: &CallId, tool: &str) -> Body {
    Body::ToolStarted(Box::new(ToolStart {
        kind: ToolKind::Execute,
        input: Opaque("{\"command\":\"rm -rf secret\"}".into()),
        ..ToolStart::new(call.clone(), tool.into(), "rm -rf secret".into())
    }))
}

fn tool_end(call: &CallId, failed: bool) -> Body {
    Body::ToolEnded(Box::new(ToolEnd {
        failed,
        exit: Some(engine::Exit { code: Some(3), signal: None }),
        elapsed_ms: 1,
        ..ToolEnd::of(call.clone())
    }))
}

fn wish(call: &CallId) -> AskRequest {
    AskRequest {
        call: Some(call.clone()),
        tool: "shell".into(),
        title: "rm -rf secret".into(),
        kind: ToolKind::Execute,
        class: ToolClass::Execute,
        path: None,
        subject: "rm -rf secret".into(),
        input: Opaque("{}".into()),
        risk: Risk::High,
        reason: "it removes the secret".into(),
        preview: Vec::new(),
        question: None,
        foreign: None,
        consent: None,
        rule: None,
    }
}

/// A model call, a command that a person allowed, a tool with a text for a name, a model call.
fn a_working_turn() -> Turns {
    Turns::new(|_, context: TurnContext| async move {
        let usage = Usage { input: 7, output: 5, cost_usd: 0.5, ..Usage::default() };
        context.usage(usage).await.unwrap();
        let call = CallId::random();
        context.emit(tool_start(&call, "shell")).await.unwrap();
        context.ask(wish(&call)).await.unwrap();
        context.emit(tool_end(&call, true)).await.unwrap();
        let odd = CallId::random();
        context.emit(tool_start(&odd, "please read the secret")).await.unwrap();
        context.emit(tool_end(&odd, false)).await.unwrap();
        Ok(Stop::EndTurn)
    })
}

/// A turn of two spans: its own and a model call.
fn a_short_turn() -> Turns {
    Turns::new(|_, context: TurnContext| async move {
        context.usage(Usage::default()).await.unwrap();
        Ok(Stop::EndTurn)
    })
}

#[tokio::test]
async fn one_trace_leads_from_the_prompt_to_the_tool() {
    let mut collector = Collector::start(&["200 OK"]).await;
    let house = House::new(collector.port, a_working_turn()).send();
    let session = house.session().await;
    prompt(&session).await;
    let mut reader = session.read(Seq::START);
    let asked = async {
        while !reader.next().await.unwrap().unwrap().iter().any(|e| matches!(e.body, Body::Asked { .. })) {}
    };
    tokio::time::timeout(DEADLINE, asked).await.expect("the question");
    let answer = Input::Answer { by: sender(), ask: AskId(1), answer: PermissionAnswer::AllowOnce };
    session.send(answer).await.unwrap();

    let body = collector.next().await;
    let all = spans_of(&body);
    assert_eq!(all.len(), 5, "{all:#?}");
    let (turn, call) = (named(&all, "turn"), named(&all, "model call"));
    let (tool, ask, odd) = (named(&all, "tool shell"), named(&all, "ask"), named(&all, "tool other"));
    assert_eq!(turn.get("parentSpanId"), None);
    for (child, parent) in [(call, turn), (tool, turn), (ask, tool), (odd, turn)] {
        assert_eq!(child["parentSpanId"], parent["spanId"], "{child:#}");
        assert_eq!(child["traceId"], turn["traceId"]);
        assert!(nanos(child, "startTimeUnixNano") >= nanos(parent, "startTimeUnixNano"));
        assert!(nanos(child, "endTimeUnixNano") <= nanos(parent, "endTimeUnixNano"));
        assert!(nanos(child, "startTimeUnixNano") < nanos(child, "endTimeUnixNano"));
    }
    assert!(nanos(turn, "startTimeUnixNano") >= 1_700_000_000_000_000_000, "the log's own times");
    assert_eq!(turn["traceId"].as_str().unwrap().len(), 32);
    assert_eq!(turn["spanId"].as_str().unwrap().len(), 16);
    assert_eq!(attribute(turn, "ropewalk.session")["stringValue"], session.id().as_str());
    assert_eq!(attribute(turn, "ropewalk.stop")["stringValue"], "end_turn");
    assert_eq!(attribute(call, "gen_ai.usage.input_tokens")["intValue"], "7");
    assert_eq!(attribute(call, "ropewalk.cost_usd")["doubleValue"], 0.5);
    assert_eq!(attribute(tool, "ropewalk.failed")["boolValue"], true);
    assert_eq!(attribute(tool, "ropewalk.exit_code")["intValue"], "3");
    assert_eq!((&tool["status"]["code"], &odd["status"]["code"]), (&Value::from(2), &Value::from(0)));
    assert_eq!(attribute(ask, "ropewalk.decision")["stringValue"], "allowed_once");
    assert_eq!(attribute(ask, "ropewalk.risk")["stringValue"], "high");
    // Nothing that anybody said or typed.
    assert!(!body.to_string().contains("secret"), "{body:#}");
    assert_eq!(house.end().await, (5, 0));
}

#[tokio::test]
async fn each_turn_has_a_trace_of_its_own_and_none_is_sent_twice() {
    let mut collector = Collector::start(&["200 OK"]).await;
    let house = House::new(collector.port, a_short_turn());
    let session = house.session().await;
    prompt(&session).await;
    prompt(&session).await;
    turns_end(&session, 2).await;
    house.registry.close(&Principal::local(), session.id()).await.unwrap();
    let again = house.registry.open(&Principal::local(), session.id()).await.unwrap();
    prompt(&again).await;
    turns_end(&again, 3).await;
    // Stopped before anything was sent: what waits is sent all the same.
    house.stop.cancel();
    assert_eq!(house.send().end().await, (6, 0));
    let all = spans_of(&collector.next().await);
    let mut ids: Vec<_> = all.iter().map(|span| span["traceId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 6);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn a_collector_that_is_not_there_costs_the_turn_nothing() {
    // Held, so that nobody else gets the port, and never listened on.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = held.local_addr().unwrap().port();
    let house = House::new(port, a_short_turn()).send();
    let session = house.session().await;
    prompt(&session).await;
    turns_end(&session, 1).await;
    assert_eq!(house.end().await, (0, 2));
}

#[tokio::test]
async fn what_the_queue_cannot_hold_is_dropped_and_counted_and_every_turn_still_ends() {
    let house = House::new(9, a_short_turn());
    let session = house.session().await;
    let extra = 10;
    for turn in 1..=QUEUE_MAX + extra {
        prompt(&session).await;
        turns_end(&session, turn).await;
    }
    // Nothing is sent here: the exporter of this house was never started.
    assert_eq!(house.end().await, (0, 2 * u64::try_from(extra).unwrap()));
}

#[tokio::test]
async fn a_collector_that_is_busy_is_asked_again() {
    let mut collector =
        Collector::start(&["503 Service Unavailable", "429 Too Many Requests", "200 OK"]).await;
    let house = House::new(collector.port, a_short_turn()).send();
    let session = house.session().await;
    prompt(&session).await;
    let first = collector.next().await;
    assert_eq!(collector.next().await, first);
    assert_eq!(collector.next().await, first);
    assert_eq!(house.end().await, (2, 0));
}

#[tokio::test]
async fn what_a_collector_refuses_is_not_sent_again() {
    let mut collector = Collector::start(&["400 Bad Request", "200 OK"]).await;
    let house = House::new(collector.port, a_short_turn()).send();
    let session = house.session().await;
    prompt(&session).await;
    let refused = collector.next().await;
    prompt(&session).await;
    assert_ne!(collector.next().await, refused);
    assert_eq!(house.end().await, (2, 2));
}

#[tokio::test]
async fn a_turn_with_very_many_tools_is_cut_and_says_so() {
    let mut collector = Collector::start(&["200 OK"]).await;
    let house = House::new(
        collector.port,
        Turns::new(|_, context: TurnContext| async move {
            for _ in 0..300 {
                let call = CallId::random();
                context.emit(tool_start(&call, "read")).await.unwrap();
                context.emit(tool_end(&call, false)).await.unwrap();
            }
            Ok(Stop::EndTurn)
        }),
    )
    .send();
    let session = house.session().await;
    prompt(&session).await;
    let all = spans_of(&collector.next().await);
    assert_eq!(all.len(), 257);
    assert_eq!(attribute(named(&all, "turn"), "ropewalk.spans_left_out")["intValue"], "44");
    assert_eq!(house.end().await, (257, 44));
}
