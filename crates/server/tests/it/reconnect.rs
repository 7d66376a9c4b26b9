//! Clients that leave in the middle, come late or come twice: everybody is told the same in the end.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::{
    Body, CallId, Content, OutputStream, PlanEntry, Priority, StepStatus, Stop, ToolContent, ToolEnd,
    ToolKind, ToolStart, TurnContext,
};
use serde_json::json;
use testkit::server::{Client, Server, Setup, run};
use testkit::{Script, Turns};
use tokio::sync::Semaphore;

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// What a turn says next: text, thoughts, plans and tools, in an order that the dice choose.
struct Story {
    dice: Dice,
    message: u64,
    open: Option<CallId>,
}

impl Story {
    fn next(&mut self, context: &TurnContext) -> Body {
        let words = ["a ", "bc ", "déf ", "\n", "\"q\" ", "🙂"];
        let text: Arc<str> = words[usize::try_from(self.dice.roll(6)).unwrap()].into();
        match self.dice.roll(20) {
            0 => self.message += 1,
            1 => return plan(&text),
            2 | 3 => return self.tool(&text),
            _ => {}
        }
        if let Some(call) = self.open.clone().filter(|_| self.dice.roll(2) == 0) {
            return Body::ToolOutput { call, stream: OutputStream::Stdout, text };
        }
        // One message has one voice.
        let message = context.message(self.message);
        if self.message.is_multiple_of(3) {
            Body::Thought { message, text }
        } else {
            Body::Text { message, text }
        }
    }

    /// Begins a call, or ends the one that is open.
    fn tool(&mut self, text: &Arc<str>) -> Body {
        self.message += 1;
        let Some(call) = self.open.take() else {
            let call = CallId::random();
            self.open = Some(call.clone());
            return Body::ToolStarted(Box::new(ToolStart {
                call,
                tool: "shell".into(),
                title: Arc::clone(text),
                kind: ToolKind::Execute,
                locations: Vec::new(),
                input: engine::Opaque("{}".into()),
                client_terminal: None,
            }));
        };
        Body::ToolEnded(Box::new(ToolEnd {
            plain_text: false,
            call,
            failed: self.dice.roll(2) == 0,
            content: vec![ToolContent::Block(Content::text(Arc::clone(text)))],
            locations: Vec::new(),
            raw: None,
            exit: None,
            elapsed_ms: 1,
        }))
    }
}

fn plan(text: &Arc<str>) -> Body {
    let entry = PlanEntry { content: Arc::clone(text), priority: Priority::Low, status: StepStatus::Pending };
    Body::Plan { entries: vec![entry] }
}

/// A backend that says as many things as the gate has permits, and ends when the gate is closed.
fn gated(seed: u64, gate: &Arc<Semaphore>) -> Turns {
    let gate = Arc::clone(gate);
    let turns = AtomicU64::new(seed);
    Turns::new(move |_, context| {
        let gate = Arc::clone(&gate);
        let seed = turns.fetch_add(1, Ordering::SeqCst).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        async move {
            let mut story = Story { dice: Dice(seed), message: 1, open: None };
            while let Ok(permit) = gate.acquire().await {
                permit.forget();
                context.emit(story.next(&context)).await.unwrap();
            }
            Ok(Stop::EndTurn)
        }
    })
}

/// Cuts a client off after `before` things were said and lets it come back while the rest is being
/// said; what it then knows must be what somebody knows who watched all along.
async fn check(seed: u64, keep: impl FnOnce(Setup) -> Setup, before: u64, after: u64) {
    let gate = Arc::new(Semaphore::new(0));
    let mut dice = Dice(seed * 77 + 5);
    run(keep(Setup::new(gated(seed, &gate))), async |server| {
        let (mut client, mut witness) = (server.client().await, server.client().await);
        let session = client.new_session().await;
        witness.load(&session).await;
        client.send_prompt(&session, "tell me").await;
        witness.next_update_of("user_message_chunk").await;
        // Some of it is read before the cut, some is on its way.
        gate.add_permits(usize::try_from(before).unwrap());
        for _ in 0..dice.roll(20) {
            client.glance().await;
        }
        client.vanish();
        let mut back = server.client().await;
        let loading = back.send("session/load", back.open_params(&session)).await;
        let early = dice.roll(after + 1);
        gate.add_permits(usize::try_from(early).unwrap());
        back.reply(loading).await.unwrap();
        gate.add_permits(usize::try_from(after - early).unwrap());
        let queued = back.send_prompt(&session, "and then?").await;
        // The gate closes once everything was said.
        while gate.available_permits() > 0 {
            witness.next_update().await;
        }
        gate.close();
        back.stop_reason(queued).await;
        server.idle(&session).await;
        witness.catch_up(&session).await;
        let mut late = server.client().await;
        late.load(&session).await;
        let told = witness.story();
        assert_eq!(told.texts("user_message_chunk"), ["tell me", "and then?"]);
        assert_eq!(late.story(), told, "seed {seed}: late");
        // It does not hear its own words, as long as it said them itself.
        let mut heard = back.story();
        assert_eq!(heard.texts("user_message_chunk"), ["tell me"]);
        let own = told.order.iter().find(|id| !heard.order.contains(id)).unwrap().clone();
        let at = told.order.iter().position(|id| *id == own).unwrap();
        heard.order.insert(at, own.clone());
        heard.messages.insert(own.clone(), told.messages[&own].clone());
        assert_eq!(heard, told, "seed {seed}: back");
    })
    .await;
}

