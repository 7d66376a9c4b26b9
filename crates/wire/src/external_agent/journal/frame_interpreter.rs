//! What one frame means, given the frames before it. The result is always the same for the same frames.
//!
//! This uses the decoder of live sessions, without the inputs that the decoder has there from elsewhere (the
//! time, the user's choices, earlier costs): they are not part of what the agent sent.

use std::collections::VecDeque;

use agent_client_protocol_schema::v1 as schema;
use engine::{AskId, Body, MessageId, NewEvent, Opaque};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::{JournaledRequest, digits};
use crate::acp::host_request;
use crate::external_agent::{
    PROMPT, TranslatedEvent, UpdateTranslator, initialize_response, session_response,
};
use crate::json_errors;
use crate::record;
use crate::rpc::{RpcMessage, parse};

/// Sessions whose state is kept. The oldest one is forgotten when there is one more.
const SESSIONS_MAX: usize = 64;
const FAULT_CHARS_MAX: usize = 200;
/// Length of the digest beside an event's kind.
const DIGEST_DIGITS: usize = 16;

/// The interpretation of a frame.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FrameMeaning {
    pub(super) fault: Option<String>,
    pub(super) events: Vec<String>,
}

impl FrameMeaning {
    pub(super) fn fault(why: impl Into<String>) -> Self {
        Self { fault: Some(short(&why.into())), events: Vec::new() }
    }

    fn word(word: &str) -> Self {
        Self { fault: None, events: vec![word.to_owned()] }
    }

    fn events(events: &[TranslatedEvent]) -> Self {
        Self { fault: None, events: events.iter().map(event_text).collect() }
    }

    /// An error from the schema's own types takes precedence.
    fn judged(mut self, verdict: Result<(), String>) -> Self {
        if let Err(why) = verdict {
            self.fault = Some(short(&why));
        }
        self
    }
}

/// State of all sessions of all processes of the agent.
#[derive(Default)]
pub(super) struct FrameInterpreter {
    sessions: VecDeque<InterpretedSession>,
    messages: u64,
}

struct InterpretedSession {
    process: u32,
    session: String,
    translator: UpdateTranslator,
}

impl FrameInterpreter {
    pub(super) fn interpret(
        &mut self,
        process: u32,
        frame: &str,
        answers: Option<&JournaledRequest>,
    ) -> FrameMeaning {
        match parse(frame.as_bytes()) {
            Err((_, fault)) => FrameMeaning::fault(fault.text()),
            Ok(RpcMessage::Notification { method, params }) => self.notification(process, &method, params),
            Ok(RpcMessage::Request { method, params, .. }) => self.request(process, &method, params),
            Ok(RpcMessage::Response { result, .. }) => match answers {
                None => FrameMeaning::fault("it answers no pending request"),
                Some(asked) => self.response(process, asked, result),
            },
        }
    }

    fn notification(&mut self, process: u32, method: &str, params: Option<&RawValue>) -> FrameMeaning {
        // Other notifications of agents are not interpreted.
        if method != "session/update" {
            return FrameMeaning::default();
        }
        let Some((session, params)) = session_of(params) else {
            return FrameMeaning::fault("session/update names no session");
        };
        let mut messages = self.messages;
        let mut next = || {
            messages += 1;
            MessageId(messages)
        };
        let events = self.translator(process, session).translate(params, &mut next, true);
        self.messages = messages;
        FrameMeaning::events(&events).judged(valid::<schema::SessionNotification>(params))
    }

    fn request(&mut self, process: u32, method: &str, params: Option<&RawValue>) -> FrameMeaning {
        if method == "session/request_permission" {
            let Some((session, params)) = session_of(params) else {
                return FrameMeaning::fault("session/request_permission names no session");
            };
            let meaning = match self.translator(process, session).permission(params) {
                Ok(request) => event(Body::Asked { ask: AskId(0), request: Box::new(request) }),
                Err(error) => FrameMeaning::fault(error.to_string()),
            };
            return meaning.judged(valid::<schema::RequestPermissionRequest>(params));
        }
        match host_request(method, params) {
            Some(Ok(_)) => FrameMeaning::word(method),
            Some(Err(error)) => FrameMeaning::fault(error.to_string()),
            None => FrameMeaning::word("extension"),
        }
    }

