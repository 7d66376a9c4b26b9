//! The end of an agent's tool call.

use engine::{CallId, Exit, ToolEnd};

use super::content::locations;
use super::content_hashes::content;
use super::raw_json::{self, Fields, shortened_json};

const RAW_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Copy)]
pub(super) struct ToolEnding {
    failed: bool,
}

impl ToolEnding {
    /// `None` if the call continues.
    pub(super) fn of(fields: &Fields<'_>) -> Option<Self> {
        match fields.text("status").as_deref() {
            Some("completed") => Some(Self { failed: false }),
            // From a later version of the protocol, in which a call can also be cancelled.
            Some("failed" | "cancelled") => Some(Self { failed: true }),
            _ => None,
        }
    }

    pub(super) fn end(self, call: CallId, fields: &Fields<'_>, elapsed_ms: u64) -> ToolEnd {
        ToolEnd {
            failed: self.failed,
            content: content(fields),
            locations: locations(fields).unwrap_or_default(),
            raw: fields.get("rawOutput").map(|output| shortened_json(output, RAW_BYTES_MAX)),
            exit: exit(fields),
            elapsed_ms,
            ..ToolEnd::of(call)
        }
    }
}

/// A command's exit status, from any of the places where agents put it.
fn exit(fields: &Fields<'_>) -> Option<Exit> {
    let told = fields.object("_meta").and_then(|meta| meta.object("terminal_exit"));
    let told = told.or_else(|| fields.object("rawOutput"))?;
    let code = told.number("exit_code").or_else(|| told.number("exitCode"));
    let signal = told.get("signal").and_then(|signal| match raw_json::text(signal) {
        Some((name, _)) => Some(name),
        None => told.number::<u32>("signal").map(|number| number.to_string()),
    });
    let signal = signal.filter(|name| !name.is_empty() && name.len() <= 64).map(Into::into);
    (code.is_some() || signal.is_some()).then_some(Exit { code, signal })
}
