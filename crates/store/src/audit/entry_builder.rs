//! The audit entry for an event, and the state of the session that is needed to write it.
//!
//! An entry says who, when, in which session, under which preset, mode and sandbox, and the outcome. Of prompts and
//! answers it has the size and a digest, never the text.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    APPROVAL, AskId, AskRequest, Body, CallId, Content, Event, MODE, Origin, Resolution, Resolver, Risk,
    SessionId, Settings, Timestamp, ToolEnd, ToolStart, TurnId,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::chain_writer::SESSION;
use super::hex;
use super::row::AuditEntry;

/// The actor of clients' actions, under the name that such rows have in the chain that ours is compatible
/// with.
const CLIENTS: &str = "acp_bridge";

/// Builds audit entries about one session.
pub(super) struct AuditEntryBuilder<'a> {
    session: &'a SessionId,
    at: Timestamp,
    actor: &'a str,
}

impl<'a> AuditEntryBuilder<'a> {
    pub fn new(session: &'a SessionId, at: Timestamp, actor: &'a str) -> Self {
        Self { session, at, actor }
    }

    pub fn entry(&self, event_type: &'static str, details: Value) -> AuditEntry {
        let mut details = if let Value::Object(details) = details { details } else { Map::new() };
        // Unknown values are left out.
        details.retain(|_, value| !value.is_null());
        AuditEntry {
            at: self.at,
            event_type,
            actor: self.actor.to_owned(),
            resource_type: SESSION,
            resource_id: self.session.to_string(),
            details,
        }
        .bounded()
    }
}

/// The state of a session, as far as its log was read.
pub(super) struct AuditedSession {
    settings: Settings,
    cwd: PathBuf,
    calls: HashMap<CallId, AuditedCall>,
    asks: HashMap<AskId, AuditedAsk>,
    /// Prompts that were recorded when they were queued.
    queued: Vec<TurnId>,
}

struct AuditedCall {
    tool: Arc<str>,
    title: Arc<str>,
    paths: Vec<PathBuf>,
    /// How the permission request for it was decided.
    decision: Option<(Resolution, &'static str)>,
}

struct AuditedAsk {
    tool: Arc<str>,
    subject: Arc<str>,
    risk: Risk,
}

impl AuditedSession {
    pub fn new(settings: Settings, cwd: PathBuf) -> Self {
        Self { settings, cwd, calls: HashMap::new(), asks: HashMap::new(), queued: Vec::new() }
    }

    /// Takes an event into the state and, if `wanted`, returns its audit entry.
    pub fn apply(
        &mut self,
        session: &SessionId,
        event: &Event,
        sandbox: &str,
        wanted: bool,
    ) -> Option<AuditEntry> {
        self.before(event);
        let told = if wanted { self.entry(session, event, sandbox) } else { None };
        self.after(event);
        told
    }

    fn before(&mut self, event: &Event) {
        match &event.body {
            Body::ToolStarted(start) => drop(self.calls.insert(start.call.clone(), AuditedCall::of(start))),
            Body::Asked { ask, request } => drop(self.asks.insert(*ask, AuditedAsk::of(request))),
            Body::Resolved { call: Some(call), resolution, by, .. } => {
                if let Some(call) = self.calls.get_mut(call) {
                    call.decision = Some((*resolution, resolver_word(by)));
                }
            }
            _ => {}
        }
    }

    fn after(&mut self, event: &Event) {
        match &event.body {
            Body::SettingChanged { id, value } => self.settings.set(Arc::clone(id), Arc::clone(value)),
            Body::Moved { cwd, .. } => self.cwd.clone_from(cwd),
            Body::ToolEnded(end) => drop(self.calls.remove(&end.call)),
            Body::Resolved { ask, .. } => drop(self.asks.remove(ask)),
            Body::TurnQueued { .. } => self.queued.extend(event.turn),
            Body::UserMessage { .. } => self.queued.retain(|turn| Some(*turn) != event.turn),
            Body::TurnEnded { .. } => {
                self.queued.retain(|turn| Some(*turn) != event.turn);
                self.calls.clear();
            }
            _ => {}
        }
    }

