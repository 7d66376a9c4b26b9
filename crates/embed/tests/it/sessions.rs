//! What a backend of one's own is told of its sessions.

use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use embed::{
    Abilities, Backend, BackendSession, BoxFuture, FunctionBackend, MemoryStore, Models, ServerParts,
    ServerTransport, SessionContext, SessionSpec, Stop, Store, ToolServer, TurnContext, TurnError, TurnInput,
    approval_spec,
};
use serde_json::json;

use crate::test_server::{check, check_agent};

/// Looks into the store whenever it is called.
struct Witness {
    abilities: Abilities,
    store: Arc<MemoryStore>,
    seen: Arc<Mutex<Vec<String>>>,
    servers: Arc<Mutex<Vec<ToolServer>>>,
}

struct WitnessSession {
    spec: SessionSpec,
    store: Arc<MemoryStore>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl WitnessSession {
    fn look(&self, when: &str) {
        let found = pin!(self.store.find(&self.spec.id)).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(found) = found else { panic!("memory never waits") };
        let there = found.is_ok_and(|row| row.cwd == self.spec.cwd);
        self.seen.lock().unwrap().push(format!("{when}: {there}"));
    }
}

impl Backend for Witness {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn open(&self, spec: SessionSpec, _context: SessionContext) -> Arc<dyn BackendSession> {
        self.servers.lock().unwrap().extend(spec.servers.clone());
        let session = WitnessSession { spec, store: Arc::clone(&self.store), seen: Arc::clone(&self.seen) };
        session.look("opened");
        Arc::new(session)
    }

    fn project_rules(&self, _cwd: &Path) -> Vec<String> {
        Vec::new()
    }
}

impl BackendSession for WitnessSession {
    fn turn(
        self: Arc<Self>,
        _input: TurnInput,
        context: TurnContext,
    ) -> BoxFuture<'static, Result<Stop, TurnError>> {
        Box::pin(async move {
            self.look("turn");
            let same = *context.session() == self.spec.id && *context.cwd() == self.spec.cwd;
            context.text(context.new_message(), format!("{} {same}", context.session())).await?;
            Ok(Stop::EndTurn)
        })
    }
}

fn witness() -> Witness {
    let abilities = Abilities { settings: vec![approval_spec()], servers: true, ..Abilities::default() };
    Witness { abilities, store: Arc::default(), seen: Arc::default(), servers: Arc::default() }
}

/// CC1, CC3.
#[tokio::test]
async fn the_row_of_a_session_is_there_before_its_agent_hears_of_it() {
    let agent = witness();
    let (store, seen) = (Arc::clone(&agent.store), Arc::clone(&agent.seen));
    let parts = |home| {
        let mut parts = ServerParts::new(agent, home);
        parts.sessions.store = store;
        parts
    };
    check(parts, async |test_server| {
        let mut client = test_server.client().await;
        let session = client.new_session().await;
        client.prompt(&session, "who am I?").await;
        assert_eq!(client.said(), format!("{session} true"));
    })
    .await;
    assert_eq!(*seen.lock().unwrap(), ["opened: true", "turn: true"]);
}

/// CC6.
#[tokio::test]
async fn tool_servers_of_the_client_reach_the_agent_in_all_three_ways() {
    let agent = witness();
    let servers = Arc::clone(&agent.servers);
    check_agent(agent, async |test_server| {
        let mut client = test_server.client().await;
        let cwd = test_server.home();
        let named = json!([
            { "name": "git", "command": "/bin/git-server", "args": ["-v"], "env": [{ "name": "A", "value": "b" }] },
            { "type": "http", "name": "web", "url": "http://w/mcp", "headers": [{ "name": "X", "value": "y" }] },
            { "type": "sse", "name": "old", "url": "http://o/sse", "headers": [] },
        ]);
        client.call("session/new", json!({ "cwd": cwd, "mcpServers": named })).await;
    })
    .await;
    let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let server = |name: &str, transport| ToolServer { name: name.into(), transport };
    let expected = [
        server(
            "git",
            ServerTransport::Child {
                command: "/bin/git-server".into(),
                arguments: vec!["-v".into()],
                environment: pair("A", "b"),
            },
        ),
        server("web", ServerTransport::Http { url: "http://w/mcp".into(), headers: pair("X", "y") }),
        server("old", ServerTransport::Http { url: "http://o/sse".into(), headers: Vec::new() }),
    ];
    assert_eq!(*servers.lock().unwrap(), expected);
}

/// CC4.
#[tokio::test]
async fn a_key_leads_to_its_provider_and_an_unknown_one_is_refused() {
    let models = Models::new(("acme:large", "the large one"), [("acme:small", "the small one")]);
    let settings = vec![models.setting(), approval_spec()];
    let models = Arc::new(models);
    let agent = FunctionBackend::new(move |_, context: TurnContext| {
        let models = Arc::clone(&models);
        async move {
            let Some(provider) = models.chosen(&context) else {
                return Err(TurnError("this model is not offered any more".into()));
            };
            context.text(context.new_message(), *provider).await?;
            Ok(Stop::EndTurn)
        }
    });
    check_agent(agent.with(Abilities { settings, ..Abilities::default() }), async |test_server| {
        let mut client = test_server.client().await;
        let session = client.new_session().await;
        client.prompt(&session, "who thinks?").await;
        let choose = |key: &str| json!({ "sessionId": session, "configId": "model", "value": key });
        client.call("session/set_config_option", choose("acme:small")).await;
        client.prompt(&session, "and now?").await;
        let refused = client.refused("session/set_config_option", choose("acme:huge")).await;
        assert_eq!(refused.code, -32602);
        assert!(refused.message.contains("acme:huge"), "{}", refused.message);
        client.prompt(&session, "still?").await;
        assert_eq!(client.said(), "the large onethe small onethe small one");
    })
    .await;
}
