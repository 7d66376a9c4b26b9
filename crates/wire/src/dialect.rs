//! Which wire shape a connection speaks, and the one interface that all of them fill.
//!
//! A connection decodes with a [`Decoder`], answers with [`Replies`] and streams with [`Updates`]. Which
//! dialect it is, the first `initialize` says, unless the server was started for one ([`Spoken`]).

use std::sync::{Arc, Mutex, PoisonError};

use engine::{
    AskId, AskRequest, Body, CallId, CommandSpec, Event, MakeId, Opaque, Resolution, Resolver, Seq,
    SessionHandle, SessionId, Settings, Stop, SurfaceId, TerminalId, Totals, TurnId,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::call::{Call, Fault, Outcome};
use crate::encoder::Encoder as _;
use crate::rpc::RpcId;
use crate::turn_text::{TOLD_AGAIN_BYTES_MAX, TurnText};
use crate::{acp, bernstein, ferret, json, otter, siblings};

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
    /// Whether its updates have numbers that count.
    pub fn is_numbered(self) -> bool {
        match self {
            Self::Otter => true,
            Self::Acp | Self::Ferret | Self::Bernstein => false,
        }
    }

    /// How the ids of its sessions begin, if they say whose they are. Folders of that kind are its sessions too.
    pub fn id_prefix(self) -> Option<&'static str> {
        match self {
            Self::Ferret => Some(ferret::ID_PREFIX),
            Self::Otter => Some(otter::ID_PREFIX),
            Self::Acp | Self::Bernstein => None,
        }
    }

    /// Makes the ids of its new sessions.
    pub fn make_id(self) -> MakeId {
        match self {
            Self::Ferret => |at| siblings::new_id(ferret::ID_PREFIX, at),
            Self::Otter => |at| siblings::new_id(otter::ID_PREFIX, at),
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

/// What the clients of a server speak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Spoken {
    /// The first `initialize` of each client decides.
    #[default]
    Detected,
    /// The same, but the server was started by the command of this dialect: a client whose `initialize` does not say
    /// otherwise speaks it.
    Preferred(Dialect),
    /// Nothing but this.
    Only(Dialect),
}

impl From<Option<Dialect>> for Spoken {
    fn from(only: Option<Dialect>) -> Self {
        only.map_or(Self::Detected, Self::Only)
    }
}

impl Spoken {
    /// Whether the server was started for this dialect.
    pub fn is_for(self, dialect: Dialect) -> bool {
        match self {
            Self::Detected => false,
            Self::Preferred(own) | Self::Only(own) => own == dialect,
        }
    }

    /// What a client speaks that has said nothing yet.
    pub fn before_initialize(self) -> Dialect {
        match self {
            Self::Detected => Dialect::Acp,
            Self::Preferred(dialect) | Self::Only(dialect) => dialect,
        }
    }
}

/// How we introduce ourselves.
#[derive(Debug, Clone)]
pub struct Identity {
    pub name: String,
    pub title: String,
    pub version: String,
    /// How far the tools and commands of this server reach.
    pub sandbox: String,
    /// What can enforce that on this machine.
    pub sandbox_backends: Backends,
    /// The agents that this server can put behind a session.
    pub adapters: Vec<String>,
    /// Those of [`OPTIONAL_METHODS`] that official clients are not offered.
    pub disabled: Vec<String>,
}

/// What a server of the official protocol may leave out.
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

/// Names that are looked for only when a client wants to know them, because looking takes a while. All
/// copies show what was found last.
#[derive(Debug, Clone, Default)]
pub struct Backends(Arc<Mutex<Vec<String>>>);

impl Backends {
    pub fn found(&self, names: Vec<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What is known of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Client {
    pub dialect: Dialect,
    pub abilities: acp::ClientAbilities,
}

/// How an encoder should look at a batch.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// History that the client asks for, as opposed to what happens now.
    pub replay: bool,
    /// What this surface said itself is not repeated to it while it happens.
    pub own: SurfaceId,
}

/// Where the frames from this offset on stand in the log: whoever has all of them has seen the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stand {
    pub offset: usize,
    pub seq: Seq,
}

/// What the connection itself must act on.
pub enum Piece<'a> {
    Asked {
        ask: AskId,
        request: &'a AskRequest,
    },
    Resolved {
        ask: AskId,
        call: Option<&'a CallId>,
        resolution: Resolution,
        /// The surface that answered; none if nobody did.
        by: Option<SurfaceId>,
        /// A person was asked, as opposed to a policy or a rule that decided at once.
        was_asked: bool,
    },
    TurnEnded {
        turn: TurnId,
        stop: Stop,
        error: Option<Arc<str>>,
        usage: Totals,
        /// What an external agent answered besides.
        words: Option<Opaque>,
    },
}

