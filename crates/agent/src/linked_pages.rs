//! Web pages that a prompt links to: fetched when the turn starts, and never again.
//!
//! A fetched page is logged as the result of a tool call that belongs to the prompt. So a person sees what
//! was fetched, the audit has it, and after a restart the model gets the same text without a second fetch:
//! the page may have changed by then, or be gone. The model finds the page in the prompt, like a linked file.
//!
//! The person chose the address, not the model. So it is fetched without asking, whatever network access
//! commands have. Whether the address is a permitted one is checked all the same.

use std::sync::Arc;

use engine::{
    AskRequest, Body, CallId, Content, NoticeLevel, Opaque, ToolClass, ToolContent, ToolEnd, ToolKind,
    ToolStart, TurnContext,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::agent::AgentSession;
use crate::context::Conversation;
use crate::injection_markers;
use crate::model::Message;
use crate::search_permission_filter;
use crate::summary_without_model::{cut, one_line};
use crate::turn_loop::LoopError;
use crate::user_prompt::{SkippedBlock, escaped};
use crate::web_fetch::{self, FetchPurpose};

/// The tool name of these calls. The model has no tool of this name.
const LINK: &str = "link";
/// The tool with which the model fetches pages.
const FETCH: &str = "fetch";
/// More in one prompt are left out.
const LINKS_MAX: usize = 8;
const TITLE_CHARS_MAX: usize = 120;

/// Whether an address is a web page that is fetched here.
pub(crate) fn is_web_link(uri: &str) -> bool {
    let starts =
        |scheme: &str| uri.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    starts("http://") || starts("https://")
}

/// Fetches the pages that a prompt links to, concurrently.
pub(crate) async fn read(
    session: &Arc<AgentSession>,
    content: &[Content],
    context: &TurnContext,
    conversation: &mut Conversation,
) -> Result<(), LoopError> {
    let pages = content.iter().filter_map(|block| match block {
        Content::Link(link) if is_web_link(&link.uri) => Some(Arc::clone(&link.uri)),
        _ => None,
    });
    let (mut reading, mut open, mut outcomes) = (JoinSet::new(), Vec::new(), Vec::new());
    for (nth, uri) in pages.enumerate() {
        let start = start(&uri);
        open.push((start.call.clone(), Arc::clone(&uri)));
        record(context, conversation, Body::ToolStarted(Box::new(start))).await?;
        if nth >= LINKS_MAX {
            outcomes.push(Err(format!("a prompt may link to {LINKS_MAX} pages")));
            continue;
        }
        if let Some(rule) = denied_by(session, context, &uri) {
            outcomes.push(Err(format!("the rule {rule} denies fetching it")));
            continue;
        }
        outcomes.push(Err("the turn was cancelled".to_owned()));
        let session = Arc::clone(session);
        reading.spawn(async move { (nth, session.shared.web.read(&uri, FetchPurpose::Link).await) });
    }
    let began = Instant::now();
    let gather = async {
        while let Some(read) = reading.join_next().await {
            let Ok((nth, outcome)) = read else { continue };
            if let Some(place) = outcomes.get_mut(nth) {
                *place = outcome.map(|page| page.text).map_err(|error| error.to_string());
            }
        }
    };
    tokio::select! {
        biased;
        () = context.cancel.cancelled() => {}
        () = gather => {}
    }
    let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    for ((call, uri), outcome) in open.into_iter().zip(outcomes) {
        match &outcome {
            Ok(page) => injection_markers::note(&session.spec.id, page),
            Err(reason) => warn(context, &uri, reason).await?,
        }
        record(context, conversation, Body::ToolEnded(Box::new(end(call, outcome, elapsed_ms)))).await?;
    }
    if context.cancel.is_cancelled() { Err(LoopError::Cancelled) } else { Ok(()) }
}

async fn record(context: &TurnContext, conversation: &mut Conversation, body: Body) -> Result<(), LoopError> {
    conversation.apply(Some(context.turn()), &body);
    Ok(context.emit(body).await?)
}

/// The rule that denies the `fetch` tool this page, if one does.
fn denied_by(session: &AgentSession, context: &TurnContext, uri: &str) -> Option<Arc<str>> {
    let url = web_fetch::parse(uri).ok()?;
    let request = AskRequest {
        class: ToolClass::Network,
        ..search_permission_filter::read_request(FETCH, url.host_str()?)
    };
    search_permission_filter::denied_by(session.shared.config.rules.as_ref(), &context.cwd(), &request)
}

async fn warn(context: &TurnContext, uri: &str, reason: &str) -> Result<(), LoopError> {
    let text = format!("{} was left out: {reason}", cut(&one_line(uri), TITLE_CHARS_MAX));
    Ok(context.emit(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await?)
}

fn start(uri: &str) -> ToolStart {
    ToolStart {
        kind: ToolKind::Fetch,
        input: Opaque(serde_json::json!({ "url": uri }).to_string().into()),
        ..ToolStart::new(
            CallId::random(),
            LINK.into(),
            cut(&format!("Read {}", one_line(uri)), TITLE_CHARS_MAX).into(),
        )
    }
}

fn end(call: CallId, outcome: Result<String, String>, elapsed_ms: u64) -> ToolEnd {
    let failed = outcome.is_err();
    let text = outcome.unwrap_or_else(|reason| reason);
    ToolEnd {
        failed,
        content: vec![ToolContent::Block(Content::text(text))],
        elapsed_ms,
        ..ToolEnd::of(call)
    }
}

/// The linked pages of a prompt, while its turn is folded into messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkedPages {
    open_calls: Vec<(CallId, String)>,
}

impl LinkedPages {
    /// Adds a fetched page to the prompt that links to it. Returns whether the event was about one.
    pub(crate) fn add_to_prompt(&mut self, body: &Body, messages: &mut [Message]) -> bool {
        if let Body::ToolStarted(start) = body
            && start.tool.as_ref() == LINK
        {
            let input: serde_json::Value = serde_json::from_str(&start.input.0).unwrap_or_default();
            self.open_calls.push((start.call.clone(), input["url"].as_str().unwrap_or_default().to_owned()));
            return true;
        }
        let Body::ToolEnded(end) = body else { return false };
        let Some(at) = self.open_calls.iter().position(|(call, _)| *call == end.call) else { return false };
        let (_, uri) = self.open_calls.swap_remove(at);
        if let Some(Message::User { text, .. }) = messages.last_mut() {
            let said = end.content.iter().filter_map(|content| match content {
                ToolContent::Block(Content::Text(text)) => Some(text.as_ref()),
                _ => None,
            });
            let said: String = said.collect();
            let resource = if end.failed {
                SkippedBlock { uri: Some(&uri), reason: said, ..SkippedBlock::default() }.placeholder()
            } else {
                format!("<resource uri=\"{}\">{}</resource>", escaped(&uri), escaped(&said))
            };
            *text = if text.is_empty() { resource } else { format!("{text}\n{resource}") }.into();
        }
        true
    }
}
