//! `sessions share`: uploads an export of a session to a URL.

use std::sync::Arc;

use access::document_upload::{DocumentUpload, UploadTarget};
use engine::Registry;
use serde_json::json;
use wire::session_export_writer::WHOLE_BYTES_MAX;

use super::{export, find};
use crate::cli::{ExportFormat, ShareOptions};
use crate::cli_error::CliError;
use crate::config::variable;
use crate::output;

pub async fn run(registry: &Arc<Registry>, options: &ShareOptions) -> Result<(), CliError> {
    let target = target(options)?;
    let row = find::one(registry, &options.id).await?;
    let id = row.id.clone();
    let body = export::whole(registry, row, options.format, WHOLE_BYTES_MAX).await?;
    let Some(body) = body else {
        return Err(CliError::failed("the session is too large to share")
            .because(format!("the limit is {} MiB", WHOLE_BYTES_MAX >> 20))
            .fix("export it with `ropewalk sessions export ID -o FILE` and send the file"));
    };
    let upload = DocumentUpload {
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
    let url = sent.map_err(|error| CliError::failed("could not share the session").because(error))?;
    if options.json {
        return output::put_json(&json!({ "session_id": id.as_str(), "url": url }));
    }
    output::put(&format!("{}\n", output::harmless(&url)))
}

fn target(options: &ShareOptions) -> Result<UploadTarget, CliError> {
    let named = options.to.clone().or_else(|| variable("ROPEWALK_SHARE_URL"));
    let named = named.or_else(|| variable("OTTER_SHARE_URL")).ok_or_else(|| {
        CliError::usage("no URL to share the session at").fix("pass --to URL, or set ROPEWALK_SHARE_URL")
    })?;
    UploadTarget::parse(&named).map_err(|error| {
        CliError::usage("invalid URL for sharing").because(error).fix("use a URL that starts with https://")
    })
}
