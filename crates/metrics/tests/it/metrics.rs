//! What the server counts of itself: by the doors' word, by reading the logs, and as a scraper sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use engine::{
    AskId, AskRequest, Clock, Content, Follower, Input, MemoryStore, NewSessionRequest, Opaque,
    PermissionAnswer, PermissionOutcome, Principal, Registry, RegistryParts, Risk, Sender, SessionHandle,
    Stop, Store, SurfaceId, Timestamp, ToolClass, ToolKind, TurnContext, Usage,
};
use metrics::{DoorLabel, MessageOutcome, Metrics, MetricsFollower, RejectReason, RequestTally, SpanFate};
use testkit::Turns;
use tokio::sync::Semaphore;
use wire::{RequestError, RequestOutcome, RpcId};

const DEADLINE: Duration = Duration::from_secs(60);
const VERSION: &str = "1.2.3";

struct Ticks(AtomicI64);

impl Clock for Ticks {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

fn metrics() -> Arc<Metrics> {
    Metrics::new(VERSION, Timestamp(1_700_000_000_500))
}

/// The value of one series, written as in the text form: `name{label="value"}`.
fn value(metrics: &Metrics, series: &str) -> f64 {
    let text = metrics.render();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
}

/// Waits until a series has a value: the metrics read the log when they come to it.
async fn becomes(metrics: &Metrics, series: &str, wanted: f64) {
    let reached = async {
        while value(metrics, series) != wanted {
            tokio::task::yield_now().await;
        }
    };
    let reached = tokio::time::timeout(DEADLINE, reached).await;
    assert!(reached.is_ok(), "{series} is {} and not {wanted}", value(metrics, series));
}

/// A server of which only the registry and its metrics matter.
struct TestServer {
    metrics: Arc<Metrics>,
    registry: Arc<Registry>,
    store: Arc<dyn Store>,
}

impl TestServer {
    fn new(backend: Turns) -> Self {
        Self::on(Arc::new(MemoryStore::default()), Arc::new(backend))
    }

    fn on(store: Arc<dyn Store>, backend: Arc<Turns>) -> Self {
        let metrics = metrics();
        let clock = Arc::new(Ticks(AtomicI64::new(1)));
        let parts = RegistryParts::new(metrics.timed(Arc::clone(&store)), backend, clock);
        let followers = vec![Arc::new(MetricsFollower(Arc::clone(&metrics))) as Arc<dyn Follower>];
        Self { metrics, registry: Registry::new(RegistryParts { followers, ..parts }), store }
    }

    async fn session(&self) -> SessionHandle {
        let request = NewSessionRequest::new(Principal::local(), "/".into(), "acp");
        self.registry.create(request).await.unwrap()
    }

    async fn becomes(&self, series: &str, wanted: f64) {
        becomes(&self.metrics, series, wanted).await;
    }

