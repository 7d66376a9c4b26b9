//! The subset of Markdown that agents write, as HTML: headings, lists, code, emphasis.
//!
//! Everything else stays text. There are no links and no raw HTML: a file that the agent read may have told
//! it to write something to click on.

use super::{escape, strip_ansi};

pub(super) fn render(text: &str) -> String {
    // Before the text is split, which could split a sequence, too.
    let text = strip_ansi::strip(text);
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(fence) = fence_of(line) {
            let code = lines.by_ref().take_while(|line| !closes(line, fence));
            let code: Vec<_> = code.collect();
            out.push_str(&format!("<pre>{}</pre>\n", escape(&code.join("\n"))));
        } else if let Some(heading) = heading_of(line) {
            out.push_str(&format!("<h3>{}</h3>\n", inline(heading)));
        } else if let Some(first) = item_of(line) {
            let mut items = vec![first.to_owned()];
            while let Some(next) = lines.next_if(|next| item_of(next).is_some() || next.starts_with("  ")) {
                match (item_of(next), items.last_mut()) {
                    (Some(item), _) => items.push(item.to_owned()),
                    (None, Some(item)) => item.push_str(&format!("\n{}", next.trim())),
                    (None, None) => {}
                }
            }
            let items: String = items.iter().map(|item| format!("<li>{}</li>", inline(item))).collect();
            out.push_str(&format!("<ul>{items}</ul>\n"));
        } else if !line.trim().is_empty() {
            let mut paragraph = line.to_owned();
            while let Some(next) = lines.next_if(|next| continues(next)) {
                paragraph.push('\n');
                paragraph.push_str(next);
            }
            out.push_str(&format!("<p>{}</p>\n", inline(&paragraph).replace('\n', "<br>\n")));
        }
    }
    out
}

fn continues(line: &str) -> bool {
    !line.trim().is_empty()
        && fence_of(line).is_none()
        && heading_of(line).is_none()
        && item_of(line).is_none()
}

/// The number of backticks that open a code block here.
fn fence_of(line: &str) -> Option<usize> {
    let line = line.trim_start();
    let marks = line.len() - line.trim_start_matches('`').len();
    (marks >= 3 && !line[marks..].contains('`')).then_some(marks)
}

fn closes(line: &str, fence: usize) -> bool {
    let line = line.trim();
    line.len() >= fence && line.bytes().all(|byte| byte == b'`')
}

fn heading_of(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    if (1..=6).contains(&level) { rest.strip_prefix(' ') } else { None }
}

fn item_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let bullet = line.strip_prefix("- ").or_else(|| line.strip_prefix("* "));
    bullet.or_else(|| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() == line.len() { None } else { rest.strip_prefix(". ") }
    })
}

/// Code and bold text within a line.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (at, part) in text.split('`').enumerate() {
        let closed = text.matches('`').count() > at;
        match (at % 2, closed) {
            (1, true) => out.push_str(&format!("<code>{}</code>", escape(part))),
            (1, false) => out.push_str(&format!("`{}", bold(part))),
            _ => out.push_str(&bold(part)),
        }
    }
    out
}

fn bold(text: &str) -> String {
    let pieces: Vec<_> = text.split("**").collect();
    let mut out = String::new();
    for (at, piece) in pieces.iter().enumerate() {
        let last = at + 1 == pieces.len();
        match at % 2 {
            1 if !last => out.push_str(&format!("<strong>{}</strong>", escape(piece))),
            1 => out.push_str(&format!("**{}", escape(piece))),
            _ => out.push_str(&escape(piece)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expected: &Expect) {
        expected.assert_eq(&render(text));
    }

    #[test]
    fn what_agents_write_is_laid_out() {
        check(
            "## Done\nI changed `a < b` and **this**.\nSecond line.\n\n- one\n  more\n- two\n\n1. first\n\n```rust\nfn <T>() {}\n```\nend",
            &expect![[r#"
                <h3>Done</h3>
                <p>I changed <code>a &lt; b</code> and <strong>this</strong>.<br>
                Second line.</p>
                <ul><li>one
                more</li><li>two</li></ul>
                <ul><li>first</li></ul>
                <pre>fn &lt;T&gt;() {}</pre>
                <p>end</p>
            "#]],
        );
    }

    #[test]
    fn what_a_terminal_would_obey_is_left_out() {
        check(
            "\x1b[1m## Done\x1b[0m \x1b]0;`a`\x07**b**",
            &expect![[r#"
            <h3>Done <strong>b</strong></h3>
        "#]],
        );
    }

    #[test]
    fn what_is_not_understood_stays_text() {
        check(
            "<script>alert(1)</script> [x](javascript:1) 2 ** 3 and ` open",
            &expect![[r#"
                <p>&lt;script&gt;alert(1)&lt;/script&gt; [x](javascript:1) 2 ** 3 and ` open</p>
            "#]],
        );
    }
}
