//! The dialects, and the common interface of all of them.
//!
//! A connection decodes with a [`Decoder`], responds with [`Replies`] and streams with [`Updates`]. The
//! first `initialize` decides the dialect, unless the server was started for one ([`DialectSelection`]).

use std::sync::{Arc, Mutex, PoisonError};

use engine::{
    AskId, AskRequest, Body, CallId, CommandSpec, Event, MakeId, Opaque, Resolution, Resolver, Seq,
    SessionHandle, SessionId, Settings, Stop, SurfaceId, TerminalId, Totals, TurnId,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client_request::{ClientRequest, RequestError, RequestOutcome};
use crate::event_encoder::Encoder as _;
use crate::rpc::RpcId;
use crate::turn_text::{TOLD_AGAIN_BYTES_MAX, TurnText};
use crate::{acp, bernstein, ferret, ferret_otter_common as common, json_errors, otter};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The official protocol.
    #[default]
    Acp,
    /// Ferret 0.2.
    Ferret,
    /// Otter 0.1, and its later form with event ids.
    Otter,
    /// Bernstein 2025-04-01.
    Bernstein,
}

impl Dialect {
    /// Whether its updates are numbered.
    pub fn is_numbered(self) -> bool {
        match self {
            Self::Otter => true,
            Self::Acp | Self::Ferret | Self::Bernstein => false,
        }
    }

    /// The prefix of its sessions' ids, if they have one. Session folders with that prefix are of this
    /// dialect too.
    pub fn id_prefix(self) -> Option<&'static str> {
        match self {
            Self::Ferret => Some(ferret::ID_PREFIX),
            Self::Otter => Some(otter::ID_PREFIX),
            Self::Acp | Self::Bernstein => None,
        }
    }

    /// Creates the ids of its new sessions.
    pub fn make_id(self) -> MakeId {
        match self {
            Self::Ferret => |at| common::new_id(ferret::ID_PREFIX, at),
            Self::Otter => |at| common::new_id(otter::ID_PREFIX, at),
            Self::Acp | Self::Bernstein => |_| SessionId::random(),
        }
    }

    pub const ALL: [Self; 4] = [Self::Acp, Self::Ferret, Self::Otter, Self::Bernstein];

    pub fn name(self) -> &'static str {
        match self {
            Self::Acp => "acp",
            Self::Ferret => "ferret",
            Self::Otter => "otter",
            Self::Bernstein => "bernstein",
        }
    }
}

/// How a server decides which dialect a client speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DialectSelection {
    /// The first `initialize` of each client decides.
    #[default]
    Detected,
    /// The same, but a client whose `initialize` names no dialect speaks this one, because the server was
    /// started for it.
    Preferred(Dialect),
    /// This dialect only.
    Only(Dialect),
}

impl From<Option<Dialect>> for DialectSelection {
    fn from(only: Option<Dialect>) -> Self {
        only.map_or(Self::Detected, Self::Only)
    }
}

impl DialectSelection {
    /// Whether the server was started for this dialect.
    pub fn is_for(self, dialect: Dialect) -> bool {
        match self {
            Self::Detected => false,
            Self::Preferred(own) | Self::Only(own) => own == dialect,
        }
    }

    /// The dialect of a client before its first `initialize`.
    pub fn before_initialize(self) -> Dialect {
        match self {
            Self::Detected => Dialect::Acp,
            Self::Preferred(dialect) | Self::Only(dialect) => dialect,
        }
    }
}

/// How the server introduces itself.
#[derive(Debug, Clone)]
pub struct Identity {
    pub name: String,
    pub title: String,
    pub version: String,
    /// The sandbox mode of this server.
    pub sandbox: String,
    /// What can enforce the sandbox on this machine.
    pub sandbox_backends: SandboxBackends,
    /// The agents that this server can run behind a session.
    pub adapters: Vec<String>,
    /// The [`OPTIONAL_METHODS`] that official clients are not offered.
    pub disabled: Vec<String>,
}

/// Methods that a server of the official protocol may omit.
pub const OPTIONAL_METHODS: [&str; 8] = [
    "logout",
    "session/close",
    "session/configure",
    "session/delete",
    "session/fork",
    "session/list",
    "session/resume",
    "session/set_model",
];