    fn value(&self, series: &str) -> f64 {
        value(&self.metrics, series)
    }
}

async fn prompt(session: &SessionHandle, by: &Sender) {
    let content = vec![Content::text("the secret plan")];
    session.send(Input::Prompt { by: by.clone(), content }).await.unwrap();
}

fn sender(id: u64) -> Sender {
    Sender::new(SurfaceId(id), "an editor of many names")
}

fn request() -> AskRequest {
    AskRequest {
        call: None,
        tool: "shell".into(),
        title: "push".into(),
        kind: ToolKind::Execute,
        class: ToolClass::Execute,
        path: None,
        subject: "git push".into(),
        input: Opaque("{}".into()),
        risk: Risk::High,
        reason: "it leaves the machine".into(),
        preview: Vec::new(),
        question: None,
        foreign: None,
        consent: None,
        rule: None,
    }
}

/// V1.
#[test]
fn every_outcome_of_a_message_can_be_reached() {
    let metrics = metrics();
    let tally = RequestTally::new(Arc::clone(&metrics));
    let ended = |stop| {
        Ok(RequestOutcome::TurnEnded { stop, error: None, usage: engine::Totals::default(), words: None })
    };
    let id = engine::SessionId::parse("s-1").unwrap();
    let said = |stop| {
        Ok(RequestOutcome::MessageAnswer {
            id: id.clone(),
            stop,
            error: None,
            said: wire::TurnText::default(),
        })
    };
    let answered =
        |applied, allowed| Ok(RequestOutcome::Answered { id: id.clone(), ask: AskId(1), applied, allowed });
    let answers: Vec<(&str, Result<RequestOutcome, RequestError>, &str)> = vec![
        (
            "initialize",
            Ok(RequestOutcome::Initialized { greeting: engine::Greeting::default(), version: None }),
            "ok",
        ),
        ("session/prompt", ended(Stop::EndTurn), "ok"),
        ("session/prompt", ended(Stop::Cancelled), "cancelled"),
        ("session/message", said(Stop::Failed), "error"),
        ("session/new", Err(RequestError::Internal("x".into())), "error"),
        ("session/load", Err(RequestError::NoSuchSession { id: "x".into() }), "rejected"),
        ("setMode", Err(RequestError::InvalidParams("x".into())), "rejected"),
        ("requestPermission", answered(true, true), "ok"),
        ("requestPermission", answered(true, false), "permission_denied"),
        ("requestPermission", answered(false, true), "rejected"),
    ];
    for (at, (method, answer, outcome)) in answers.iter().enumerate() {
        let id = RpcId::number(at.try_into().unwrap());
        let series = format!("bernstein_acp_messages_total{{method=\"{method}\",outcome=\"{outcome}\"}}");
        tally.asked(&id, method);
        tally.answered(&id, answer.as_ref());
        assert_eq!(value(&metrics, &series), 1.0);
        // An answer that is told again counts once.
        tally.answered(&id, answer.as_ref());
        assert_eq!(value(&metrics, &series), 1.0);
    }
    // A prompt that is answered at once is counted by how its turn ends.
    for (at, (stop, outcome)) in
        [(Stop::EndTurn, "ok"), (Stop::Cancelled, "cancelled"), (Stop::Failed, "error")]
            .into_iter()
            .enumerate()
    {
        let request = RpcId::number(1000 + u64::try_from(at).unwrap());
        tally.asked(&request, "prompt");
        let deferred = tally.deferred(&request).unwrap();
        tally.answered(&request, Ok(&RequestOutcome::Done));
        let series = format!("bernstein_acp_messages_total{{method=\"prompt\",outcome=\"{outcome}\"}}");
        assert!(!metrics.render().contains(&series));
        deferred.ended(stop);
        assert_eq!(value(&metrics, &series), 1.0);
    }
    for (answer, outcome) in [
        (PermissionAnswer::AllowOnce, "ok"),
        (PermissionAnswer::DenyAlways, "permission_denied"),
        (PermissionAnswer::CancelTurn, "cancelled"),
    ] {
        tally.noticed("session/request_permission", MessageOutcome::of_permission(&answer));
        let series = format!(
            "bernstein_acp_messages_total{{method=\"session/request_permission\",outcome=\"{outcome}\"}}"
        );
        assert_eq!(value(&metrics, &series), 1.0);
    }
}

/// V1.
#[test]
fn a_client_that_invents_methods_makes_no_new_series() {
    let metrics = metrics();
    let tally = RequestTally::new(Arc::clone(&metrics));
    let before = metrics.render().lines().count();
    for n in 0..1000_u64 {
        let id = RpcId::number(n);
        tally.asked(&id, &format!("made/up/{n}\"}} 1\nforged 2"));
        tally.answered(&id, Err(&RequestError::UnknownMethod("made up".into())));
    }
    assert_eq!(metrics.render().lines().count(), before);
    let unknown = "bernstein_acp_messages_total{method=\"unknown\",outcome=\"rejected\"}";
    assert_eq!(value(&metrics, unknown), 1000.0);
    assert_eq!(value(&metrics, "ropewalk_rejected_total{reason=\"unknown_method\"}"), 1000.0);
}

#[test]
fn requests_that_are_never_answered_take_a_bounded_room() {
    let metrics = metrics();
    let tally = RequestTally::new(Arc::clone(&metrics));
    for n in 0..5000_u64 {
        tally.asked(&RpcId::number(n), "session/list");
    }
    tally.answered(&RpcId::number(4999), Ok(&RequestOutcome::Done));
    let text = metrics.render();
    assert!(!text.contains("session/list"), "the last one came when there was no room: {text}");
    tally.answered(&RpcId::number(0), Ok(&RequestOutcome::Done));
    assert_eq!(value(&metrics, "bernstein_acp_messages_total{method=\"session/list\",outcome=\"ok\"}"), 1.0);
}

#[test]
fn connections_and_readers_count_while_they_are_there() {
    let metrics = metrics();
    let sockets = "ropewalk_connections{door=\"websocket\"}";
    let (one, two) = (metrics.connection(DoorLabel::WebSocket), metrics.connection(DoorLabel::WebSocket));
    assert_eq!(value(&metrics, sockets), 2.0);
    drop(one);
    assert_eq!(value(&metrics, sockets), 1.0);
    drop(two);
    assert_eq!(value(&metrics, sockets), 0.0);

    let (near, far) = (metrics.reader(), metrics.reader());
    near.set(2);
    far.set(40);
    assert_eq!(value(&metrics, "ropewalk_readers"), 2.0);
    assert_eq!(value(&metrics, "ropewalk_readers_lag_events{of=\"max\"}"), 40.0);
    assert_eq!(value(&metrics, "ropewalk_readers_lag_events{of=\"sum\"}"), 42.0);
    drop(far);
    assert_eq!(value(&metrics, "ropewalk_readers"), 1.0);
    assert_eq!(value(&metrics, "ropewalk_readers_lag_events{of=\"max\"}"), 2.0);
}

#[test]
fn every_reason_of_a_refusal_has_a_series_of_its_own() {
    let metrics = metrics();
    for reason in RejectReason::ALL {
        metrics.rejected(reason);
    }
    let text = metrics.render();
    let ones =
        text.lines().filter(|line| line.starts_with("ropewalk_rejected_total{") && line.ends_with(" 1"));
    assert_eq!(ones.count(), RejectReason::ALL.len());
}

/// V2, C21.
#[tokio::test]
async fn sessions_are_counted_by_what_they_do_and_no_more_once_they_are_closed() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let server = TestServer::new(Turns::new(move |_, context: TurnContext| {
        let gate = Arc::clone(&held);
        async move {
            context.cancel.cancelled().await;
            gate.acquire().await.unwrap().forget();
            Ok(Stop::Cancelled)
        }
    }));
    let (one, two) = (server.session().await, server.session().await);
    server.becomes("bernstein_acp_active_sessions", 2.0).await;
    server.becomes("ropewalk_sessions{state=\"idle\"}", 2.0).await;

