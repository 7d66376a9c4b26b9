//! A test client that behaves like the web app: it keeps rows, state and cards.
#![expect(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::server::{DEADLINE, Server};
use access::devices::Visitor;
use app::{AppConnection, AppServer, AppServerExtras, AppServerParts, open};
use engine::{Principal, Standing};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::native::{
    ReplyBody, ReplyError, Request, RequestEnvelope, RequestReply, Role, Row, RowContent, ServerFrame,
    ServerHello, ServerNotification, SessionCard, SessionState, TextAppend, ViewUpdate,
};

/// The owner, with a client at the machine itself.
pub fn owner_at_machine(name: &str) -> Visitor {
    Visitor {
        principal: Principal::local(),
        name: name.into(),
        role: Role::Owner,
        device: None,
        remote: None,
        standing: Standing::OwnerAtMachine,
    }
}

/// The server side of our own clients, for one test.
pub struct AppHarness {
    pub app: Arc<AppServer>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl AppHarness {
    pub fn new(server: &Server) -> Self {
        let parts = server.connection_parts(Principal::local());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let workspace = server.workspace();
        let rules = service::ServiceRules {
            home_dir: workspace.clone(),
            places: Some(vec![workspace]),
            source: "http".into(),
            ..parts.rules
        };
        let app = AppServer::new(AppServerParts {
            registry: parts.registry,
            rules,
            identity: parts.identity,
            devices: Arc::default(),
            extras: AppServerExtras { host: "this machine".into(), rule_store: None },
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        Self { app, tasks, stop }
    }

    /// The owner's own client.
    pub async fn client(&self, name: &str) -> Client {
        self.client_as(name, Role::Owner).await
    }

    pub async fn client_as(&self, name: &str, role: Role) -> Client {
        let standing = Standing::owner_if(role == Role::Owner);
        self.client_of(Visitor { role, standing, ..owner_at_machine(name) }).await
    }

    pub async fn client_of(&self, visitor: Visitor) -> Client {
        Client::begin(open(&self.app, visitor)).await
    }

    /// Every task of every line ends.
    pub async fn close(self) {
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(DEADLINE, self.tasks.wait()).await.expect("all lines end");
    }
}

/// What a client has of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShownSession {
    pub upto: u64,
    pub rows: BTreeMap<u64, Row>,
    pub earlier: bool,
    pub state: Option<SessionState>,
    pub over: Option<String>,
    pub resets: u32,
}

pub struct Client {
    line: AppConnection,
    next: u64,
    pub hello: ServerHello,
    pub cards: HashMap<String, SessionCard>,
    pub older: Option<String>,
    pub faults: Vec<String>,
    pub sessions: HashMap<String, ShownSession>,
    replies: HashMap<u64, RequestReply>,
}

impl Client {
    async fn begin(mut line: AppConnection) -> Self {
        let hello = match line.frames.recv().await.expect("a hello") {
            ServerFrame::Notification(told) => match *told {
                ServerNotification::Hello(hello) => hello,
                other => panic!("a hello comes first: {other:?}"),
            },
            ServerFrame::Reply(reply) => panic!("a hello comes first: {reply:?}"),
        };
        let mut client = Self {
            line,
            next: 0,
            hello,
            cards: HashMap::new(),
            older: None,
            faults: Vec::new(),
            sessions: HashMap::new(),
            replies: HashMap::new(),
        };
        loop {
            let frame = client.frame().await;
            let is = |wanted: fn(&ServerNotification) -> bool| matches!(&frame, ServerFrame::Notification(told) if wanted(told));
            let cards = is(|told| matches!(told, ServerNotification::Cards { .. }));
            assert!(
                cards || is(|told| matches!(told, ServerNotification::Faults { .. })),
                "cards come next: {frame:?}"
            );
            client.take(frame);
            // Without a store there are no cards.
            if cards || !client.faults.is_empty() {
                return client;
            }
        }
    }

    /// Sends a request without waiting for its answer.
    pub async fn send(&mut self, request: Request) -> u64 {
        self.next += 1;
        self.line.requests.send(RequestEnvelope { id: self.next, request }).await.expect("the line is open");
        self.next
    }

    pub async fn answer(&mut self, id: u64) -> Result<ReplyBody, ReplyError> {
        loop {
            if let Some(reply) = self.replies.remove(&id) {
                return match (reply.ok, reply.error) {
                    (Some(answered), None) => Ok(answered),
                    (None, Some(wrong)) => Err(wrong),
                    both => panic!("an answer or an error: {both:?}"),
                };
            }
            let frame = self.frame().await;
            self.take(frame);
        }
    }

    pub async fn ask(&mut self, request: Request) -> Result<ReplyBody, ReplyError> {
        let id = self.send(request).await;
        self.answer(id).await
    }

    pub async fn done(&mut self, request: Request) {
        assert_eq!(self.ask(request).await, Ok(ReplyBody::Done));
    }

    pub async fn refused(&mut self, request: Request) -> ReplyError {
        self.ask(request).await.expect_err("it is refused")
    }

    pub async fn open(&mut self) -> String {
        match self.ask(Request::Open { folder: None, settings: BTreeMap::new() }).await {
            Ok(ReplyBody::SessionOpened { session }) => session,
            other => panic!("a session: {other:?}"),
        }
    }

    pub async fn watch(&mut self, session: &str, after: Option<u64>) {
        if after.is_none() {
            self.sessions.remove(session);
        }
        self.done(Request::Watch { session: session.into(), after }).await;
        self.until("a first view", |client| {
            client.sessions.get(session).is_some_and(|shown| shown.state.is_some())
        })
        .await;
    }

    pub async fn prompt(&mut self, session: &str, key: &str, text: &str) -> u64 {
        let request = Request::Prompt {
            session: session.into(),
            key: key.into(),
            text: text.into(),
            pictures: Vec::new(),
        };
        match self.ask(request).await {
            Ok(ReplyBody::PromptAccepted { turn }) => turn,
            other => panic!("a turn: {other:?}"),
        }
    }

    pub fn shown(&self, session: &str) -> &ShownSession {
        &self.sessions[session]
    }

    pub fn state(&self, session: &str) -> &SessionState {
        self.shown(session).state.as_ref().expect("a state")
    }

    /// Reads until something is so.
    pub async fn until(&mut self, what: &str, so: impl Fn(&Self) -> bool) {
        while !so(self) {
            let frame = tokio::time::timeout(DEADLINE, self.line.frames.recv()).await;
            let frame =
                frame.unwrap_or_else(|_| panic!("never: {what}; {:#?} {:#?}", self.sessions, self.cards));
            self.take(frame.expect("the line is open"));
        }
    }

    /// Reads until a turn has ended.
    pub async fn ended(&mut self, session: &str, turn: u64) {
        self.until("the end of a turn", |client| {
            let ended = |row: &Row| matches!(row.what, RowContent::TurnEnd(_)) && row.turn == Some(turn);
            client.shown(session).rows.values().any(ended)
        })
        .await;
    }

    /// The next frame; the line is open.
    pub async fn frame(&mut self) -> ServerFrame {
        let frame = tokio::time::timeout(DEADLINE, self.line.frames.recv()).await;
        frame.expect("a frame in time").expect("the line is open")
    }

    pub fn take(&mut self, frame: ServerFrame) {
        match frame {
            ServerFrame::Reply(reply) => {
                let id = reply.re;
                assert!(self.replies.insert(id, reply).is_none(), "request {id} is answered once");
            }
            ServerFrame::Notification(told) => match *told {
                ServerNotification::Hello(_) => panic!("a second hello"),
                ServerNotification::Cards { cards, gone, older } => {
                    self.cards.extend(cards.into_iter().map(|card| (card.session.clone(), card)));
                    gone.iter().for_each(|id| drop(self.cards.remove(id)));
                    self.older = older.or(self.older.take());
                }
                ServerNotification::View(view) => {
                    self.sessions.entry(view.session.clone()).or_default().take(view)
                }
                ServerNotification::WatchEnded { session, message } => {
                    self.sessions.entry(session).or_default().over = Some(message);
                }
                ServerNotification::Faults { faults } => self.faults = faults,
                ServerNotification::Devices { .. } => {}
            },
        }
    }
}

impl ShownSession {
    fn take(&mut self, view: ViewUpdate) {
        if view.reset {
            self.rows.clear();
            self.earlier = view.earlier;
            self.resets += 1;
        }
        for row in view.rows {
            self.rows.insert(row.id, row);
        }
        for append in view.appends {
            self.append(append);
        }
        assert!(view.upto >= self.upto || view.reset, "positions go up");
        self.upto = view.upto;
        self.state = view.state.or(self.state.take());
    }

    fn append(&mut self, TextAppend { row, rev, text }: TextAppend) {
        let row = self.rows.get_mut(&row).expect("text is added to a row that is there");
        row.rev = rev;
        match &mut row.what {
            RowContent::AgentMessage { text: before, .. } | RowContent::Thought { text: before, .. } => {
                before.push_str(&text)
            }
            RowContent::Tool(tool) => tool.output.push_str(&text),
            other => panic!("this row does not grow: {other:?}"),
        }
    }

    /// The rows in a few words each.
    pub fn words(&self) -> Vec<String> {
        self.rows.values().map(words).collect()
    }
}

fn words(row: &Row) -> String {
    let under = if row.under.is_some() { "  " } else { "" };
    let what = match &row.what {
        RowContent::Prompt { from, text, .. } => format!("{from}: {text}"),
        RowContent::AgentMessage { text, .. } => format!("said: {text}"),
        RowContent::Thought { text, .. } => format!("thought: {text}"),
        RowContent::Tool(tool) => {
            let more = tool.decided.as_ref().or(tool.reason.as_ref());
            let more = more.map(|more| format!(" ({more})")).unwrap_or_default();
            format!("{} {:?}{more}", tool.tool, tool.state)
        }
        RowContent::Plan(plan) => format!("plan of {}", plan.steps.len()),
        RowContent::Question { text, reply, by } => format!("{text} {reply:?} {by:?}"),
        RowContent::Notice { text, .. } => format!("notice: {text}"),
        RowContent::Note { text } => format!("note: {text}"),
        RowContent::TurnEnd(ended) => format!("ended: {}", ended.stop),
    };
    format!("{under}{what}")
}