/// The sandbox backends, which are detected only when a client asks, because that takes a while. All copies
/// share the latest result.
#[derive(Debug, Clone, Default)]
pub struct SandboxBackends(Arc<Mutex<Vec<String>>>);

impl SandboxBackends {
    pub fn set(&self, names: Vec<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the decoder knows about a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Client {
    pub dialect: Dialect,
    pub abilities: acp::ClientAbilities,
}

/// For whom and for what events are encoded.
#[derive(Debug, Clone, Copy)]
pub struct EncodeContext {
    /// The events are history that the client asked for, and not live.
    pub replay: bool,
    /// The client's own surface: its own input is not echoed to it live.
    pub own: SurfaceId,
}

/// The log position of the frames from this offset on: a client that has all of them has seen the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameOffset {
    pub offset: usize,
    pub seq: Seq,
}

/// An event that the connection itself must act on.
pub enum ConnectionEvent<'a> {
    Asked {
        ask: AskId,
        request: &'a AskRequest,
    },
    Resolved {
        ask: AskId,
        call: Option<&'a CallId>,
        resolution: Resolution,
        /// The surface that answered; `None` if none did.
        by: Option<SurfaceId>,
        /// A person was asked, and not only a policy or a stored rule.
        was_asked: bool,
    },
    TurnEnded {
        turn: TurnId,
        stop: Stop,
        error: Option<Arc<str>>,
        usage: Totals,
        /// Other members of an external agent's response.
        words: Option<Opaque>,
    },
}

impl<'a> ConnectionEvent<'a> {
    pub(crate) fn resolved(
        ask: AskId,
        call: Option<&'a CallId>,
        resolution: Resolution,
        by: &Resolver,
    ) -> Self {
        let (by, was_asked) = match by {
            Resolver::Surface { id, .. } => (Some(*id), true),
            Resolver::Policy { .. } | Resolver::Rule { .. } => (None, false),
            Resolver::Engine => (None, true),
        };
        Self::Resolved { ask, call, resolution, by, was_asked }
    }
}

/// The number of updates up to a position in the log, for dialects that number their updates.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct UpdateCount {
    /// Everything up to this position is counted.
    pub seq: Seq,
    /// The number of the last update.
    pub updates: u64,
    /// Numbers that no update has, because a power cut took the update or may have.
    pub lost: u64,
    pub totals: Totals,
    /// The turn that runs at that position, and where it started.
    pub turn: Option<(TurnId, Seq)>,
}

/// Where a client of a dialect with numbered updates starts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UpdateStart {
    pub counted: UpdateCount,
    /// Updates up to this number are not sent: the client may have the first update of an event without the
    /// second.
    pub since: u64,
    /// The agent's text so far in the running turn.
    pub said: TurnText,
}

impl UpdateStart {
    /// Collects the agent's text from the events up to the position. Only the turn that runs there counts.
    pub fn observe(&mut self, event: &Event) {
        let running = self.counted.turn.filter(|(turn, from)| event.turn == Some(*turn) && event.seq > *from);
        if running.is_some() {
            self.said.observe(event, TOLD_AGAIN_BYTES_MAX);
        }
    }
}

impl From<UpdateCount> for UpdateStart {
    fn from(counted: UpdateCount) -> Self {
        Self { counted, ..Self::default() }
    }
}

impl UpdateCount {
    /// Counts the next event, which the dialect shows as this many updates. A power cut can take events that
    /// clients have seen; each missing position counts as one update, so that no number is used twice.
    pub fn add(&mut self, event: &Event, updates: u64) {
        let lost = event.seq.0.saturating_sub(self.seq.0).saturating_sub(1);
        self.updates = self.updates.saturating_add(lost).saturating_add(updates);
        self.lost = self.lost.saturating_add(lost);
        self.seq = event.seq;
        if let Body::Usage(usage) = &event.body {
            self.totals.add_from(&event.origin, usage);
        } else if let Body::TurnStarted = &event.body {
            self.turn = event.turn.map(|turn| (turn, event.seq));
        } else if let Body::TurnEnded { .. } = &event.body
            // A queued prompt may end while another turn runs.
            && self.turn.is_some_and(|(running, _)| event.turn == Some(running))
        {
            self.turn = None;
        }
    }