    prompt(&one, &sender(1)).await;
    prompt(&one, &sender(2)).await;
    server.becomes("ropewalk_sessions{state=\"running\"}", 1.0).await;
    server.becomes("ropewalk_prompts_waiting", 1.0).await;
    assert_eq!(server.value("ropewalk_sessions{state=\"idle\"}"), 1.0);

    one.send(Input::Cancel { by: sender(1), only: None }).await.unwrap();
    server.becomes("ropewalk_sessions{state=\"cancelled\"}", 1.0).await;
    gate.add_permits(1);
    // The prompt that waited has its turn.
    server.becomes("ropewalk_prompts_waiting", 0.0).await;
    server.becomes("ropewalk_turns_total{stop=\"cancelled\"}", 1.0).await;
    server.becomes("ropewalk_sessions{state=\"running\"}", 1.0).await;
    gate.add_permits(1);

    server.registry.close(&Principal::local(), one.id()).await.unwrap();
    server.becomes("bernstein_acp_active_sessions", 1.0).await;
    server.registry.delete(&Principal::local(), two.id()).await.unwrap();
    server.becomes("bernstein_acp_active_sessions", 0.0).await;
    for state in ["idle", "running", "cancelled"] {
        assert_eq!(server.value(&format!("ropewalk_sessions{{state=\"{state}\"}}")), 0.0, "{state}");
    }
    assert_eq!(server.value("ropewalk_turns_total{stop=\"cancelled\"}"), 2.0);
    server.registry.shutdown().await;
}