    fn response(
        &mut self,
        process: u32,
        asked: &JournaledRequest,
        result: Result<&RawValue, &RawValue>,
    ) -> FrameMeaning {
        let result = match result {
            Ok(result) => result,
            Err(error) => return FrameMeaning::word("refused").judged(valid::<schema::Error>(error)),
        };
        match asked.method.as_str() {
            "initialize" => match initialize_response(result) {
                Ok(_) => FrameMeaning::word("greeted").judged(valid::<schema::InitializeResponse>(result)),
                Err(error) => FrameMeaning::fault(error.to_string()),
            },
            "session/new" => {
                self.session_opened(process, asked, result, valid::<schema::NewSessionResponse>(result))
            }
            "session/load" => {
                self.session_opened(process, asked, result, valid::<schema::LoadSessionResponse>(result))
            }
            "session/resume" => {
                self.session_opened(process, asked, result, valid::<schema::ResumeSessionResponse>(result))
            }
            PROMPT => {
                self.prompt_ended(process, asked, result).judged(valid::<schema::PromptResponse>(result))
            }
            "session/set_config_option" => {
                let verdict = valid::<schema::SetSessionConfigOptionResponse>(result);
                let session = asked.session.clone().unwrap_or_default();
                FrameMeaning::events(&self.translator(process, session).translate_options(result))
                    .judged(verdict)
            }
            _ => FrameMeaning::word("answered"),
        }
    }

    fn session_opened(
        &mut self,
        process: u32,
        asked: &JournaledRequest,
        result: &RawValue,
        verdict: Result<(), String>,
    ) -> FrameMeaning {
        let opened = session_response(result);
        let session = opened.session.map(|session| session.to_string()).or_else(|| asked.session.clone());
        let Some(session) = session else {
            return FrameMeaning::fault(format!("{} is answered without a session", asked.method));
        };
        let settings = opened.offers.specs();
        let translator = self.translator(process, session);
        translator.set_offers(opened.offers);
        let offered = NewEvent { body: Body::Offered { settings }, relayed: None };
        let mut meaning = FrameMeaning::word("opened");
        meaning.events.push(event_text(&TranslatedEvent { said: offered, parent: None }));
        meaning.judged(verdict)
    }

    fn prompt_ended(&mut self, process: u32, asked: &JournaledRequest, result: &RawValue) -> FrameMeaning {
        let translator = self.translator(process, asked.session.clone().unwrap_or_default());
        let ended = translator.prompt_result(result);
        translator.end_turn();
        let mut meaning = event(Body::TurnEnded { stop: ended.stop, error: None });
        if let Some(usage) = ended.usage {
            meaning.events.extend(event(Body::Usage(usage)).events);
        }
        meaning
    }

    fn translator(&mut self, process: u32, session: String) -> &mut UpdateTranslator {
        let known = |own: &InterpretedSession| own.process == process && own.session == session;
        let at = match self.sessions.iter().position(known) {
            Some(at) => at,
            None => {
                if self.sessions.len() == SESSIONS_MAX {
                    self.sessions.pop_front();
                }
                self.sessions.push_back(InterpretedSession {
                    process,
                    session,
                    translator: UpdateTranslator::default(),
                });
                self.sessions.len() - 1
            }
        };
        &mut self.sessions[at].translator
    }
}

/// The session id in the parameters.
fn session_of(params: Option<&RawValue>) -> Option<(String, &RawValue)> {
    #[derive(Deserialize)]
    struct SessionField {
        #[serde(rename = "sessionId")]
        session: String,
    }
    let params = params?;
    let SessionField { session } = serde_json::from_str(params.get()).ok()?;
    Some((session, params))
}

/// Whether the official schema types accept it.
fn valid<T: DeserializeOwned>(raw: &RawValue) -> Result<(), String> {
    json_errors::read::<T>(raw.get(), "it").map(drop).map_err(|error| error.to_string())
}

fn event(body: Body) -> FrameMeaning {
    FrameMeaning::events(&[TranslatedEvent { said: NewEvent { body, relayed: None }, parent: None }])
}

/// An event's kind and a shortened digest: of its stored form, of its parent call, and of whether it carries
/// the agent's own update.
fn event_text(events: &TranslatedEvent) -> String {
    let TranslatedEvent { said: NewEvent { body, relayed }, parent } = events;
    let mut stored = Vec::new();
    // Every event can be stored. If one could not, it would be missing from both digests.
    record::encode(body, &mut |_| None, &mut stored).ok();
    let words = match relayed {
        None => ".",
        Some(Opaque(words)) if words.is_empty() => "-",
        Some(_) => "+",
    };
    let parent = parent.as_ref().map_or("", |call| &call.0);
    let digest = Sha256::new_with_prefix(stored).chain_update(words).chain_update(parent).finalize();
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
