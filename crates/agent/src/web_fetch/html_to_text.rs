//! Converts HTML to readable text: headings, lists, links and code as Markdown, the rest as plain text.
//!
//! One pass over the text, without a tree: a page may be nested a million levels deep, and a broken page
//! still has text. Content that is not meant to be read (scripts, styles) is left out.

use std::borrow::Cow;

/// Elements whose content is not text to read.
const UNREAD: [&str; 8] = ["script", "style", "noscript", "template", "svg", "iframe", "object", "head"];
/// Block elements, which start on a new line.
const BLOCKS: [&str; 26] = [
    "p",
    "div",
    "section",
    "article",
    "header",
    "footer",
    "main",
    "nav",
    "aside",
    "ul",
    "ol",
    "dl",
    "dt",
    "dd",
    "table",
    "tr",
    "form",
    "fieldset",
    "figure",
    "figcaption",
    "blockquote",
    "address",
    "details",
    "summary",
    "hr",
    "body",
];
/// A longer tag is treated as text.
const TAG_BYTES_MAX: usize = 16 << 10;
/// A longer link address is left out.
const HREF_BYTES_MAX: usize = 2 << 10;
const ENTITIES: [(&str, &str); 22] = [
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", " "),
    ("copy", "©"),
    ("reg", "®"),
    ("trade", "™"),
    ("hellip", "…"),
    ("mdash", "—"),
    ("ndash", "–"),
    ("lsquo", "‘"),
    ("rsquo", "’"),
    ("ldquo", "“"),
    ("rdquo", "”"),
    ("bull", "•"),
    ("middot", "·"),
    ("laquo", "«"),
    ("raquo", "»"),
    ("times", "×"),
    ("rarr", "→"),
];
const ENTITY_BYTES_MAX: usize = 10;

pub(super) fn text(html: &str) -> String {
    let mut page = Writer::default();
    if let Some(title) = title(html) {
        page.block(1);
        page.out.push_str(&format!("# {title}"));
        page.block(2);
    }
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        page.words(&rest[..at]);
        rest = &rest[at..];
        rest = match Tag::read(rest) {
            Markup::Comment(after) => after,
            Markup::Tag(tag, after) if !tag.closes && UNREAD.contains(&tag.name.as_ref()) => {
                after_end_of(after, &tag.name)
            }
            Markup::Tag(tag, after) => {
                page.tag(&tag);
                after
            }
            Markup::Text => {
                page.words("<");
                &rest[1..]
            }
        };
    }
    page.words(rest);
    page.finish()
}

fn title(html: &str) -> Option<String> {
    let start = find_tag(html, "<title")?;
    let after = &html[start + html[start..].find('>')? + 1..];
    let title = decode(&after[..after.find('<')?]).split_whitespace().collect::<Vec<_>>().join(" ");
    (!title.is_empty()).then_some(title)
}

/// The position of a tag, ignoring case.
fn find_tag(html: &str, tag: &str) -> Option<usize> {
    let same = |at: &usize| {
        html.as_bytes()
            .get(*at..at + tag.len())
            .is_some_and(|bytes| bytes.eq_ignore_ascii_case(tag.as_bytes()))
    };
    html.match_indices('<').map(|(at, _)| at).find(same)
}

fn after_end_of<'a>(html: &'a str, name: &str) -> &'a str {
    let Some(at) = find_tag(html, &format!("</{name}")) else { return "" };
    html[at..].find('>').map_or("", |end| &html[at + end + 1..])
}

struct Tag<'a> {
    name: Cow<'a, str>,
    closes: bool,
    attributes: &'a str,
}

enum Markup<'a> {
    Tag(Tag<'a>, &'a str),
    /// A comment, with the text after it.
    Comment(&'a str),
    /// A `<` that does not start a tag.
    Text,
}

