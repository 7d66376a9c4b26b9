//! The result of a server's tool, as people and the model get it.
//!
//! All of it was written by the server: nothing is trusted, everything is bounded.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use crate::model::Image;
use crate::tools::ToolOutcome;

/// The model gets the beginning and the end of a long text.
const HEAD_BYTES_MAX: usize = 20 << 10;
const TAIL_BYTES_MAX: usize = 12 << 10;
/// The part of the text that is logged.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// In base64, together.
const IMAGES_BYTES_MAX: usize = 8 << 20;
const IMAGE_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

pub(super) fn outcome(result: CallToolResult) -> ToolOutcome {
    let mut parts = ResultParts::default();
    for block in result.content {
        parts.block(block);
    }
    // Servers should also send this as text; if one does not, this is used.
    if let Some(structured) = result.structured_content.filter(|_| parts.texts.is_empty()) {
        parts.texts.push(structured.to_string());
    }
    if parts.texts.is_empty() && parts.images.is_empty() {
        parts.texts.push("(nothing)".into());
    }
    let text = parts.texts.join("\n");
    let failed = result.is_error == Some(true);
    let model_text = (text.len() > HEAD_BYTES_MAX + TAIL_BYTES_MAX)
        .then(|| head_and_tail(&text, HEAD_BYTES_MAX, TAIL_BYTES_MAX));
    let kept = if text.len() > TEXT_BYTES_MAX { head_and_tail(&text, TEXT_BYTES_MAX, 0) } else { text };
    ToolOutcome {
        failed,
        text: Some(kept).filter(|text| !text.is_empty()),
        model_text,
        images: parts.images,
        ..ToolOutcome::default()
    }
}

#[derive(Default)]
struct ResultParts {
    texts: Vec<String>,
    images: Vec<Image>,
    image_bytes: usize,
}

impl ResultParts {
    fn block(&mut self, block: ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.texts.push(text.text),
            ContentBlock::Image(image) => self.image(image.mime_type, image.data),
            ContentBlock::Audio(audio) => {
                self.texts.push(format!("[sound of type {} left out]", excerpt(&audio.mime_type)));
            }
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents { uri, text, .. } => {
                    self.texts.push(format!("[{}]\n{text}", excerpt(&uri)));
                }
                ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => match mime_type {
                    Some(mime) if IMAGE_TYPES.contains(&mime.as_str()) => self.image(mime, blob),
                    _ => self.texts.push(format!(
                        "[{}: {} bytes in base64 left out]",
                        excerpt(&uri),
                        blob.len()
                    )),
                },
                _ => self.texts.push("[a resource of an unknown kind left out]".into()),
            },
            ContentBlock::ResourceLink(link) => {
                let said = link.description.as_deref().map(|text| format!(": {}", excerpt(text)));
                self.texts.push(format!(
                    "[link {} {}{}]",
                    excerpt(&link.name),
                    excerpt(&link.uri),
                    said.unwrap_or_default()
                ));
            }
            _ => self.texts.push("[content of an unknown kind left out]".into()),
        }
    }

    fn image(&mut self, mime: String, data: String) {
        let known = IMAGE_TYPES.contains(&mime.as_str());
        let base64 = data.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        if !known || !base64 || data.is_empty() || self.image_bytes + data.len() > IMAGES_BYTES_MAX {
            self.texts.push(format!("[image of type {} left out: too large or not usable]", excerpt(&mime)));
            return;
        }
        self.image_bytes += data.len();
        self.images.push(Image { mime: mime.into(), data: data.into() });
    }
}

/// The beginning and the end of a text, with the number of bytes left out.
fn head_and_tail(text: &str, head: usize, tail: usize) -> String {
    let head = &text[..text.floor_char_boundary(head)];
    let tail = &text[text.ceil_char_boundary(text.len() - tail)..];
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}\n[{left_out} bytes left out]\n{tail}")
}

fn excerpt(text: &str) -> String {
    super::one_line_excerpt(text, 300)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(result: Value) -> (bool, String, Option<String>, Vec<String>) {
        let outcome = outcome(serde_json::from_value(result).unwrap());
        let images = outcome.images.iter().map(|image| format!("{} {}", image.mime, image.data)).collect();
        (outcome.failed, outcome.text.unwrap_or_default(), outcome.model_text, images)
    }

    #[test]
    fn every_kind_of_content_is_shown_or_named() {
        let (failed, text, told, images) = check(json!({ "isError": true, "content": [
            { "type": "text", "text": "one" },
            { "type": "image", "mimeType": "image/png", "data": "AAAA" },
            { "type": "image", "mimeType": "image/tiff", "data": "AAAA" },
            { "type": "image", "mimeType": "image/png", "data": "<no base64>" },
            { "type": "audio", "mimeType": "audio/wav", "data": "AAAA" },
            { "type": "resource", "resource": { "uri": "file:///a", "text": "inside" } },
            { "type": "resource", "resource": { "uri": "file:///b", "blob": "AAAA" } },
            { "type": "resource", "resource": { "uri": "file:///c", "mimeType": "image/gif", "blob": "BBBB" } },
            { "type": "resource_link", "name": "n\u{1b}[31m", "uri": "file:///d", "description": "what" },
        ] }));
        assert!(failed && told.is_none());
        expect_test::expect![[r#"
            one
            [image of type image/tiff left out: too large or not usable]
            [image of type image/png left out: too large or not usable]
            [sound of type audio/wav left out]
            [file:///a]
            inside
            [file:///b: 4 bytes in base64 left out]
            [link n[31m file:///d: what]"#]]
        .assert_eq(&text);
        assert_eq!(images, ["image/png AAAA", "image/gif BBBB"]);
    }

    #[test]
    fn structured_content_is_told_where_there_are_no_words() {
        assert_eq!(check(json!({ "structuredContent": { "a": 1 } })).1, r#"{"a":1}"#);
        let both =
            json!({ "content": [{ "type": "text", "text": "a is 1" }], "structuredContent": { "a": 1 } });
        assert_eq!(check(both).1, "a is 1");
        assert_eq!(check(json!({ "content": [] })).1, "(nothing)");
    }

    #[test]
    fn the_model_is_told_the_ends_of_a_long_text_and_the_log_has_it_whole() {
        let long = format!("begin{}end", "ä".repeat(50_000));
        let (_, text, told, _) = check(json!({ "content": [{ "type": "text", "text": long }] }));
        assert_eq!(text, long);
        let told = told.unwrap();
        assert!(
            told.len() < 33 << 10 && told.starts_with("begin") && told.ends_with("end"),
            "{}",
            told.len()
        );
        let huge = "x".repeat(3 << 20);
        let (_, text, _, _) = check(json!({ "content": [{ "type": "text", "text": huge }] }));
        assert!(text.len() < TEXT_BYTES_MAX + 100);
    }
}