    /// How many updates exist.
    pub fn count(&self) -> u64 {
        self.updates.saturating_sub(self.lost)
    }
}

/// The decoding half of a connection.
pub struct Decoder {
    selection: DialectSelection,
    client: Client,
    initialized: bool,
    zeph: bool,
}

impl Decoder {
    pub fn new(selection: DialectSelection) -> Self {
        let client = Client { dialect: selection.before_initialize(), ..Client::default() };
        Self { selection, client, initialized: false, zeph: false }
    }

    /// For a client that sent `initialize` on an earlier connection.
    pub fn for_client(client: Client) -> Self {
        let selection = DialectSelection::Only(client.dialect);
        Self { selection, client, initialized: true, zeph: client.abilities.zeph }
    }

    /// Whether the connection uses zeph's transport.
    #[must_use]
    pub fn with_zeph(self, zeph: bool) -> Self {
        Self { zeph, ..self }
    }

    pub fn client(&self) -> Client {
        self.client
    }

    /// Decodes a request. `frame_bytes` is the size of the frame that it came in.
    pub fn request(
        &mut self,
        method: &str,
        params: Option<&RawValue>,
        frame_bytes: usize,
    ) -> Result<ClientRequest, RequestError> {
        if method == "initialize" {
            // The first `initialize` decides: sessions may be open in its dialect.
            let dialect =
                if self.initialized { self.client.dialect } else { select_dialect(params, self.selection)? };
            let call = decode(dialect, method, params, frame_bytes)?;
            let abilities = match dialect {
                Dialect::Acp => acp::ClientAbilities { zeph: self.zeph, ..acp::abilities(params) },
                Dialect::Ferret | Dialect::Otter | Dialect::Bernstein => acp::ClientAbilities::default(),
            };
            self.client = Client { dialect, abilities };
            self.initialized = true;
            return Ok(call);
        }
        // Bernstein's clients may begin with a prompt, because each of their requests over HTTP is
        // independent.
        if !self.initialized && self.client.dialect != Dialect::Bernstein {
            return Err(RequestError::NotInitialized { method: method.to_owned() });
        }
        decode(self.client.dialect, method, params, frame_bytes)
    }

    /// Decodes a notification. Unknown notifications are ignored, as every dialect requires.
    pub fn notification(
        &mut self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<ClientRequest, RequestError> {
        match self.client.dialect {
            Dialect::Acp => acp::notification(method, params),
            Dialect::Ferret => ferret::notification(method, params),
            Dialect::Otter => otter::notification(method, params),
            Dialect::Bernstein => bernstein::notification(method, params),
        }
    }
}

fn decode(
    dialect: Dialect,
    method: &str,
    params: Option<&RawValue>,
    frame_bytes: usize,
) -> Result<ClientRequest, RequestError> {
    match dialect {
        Dialect::Acp => acp::request(method, params, frame_bytes),
        Dialect::Ferret => ferret::request(method, params, frame_bytes),
        Dialect::Otter => otter::request(method, params, frame_bytes),
        Dialect::Bernstein => bernstein::request(method, params, frame_bytes),
    }
}

/// The dialect that the parameters of an `initialize` belong to.
pub fn select_dialect(
    params: Option<&RawValue>,
    selection: DialectSelection,
) -> Result<Dialect, RequestError> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(rename = "protocolVersion", borrow)]
        version: Option<&'a RawValue>,
        #[serde(rename = "clientCapabilities", borrow)]
        capabilities: Option<&'a RawValue>,
    }
    let preferred = match selection {
        DialectSelection::Only(dialect) => return Ok(dialect),
        DialectSelection::Preferred(dialect) => Some(dialect),
        DialectSelection::Detected => None,
    };
    let params = params.map_or("{}", RawValue::get);
    let params: Params<'_> = json_errors::read(params, "the parameters of initialize")
        .map_err(|error| RequestError::InvalidParams(error.to_string()))?;
    match params.version.map(RawValue::get) {
        None | Some("null") => Ok(preferred.unwrap_or(Dialect::Ferret)),
        Some("\"0.2\"") => Ok(Dialect::Ferret),
        Some("\"0.1\"") => Ok(Dialect::Otter),
        Some("\"2025-04-01\"") => Ok(Dialect::Bernstein),
        // The server was started for the dialect of another program; the response names the version of that
        // dialect.
        Some(text) if text.starts_with('"') && preferred.is_some() => {
            Ok(preferred.unwrap_or(Dialect::Ferret))
        }
        Some(text) if text.starts_with('"') => Err(RequestError::InvalidParams(format!(
            "unknown protocolVersion {text}; use the number 1 for the Agent Client Protocol, \"0.2\" for ferret, \"0.1\" for otter, or \"2025-04-01\" for Bernstein"
        ))),
        // Otter counts its versions too, but its clients send no capabilities.
        Some(_) if preferred == Some(Dialect::Otter) && params.capabilities.is_none() => Ok(Dialect::Otter),
        Some(_) => Ok(Dialect::Acp),
    }
}