/// Fifty cuts, at every tenth with the store on disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_was_cut_off_knows_in_the_end_what_a_witness_knows() {
    for seed in 1..=50 {
        let mut dice = Dice(seed);
        let (before, after) = (dice.roll(200), 1 + dice.roll(200));
        let keep = |setup: Setup| if seed % 10 == 0 { setup.on_disk() } else { setup };
        check(seed, keep, before, after).await;
    }
}

/// More than the log keeps in memory: the history comes from the store, the rest from the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_joins_what_happens_now_without_a_gap() {
    for seed in 101..=103 {
        check(seed, Setup::on_disk, 5000, 3000).await;
    }
}

/// Runs a test with one client that has a session, on several threads' worth of chance.
async fn one_client(setup: Setup, test: impl AsyncFnOnce(&mut Server, Client, String)) {
    run(setup, async |server| {
        let mut client = server.client().await;
        let session = client.new_session().await;
        test(server, client, session).await;
    })
    .await;
}

/// Every request is answered, whatever the client sends behind it without waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_about_one_session_that_do_not_wait_for_each_other_are_all_answered() {
    one_client(Setup::offline(), async |_, mut client, session| {
        client.prompt(&session, "stream 300 10").await;
        let open = client.open_params(&session);
        let id = json!({ "sessionId": session });
        for _ in 0..20 {
            let mut calls = Vec::new();
            for method in
                ["load", "load", "resume", "close", "load", "resume", "load", "close", "close", "load"]
            {
                let params = if method == "close" { id.clone() } else { open.clone() };
                calls.push(client.send(&format!("session/{method}"), params).await);
            }
            for call in calls {
                client.reply(call).await.unwrap();
            }
        }
    })
    .await;
}

/// C9: a resume of a session that the client has already loses nothing that is on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resume_in_mid_turn_loses_nothing() {
    one_client(Setup::offline(), async |server, mut client, session| {
        let resume = json!({ "sessionId": session, "cwd": server.workspace() });
        for _ in 0..5 {
            client.forget_updates();
            let turn = client.send_prompt(&session, "stream 5000 20").await;
            for _ in 0..20 {
                client.call("session/resume", resume.clone()).await;
            }
            assert_eq!(client.stop_reason(turn).await, "end_turn");
            let chunks = client.said().matches("chunk ").count();
            assert_eq!(chunks, 5000);
        }
    })
    .await;
}

/// Several clients prompt one session at once; each gets its own answers and all see the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_of_one_session_are_told_the_same() {
    let script = Script::new((0..12).map(|_| vec![testkit::say("one "), testkit::say("two")]));
    run(Setup::script(&script), async |server| {
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(server.client().await);
        }
        let session = clients[0].new_session().await;
        for client in &mut clients[1..] {
            client.load(&session).await;
        }
        let mut prompts = Vec::new();
        for at in (0..4).cycle().take(12) {
            prompts.push((at, clients[at].send_prompt(&session, &format!("from {at}")).await));
        }
        for (at, prompt) in prompts {
            assert_eq!(clients[at].stop_reason(prompt).await, "end_turn");
        }
        let mut late = server.client().await;
        late.load(&session).await;
        let all = late.story();
        assert_eq!(all.texts("user_message_chunk").len(), 12);
        for (at, client) in clients.iter_mut().enumerate() {
            client.catch_up(&session).await;
            let story = client.story();
            assert_eq!(story.texts("agent_message_chunk"), all.texts("agent_message_chunk"));
            let others =
                all.texts("user_message_chunk").into_iter().filter(|text| *text != format!("from {at}"));
            assert!(story.texts("user_message_chunk").into_iter().eq(others));
        }
    })
    .await;
}

/// A session that leaves memory and comes back for one client comes back for all that have it.
#[tokio::test]
async fn whoever_watches_a_session_sees_it_come_back_to_memory() {
    let limits = engine::SessionLimits { sessions_max: 1, ..engine::SessionLimits::default() };
    run(Setup { limits, ..Setup::offline() }, async |server| {
        let (mut client, mut watcher) = (server.client().await, server.client().await);
        let session = client.new_session().await;
        watcher.load(&session).await;
        for text in ["one", "two", "three"] {
            client.new_session().await;
            client.prompt(&session, text).await;
            assert_eq!(watcher.next_update_of("user_message_chunk").await["content"]["text"], text);
        }
        watcher.catch_up(&session).await;
        assert_eq!(watcher.story().texts("user_message_chunk"), ["one", "two", "three"]);
        assert_eq!(watcher.story().texts("agent_message_chunk").concat(), client.said());
    })
    .await;
}

/// Every request is answered, also when the session vanishes under it.
#[tokio::test]
async fn a_load_of_a_session_that_is_deleted_meanwhile_is_answered() {
    run(Setup::offline().on_disk(), async |server| {
        let mut writer = server.client().await;
        let session = writer.new_session().await;
        writer.prompt(&session, "stream 20000 200").await;
        writer.hang_up().await;
        let mut client = server.client().await;
        let load = client.send("session/load", client.open_params(&session)).await;
        let mut other = server.client().await;
        other.call("session/delete", json!({ "sessionId": session })).await;
        // Whichever came first, there is an answer.
        drop(client.reply(load).await);
        client.forget_updates();
    })
    .await;
}
