//! Permission requests and questions, with everything that is needed to decide them.

use std::path::Path;

use engine::{AskId, AskRequest, SessionId, Timestamp, ToolContent};

use super::diff_view::diff_of;
use super::row_text::{head, kind_word};
use crate::native::{ASK_BYTES_MAX, ASK_LINES_MAX, AskView, QuestionView};
use crate::transcript::block_text;

/// `row` is the row of the call that the request is about.
pub fn ask_view(
    session: &SessionId,
    (ask, at): (AskId, Timestamp),
    folder: &Path,
    row: Option<u64>,
    request: &AskRequest,
) -> AskView {
    let (mut diffs, mut text, mut lines_left) = (Vec::new(), String::new(), ASK_LINES_MAX);
    for content in &request.preview {
        match content {
            ToolContent::Diff(change) => {
                let diff = diff_of(change, lines_left);
                lines_left -= diff.hunks.iter().map(|hunk| hunk.lines.len()).sum::<usize>();
                diffs.push(diff);
            }
            ToolContent::Block(block) => {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(&block_text(block));
            }
        }
    }
    let mut more = 0;
    let mut short = |text: &str| {
        let (shown, unshown) = head(text, ASK_BYTES_MAX);
        more += unshown;
        shown.to_owned()
    };
    let view = AskView {
        session: session.to_string(),
        ask: ask.0,
        at: at.0,
        row,
        tool: request.tool.to_string(),
        title: short(&request.title),
        kind: kind_word(request.kind).to_owned(),
        risk: request.risk.as_str().to_owned(),
        reason: request.reason.to_string(),
        subject: short(&request.subject),
        folder: folder.display().to_string(),
        input: short(&request.input.0),
        diffs,
        text: short(&text),
        rule: request.rule.as_deref().map(&mut short),
        question: request.question.as_ref().map(|question| QuestionView {
            text: short(&question.text),
            choices: question.choices.iter().map(ToString::to_string).collect(),
            free_text: question.free_text || question.choices.is_empty(),
        }),
        more: 0,
    };
    AskView { more, ..view }
}
