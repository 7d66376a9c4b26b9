//! `fetch`: a web page, as text. Which addresses may be read is decided in `web_fetch.rs`; a person is asked per
//! host.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{BoxFuture, Risk, ToolClass, ToolContent, ToolKind};
use serde::Deserialize;
use serde_json::json;

use super::command_output::Excerpt;
use super::{Intent, ToolDefinition, ToolFailure, ToolJob, ToolOutcome, ToolWork, arguments};
use crate::web_fetch::{self, FetchPurpose, WebError};

pub(super) fn tool() -> ToolDefinition {
    let schema = json!({
        "type": "object",
        "properties": {"url": {"type": "string", "description": "http:// or https://"}},
        "required": ["url"],
        "additionalProperties": false
    });
    ToolDefinition::new(
        "fetch",
        "Reads a public page of the web: text, HTML as Markdown, JSON, XML; at most 1 MiB.",
        ToolKind::Fetch,
        ToolClass::Network,
        schema,
        parse_call,
    )
}

#[derive(Deserialize)]
struct Arguments {
    url: String,
}

fn parse_call(text: &str) -> Result<Intent, String> {
    let kind: Arguments = arguments(text)?;
    let url = web_fetch::parse(&kind.url).map_err(|error| error.to_string())?;
    Ok(Intent {
        title: format!("Fetch {url}"),
        path: None,
        line: None,
        subject: url.host_str().map(str::to_owned),
        risk: Risk::Medium,
        reason: "reaches another machine",
        work: Box::new(kind),
    })
}

impl ToolWork for Arguments {
    fn prepare(&mut self, job: &ToolJob) -> Result<Vec<ToolContent>, ToolFailure> {
        let mode = job.workspace.mode();
        if mode.network() {
            return Ok(Vec::new());
        }
        let reason = format!(
            "nothing is sent to other machines in the sandbox mode {mode}; to allow it, start with --sandbox workspace-write-network"
        );
        // It has no path.
        Err(ToolFailure::Blocked { path: PathBuf::new(), reason })
    }

    fn run(self: Box<Self>, job: Arc<ToolJob>) -> BoxFuture<'static, ToolOutcome> {
        Box::pin(async move {
            let read = tokio::select! {
                biased;
                () = job.context.cancel.cancelled() => return ToolOutcome::failed("the turn was cancelled".into()),
                read = job.session.shared.web.read(&self.url, FetchPurpose::Page) => read,
            };
            match read {
                Ok(page) => {
                    let mut excerpt = Excerpt::default();
                    excerpt.push(&page.text);
                    let model_text = format!("{}\n\n{}", page.address, excerpt.text());
                    ToolOutcome {
                        text: Some(page.text),
                        model_text: Some(model_text),
                        ..ToolOutcome::default()
                    }
                }
                // Another host needs another permission.
                Err(WebError::Elsewhere(place)) => {
                    ToolOutcome::text(format!("it redirects to another host; fetch {place} if you need it"))
                }
                Err(error) => ToolOutcome::failed(format!("{} was not read: {error}", self.url)),
            }
        })
    }
}
