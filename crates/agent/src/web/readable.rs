//! From HTML to text that reads well: headings, lists, links and code in Markdown, the rest as it is.
//!
//! One pass over the text and no tree: whoever wrote the page may have nested it a million deep, and a
//! page that is broken still has words. What is not meant to be read (scripts, styles) is left out.

use std::borrow::Cow;

/// Elements whose content nobody reads.
const UNREAD: [&str; 8] = ["script", "style", "noscript", "template", "svg", "iframe", "object", "head"];
/// Elements that stand on lines of their own.
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
/// A tag that is longer is none.
const TAG_BYTES_MAX: usize = 16 << 10;
/// The address of a link that is longer is left out.
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
            Next::Comment(after) => after,
            Next::Tag(tag, after) if !tag.closes && UNREAD.contains(&tag.name.as_ref()) => {
                after_end_of(after, &tag.name)
            }
            Next::Tag(tag, after) => {
                page.tag(&tag);
                after
            }
            Next::Text => {
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

/// Where this text is, in letters of either kind.
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

enum Next<'a> {
    Tag(Tag<'a>, &'a str),
    /// Nothing to read, and what comes after it.
    Comment(&'a str),
    /// A `<` that begins nothing.
    Text,
}

impl<'a> Tag<'a> {
    /// Reads what begins with `<`.
    fn read(html: &'a str) -> Next<'a> {
        if let Some(comment) = html.strip_prefix("<!--") {
            return Next::Comment(comment.find("-->").map_or("", |end| &comment[end + 3..]));
        }
        let closes = html.starts_with("</");
        let inner = &html[if closes { 2 } else { 1 }..];
        match inner.chars().next() {
            Some('!' | '?') => return Next::Comment(inner.find('>').map_or("", |end| &inner[end + 1..])),
            Some(first) if first.is_ascii_alphabetic() => {}
            _ => return Next::Text,
        }
        let Some(end) = end_of_tag(inner) else { return Next::Text };
        let name_end = inner[..end].find(|c: char| c.is_whitespace() || c == '/').unwrap_or(end);
        let tag = Tag {
            name: inner[..name_end].to_ascii_lowercase().into(),
            closes,
            attributes: &inner[name_end..end],
        };
        Next::Tag(tag, &inner[end + 1..])
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

/// Where a tag ends. A `>` within quotes does not end it; another `<` says that it never was one, which
/// also keeps a page of nothing but beginnings from being read again and again.
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
    // A quote that was never meant as one.
    let end = text.bytes().take(TAG_BYTES_MAX).position(|byte| matches!(byte, b'>' | b'<'))?;
    (text.as_bytes()[end] == b'>').then_some(end)
}

#[derive(Default)]
struct Writer {
    out: String,
    /// Ends of lines that are due before the next word.
    breaks: usize,
    blank: bool,
    preformatted: usize,
    /// The address of the link that is open, and where its text begins.
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
            self.pay();
            self.out.push_str(&text);
            return;
        }
        for c in text.chars() {
            if c.is_whitespace() {
                self.blank = true;
            } else {
                self.pay();
                self.out.push(c);
            }
        }
    }

    /// Writes the breaks or the blank that is due.
    fn pay(&mut self) {
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
        self.pay();
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
                self.pay();
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