/// Appends the response to a frame that cannot be read: the same in every dialect. `None` if the frame has
/// no readable id.
pub fn write_unreadable(id: Option<RpcId>, fault: &RequestError, out: &mut Vec<u8>) {
    acp::fault(&id.unwrap_or_else(RpcId::null), fault, out);
}

/// The encoder of responses.
pub struct Replies {
    identity: Identity,
}

impl Replies {
    pub fn new(identity: Identity) -> Self {
        Self { identity }
    }

    pub fn write(
        &self,
        client: Client,
        id: &RpcId,
        outcome: Result<&RequestOutcome, &RequestError>,
        out: &mut Vec<u8>,
    ) {
        match (client.dialect, outcome) {
            (Dialect::Acp, Ok(outcome)) => {
                acp::reply(&self.identity, client.abilities.zeph, id, outcome, out);
            }
            (Dialect::Ferret, Ok(outcome)) => ferret::reply(&self.identity, id, outcome, out),
            (Dialect::Otter, Ok(outcome)) => otter::reply(&self.identity, id, outcome, out),
            (Dialect::Bernstein, Ok(outcome)) => bernstein::reply(&self.identity, id, outcome, out),
            (Dialect::Acp, Err(fault)) => acp::fault(id, fault, out),
            (Dialect::Ferret, Err(fault)) => ferret::fault(id, fault, out),
            (Dialect::Otter, Err(fault)) => otter::fault(id, fault, out),
            (Dialect::Bernstein, Err(fault)) => bernstein::fault(id, fault, out),
        }
    }
}

/// The encoder of one session's events for one connection.
pub enum Updates {
    Acp(Box<acp::Updates>),
    Ferret(ferret::Updates),
    Otter(otter::Updates),
    Bernstein(bernstein::Updates),
}

/// A permission request or question for the client, sent at once or after a replay.
pub enum AskFrame {
    /// A request of ours, which needs an id.
    Request(Box<acp::AskFrame>),
    /// A complete notification.
    Notification(Vec<u8>),
}

impl Updates {
    /// `start` is where the client starts, if its dialect numbers updates.
    pub fn new(client: Client, session: &SessionHandle, start: UpdateStart) -> Self {
        match client.dialect {
            Dialect::Acp => Self::Acp(Box::new(acp::Updates::new(client.abilities, session))),
            Dialect::Ferret => Self::Ferret(ferret::Updates::new(session, start.counted)),
            Dialect::Otter => {
                let updates = otter::Updates::new(session.id(), start);
                Self::Otter(updates.in_folder(Arc::clone(&session.snapshot().cwd)))
            }
            Dialect::Bernstein => Self::Bernstein(bernstein::Updates::new(session.id())),
        }
    }

