//! `fetch`: a page of the web, as text. What may be read is decided in `web.rs`; a person is asked by host.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{BoxFuture, Risk, ToolClass, ToolContent, ToolKind};
use serde::Deserialize;
use serde_json::json;

use super::output::Excerpt;
use super::{Failure, Intent, Job, Outcome, Tool, Work, arguments};
use crate::web::{self, WebError, Wish};

pub(super) fn tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {"url": {"type": "string", "description": "http:// or https://"}},
        "required": ["url"],
        "additionalProperties": false
    });
    Tool::new(
        "fetch",
        "Reads a public page of the web: text, HTML as Markdown, JSON, XML; at most 1 MiB.",
        ToolKind::Fetch,
        ToolClass::Network,
        schema,
        intend,
    )
}

#[derive(Deserialize)]
struct Arguments {
    url: String,
}

fn intend(text: &str) -> Result<Intent, String> {
    let wish: Arguments = arguments(text)?;
    let url = web::parse(&wish.url).map_err(|error| error.to_string())?;
    Ok(Intent {
        title: format!("Fetch {url}"),
        path: None,
        line: None,
        subject: url.host_str().map(str::to_owned),
        risk: Risk::Medium,
        reason: "reaches another machine",
        work: Box::new(wish),
    })
}

impl Work for Arguments {
    fn prepare(&mut self, job: &Job) -> Result<Vec<ToolContent>, Failure> {
        let mode = job.place.mode();
        if mode.network() {
            return Ok(Vec::new());
        }
        let reason = format!(
            "nothing is sent to other machines in the sandbox mode {mode}; to allow it, start with --sandbox workspace-write-network"
        );
        // It is not about a file.
        Err(Failure::Blocked { path: PathBuf::new(), reason })
    }

    fn run(self: Box<Self>, job: Arc<Job>) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            let read = tokio::select! {
                biased;
                () = job.context.cancel.cancelled() => return Outcome::failed("the turn was cancelled".into()),
                read = job.session.shared.web.read(&self.url, Wish::Page) => read,
            };
            match read {
                Ok(page) => {
                    let mut told = Excerpt::default();
                    told.push(&page.text);
                    let told = format!("{}\n\n{}", page.address, told.text());
                    Outcome { text: Some(page.text), told: Some(told), ..Outcome::default() }
                }
                // Another host is another question to the person.
                Err(WebError::Elsewhere(place)) => {
                    Outcome::text(format!("it leads on to another host; fetch {place} if you need it"))
                }
                Err(error) => Outcome::failed(format!("{} was not read: {error}", self.url)),
            }
        })
    }
}