    fn entry(&self, session: &SessionId, event: &Event, sandbox: &str) -> Option<AuditEntry> {
        let peer = peer_of(&event.origin);
        let (event_type, actor, mut details) = match &event.body {
            Body::TurnQueued { content } => ("acp.prompt", CLIENTS, self.prompt(peer, content)),
            Body::UserMessage { content } if !event.turn.is_some_and(|turn| self.queued.contains(&turn)) => {
                ("acp.prompt", CLIENTS, self.prompt(peer, content))
            }
            Body::CancelRequested { reason } => {
                let reason = reason.as_deref().unwrap_or("client_cancel");
                ("acp.cancel", CLIENTS, json!({ "ok": true, "peer": peer, "reason": reason }))
            }
            Body::SettingChanged { id, value } if **id == *MODE => {
                ("acp.set_mode", CLIENTS, json!({ "mode": **value, "peer": peer }))
            }
            Body::SettingChanged { id, value } => {
                ("session.setting", peer, json!({ "peer": peer, "setting": **id, "value": **value }))
            }
            Body::Asked { ask, request } => ("permission.asked", peer, asked(*ask, request)),
            Body::Resolved { ask, call, resolution, by, reply, exactly } => {
                let mut told = self.resolved(*ask, call.as_ref(), *resolution, by);
                if let Some(reply) = reply {
                    told["answer"] = json!({ "bytes": reply.len(), "sha256": sha256(reply) });
                }
                if *exactly {
                    told["scope"] = "arguments".into();
                }
                ("acp.permission", CLIENTS, told)
            }
            Body::PolicyBlocked { call, tool, path, mode, reason } => {
                let details = json!({
                    "call": call.as_ref().map(|call| &*call.0), "mode": **mode, "path": path.as_deref().map(shown),
                    "reason": **reason, "tool": **tool,
                });
                ("sandbox.refused", peer, details)
            }
            Body::ToolEnded(end) => ("tool.call", "agent", self.called(end)),
            Body::TurnEnded { stop, error } => {
                ("turn.ended", peer, json!({ "error": error.as_deref(), "stop": stop.as_str() }))
            }
            Body::Title { title } if matches!(event.origin, Origin::Surface { .. }) => {
                ("session.renamed", peer, json!({ "chars": title.chars().count(), "peer": peer }))
            }
            Body::Moved { cwd, .. } => ("session.moved", peer, json!({ "cwd": shown(cwd), "peer": peer })),
            Body::Cleared => ("session.cleared", peer, json!({ "peer": peer })),
            _ => return None,
        };
        if matches!(
            event_type,
            "tool.call" | "acp.permission" | "permission.asked" | "sandbox.refused" | "acp.prompt"
        ) {
            details["preset"] = self.settings.get(APPROVAL).into();
            details["sandbox"] = sandbox.into();
        }
        if let Some(turn) = event.turn {
            details["turn"] = turn.0.into();
        }
        let resolved = if let Body::Resolved { by, .. } = &event.body { by.remote() } else { None };
        if let Some(user) = event.origin.remote().or(resolved) {
            details["bridge"] = json!({ "origin": "bridge", "remote_user": **user });
        }
        details["seq"] = event.seq.0.into();
        Some(AuditEntryBuilder::new(session, event.at, actor).entry(event_type, details))
    }

    fn prompt(&self, peer: &str, content: &[Content]) -> Value {
        let (bytes, sha256) = digest(content);
        json!({
            "blocks": content.len(), "bytes": bytes, "cwd": shown(&self.cwd), "mode": self.settings.get(MODE),
            "peer": peer, "role": "user", "sha256": sha256,
        })
    }

    fn resolved(&self, ask: AskId, call: Option<&CallId>, resolution: Resolution, by: &Resolver) -> Value {
        let asked = self.asks.get(&ask);
        let started = call.and_then(|call| self.calls.get(call));
        let reason = match by {
            Resolver::Policy { reason } | Resolver::Rule { reason } => Some(&**reason),
            Resolver::Surface { .. } | Resolver::Engine => None,
        };
        let peer = if let Resolver::Surface { name, .. } = by { name } else { resolver_word(by) };
        let tool = asked.map(|ask| &*ask.tool).or_else(|| started.map(|call| &*call.tool));
        let subject = asked.map(|ask| &*ask.subject).or_else(|| started.map(|call| &*call.title));
        json!({
            "call": call.map(|call| &*call.0), "decision": if resolution.allows() { "approved" } else { "rejected" },
            "mode": self.settings.get(MODE), "peer": peer, "promptId": ask.0.to_string(), "reason": reason,
            "resolution": resolution.as_str(), "resolver": resolver_word(by),
            "risk": asked.map(|ask| ask.risk.as_str()), "subject": subject, "tool": tool,
        })
    }