    /// Encodes events up to and including the first that needs the connection. Returns how many events were
    /// encoded, and that event. `positions` receives the log positions of the frames.
    pub fn encode<'a>(
        &mut self,
        events: &'a [Arc<Event>],
        context: EncodeContext,
        positions: &mut Vec<FrameOffset>,
        out: &mut Vec<u8>,
    ) -> (usize, Option<ConnectionEvent<'a>>) {
        match self {
            Self::Acp(updates) => updates.encode(events, context, positions, out),
            Self::Ferret(updates) => updates.encode(events, context, positions, out),
            Self::Otter(updates) => updates.encode(events, positions, out),
            Self::Bernstein(updates) => updates.encode(events, context, positions, out),
        }
    }

    /// The number of the last update, in a dialect with numbered updates.
    pub fn last(&self) -> Option<u64> {
        match self {
            Self::Otter(updates) => Some(updates.last()),
            Self::Acp(_) | Self::Ferret(_) | Self::Bernstein(_) => None,
        }
    }

    /// The same for dialects whose clients resume after a number, whether or not the updates show it.
    pub fn resumed_up_to(&self) -> Option<u64> {
        match self {
            Self::Otter(updates) => Some(updates.last()),
            Self::Ferret(updates) => Some(updates.resumed_up_to()),
            Self::Acp(_) | Self::Bernstein(_) => None,
        }
    }

    /// Sends output that was held back to be merged.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Acp(updates) => updates.flush(out),
            Self::Ferret(_) | Self::Otter(_) | Self::Bernstein(_) => {}
        }
    }

    /// The session's slash commands; sent once the client knows the session.
    pub fn commands(&self, commands: &[CommandSpec], out: &mut Vec<u8>) {
        match self {
            // If only the agent knows its commands, it sends them itself.
            Self::Acp(_) if commands.is_empty() => {}
            Self::Acp(updates) => updates.commands(commands, out),
            // The older dialects have no such update.
            Self::Ferret(_) | Self::Otter(_) | Self::Bernstein(_) => {}
        }
    }

    /// The session's total usage.
    pub fn totals(&self, totals: &Totals, out: &mut Vec<u8>) {
        match self {
            Self::Acp(updates) => updates.totals(totals, out),
            Self::Ferret(updates) => updates.totals(totals, out),
            Self::Otter(_) | Self::Bernstein(_) => {}
        }
    }

    /// The session's cost before the client's position in the log.
    pub fn count_from(&mut self, cost_usd: f64) {
        match self {
            Self::Acp(updates) => updates.count_from(cost_usd),
            // Only clients of the official protocol reconnect to a stream.
            Self::Ferret(_) | Self::Otter(_) | Self::Bernstein(_) => {}
        }
    }

    /// The session's state before the first event shown, for dialects whose updates include the previous
    /// value.
    pub fn begin_with(&mut self, settings: Settings, totals: Totals) {
        match self {
            Self::Ferret(updates) => updates.begin_with(settings, totals),
            Self::Acp(_) | Self::Otter(_) | Self::Bernstein(_) => {}
        }
    }

    /// This client's "always" answers hold in the session only: it is not the owner at the machine.
    pub fn keep_for_session(&mut self) {
        match self {
            Self::Acp(updates) => updates.keep_for_session(),
            // These dialects show no rule.
            Self::Ferret(_) | Self::Otter(_) | Self::Bernstein(_) => {}
        }
    }

    pub fn ask(&self, ask: AskId, request: &AskRequest) -> AskFrame {
        match self {
            Self::Acp(updates) => AskFrame::Request(Box::new(updates.ask(ask, request))),
            Self::Ferret(updates) => AskFrame::Notification(updates.ask(ask, request)),
            // Otter's permission requests are numbered updates, which its encoder writes in order.
            Self::Otter(_) => AskFrame::Notification(Vec::new()),
            Self::Bernstein(updates) => AskFrame::Notification(updates.ask(ask, request)),
        }
    }

    /// Whether the client that answered a permission request is told that it is settled, like every other
    /// client. A receiver without memory would otherwise show a replayed request again that it answered
    /// itself.
    pub fn tells_own_answer(&self) -> bool {
        match self {
            Self::Ferret(_) => true,
            // Otter's encoder tells every client in its own way; the others do not replay answered requests.
            Self::Acp(_) | Self::Bernstein(_) | Self::Otter(_) => false,
        }
    }

    /// Tells the client that a permission request is settled.
    pub fn withdraw(&self, ask: AskId, request: &RpcId, resolution: Resolution, out: &mut Vec<u8>) {
        match self {
            Self::Acp(_) => acp::write_cancel_request(out, request),
            Self::Ferret(updates) => updates.withdraw(ask, resolution, out),
            Self::Otter(_) => {}
            Self::Bernstein(updates) => updates.withdraw(ask, resolution, out),
        }
    }

    /// Whether a running call is shown in this terminal of the client's own.
    pub fn shows_terminal(&self, terminal: &TerminalId) -> bool {
        match self {
            Self::Acp(updates) => updates.shows_terminal(terminal),
            Self::Ferret(_) | Self::Otter(_) | Self::Bernstein(_) => false,
        }
    }

    /// A call that waited for permission continues.
    pub fn in_progress(&self, call: &CallId, out: &mut Vec<u8>) {
        match self {
            Self::Acp(updates) => updates.in_progress(call, out),
            Self::Ferret(_) | Self::Otter(_) | Self::Bernstein(_) => {}
        }
    }
}