impl<'a> Piece<'a> {
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

/// What a dialect that numbers its updates has counted up to a place in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counted {
    /// Everything up to here.
    pub seq: Seq,
    /// The number of the last update.
    pub updates: u64,
    /// Numbers up to that one that no update has, because a power cut took it or may have.
    pub lost: u64,
    pub totals: Totals,
    /// The turn that runs there, and where it started.
    pub turn: Option<(TurnId, Seq)>,
}

/// Where a client of a dialect that numbers its updates begins.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UpdateStart {
    pub counted: Counted,
    /// Updates up to this number are not told: the client has the first of an event's, and not the second.
    pub since: u64,
    /// What the agent said up to there in the turn that runs.
    pub said: TurnText,
}

impl UpdateStart {
    /// Takes what was said, from an event up to the place. Only the turn that runs there counts.
    pub fn take(&mut self, event: &Event) {
        let running = self.counted.turn.filter(|(turn, from)| event.turn == Some(*turn) && event.seq > *from);
        if running.is_some() {
            self.said.take(event, TOLD_AGAIN_BYTES_MAX);
        }
    }
}

impl From<Counted> for UpdateStart {
    fn from(counted: Counted) -> Self {
        Self { counted, ..Self::default() }
    }
}

impl Counted {
    /// Counts the next event, of which the dialect shows so many updates. A power cut can take events
    /// that were seen; each position that is missing counts as one, so that no number is given twice.
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
            // A prompt that was waiting may end while another one's turn runs.
            && self.turn.is_some_and(|(running, _)| event.turn == Some(running))
        {
            self.turn = None;
        }
    }

    /// How many updates there are.
    pub fn shown(&self) -> u64 {
        self.updates.saturating_sub(self.lost)
    }
}

/// The reading half of a connection.
pub struct Decoder {
    spoken: Spoken,
    client: Client,
    initialized: bool,
    zeph: bool,
}

impl Decoder {
    pub fn new(spoken: Spoken) -> Self {
        let client = Client { dialect: spoken.before_initialize(), ..Client::default() };
        Self { spoken, client, initialized: false, zeph: false }
    }

    /// For a client that said who it is on an earlier connection.
    pub fn known(client: Client) -> Self {
        let spoken = Spoken::Only(client.dialect);
        Self { spoken, client, initialized: true, zeph: client.abilities.zeph }
    }

    /// For a connection of zeph's transport, or of another.
    #[must_use]
    pub fn at_zeph(self, zeph: bool) -> Self {
        Self { zeph, ..self }
    }

    pub fn client(&self) -> Client {
        self.client
    }

    /// What a request wants. `frame_bytes` is the size of the frame it came in.
    pub fn request(
        &mut self,
        method: &str,
        params: Option<&RawValue>,
        frame_bytes: usize,
    ) -> Result<Call, Fault> {
        if method == "initialize" {
            // The first one decides: sessions may be open in its dialect.
            let dialect = if self.initialized { self.client.dialect } else { chosen(params, self.spoken)? };
            let call = decode(dialect, method, params, frame_bytes)?;
            let abilities = match dialect {
                Dialect::Acp => acp::ClientAbilities { zeph: self.zeph, ..acp::abilities(params) },
                Dialect::Ferret | Dialect::Otter | Dialect::Bernstein => acp::ClientAbilities::default(),
            };
            self.client = Client { dialect, abilities };
            self.initialized = true;
            return Ok(call);
        }
        // Bernstein's clients may begin with a prompt, over HTTP each of their requests stands alone.
        if !self.initialized && self.client.dialect != Dialect::Bernstein {
            return Err(Fault::NotInitialized { method: method.to_owned() });
        }
        decode(self.client.dialect, method, params, frame_bytes)
    }

