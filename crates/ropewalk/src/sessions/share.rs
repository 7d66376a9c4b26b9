//! `sessions share`: a session, as it would be exported, sent to an address that its owner names.

use std::sync::Arc;

use access::upload::{Upload, UploadTarget};
use engine::Registry;
use serde_json::json;
use wire::document::WHOLE_BYTES_MAX;

use super::{export, find};
use crate::cli::{ExportFormat, ShareOptions};
use crate::config::variable;
use crate::terminal;
use crate::trouble::Trouble;

pub async fn run(registry: &Arc<Registry>, options: &ShareOptions) -> Result<(), Trouble> {
    let target = target(options)?;
    let row = find::one(registry, &options.id).await?;
    let id = row.id.clone();
    let body = export::whole(registry, row, options.format, WHOLE_BYTES_MAX).await?;
    let Some(body) = body else {
        return Err(Trouble::failed("the session is too long to be sent in one piece")
            .because(format!("it is more than {} MiB", WHOLE_BYTES_MAX >> 20))
            .fix("ropewalk sessions export ID -o FILE, and send the file"));
    };
    let upload = Upload {
        put: options.put,
        token: variable("ROPEWALK_SHARE_TOKEN").or_else(|| variable("OTTER_SHARE_TOKEN")),
        content_type: match options.format {
            ExportFormat::Html => "text/html; charset=utf-8",
            ExportFormat::Markdown => "text/markdown; charset=utf-8",
            ExportFormat::Json | ExportFormat::Chimera => "application/json",
        },
        body: body.into_bytes(),
    };
    let sent = target.send(upload).await;
    let url = sent.map_err(|error| Trouble::failed("the session was not shared").because(error))?;
    if options.json {
        return terminal::put_json(&json!({ "session_id": id.as_str(), "url": url }));
    }
    terminal::put(&format!("{}\n", terminal::harmless(&url)))
}

fn target(options: &ShareOptions) -> Result<UploadTarget, Trouble> {
    let named = options.to.clone().or_else(|| variable("ROPEWALK_SHARE_URL"));
    let named = named.or_else(|| variable("OTTER_SHARE_URL")).ok_or_else(|| {
        Trouble::usage("no address to share the session at").fix("pass --to URL, or set OTTER_SHARE_URL")
    })?;
    UploadTarget::parse(&named).map_err(|error| {
        Trouble::usage("the session cannot be sent to this address")
            .because(error)
            .fix("an address that begins with https://")
    })
}