#[tokio::test]
async fn tokens_and_cost_are_summed_and_nonsense_of_an_agent_does_no_harm() {
    let server = TestServer::new(Turns::new(|_, context: TurnContext| async move {
        let usage = Usage { input: 10, output: 4, cache_read: 3, cost_usd: 0.25, ..Usage::default() };
        context.usage(usage).await.unwrap();
        context.usage(usage).await.unwrap();
        context.usage(Usage { cost_usd: -5.0, ..Usage::default() }).await.unwrap();
        context.usage(Usage { cost_usd: f64::NAN, ..Usage::default() }).await.unwrap();
        Ok(Stop::EndTurn)
    }));
    prompt(&server.session().await, &sender(1)).await;
    server.becomes("ropewalk_turns_total{stop=\"end_turn\"}", 1.0).await;
    assert_eq!(server.value("ropewalk_tokens_total{kind=\"input\"}"), 20.0);
    assert_eq!(server.value("ropewalk_tokens_total{kind=\"output\"}"), 8.0);
    assert_eq!(server.value("ropewalk_tokens_total{kind=\"cache_read\"}"), 6.0);
    assert_eq!(server.value("ropewalk_tokens_total{kind=\"reasoning\"}"), 0.0);
    assert_eq!(server.value("ropewalk_cost_usd_total"), 0.5);
    server.registry.shutdown().await;
}

#[tokio::test]
async fn asks_are_counted_while_they_wait_and_then_by_the_door_of_the_answer() {
    let server = TestServer::new(Turns::new(|_, context: TurnContext| async move {
        drop(context.ask(request()).await.unwrap());
        let verdict = context.ask(request()).await.unwrap();
        assert!(!matches!(verdict, PermissionOutcome::Allowed), "{verdict:?}");
        Ok(Stop::EndTurn)
    }));
    let guard = server.metrics.connection(DoorLabel::WebSocket);
    guard.surface(SurfaceId(7));
    let session = server.session().await;
    prompt(&session, &sender(7)).await;
    server.becomes("ropewalk_asks_pending", 1.0).await;
    // The connection is gone before the metrics read its answer.
    drop(guard);
    let answer = |by, ask, answer| Input::Answer { by: sender(by), ask: AskId(ask), answer };
    session.send(answer(7, 1, PermissionAnswer::AllowOnce)).await.unwrap();
    server.becomes("ropewalk_asks_answered_total{decision=\"allowed_once\",by=\"websocket\"}", 1.0).await;
    server.becomes("ropewalk_asks_pending", 1.0).await;
    session.send(answer(8, 2, PermissionAnswer::DenyOnce)).await.unwrap();
    server.becomes("ropewalk_asks_answered_total{decision=\"denied_once\",by=\"surface\"}", 1.0).await;
    server.becomes("ropewalk_asks_pending", 0.0).await;
    server.becomes("ropewalk_turns_total{stop=\"end_turn\"}", 1.0).await;
    let text = server.metrics.render();
    assert!(!text.contains("many names") && !text.contains("git push") && !text.contains("plan"), "{text}");
    server.registry.shutdown().await;
}

#[tokio::test]
async fn a_session_that_is_opened_again_is_not_counted_twice() {
    let backend = || Arc::new(Turns::new(|_, _| async { Ok(Stop::EndTurn) }));
    let server = TestServer::on(Arc::new(MemoryStore::default()), backend());
    let session = server.session().await;
    prompt(&session, &sender(1)).await;
    let ended = "ropewalk_turns_total{stop=\"end_turn\"}";
    server.becomes(ended, 1.0).await;
    server.registry.close(&Principal::local(), session.id()).await.unwrap();
    let again = server.registry.open(&Principal::local(), session.id()).await.unwrap();
    prompt(&again, &sender(1)).await;
    server.becomes(ended, 2.0).await;
    server.registry.shutdown().await;
    // Another process begins at zero, whatever stands in the log.
    let other = TestServer::on(Arc::clone(&server.store), backend());
    let opened = other.registry.open(&Principal::local(), session.id()).await.unwrap();
    prompt(&opened, &sender(1)).await;
    other.becomes(ended, 1.0).await;
    other.registry.shutdown().await;
}