    /// What a notification wants. Unknown ones are ignored, as every dialect demands.
    pub fn notification(&mut self, method: &str, params: Option<&RawValue>) -> Result<Call, Fault> {
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
) -> Result<Call, Fault> {
    match dialect {
        Dialect::Acp => acp::request(method, params, frame_bytes),
        Dialect::Ferret => ferret::request(method, params, frame_bytes),
        Dialect::Otter => otter::request(method, params, frame_bytes),
        Dialect::Bernstein => bernstein::request(method, params, frame_bytes),
    }
}

/// The dialect that the parameters of an `initialize` belong to.
pub fn chosen(params: Option<&RawValue>, spoken: Spoken) -> Result<Dialect, Fault> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(rename = "protocolVersion", borrow)]
        version: Option<&'a RawValue>,
        #[serde(rename = "clientCapabilities", borrow)]
        capabilities: Option<&'a RawValue>,
    }
    let preferred = match spoken {
        Spoken::Only(dialect) => return Ok(dialect),
        Spoken::Preferred(dialect) => Some(dialect),
        Spoken::Detected => None,
    };
    let params = params.map_or("{}", RawValue::get);
    let params: Params<'_> = json::read(params, "the parameters of initialize")
        .map_err(|error| Fault::InvalidParams(error.to_string()))?;
    match params.version.map(RawValue::get) {
        None | Some("null") => Ok(preferred.unwrap_or(Dialect::Ferret)),
        Some("\"0.2\"") => Ok(Dialect::Ferret),
        Some("\"0.1\"") => Ok(Dialect::Otter),
        Some("\"2025-04-01\"") => Ok(Dialect::Bernstein),
        // Who started a program of another name asked for its protocol; the answer says which version that has.
        Some(text) if text.starts_with('"') && preferred.is_some() => {
            Ok(preferred.unwrap_or(Dialect::Ferret))
        }
        Some(text) if text.starts_with('"') => Err(Fault::InvalidParams(format!(
            "protocolVersion {text} is not known; use the number 1 for the Agent Client Protocol, \"0.2\" for ferret, \"0.1\" for otter, or \"2025-04-01\" for Bernstein"
        ))),
        // Otter counts its versions too; what its clients do not say is what they can do.
        Some(_) if preferred == Some(Dialect::Otter) && params.capabilities.is_none() => Ok(Dialect::Otter),
        Some(_) => Ok(Dialect::Acp),
    }
}

/// Appends the answer to a frame that cannot be read: the same in every dialect. Without an id, none could be found.
pub fn write_unreadable(id: Option<RpcId>, fault: &Fault, out: &mut Vec<u8>) {
    acp::fault(&id.unwrap_or_else(RpcId::null), fault, out);
}

/// The answering half of a connection.
pub struct Replies {
    identity: Identity,
}

impl Replies {
    pub fn new(identity: Identity) -> Self {
        Self { identity }
    }

