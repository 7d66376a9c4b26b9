use std::time::{Duration, Instant};

use expect_test::{Expect, expect};
use proptest::prelude::*;
use ratatui_core::style::Modifier;

use super::*;

const THEME: Theme = Theme { colour: true };

fn render(text: &str, width: usize) -> Vec<Line<'static>> {
    let mut markdown = Markdown::new(width, THEME, Style::new());
    markdown.grow(text);
    markdown.lines()
}

fn check(text: &str, width: usize, expected: &Expect) {
    let lines: Vec<String> = render(text, width).iter().map(|line| format!("{line}\n")).collect();
    expected.assert_eq(&lines.concat());
}

#[test]
fn blocks_are_set_as_they_are_meant() {
    check(
        "# Title #\nSome **bold** and *italic*, `code`, ~~no~~.\n\n\n- one\n  - [x] two is longer than the line\n1. three\n\n> said\n\n```rust\nfn a() {}\n\n    let b;\n```\n---\nafter",
        24,
        &expect![[r#"
            Title
            Some bold and italic,
            code, no.

            • one
              ☑ two is longer than
                the line
            1. three

            ▏ said

              rust
            │ fn a() {}
            │ 
            │     let b;
            ────────────────────────
            after
        "#]],
    );
}

#[test]
fn a_link_always_shows_where_it_leads() {
    check(
        "[bank](https://evil.example) <https://a.b> https://c.d/e. ![x](y.png) [a](a) a*b*c 2 * 3 * 4 snake_case_word",
        200,
        &expect![[r#"
            bank (https://evil.example) https://a.b https://c.d/e. x (y.png) a abc 2 * 3 * 4 snake_case_word
        "#]],
    );
}

#[test]
fn tables_have_columns_or_are_stacked() {
    let table = "| file | lines |\n|---|--:|\n| `a.rs` | 12 |\n| long/name.rs | 3 |\nend";
    check(
        table,
        40,
        &expect![[r#"
            file          lines
            ────────────  ─────
            a.rs          12
            long/name.rs  3
            end
        "#]],
    );
    check(
        table,
        14,
        &expect![[r#"
            • file: a.rs
              lines: 12
            • file:
              long/name.rs
              lines: 3
            end
        "#]],
    );
}

#[test]
fn styles_reach_their_words_only() {
    let lines = render("a **b *c* d** e", 40);
    let of = |text: &str| lines[0].spans.iter().find(|span| span.content == text).unwrap().style.add_modifier;
    assert_eq!(of("b "), Modifier::BOLD);
    assert_eq!(of("c"), Modifier::BOLD | Modifier::ITALIC);
    assert_eq!(of(" e"), Modifier::empty());
}

#[test]
fn a_line_of_nothing_but_marks_is_read_in_no_time() {
    let began = Instant::now();
    for mark in ["*", "**a", "[", "`", "_", "[](", "|", "<", "~~x "] {
        render(&mark.repeat(5_000), 80);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

proptest! {
    #[test]
    fn pieces_give_the_same_lines_as_the_whole(
        text in "[a-c*_`#|>\\[\\]()~ \n-]{0,120}",
        cuts in proptest::collection::vec(0usize..120, 0..6),
    ) {
        let mut markdown = Markdown::new(20, THEME, Style::new());
        let mut ends: Vec<usize> = cuts.into_iter().filter(|cut| *cut < text.len()).collect();
        ends.sort_unstable();
        ends.push(text.len());
        for end in ends {
            markdown.grow(&text[..end]);
            markdown.lines();
        }
        prop_assert_eq!(markdown.lines(), render(&text, 20));
    }

    #[test]
    fn any_text_can_be_set(text in any::<String>(), width in 0usize..60) {
        for line in render(&text, width) {
            prop_assert!(!line.to_string().chars().any(crate::sanitize::is_harmful));
        }
    }
}
