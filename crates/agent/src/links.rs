//! Pages that a prompt links to: read when its turn starts, and never again.
//!
//! What was read stands in the log as the outcome of a call that nobody but the prompt made. So a person
//! sees what was fetched for them, the audit has it, and after a restart the model is told the same as
//! before without the page being asked for a second time: it may say something else by then, or be gone.
//! The model finds it in the prompt, as it finds a file.
//!
//! The person chose the address, not the model: so it is read whatever the sandbox lets commands reach,
//! and without a question. What the address may be is checked all the same.

use std::sync::Arc;

use engine::{
    AskRequest, Body, CallId, Content, NoticeLevel, Opaque, ToolClass, ToolContent, ToolEnd, ToolKind,
    ToolStart, TurnContext,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::agent::AgentSession;
use crate::context::Conversation;
use crate::model::Message;
use crate::prompt::{Unread, escaped};
use crate::screen;
use crate::summary::{cut, one_line};
use crate::suspicion;
use crate::thinker::Broken;
use crate::web::{self, Wish};

/// The tool of such calls. The model has none of this name.
const LINK: &str = "link";
/// The tool by which the model reads pages.
const FETCH: &str = "fetch";
/// More in one prompt are left out.
const LINKS_MAX: usize = 8;
const TITLE_CHARS_MAX: usize = 120;

/// Whether an address is read here.
pub(crate) fn is_page(uri: &str) -> bool {
    let starts =
        |scheme: &str| uri.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    starts("http://") || starts("https://")
}

/// Reads the pages that a prompt links to, side by side.
pub(crate) async fn read(
    session: &Arc<AgentSession>,
    content: &[Content],
    context: &TurnContext,
    live: &mut Conversation,
) -> Result<(), Broken> {
    let pages = content.iter().filter_map(|block| match block {
        Content::Link(link) if is_page(&link.uri) => Some(Arc::clone(&link.uri)),
        _ => None,
    });
    let (mut reading, mut open, mut outcomes) = (JoinSet::new(), Vec::new(), Vec::new());
    for (nth, uri) in pages.enumerate() {
        let start = start(&uri);
        open.push((start.call.clone(), Arc::clone(&uri)));
        say(context, live, Body::ToolStarted(Box::new(start))).await?;
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
        reading.spawn(async move { (nth, session.shared.web.read(&uri, Wish::Link).await) });
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
            Ok(page) => suspicion::note(&session.spec.id, page),
            Err(reason) => warn(context, &uri, reason).await?,
        }
        say(context, live, Body::ToolEnded(Box::new(end(call, outcome, elapsed_ms)))).await?;
    }
    if context.cancel.is_cancelled() { Err(Broken::Cancelled) } else { Ok(()) }
}

async fn say(context: &TurnContext, live: &mut Conversation, body: Body) -> Result<(), Broken> {
    live.apply(Some(context.turn()), &body);
    Ok(context.emit(body).await?)
}

/// The rule that denies the `fetch` tool this page, if one does.
fn denied_by(session: &AgentSession, context: &TurnContext, uri: &str) -> Option<Arc<str>> {
    let url = web::parse(uri).ok()?;
    let request = AskRequest { class: ToolClass::Network, ..screen::look(FETCH, url.host_str()?) };
    screen::denied_by(session.shared.config.rules.as_ref(), &context.cwd(), &request)
}

async fn warn(context: &TurnContext, uri: &str, reason: &str) -> Result<(), Broken> {
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

/// The pages of a prompt while its turn is folded into messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Links {
    open: Vec<(CallId, String)>,
}

impl Links {
    /// Puts a page into the prompt that linked to it. Says whether the event was about one.
    pub(crate) fn take_in(&mut self, body: &Body, messages: &mut [Message]) -> bool {
        if let Body::ToolStarted(start) = body
            && start.tool.as_ref() == LINK
        {
            let input: serde_json::Value = serde_json::from_str(&start.input.0).unwrap_or_default();
            self.open.push((start.call.clone(), input["url"].as_str().unwrap_or_default().to_owned()));
            return true;
        }
        let Body::ToolEnded(end) = body else { return false };
        let Some(at) = self.open.iter().position(|(call, _)| *call == end.call) else { return false };
        let (_, uri) = self.open.swap_remove(at);
        if let Some(Message::User { text, .. }) = messages.last_mut() {
            let said = end.content.iter().filter_map(|content| match content {
                ToolContent::Block(Content::Text(text)) => Some(text.as_ref()),
                _ => None,
            });
            let said: String = said.collect();
            let resource = if end.failed {
                Unread { uri: Some(&uri), reason: said, ..Unread::default() }.told()
            } else {
                format!("<resource uri=\"{}\">{}</resource>", escaped(&uri), escaped(&said))
            };
            *text = if text.is_empty() { resource } else { format!("{text}\n{resource}") }.into();
        }
        true
    }
}