    pub fn write(&self, client: Client, id: &RpcId, outcome: Result<&Outcome, &Fault>, out: &mut Vec<u8>) {
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

/// A question that can be put to the client, at once or after a replay.
pub enum AskFrame {
    /// A request of ours, which needs an id.
    Request(Box<acp::AskFrame>),
    /// A notification, whole.
    Notification(Vec<u8>),
}

impl Updates {
    /// `start` is where the client begins, if its dialect counts.
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

    /// Encodes events up to and including the first that needs the connection. Returns how many were
    /// taken, and that one. `stands` says where in the log the frames are.
    pub fn encode<'a>(
        &mut self,
        events: &'a [Arc<Event>],
        view: View,
        stands: &mut Vec<Stand>,
        out: &mut Vec<u8>,
    ) -> (usize, Option<Piece<'a>>) {
        match self {
            Self::Acp(updates) => updates.encode(events, view, stands, out),
            Self::Ferret(updates) => updates.encode(events, view, stands, out),
            Self::Otter(updates) => updates.encode(events, stands, out),
            Self::Bernstein(updates) => updates.encode(events, view, stands, out),
        }
    }

    /// The number of the last update, in a dialect that numbers them.
    pub fn last(&self) -> Option<u64> {
        match self {
            Self::Otter(updates) => Some(updates.last()),
            Self::Acp(_) | Self::Ferret(_) | Self::Bernstein(_) => None,
        }
    }

    /// The same for clients of dialects that go on after a number, whether or not updates show theirs.
    pub fn resumed_up_to(&self) -> Option<u64> {
        match self {
            Self::Otter(updates) => Some(updates.last()),
            Self::Ferret(updates) => Some(updates.resumed_up_to()),
            Self::Acp(_) | Self::Bernstein(_) => None,
        }
    }

    /// Shows what was held back to be merged.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Acp(updates) => updates.flush(out),
            Self::Ferret(_) | Self::Otter(_) | Self::Bernstein(_) => {}
        }
    }

    /// Sent once a client knows the session: what it can type.
    pub fn commands(&self, commands: &[CommandSpec], out: &mut Vec<u8>) {
        match self {
            // Where the agent alone knows them, it says so itself.
            Self::Acp(_) if commands.is_empty() => {}
            Self::Acp(updates) => updates.commands(commands, out),
            // The older dialects have no word for it.
            Self::Ferret(_) | Self::Otter(_) | Self::Bernstein(_) => {}
        }
    }

    /// What the session has used in all.
    pub fn totals(&self, totals: &Totals, out: &mut Vec<u8>) {
        match self {
            Self::Acp(updates) => updates.totals(totals, out),
            Self::Ferret(updates) => updates.totals(totals, out),
            Self::Otter(_) | Self::Bernstein(_) => {}
        }
    }

    /// What the session had cost before the client's place in the log.
    pub fn count_from(&mut self, cost_usd: f64) {
        match self {
            Self::Acp(updates) => updates.count_from(cost_usd),
            // Only clients of the official protocol come back to a stream.
            Self::Ferret(_) | Self::Otter(_) | Self::Bernstein(_) => {}
        }
    }

    /// The session was like this before what is shown first: for dialects that tell what was before a
    /// change.
    pub fn begin_with(&mut self, settings: Settings, totals: Totals) {
        match self {
            Self::Ferret(updates) => updates.begin_with(settings, totals),
            Self::Acp(_) | Self::Otter(_) | Self::Bernstein(_) => {}
        }
    }

    /// What this client answers for good holds in the session alone: it is not the owner at the machine.
    pub fn keep_for_session(&mut self) {
        match self {
            Self::Acp(updates) => updates.keep_for_session(),
            // These name no rule.
            Self::Ferret(_) | Self::Otter(_) | Self::Bernstein(_) => {}
        }
    }

    pub fn ask(&self, ask: AskId, request: &AskRequest) -> AskFrame {
        match self {
            Self::Acp(updates) => AskFrame::Request(Box::new(updates.ask(ask, request))),
            Self::Ferret(updates) => AskFrame::Notification(updates.ask(ask, request)),
            // Otter's questions are numbered updates like the others: its encoder writes them in their place.
            Self::Otter(_) => AskFrame::Notification(Vec::new()),
            Self::Bernstein(updates) => AskFrame::Notification(updates.ask(ask, request)),
        }
    }

    /// Whether the client that answered a question is told that it is settled, like every other client. A receiver without
    /// memory would otherwise show a replayed question again that it answered itself.
    pub fn tells_own_answer(&self) -> bool {
        match self {
            Self::Ferret(_) => true,
            // Otter's encoder tells everybody in its own way; the others replay no question that was answered.
            Self::Acp(_) | Self::Bernstein(_) | Self::Otter(_) => false,
        }
    }

    /// A question that the client was asked is settled.
    pub fn withdraw(&self, ask: AskId, request: &RpcId, resolution: Resolution, out: &mut Vec<u8>) {
        match self {
            Self::Acp(_) => acp::write_cancel_request(out, request),
            Self::Ferret(updates) => updates.withdraw(ask, resolution, out),
            Self::Otter(_) => {}
            Self::Bernstein(updates) => updates.withdraw(ask, resolution, out),
        }
    }

    /// Whether a call that has not ended is shown in this terminal of the client's.
    pub fn shows_terminal(&self, terminal: &TerminalId) -> bool {
        match self {
            Self::Acp(updates) => updates.shows_terminal(terminal),
            Self::Ferret(_) | Self::Otter(_) | Self::Bernstein(_) => false,
        }
    }

    /// A call that waited for permission goes on.
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
    fn check(spoken: Spoken, params: &str, expected: Result<Dialect, &str>) {
        let raw: Box<RawValue> = serde_json::from_str(params).unwrap();
        match (chosen(Some(&raw), spoken), expected) {
            (Ok(dialect), Ok(expected)) => assert_eq!(dialect, expected, "{params}"),
            (Err(Fault::InvalidParams(text)), Err(part)) => assert!(text.contains(part), "{params}: {text}"),
            (other, _) => panic!("{params}: {other:?}"),
        }
    }

    #[test]
    fn the_version_of_the_first_initialize_chooses_the_dialect() {
        let check = |params, expected| check(Spoken::Detected, params, expected);
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
            let mut decoder = Decoder::new(Spoken::Detected);
            for version in [first, "1", "\"0.2\"", "\"2025-04-01\"", "\"0.1\""] {
                let params = format!(r#"{{"protocolVersion":{version},"clientCapabilities":{{}}}}"#);
                let params: Box<RawValue> = serde_json::from_str(&params).unwrap();
                // Another dialect's version may be refused, and changes nothing.
                drop(decoder.request("initialize", Some(&params), 0));
                assert_eq!(decoder.client().dialect, dialect, "{first}, then {version}");
            }
        }
    }

    #[test]
    fn a_preferred_dialect_holds_where_the_client_does_not_say_otherwise() {
        let official = r#"{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true}}}"#;
        for preferred in Dialect::ALL {
            let spoken = Spoken::Preferred(preferred);
            check(spoken, "{}", Ok(preferred));
            check(spoken, r#"{"protocolVersion":null}"#, Ok(preferred));
            check(spoken, official, Ok(Dialect::Acp));
            check(spoken, r#"{"protocolVersion":"0.1"}"#, Ok(Dialect::Otter));
            check(spoken, r#"{"protocolVersion":"0.2"}"#, Ok(Dialect::Ferret));
            check(spoken, r#"{"protocolVersion":"2025-04-01"}"#, Ok(Dialect::Bernstein));
            let number = if preferred == Dialect::Otter { Dialect::Otter } else { Dialect::Acp };
            check(spoken, r#"{"protocolVersion":2}"#, Ok(number));
            check(Spoken::Only(preferred), official, Ok(preferred));
        }
    }
}
