//! What a frame amounts to, by itself and after those before it: the same whenever it is heard.
//!
//! The decoder is that of live sessions. What it knows there besides (the time, what people chose, what was
//! paid before) is left out: it is no part of what the agent said.

use std::collections::VecDeque;

use agent_client_protocol_schema::v1 as schema;
use engine::{AskId, Body, MessageId, Opaque, Said};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::{Asked, digits};
use crate::acp::host_wish;
use crate::json;
use crate::record;
use crate::rpc::{Message, parse};
use crate::upstream::{Heard, Hearing, PROMPT, greeted, opened};

/// Sessions that are listened to. The one that began first is forgotten for one more.
const SESSIONS_MAX: usize = 64;
const FAULT_CHARS_MAX: usize = 200;
/// Of a digest, as it stands beside an event's kind.
const DIGEST_DIGITS: usize = 16;

/// What became of a frame.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sensed {
    pub(super) fault: Option<String>,
    pub(super) heard: Vec<String>,
}

impl Sensed {
    pub(super) fn fault(why: impl Into<String>) -> Self {
        Self { fault: Some(short(&why.into())), heard: Vec::new() }
    }

    fn word(word: &str) -> Self {
        Self { fault: None, heard: vec![word.to_owned()] }
    }

    fn events(events: &[Heard]) -> Self {
        Self { fault: None, heard: events.iter().map(told).collect() }
    }

    /// What the protocol's own types say of it goes first.
    fn judged(mut self, verdict: Result<(), String>) -> Self {
        if let Err(why) = verdict {
            self.fault = Some(short(&why));
        }
        self
    }
}

/// All sessions of all programs of the agent.
#[derive(Default)]
pub(super) struct Sense {
    sessions: VecDeque<Listened>,
    messages: u64,
}

struct Listened {
    process: u32,
    session: String,
    hearing: Hearing,
}

impl Sense {
    pub(super) fn take(&mut self, process: u32, frame: &str, answers: Option<&Asked>) -> Sensed {
        match parse(frame.as_bytes()) {
            Err((_, fault)) => Sensed::fault(fault.text()),
            Ok(Message::Notification { method, params }) => self.told(process, &method, params),
            Ok(Message::Request { method, params, .. }) => self.asked(process, &method, params),
            Ok(Message::Response { result, .. }) => match answers {
                None => Sensed::fault("it answers no request that waits"),
                Some(asked) => self.answered(process, asked, result),
            },
        }
    }

    fn told(&mut self, process: u32, method: &str, params: Option<&RawValue>) -> Sensed {
        // What else agents tell their clients is not listened to.
        if method != "session/update" {
            return Sensed::default();
        }
        let Some((session, params)) = addressed(params) else {
            return Sensed::fault("session/update names no session");
        };
        let mut messages = self.messages;
        let mut next = || {
            messages += 1;
            MessageId(messages)
        };
        let events = self.hearing(process, session).hear(params, &mut next, true);
        self.messages = messages;
        Sensed::events(&events).judged(valid::<schema::SessionNotification>(params))
    }

    fn asked(&mut self, process: u32, method: &str, params: Option<&RawValue>) -> Sensed {
        if method == "session/request_permission" {
            let Some((session, params)) = addressed(params) else {
                return Sensed::fault("session/request_permission names no session");
            };
            let sensed = match self.hearing(process, session).permission(params) {
                Ok(request) => event(Body::Asked { ask: AskId(0), request: Box::new(request) }),
                Err(error) => Sensed::fault(error.to_string()),
            };
            return sensed.judged(valid::<schema::RequestPermissionRequest>(params));
        }
        match host_wish(method, params) {
            Some(Ok(_)) => Sensed::word(method),
            Some(Err(error)) => Sensed::fault(error.to_string()),
            None => Sensed::word("extension"),
        }
    }

