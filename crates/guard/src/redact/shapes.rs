//! The marks that secrets are known by, and the shapes of those that carry their mark themselves.

use super::keyed::{Key, is_placeholder};
use super::look::{Look, Verdict};

/// The longest run that is one secret: a cloud's session tokens have more than a thousand characters.
pub(super) const VALUE_BYTES_MAX: usize = 4096;
/// A private key of the largest usual size, written out, has a quarter of this.
const KEY_BLOCK_BYTES_MAX: usize = 16 << 10;
/// Between the first line of a private key and its second.
const GAP_BYTES_MAX: usize = 16;
const JWT_PART_BYTES_MAX: usize = 2048;
/// Longer names before the password of an address are looked at no further.
const USER_BYTES_MAX: usize = 64;
/// What is left of a token that a title or a listing cut short, from where it is still worth hiding.
const CUT_BYTES_MIN: usize = 4;

#[derive(Debug, Clone, Copy)]
pub(super) enum Mark {
    Shape(&'static Shape),
    /// A name that a value is given to.
    Key(Key),
    Bearer,
    Basic,
    Address,
    Jwt,
    PrivateKey,
}

/// Marks are found in any case of letters; of two that start together only the longer one.
pub(super) const MARKS: &[(&str, Mark)] = &[
    ("sk-", Mark::Shape(&MODEL_KEY)),
    ("sk-ant-", Mark::Shape(&NAMED_MODEL_KEY)),
    ("sk-proj-", Mark::Shape(&NAMED_MODEL_KEY)),
    ("sk-or-v1-", Mark::Shape(&NAMED_MODEL_KEY)),
    ("sk_live_", Mark::Shape(&LONG)),
    ("sk_test_", Mark::Shape(&LONG)),
    ("rk_live_", Mark::Shape(&LONG)),
    ("rk_test_", Mark::Shape(&LONG)),
    ("whsec_", Mark::Shape(&LONG)),
    ("AIza", Mark::Shape(&GOOGLE)),
    ("ghp_", Mark::Shape(&LONG)),
    ("gho_", Mark::Shape(&LONG)),
    ("ghu_", Mark::Shape(&LONG)),
    ("ghs_", Mark::Shape(&LONG)),
    ("ghr_", Mark::Shape(&LONG)),
    ("github_pat_", Mark::Shape(&LONG_WITH_MARKS)),
    ("glpat-", Mark::Shape(&LONG_WITH_MARKS)),
    ("AKIA", Mark::Shape(&CLOUD_ID)),
    ("ASIA", Mark::Shape(&CLOUD_ID)),
    ("xoxa-", Mark::Shape(&CHAT)),
    ("xoxb-", Mark::Shape(&CHAT)),
    ("xoxp-", Mark::Shape(&CHAT)),
    ("xoxr-", Mark::Shape(&CHAT)),
    ("xoxs-", Mark::Shape(&CHAT)),
    ("npm_", Mark::Shape(&PACKAGE)),
    ("hf_", Mark::Shape(&PACKAGE)),
    ("hooks.slack.com/services/", Mark::Shape(&HOOK)),
    ("password", Mark::Key(Key::Password)),
    ("passwd", Mark::Key(Key::Password)),
    ("passphrase", Mark::Key(Key::Password)),
    ("secret", Mark::Key(Key::Token)),
    ("token", Mark::Key(Key::Token)),
    ("api_key", Mark::Key(Key::Token)),
    ("api-key", Mark::Key(Key::Token)),
    ("apikey", Mark::Key(Key::Token)),
    ("access_key", Mark::Key(Key::Token)),
    ("access-key", Mark::Key(Key::Token)),
    ("accesskey", Mark::Key(Key::Token)),
    ("accountkey", Mark::Key(Key::Token)),
    ("private_key", Mark::Key(Key::Token)),
    ("credential", Mark::Key(Key::Token)),
    ("credentials", Mark::Key(Key::Token)),
    ("bearer", Mark::Bearer),
    ("authorization: basic", Mark::Basic),
    ("://", Mark::Address),
    ("eyJ", Mark::Jwt),
    ("-----BEGIN", Mark::PrivateKey),
];

/// A token that begins with a mark of its own.
#[derive(Debug)]
pub(super) struct Shape {
    belongs: fn(u8) -> bool,
    bytes_min: usize,
    /// A word that ends with a dash may stand before it.
    after_dash: bool,
    /// Whether a run that is long enough is one: words of people and programs are not.
    proof: fn(&str) -> bool,
}

const MODEL_KEY: Shape = Shape { belongs: is_url_safe, bytes_min: 16, after_dash: false, proof: is_jumble };
const NAMED_MODEL_KEY: Shape =
    Shape { belongs: is_url_safe, bytes_min: 12, after_dash: false, proof: has_digit };
const LONG: Shape = Shape { belongs: is_alphanumeric, bytes_min: 16, after_dash: true, proof: is_mixed };
const LONG_WITH_MARKS: Shape =
    Shape { belongs: is_url_safe, bytes_min: 16, after_dash: true, proof: is_mixed };
const GOOGLE: Shape = Shape { belongs: is_url_safe, bytes_min: 30, after_dash: true, proof: is_mixed };
const CLOUD_ID: Shape =
    Shape { belongs: is_alphanumeric, bytes_min: 16, after_dash: true, proof: is_cloud_id };
const CHAT: Shape = Shape { belongs: is_url_safe, bytes_min: 10, after_dash: true, proof: has_digit };
const PACKAGE: Shape = Shape { belongs: is_alphanumeric, bytes_min: 30, after_dash: true, proof: is_mixed };
const HOOK: Shape = Shape { belongs: is_path, bytes_min: 20, after_dash: true, proof: is_mixed };

impl Shape {
    pub(super) fn judge(&self, look: &Look<'_>, start: usize, end: usize) -> Verdict {
        let mark = &look.text[start..end];
        let dashed = !self.after_dash && look.before(start).ends_with(b"-");
        // Hooks are named by a host, which has no case.
        if !(is_spelled(mark) && look.begins_word(start)) || dashed {
            return Verdict::Nothing;
        }
        let run = look.run(end, VALUE_BYTES_MAX, self.belongs);
        if run.open {
            return Verdict::Open { from: start };
        }
        let is_cut = look.text[run.end..].starts_with('…');
        let enough = if is_cut {
            run.text.len() >= CUT_BYTES_MIN && (has_digit(run.text) || has_upper(run.text))
        } else {
            run.text.len() >= self.bytes_min && (self.proof)(run.text)
        };
        if enough { Verdict::Secret { from: end, to: run.end } } else { Verdict::Nothing }
    }
}

/// Whether the mark is written exactly as it must be.
fn is_spelled(mark: &str) -> bool {
    MARKS.iter().any(|(text, _)| *text == mark)
}

/// `Bearer` and a token.
pub(super) fn bearer(look: &Look<'_>, end: usize) -> Verdict {
    let spaces = look.run(end, 4, |byte| byte == b' ');
    if spaces.text.is_empty() {
        return Verdict::Nothing;
    }
    let run = look.run(spaces.end, VALUE_BYTES_MAX, is_bearer);
    let token = run.text.trim_end_matches('.');
    match () {
        () if run.text.is_empty() => Verdict::Nothing,
        () if run.open => Verdict::Open { from: spaces.end },
        () if token.len() >= 8 && is_mixed(token) && has_digit(token)
            || token.len() >= 24 && is_mixed(token) =>
        {
            Verdict::Secret { from: spaces.end, to: spaces.end + token.len() }
        }
        () => Verdict::Nothing,
    }
}

/// `Authorization: Basic` and a name with its password, in base64.
pub(super) fn basic(look: &Look<'_>, end: usize) -> Verdict {
    let spaces = look.run(end, 4, |byte| byte == b' ');
    let run = look.run(spaces.end, VALUE_BYTES_MAX, is_base64);
    match () {
        () if spaces.text.is_empty() || run.text.is_empty() => Verdict::Nothing,
        () if run.open => Verdict::Open { from: spaces.end },
        () if run.text.len() >= 8 => Verdict::Secret { from: spaces.end, to: run.end },
        () => Verdict::Nothing,
    }
}

/// An address with a name and a password before its host.
pub(super) fn address(look: &Look<'_>, end: usize) -> Verdict {
    let user = look.run(end, USER_BYTES_MAX, |byte| is_userinfo(byte) && byte != b':');
    if user.next != Some(b':') {
        return Verdict::Nothing;
    }
    let password = look.run(user.end + 1, VALUE_BYTES_MAX, is_userinfo);
    match () {
        () if password.text.is_empty() => Verdict::Nothing,
        () if password.open => Verdict::Open { from: user.end + 1 },
        () if password.next == Some(b'@') && !is_placeholder(password.text) => {
            Verdict::Secret { from: user.end + 1, to: password.end }
        }
        () => Verdict::Nothing,
    }
}

/// Three parts with dots between, the first two of which are JSON in base64.
pub(super) fn jwt(look: &Look<'_>, start: usize, end: usize) -> Verdict {
    if &look.text[start..end] != "eyJ" || !look.begins_word(start) {
        return Verdict::Nothing;
    }
    let header = look.run(end, JWT_PART_BYTES_MAX, is_url_safe);
    if header.open {
        return Verdict::Open { from: start };
    }
    if header.next != Some(b'.') || header.text.len() < 8 {
        return Verdict::Nothing;
    }
    let payload = look.run(header.end + 1, VALUE_BYTES_MAX, is_url_safe);
    if payload.open {
        return Verdict::Open { from: start };
    }
    if !payload.text.starts_with("eyJ") || payload.text.len() < 8 {
        return Verdict::Nothing;
    }
    if payload.next != Some(b'.') {
        return Verdict::Secret { from: end, to: payload.end };
    }
    let signature = look.run(payload.end + 1, VALUE_BYTES_MAX, is_url_safe);
    if signature.open {
        return Verdict::Open { from: start };
    }
    let to = if signature.text.is_empty() { payload.end } else { signature.end };
    Verdict::Secret { from: end, to }
}

/// What stands between the first and the last line of a private key.
pub(super) fn private_key(look: &Look<'_>, end: usize) -> Verdict {
    let title = look.run(end, 40, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ');
    let dashes = look.run(title.end, 5, |byte| byte == b'-');
    if !title.text.ends_with("PRIVATE KEY") && !title.text.ends_with("PRIVATE KEY BLOCK")
        || dashes.text.len() < 5
    {
        return Verdict::Nothing;
    }
    let gap = gap(look.text, dashes.end);
    let block = look.run(gap, KEY_BLOCK_BYTES_MAX, is_key_block);
    if block.open && !block.text.is_empty() {
        return Verdict::Open { from: gap };
    }
    let body = without_gap(block.text);
    let letters = body.bytes().filter(|byte| is_base64(*byte)).count();
    if letters < 32 { Verdict::Nothing } else { Verdict::Secret { from: gap, to: gap + body.len() } }
}

/// Where the spaces and line ends end, also those that are spelled out.
fn gap(text: &str, from: usize) -> usize {
    let mut at = from;
    while at - from < GAP_BYTES_MAX {
        let rest = &text.as_bytes()[at..];
        at += match rest {
            [byte, ..] if byte.is_ascii_whitespace() => 1,
            [b'\\', b'n' | b'r', ..] => 2,
            _ => break,
        };
    }
    at
}

fn without_gap(mut text: &str) -> &str {
    let shorter = |text: &str| {
        text.strip_suffix(|last: char| last.is_ascii_whitespace() || last == '\\')
            .or_else(|| text.strip_suffix("\\n"))
            .or_else(|| text.strip_suffix("\\r"))
            .map(str::len)
    };
    while let Some(length) = shorter(text) {
        text = &text[..length];
    }
    text
}

pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn is_url_safe(byte: u8) -> bool {
    is_word(byte) || byte == b'-'
}

fn is_path(byte: u8) -> bool {
    is_word(byte) || byte == b'/'
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

fn is_bearer(byte: u8) -> bool {
    is_url_safe(byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'=')
}

/// What may stand in a name or password before a host.
fn is_userinfo(byte: u8) -> bool {
    byte > b' '
        && !matches!(byte, b'/' | b'?' | b'#' | b'@' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | 0x7f)
}

/// Base64, line ends spelled out or not, and the headers of old formats.
fn is_key_block(byte: u8) -> bool {
    is_base64(byte) || byte.is_ascii_whitespace() || matches!(byte, b'\\' | b':' | b',' | b'.' | b'(' | b')')
}

pub(super) fn has_digit(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

pub(super) fn has_upper(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_uppercase())
}

pub(super) fn has_lower(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Two of: small letters, capitals, digits.
pub(super) fn is_mixed(text: &str) -> bool {
    [has_digit(text), has_upper(text), has_lower(text)].iter().filter(|has| **has).count() >= 2
}

/// Not a few words with dashes between, such as the name of a style.
fn is_jumble(text: &str) -> bool {
    let all = has_digit(text) && has_upper(text) && has_lower(text);
    let mut parts = text.split(['-', '_']);
    all || parts.any(|part| part.len() >= 16 && has_digit(part) && is_mixed(part))
}

fn is_cloud_id(text: &str) -> bool {
    text.len() == 16 && has_digit(text) && !has_lower(text)
}
