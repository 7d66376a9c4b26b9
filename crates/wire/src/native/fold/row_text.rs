//! The words and sizes in a row's text.

use engine::{Content, Location, Origin, Stop, ToolKind};

pub(super) fn kind_word(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Read => "read",
        ToolKind::Edit => "edit",
        ToolKind::Delete => "delete",
        ToolKind::Move => "move",
        ToolKind::Search => "search",
        ToolKind::Execute => "execute",
        ToolKind::Think => "think",
        ToolKind::Fetch => "fetch",
        ToolKind::SwitchMode => "switchMode",
        ToolKind::Other => "other",
    }
}

pub(super) fn stop_word(stop: Stop) -> &'static str {
    match stop {
        Stop::EndTurn => "endTurn",
        Stop::MaxTokens => "maxTokens",
        Stop::MaxTurnRequests => "maxTurnRequests",
        Stop::Refusal => "refusal",
        Stop::Cancelled => "cancelled",
        Stop::Failed => "failed",
        Stop::Interrupted => "interrupted",
    }
}

pub(super) fn name_of(origin: &Origin) -> String {
    match origin {
        Origin::Surface { name, .. } => name.to_string(),
        Origin::Engine => "ropewalk".to_owned(),
        Origin::Agent | Origin::Task { .. } => "the agent".to_owned(),
    }
}

pub(super) fn location_text(location: &Location) -> String {
    match location.line {
        Some(line) => format!("{}:{line}", location.path.display()),
        None => location.path.display().to_string(),
    }
}

/// The text of a prompt, and the names of its attachments.
pub(super) fn prompt(content: &[Content]) -> (String, Vec<String>) {
    let (mut text, mut attached) = (String::new(), Vec::new());
    for block in content {
        match block {
            Content::Text(piece) => {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(piece);
            }
            Content::Image { mime, data, uri } => {
                attached.push(attachment_name(uri.as_deref(), mime, decoded_bytes(data)));
            }
            Content::Audio { mime, data } => attached.push(attachment_name(None, mime, decoded_bytes(data))),
            Content::Link(link) => attached.push(link.name.to_string()),
            Content::Resource { uri, text, .. } => attached.push(attachment_name(Some(uri), "", text.len())),
            Content::Binary { uri, data, .. } => {
                attached.push(attachment_name(Some(uri), "", decoded_bytes(data)))
            }
        }
    }
    (text, attached)
}

fn attachment_name(uri: Option<&str>, kind: &str, bytes: usize) -> String {
    let last = uri.and_then(|uri| uri.trim_end_matches('/').rsplit('/').next());
    format!("{}, {}", last.filter(|name| !name.is_empty()).unwrap_or(kind), size(bytes))
}

fn decoded_bytes(base64: &str) -> usize {
    base64.len() / 4 * 3
}

fn size(bytes: usize) -> String {
    if bytes < 1024 { format!("{bytes} bytes") } else { format!("{} KB", bytes.div_ceil(1024)) }
}

/// The beginning of a text, and how many bytes are missing.
pub(super) fn head(text: &str, bytes_max: usize) -> (&str, u64) {
    let end = text.floor_char_boundary(bytes_max);
    let (kept, rest) = text.split_at(end);
    (kept, rest.len() as u64)
}

/// Where the last `bytes_max` bytes of a text begin, at a character boundary.
pub(super) fn tail_start(text: &str, bytes_max: usize) -> usize {
    text.ceil_char_boundary(text.len().saturating_sub(bytes_max))
}