    fn answered(&mut self, process: u32, asked: &Asked, result: Result<&RawValue, &RawValue>) -> Sensed {
        let result = match result {
            Ok(result) => result,
            Err(error) => return Sensed::word("refused").judged(valid::<schema::Error>(error)),
        };
        match asked.method.as_str() {
            "initialize" => match greeted(result) {
                Ok(_) => Sensed::word("greeted").judged(valid::<schema::InitializeResponse>(result)),
                Err(error) => Sensed::fault(error.to_string()),
            },
            "session/new" => self.opened(process, asked, result, valid::<schema::NewSessionResponse>(result)),
            "session/load" => {
                self.opened(process, asked, result, valid::<schema::LoadSessionResponse>(result))
            }
            "session/resume" => {
                self.opened(process, asked, result, valid::<schema::ResumeSessionResponse>(result))
            }
            PROMPT => self.ended(process, asked, result).judged(valid::<schema::PromptResponse>(result)),
            "session/set_config_option" => {
                let verdict = valid::<schema::SetSessionConfigOptionResponse>(result);
                let session = asked.session.clone().unwrap_or_default();
                Sensed::events(&self.hearing(process, session).hear_options(result)).judged(verdict)
            }
            _ => Sensed::word("answered"),
        }
    }

    fn opened(
        &mut self,
        process: u32,
        asked: &Asked,
        result: &RawValue,
        verdict: Result<(), String>,
    ) -> Sensed {
        let opened = opened(result);
        let session = opened.session.map(|session| session.to_string()).or_else(|| asked.session.clone());
        let Some(session) = session else {
            return Sensed::fault(format!("{} is answered without a session", asked.method));
        };
        let settings = opened.offers.specs();
        let hearing = self.hearing(process, session);
        hearing.offered(opened.offers);
        let offered = Said { body: Body::Offered { settings }, relayed: None };
        let mut sensed = Sensed::word("opened");
        sensed.heard.push(told(&Heard { said: offered, within: None }));
        sensed.judged(verdict)
    }

    fn ended(&mut self, process: u32, asked: &Asked, result: &RawValue) -> Sensed {
        let hearing = self.hearing(process, asked.session.clone().unwrap_or_default());
        let ended = hearing.ended(result);
        hearing.turn_over();
        let mut sensed = event(Body::TurnEnded { stop: ended.stop, error: None });
        if let Some(usage) = ended.usage {
            sensed.heard.extend(event(Body::Usage(usage)).heard);
        }
        sensed
    }

    fn hearing(&mut self, process: u32, session: String) -> &mut Hearing {
        let known = |own: &Listened| own.process == process && own.session == session;
        let at = match self.sessions.iter().position(known) {
            Some(at) => at,
            None => {
                if self.sessions.len() == SESSIONS_MAX {
                    self.sessions.pop_front();
                }
                self.sessions.push_back(Listened { process, session, hearing: Hearing::default() });
                self.sessions.len() - 1
            }
        };
        &mut self.sessions[at].hearing
    }
}

/// The session that something is said in.
fn addressed(params: Option<&RawValue>) -> Option<(String, &RawValue)> {
    #[derive(Deserialize)]
    struct Addressed {
        #[serde(rename = "sessionId")]
        session: String,
    }
    let params = params?;
    let Addressed { session } = serde_json::from_str(params.get()).ok()?;
    Some((session, params))
}

/// Whether the types of the protocol's authors can read it.
fn valid<T: DeserializeOwned>(raw: &RawValue) -> Result<(), String> {
    json::read::<T>(raw.get(), "it").map(drop).map_err(|error| error.to_string())
}

fn event(body: Body) -> Sensed {
    Sensed::events(&[Heard { said: Said { body, relayed: None }, within: None }])
}

/// An event's kind and the beginning of a digest: of its stored form, of whose it is, and of whether the
/// agent's own words go with it.
fn told(heard: &Heard) -> String {
    let Heard { said: Said { body, relayed }, within } = heard;
    let mut stored = Vec::new();
    // Nothing in an event cannot be stored; what could not would be missing from the digest both times.
    record::encode(body, &mut |_| None, &mut stored).ok();
    let words = match relayed {
        None => ".",
        Some(Opaque(words)) if words.is_empty() => "-",
        Some(_) => "+",
    };
    let within = within.as_ref().map_or("", |call| &call.0);
    let digest = Sha256::new_with_prefix(stored).chain_update(words).chain_update(within).finalize();
    let mut digest = digits(&digest);
    digest.truncate(DIGEST_DIGITS);
    format!("{}:{digest}", record::kind(body))
}

fn short(why: &str) -> String {
    let mut why: String = why.chars().take(FAULT_CHARS_MAX + 1).collect();
    if let Some((end, _)) = why.char_indices().nth(FAULT_CHARS_MAX) {
        why.truncate(end);
        why.push('…');
    }
    why
}
