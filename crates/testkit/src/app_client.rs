//! A client as the web app is one: it keeps rows, state and cards, and forgets nothing else.
#![expect(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::server::{DEADLINE, Server};
use access::devices::Visitor;
use app::{Desk, DeskParts, Extras, Line, open};
use engine::{Principal, Standing};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::native::{
    Answered, Append, Card, Envelope, Frame, Hello, Reply, Request, Role, Row, SessionState, Told, View,
    What, Wrong,
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

/// The house of our own clients, for one test.
pub struct House {
    pub desk: Arc<Desk>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl House {
    pub fn new(server: &Server) -> Self {
        let parts = server.connection_parts(Principal::local());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let workspace = server.workspace();
        let rules = service::Rules {
            home_dir: workspace.clone(),
            places: Some(vec![workspace]),
            source: "http".into(),
            ..parts.rules
        };
        let desk = Desk::new(DeskParts {
            registry: parts.registry,
            rules,
            identity: parts.identity,
            hall: Arc::default(),
            extras: Extras { host: "this machine".into(), shelf: None },
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        Self { desk, tasks, stop }
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
        Client::begin(open(&self.desk, visitor)).await
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
pub struct Shown {
    pub upto: u64,
    pub rows: BTreeMap<u64, Row>,
    pub earlier: bool,
    pub state: Option<SessionState>,
    pub over: Option<String>,
    pub resets: u32,
}

pub struct Client {
    line: Line,
    next: u64,
    pub hello: Hello,
    pub cards: HashMap<String, Card>,
    pub older: Option<String>,
    pub faults: Vec<String>,
    pub sessions: HashMap<String, Shown>,
    replies: HashMap<u64, Reply>,
}

impl Client {
    async fn begin(mut line: Line) -> Self {
        let hello = match line.frames.recv().await.expect("a hello") {
            Frame::Told(told) => match *told {
                Told::Hello(hello) => hello,
                other => panic!("a hello comes first: {other:?}"),
            },
            Frame::Reply(reply) => panic!("a hello comes first: {reply:?}"),
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
            let is = |wanted: fn(&Told) -> bool| matches!(&frame, Frame::Told(told) if wanted(told));
            let cards = is(|told| matches!(told, Told::Cards { .. }));
            assert!(cards || is(|told| matches!(told, Told::Faults { .. })), "cards come next: {frame:?}");
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
        self.line.requests.send(Envelope { id: self.next, request }).await.expect("the line is open");
        self.next
    }

    pub async fn answer(&mut self, id: u64) -> Result<Answered, Wrong> {
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

    pub async fn ask(&mut self, request: Request) -> Result<Answered, Wrong> {
        let id = self.send(request).await;
        self.answer(id).await
    }

    pub async fn done(&mut self, request: Request) {
        assert_eq!(self.ask(request).await, Ok(Answered::Done));
    }

    pub async fn refused(&mut self, request: Request) -> Wrong {
        self.ask(request).await.expect_err("it is refused")
    }

    pub async fn open(&mut self) -> String {
        match self.ask(Request::Open { folder: None, settings: BTreeMap::new() }).await {
            Ok(Answered::Opened { session }) => session,
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
            Ok(Answered::Taken { turn }) => turn,
            other => panic!("a turn: {other:?}"),
        }
    }

    pub fn shown(&self, session: &str) -> &Shown {
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
            let ended = |row: &Row| matches!(row.what, What::Ended(_)) && row.turn == Some(turn);
            client.shown(session).rows.values().any(ended)
        })
        .await;
    }

    /// The next frame; the line is open.
    pub async fn frame(&mut self) -> Frame {
        let frame = tokio::time::timeout(DEADLINE, self.line.frames.recv()).await;
        frame.expect("a frame in time").expect("the line is open")
    }

    pub fn take(&mut self, frame: Frame) {
        match frame {
            Frame::Reply(reply) => {
                let id = reply.re;
                assert!(self.replies.insert(id, reply).is_none(), "request {id} is answered once");
            }
            Frame::Told(told) => match *told {
                Told::Hello(_) => panic!("a second hello"),
                Told::Cards { cards, gone, older } => {
                    self.cards.extend(cards.into_iter().map(|card| (card.session.clone(), card)));
                    gone.iter().for_each(|id| drop(self.cards.remove(id)));
                    self.older = older.or(self.older.take());
                }
                Told::View(view) => self.sessions.entry(view.session.clone()).or_default().take(view),
                Told::Over { session, message } => {
                    self.sessions.entry(session).or_default().over = Some(message);
                }
                Told::Faults { faults } => self.faults = faults,
                Told::Devices { .. } => {}
            },
        }
    }
}

impl Shown {
    fn take(&mut self, view: View) {
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

    fn append(&mut self, Append { row, rev, text }: Append) {
        let row = self.rows.get_mut(&row).expect("text is added to a row that is there");
        row.rev = rev;
        match &mut row.what {
            What::Said { text: before, .. } | What::Thought { text: before, .. } => before.push_str(&text),
            What::Tool(tool) => tool.output.push_str(&text),
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
        What::Prompt { from, text, .. } => format!("{from}: {text}"),
        What::Said { text, .. } => format!("said: {text}"),
        What::Thought { text, .. } => format!("thought: {text}"),
        What::Tool(tool) => {
            let more = tool.decided.as_ref().or(tool.reason.as_ref());
            let more = more.map(|more| format!(" ({more})")).unwrap_or_default();
            format!("{} {:?}{more}", tool.tool, tool.state)
        }
        What::Plan(plan) => format!("plan of {}", plan.steps.len()),
        What::Question { text, reply, by } => format!("{text} {reply:?} {by:?}"),
        What::Notice { text, .. } => format!("notice: {text}"),
        What::Note { text } => format!("note: {text}"),
        What::Ended(ended) => format!("ended: {}", ended.stop),
    };
    format!("{under}{what}")
}