    fn called(&self, end: &ToolEnd) -> Value {
        let call = self.calls.get(&end.call);
        let decision = call.and_then(|call| call.decision);
        let outcome = if end.failed { "failed" } else { "done" };
        let paths = call.map(|call| call.paths.iter().map(|path| shown(path)).collect::<Vec<_>>());
        json!({
            "call": &*end.call.0,
            "decision": decision.map(|(resolution, _)| resolution.as_str()),
            "elapsed_ms": end.elapsed_ms,
            "exit_code": end.exit.as_ref().and_then(|exit| exit.code),
            "mode": self.settings.get(MODE),
            "outcome": outcome,
            "paths": paths,
            "resolver": decision.map(|(_, resolver)| resolver),
            "signal": end.exit.as_ref().and_then(|exit| exit.signal.as_deref()),
            "title": call.map(|call| &*call.title),
            "tool": call.map(|call| &*call.tool),
        })
    }
}

impl AuditedCall {
    fn of(start: &ToolStart) -> Self {
        let paths = start.locations.iter().map(|location| location.path.clone()).collect();
        Self { tool: Arc::clone(&start.tool), title: Arc::clone(&start.title), paths, decision: None }
    }
}

impl AuditedAsk {
    fn of(request: &AskRequest) -> Self {
        Self { tool: Arc::clone(&request.tool), subject: Arc::clone(&request.subject), risk: request.risk }
    }
}

fn asked(ask: AskId, request: &AskRequest) -> Value {
    let mut told = json!({
        "call": request.call.as_ref().map(|call| &*call.0), "path": request.path.as_deref().map(shown),
        "promptId": ask.0.to_string(), "reason": *request.reason, "risk": request.risk.as_str(),
        "subject": *request.subject, "tool": *request.tool,
    });
    if let Some(question) = &request.question {
        told["question"] = json!({ "choices": question.choices.len(), "text": *question.text });
    }
    told
}

fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// Size and digest of what was said: of a text, its own; of several blocks, that of their texts, data
/// and addresses with a line feed between them.
fn digest(content: &[Content]) -> (usize, String) {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    for (index, block) in content.iter().enumerate() {
        if index > 0 {
            hash.update(b"\n");
            bytes += 1;
        }
        let text = match block {
            Content::Text(text) | Content::Resource { text, .. } => text,
            Content::Image { data, .. } | Content::Audio { data, .. } | Content::Binary { data, .. } => data,
            Content::Link(link) => &link.uri,
        };
        hash.update(text.as_bytes());
        bytes += text.len();
    }
    (bytes, hex(&hash.finalize()))
}

fn peer_of(origin: &Origin) -> &str {
    match origin {
        Origin::Engine => "engine",
        Origin::Agent | Origin::Task { .. } => "agent",
        Origin::Surface { name, .. } => name,
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn resolver_word(by: &Resolver) -> &'static str {
    match by {
        Resolver::Policy { .. } => "policy",
        Resolver::Rule { .. } => "rule",
        Resolver::Surface { .. } => "client",
        Resolver::Engine => "engine",
    }
}

#[cfg(test)]
mod tests {
    use engine::{Seq, SurfaceId, Timestamp};

    use super::*;

    #[test]
    fn what_came_over_the_bridge_says_so_and_who_it_was() {
        let told = |remote: Option<Arc<str>>| {
            let origin =
                Origin::Surface { id: SurfaceId(1), name: "dev (bridge)".into(), request: None, remote };
            let body = Body::SettingChanged { id: APPROVAL.into(), value: "full".into() };
            let event = Event { seq: Seq(1), at: Timestamp(0), origin, turn: None, body, relayed: None };
            let mut story = AuditedSession::new(Settings::defaults(&[]), "/".into());
            let entry = story.apply(&SessionId::parse("s").unwrap(), &event, "read-only", true).unwrap();
            entry.details.get("bridge").cloned()
        };
        assert_eq!(told(Some("dev".into())), Some(json!({ "origin": "bridge", "remote_user": "dev" })));
        assert_eq!(told(None), None, "whoever is here came over no bridge");
    }
}