impl<'a> Tag<'a> {
    /// Parses markup that starts with `<`.
    fn read(html: &'a str) -> Markup<'a> {
        if let Some(comment) = html.strip_prefix("<!--") {
            return Markup::Comment(comment.find("-->").map_or("", |end| &comment[end + 3..]));
        }
        let closes = html.starts_with("</");
        let inner = &html[if closes { 2 } else { 1 }..];
        match inner.chars().next() {
            Some('!' | '?') => return Markup::Comment(inner.find('>').map_or("", |end| &inner[end + 1..])),
            Some(first) if first.is_ascii_alphabetic() => {}
            _ => return Markup::Text,
        }
        let Some(end) = end_of_tag(inner) else { return Markup::Text };
        let name_end = inner[..end].find(|c: char| c.is_whitespace() || c == '/').unwrap_or(end);
        let tag = Tag {
            name: inner[..name_end].to_ascii_lowercase().into(),
            closes,
            attributes: &inner[name_end..end],
        };
        Markup::Tag(tag, &inner[end + 1..])
    }

    fn attribute(&self, name: &str) -> Option<String> {
        let mut rest = self.attributes;
        while let Some(at) = rest.find(name) {
            let bounded = at > 0 && rest.as_bytes()[at - 1].is_ascii_whitespace();
            rest = rest[at + name.len()..].trim_start();
            let Some(value) = rest.strip_prefix('=').filter(|_| bounded) else { continue };
            let value = value.trim_start();
            let value = match value.chars().next() {
                Some(quote @ ('"' | '\'')) => value[1..].split(quote).next(),
                _ => value.split_whitespace().next(),
            };
            return value.map(|value| decode(value).trim().to_owned());
        }
        None
    }
}

/// The end of a tag. A `>` within quotes does not end it. Another `<` means that it is not a tag; that also
/// keeps parsing linear for a page with nothing but tag starts.
fn end_of_tag(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate().take(TAG_BYTES_MAX) {
        match (quote, byte) {
            (None, b'>') => return Some(at),
            (None, b'<') => return None,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    // An unbalanced quote.
    let end = text.bytes().take(TAG_BYTES_MAX).position(|byte| matches!(byte, b'>' | b'<'))?;
    (text.as_bytes()[end] == b'>').then_some(end)
}

#[derive(Default)]
struct Writer {
    out: String,
    /// Line breaks to write before the next word.
    breaks: usize,
    blank: bool,
    preformatted: usize,
    /// The address of the open link, and the position where its text begins.
    link: Option<(String, usize)>,
}

impl Writer {
    fn block(&mut self, breaks: usize) {
        self.breaks = self.breaks.max(breaks);
        self.blank = false;
    }

    fn words(&mut self, html: &str) {
        let text = decode(html);
        if self.preformatted > 0 {
            self.write_due();
            self.out.push_str(&text);
            return;
        }
        for c in text.chars() {
            if c.is_whitespace() {
                self.blank = true;
            } else {
                self.write_due();
                self.out.push(c);
            }
        }
    }

    /// Writes the pending line breaks or blank.
    fn write_due(&mut self) {
        let (breaks, blank) = (std::mem::take(&mut self.breaks), std::mem::take(&mut self.blank));
        if self.out.is_empty() || self.out.ends_with("- ") {
            return;
        }
        match breaks {
            0 if blank && !self.out.ends_with(char::is_whitespace) => self.out.push(' '),
            0 => {}
            breaks => {
                let there = self.out.len() - self.out.trim_end_matches('\n').len();
                self.out.extend(std::iter::repeat_n('\n', breaks.saturating_sub(there)));
            }
        }
    }

    fn mark(&mut self, mark: &str) {
        self.write_due();
        self.out.push_str(mark);
    }

    fn tag(&mut self, tag: &Tag<'_>) {
        match (tag.name.as_ref(), tag.closes) {
            ("br", _) => self.block(1),
            ("h1" | "h2" | "h3" | "h4" | "h5" | "h6", false) => {
                self.block(2);
                let level = tag.name.as_bytes().last().map_or(1, |digit| usize::from(digit - b'0'));
                self.mark(&format!("{} ", "#".repeat(level)));
            }
            ("h1" | "h2" | "h3" | "h4" | "h5" | "h6", true) => self.block(2),
            ("li", false) => {
                self.block(1);
                self.mark("- ");
            }
            ("li", true) => self.block(1),
            ("pre", false) => {
                self.block(2);
                self.mark("```\n");
                self.preformatted += 1;
            }
            ("pre", true) if self.preformatted > 0 => {
                self.preformatted -= 1;
                self.block(1);
                self.mark("```");
                self.block(2);
            }
            ("code" | "kbd", _) if self.preformatted == 0 => self.mark("`"),
            ("td" | "th", true) => self.mark(" | "),
            ("a", false) => {
                self.write_due();
                self.link = tag.attribute("href").map(|href| (href, self.out.len()));
            }
            ("a", true) => self.end_link(),
            ("img", false) => {
                if let Some(alt) = tag.attribute("alt").filter(|alt| !alt.is_empty()) {
                    self.mark(&format!("[{alt}]"));
                }
            }
            ("p", _) => self.block(2),
            (name, _) if BLOCKS.contains(&name) => self.block(1),
            _ => {}
        }
    }

    fn end_link(&mut self) {
        let Some((href, from)) = self.link.take() else { return };
        let leads = ["http://", "https://", "/"].iter().any(|start| href.starts_with(start));
        let said = self.out.get(from..).is_some_and(|text| !text.trim().is_empty() && text != href);
        if leads && said && href.len() <= HREF_BYTES_MAX {
            self.out.push_str(&format!(" ({href})"));
        }
    }

    fn finish(self) -> String {
        let mut text: String = self.out.trim().to_owned();
        text.push('\n');
        text
    }
}

fn decode(html: &str) -> String {
    let mut text = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(at) = rest.find('&') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let end = rest.bytes().take(ENTITY_BYTES_MAX).position(|byte| byte == b';');
        match end.and_then(|end| entity(&rest[..end]).map(|known| (known, end))) {
            Some((known, end)) => {
                text.push_str(&known);
                rest = &rest[end + 1..];
            }
            None => text.push('&'),
        }
    }
    text.push_str(rest);
    text
}

fn entity(name: &str) -> Option<String> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(code).filter(|c| !c.is_control() || c.is_whitespace()).map(String::from);
    }
    ENTITIES.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_page_reads_as_text() {
        let page = "<!DOCTYPE html><html><head><title>A &amp; B</title><style>p{}</style></head><body>\
            <script>if (a < b) { alert('</p>') }</script><h2>Head   line</h2><p>One\n two <b>three</b>.<br>Four \
            <a href=\"https://x.example/?a=1&amp;b=2\" title='>'>link</a>, <a href='#top'>up</a></p>\
            <ul><li>first<li><p>second</p></li></ul><pre>let x\n  = 1 &lt; 2;\n</pre>\
            <table><tr><td>a</td><td>b</td></tr></table><!-- no <p> --><img alt=\"a picture\" src=x>end</body>";
        expect![[r#"
            # A & B

            ## Head line

            One two three.
            Four link (https://x.example/?a=1&b=2), up

            - first
            - second

            ```
            let x
              = 1 < 2;
            ```

            a | b | 
            [a picture]end
        "#]]
        .assert_eq(&text(page));
    }

    #[test]
    fn whatever_is_broken_has_an_end_and_keeps_its_words() {
        for (html, expected) in [
            ("", "\n"),
            (
                "no tags & none &amp; nothing &#65;&#x42;&#0;&#xD800;&nope;",
                "no tags & none & nothing AB&#0;&#xD800;&nope;\n",
            ),
            ("a < b and <3", "a < b and <3\n"),
            ("<p>open <b>and <i>never", "open and never\n"),
            ("x<script>never ends", "x\n"),
            ("x<!-- never ends", "x\n"),
            ("<a href='quote>text</a> more", "text more\n"),
            ("<", "<\n"),
            ("ü<ü>ü</", "ü<ü>ü</\n"),
            ("&&&&amp", "&&&&amp\n"),
        ] {
            assert_eq!(text(html), expected, "{html:?}");
        }
    }

    #[test]
    fn hostile_pages_take_time_that_grows_with_their_size_only() {
        for part in ["<div>", "<pre>", "<a href=x>", "<", "&", "<a '", "</p", "<script", "<li><ul>"] {
            let html = part.repeat((128 << 10) / part.len());
            assert!(text(&html).len() <= 2 * html.len() + 64, "{part}");
        }
    }
}