impl AskFrame {
    pub fn write(&self, id: &RpcId, out: &mut Vec<u8>) {
        match self {
            Self::Request(frame) => frame.write(id, out),
            Self::Notification(frame) => out.extend_from_slice(frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selection: DialectSelection, params: &str, expected: Result<Dialect, &str>) {
        let raw: Box<RawValue> = serde_json::from_str(params).unwrap();
        match (select_dialect(Some(&raw), selection), expected) {
            (Ok(dialect), Ok(expected)) => assert_eq!(dialect, expected, "{params}"),
            (Err(RequestError::InvalidParams(text)), Err(part)) => {
                assert!(text.contains(part), "{params}: {text}")
            }
            (other, _) => panic!("{params}: {other:?}"),
        }
    }

    #[test]
    fn the_version_of_the_first_initialize_chooses_the_dialect() {
        let check = |params, expected| check(DialectSelection::Detected, params, expected);
        check("{}", Ok(Dialect::Ferret));
        check(r#"{"protocolVersion":null}"#, Ok(Dialect::Ferret));
        check(r#"{"protocolVersion":"0.2"}"#, Ok(Dialect::Ferret));
        check(r#"{"protocolVersion":"0.1"}"#, Ok(Dialect::Otter));
        check(r#"{"protocolVersion":"2025-04-01"}"#, Ok(Dialect::Bernstein));
        check(r#"{"protocolVersion":1}"#, Ok(Dialect::Acp));
        check(r#"{"protocolVersion":2}"#, Ok(Dialect::Acp));
        check(r#"{"protocolVersion":65535,"clientCapabilities":{}}"#, Ok(Dialect::Acp));
        check(r#"{"protocolVersion":"1"}"#, Err("use the number 1"));
        check("[]", Err("must be an object"));
    }

    #[test]
    fn a_later_initialize_does_not_change_the_dialect() {
        let versions = [("\"0.2\"", Dialect::Ferret), ("\"0.1\"", Dialect::Otter), ("1", Dialect::Acp)];
        for (first, dialect) in versions {
            let mut decoder = Decoder::new(DialectSelection::Detected);
            for version in [first, "1", "\"0.2\"", "\"2025-04-01\"", "\"0.1\""] {
                let params = format!(r#"{{"protocolVersion":{version},"clientCapabilities":{{}}}}"#);
                let params: Box<RawValue> = serde_json::from_str(&params).unwrap();
                // Another dialect's version may be refused, which changes nothing.
                drop(decoder.request("initialize", Some(&params), 0));
                assert_eq!(decoder.client().dialect, dialect, "{first}, then {version}");
            }
        }
    }

    #[test]
    fn a_preferred_dialect_holds_where_the_client_does_not_say_otherwise() {
        let official = r#"{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true}}}"#;
        for preferred in Dialect::ALL {
            let selection = DialectSelection::Preferred(preferred);
            check(selection, "{}", Ok(preferred));
            check(selection, r#"{"protocolVersion":null}"#, Ok(preferred));
            check(selection, official, Ok(Dialect::Acp));
            check(selection, r#"{"protocolVersion":"0.1"}"#, Ok(Dialect::Otter));
            check(selection, r#"{"protocolVersion":"0.2"}"#, Ok(Dialect::Ferret));
            check(selection, r#"{"protocolVersion":"2025-04-01"}"#, Ok(Dialect::Bernstein));
            let number = if preferred == Dialect::Otter { Dialect::Otter } else { Dialect::Acp };
            check(selection, r#"{"protocolVersion":2}"#, Ok(number));
            check(DialectSelection::Only(preferred), official, Ok(preferred));
        }
    }
}