#[tokio::test]
async fn appends_are_measured_and_what_the_store_refuses_counts_as_a_failure() {
    let server = TestServer::new(Turns::new(|_, context: TurnContext| async move {
        context.text(context.message(0), "hello").await.unwrap();
        Ok(Stop::EndTurn)
    }));
    let session = server.session().await;
    prompt(&session, &sender(1)).await;
    server.becomes("ropewalk_turns_total{stop=\"end_turn\"}", 1.0).await;
    let written = server.store.find(session.id()).await.unwrap().last_seq.0;
    assert!(written >= 4);
    assert_eq!(server.value("ropewalk_events_appended_total") as u64, written);
    assert!(server.value("ropewalk_append_seconds_count") >= 1.0);
    assert_eq!(server.value("ropewalk_append_failures_total"), 0.0);
    // Somebody else takes the session over: whoever had it is fenced off.
    server.store.claim(session.id()).await.unwrap();
    drop(session.send(Input::Rename { by: sender(1), title: "late".into() }).await);
    server.becomes("ropewalk_append_failures_total", 1.0).await;
    assert_eq!(server.value("ropewalk_events_appended_total") as u64, written);
    server.registry.shutdown().await;
}

/// A measured store keeps every promise that the one behind it keeps.
mod measured {
    testkit::store_suite!((super::metrics().timed(std::sync::Arc::new(engine::MemoryStore::default())), ()));
}

#[test]
fn the_process_tells_its_version_its_start_and_what_it_holds() {
    let metrics = metrics();
    assert_eq!(value(&metrics, "ropewalk_build_info{version=\"1.2.3\"}"), 1.0);
    assert_eq!(value(&metrics, "ropewalk_process_start_time_seconds"), 1_700_000_000.0);
    assert!(value(&metrics, "ropewalk_process_resident_memory_bytes") > 1_000_000.0);
    assert!(value(&metrics, "ropewalk_process_threads") >= 1.0);
    let files = value(&metrics, "ropewalk_process_open_files");
    let held: Vec<_> = (0..200).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    assert!(value(&metrics, "ropewalk_process_open_files") >= files + 100.0, "{} were opened", held.len());
}

/// The older form describes the same series under the names that they have.
#[test]
fn the_older_text_form_has_the_same_series_each_described_once() {
    let metrics = metrics();
    metrics.spans(SpanFate::Sent, 3);
    let (open, plain) = (metrics.render(), metrics.render_plain());
    assert!(open.ends_with("# EOF\n") && !plain.contains("# EOF") && !plain.contains("# UNIT"));
    let names = |text: &str| -> BTreeSet<String> {
        let series = text.lines().filter(|line| !line.starts_with('#'));
        series.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    assert_eq!(names(&open), names(&plain));
    let mut described = BTreeMap::new();
    for line in plain.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
        assert!(described.insert(name, kind).is_none(), "{name} is described twice");
    }
    for series in names(&plain) {
        let name = series.split('{').next().unwrap();
        let base =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(described.contains_key(name) || described.get(base) == Some(&"histogram"), "{series}");
    }
}

/// The table for operators is complete and names nothing that is not there.
#[test]
fn the_operators_table_and_the_metrics_name_the_same() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    // What a label may be stands behind the name, in the same words as here.
    let cell = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let told = page.lines().filter_map(cell).filter(|name| !name.starts_with("ropewalk_hub_"));
    let told: BTreeSet<_> = told.collect();

    let mut shown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let text = metrics().render_plain();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        shown.entry(line.split_once(' ').unwrap().0.to_owned()).or_default();
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels)) = line.split_once('{') else { continue };
        let Some(known) = shown.get_mut(name) else { continue };
        let labels = labels.split_once('}').unwrap().0;
        known.extend(labels.split("\",").map(|label| label.split_once('=').unwrap().0.to_owned()));
    }
    let shown: BTreeSet<_> = shown
        .into_iter()
        .map(|(name, labels)| match labels.len() {
            0 => name,
            _ => format!("{name}{{{}}}", labels.into_iter().collect::<Vec<_>>().join(",")),
        })
        .collect();
    assert_eq!(told, shown);
}

#[test]
fn every_value_of_a_label_stands_on_the_operators_page() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let text = metrics().render();
    for line in text.lines().filter(|line| line.starts_with("ropewalk_") && !line.contains("_bucket{")) {
        for quoted in line.split('"').skip(1).step_by(2).filter(|quoted| *quoted != VERSION) {
            assert!(page.contains(&format!("`{quoted}`")), "{quoted} of {line}");
        }
    }
}
