//! The shapes of secrets that can be recognised by a prefix or mark of their own.

use std::ops::Range;

use super::named_values::{is_password, is_placeholder};
use super::text_around_match::TextContext;

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
/// What stands where such a token is cut: an ellipsis.
const CUT: char = '…';

/// A token that begins with a mark of its own.
#[derive(Debug)]
pub(super) struct TokenShape {
    belongs: fn(u8) -> bool,
    bytes_min: usize,
    /// A word that ends with a dash may stand before it.
    after_dash: bool,
    /// The mark stands in the middle of the token.
    inside: bool,
    /// Whether a run that is long enough is one: words of people and programs are not.
    proof: fn(&str) -> bool,
}

pub(super) const MODEL_KEY: TokenShape =
    TokenShape { belongs: is_url_safe, bytes_min: 16, after_dash: false, inside: false, proof: is_jumble };
pub(super) const NAMED_MODEL_KEY: TokenShape =
    TokenShape { belongs: is_url_safe, bytes_min: 12, after_dash: false, inside: false, proof: has_digit };
pub(super) const LONG: TokenShape =
    TokenShape { belongs: is_alphanumeric, bytes_min: 16, after_dash: true, inside: false, proof: is_mixed };
pub(super) const LONG_WITH_MARKS: TokenShape =
    TokenShape { belongs: is_url_safe, bytes_min: 16, after_dash: true, inside: false, proof: is_mixed };
pub(super) const GOOGLE: TokenShape =
    TokenShape { belongs: is_url_safe, bytes_min: 30, after_dash: true, inside: false, proof: is_mixed };
pub(super) const CLOUD_ID: TokenShape = TokenShape {
    belongs: is_alphanumeric,
    bytes_min: 16,
    after_dash: true,
    inside: false,
    proof: is_cloud_id,
};
pub(super) const CHAT: TokenShape =
    TokenShape { belongs: is_url_safe, bytes_min: 10, after_dash: true, inside: false, proof: has_digit };
pub(super) const PACKAGE: TokenShape =
    TokenShape { belongs: is_alphanumeric, bytes_min: 30, after_dash: true, inside: false, proof: is_mixed };
pub(super) const HOOK: TokenShape =
    TokenShape { belongs: is_path, bytes_min: 20, after_dash: true, inside: false, proof: is_mixed };

pub(super) const TOKEN_14: TokenShape = TokenShape::of(is_alphanumeric, 14, is_mixed);
pub(super) const TOKEN_16: TokenShape = TokenShape::of(is_alphanumeric, 16, has_digit_and_letter);
pub(super) const TOKEN_24: TokenShape = TokenShape::of(is_word, 24, has_digit_and_letter);
pub(super) const TOKEN_30: TokenShape = TokenShape::of(is_alphanumeric, 30, has_digit_and_letter);
pub(super) const TOKEN_60: TokenShape = TokenShape::of(is_alphanumeric, 60, has_digit_and_letter);
pub(super) const MARKED_16: TokenShape = TokenShape::of(is_url_safe, 16, has_digit_and_letter);
pub(super) const MARKED_20: TokenShape = TokenShape::of(is_url_safe, 20, has_digit_and_letter);
pub(super) const MARKED_30: TokenShape = TokenShape::of(is_url_safe, 30, has_digit_and_letter);
pub(super) const MARKED_40: TokenShape = TokenShape::of(is_url_safe, 40, has_digit_and_letter);
pub(super) const DOTTED_20: TokenShape = TokenShape::of(is_dotted, 20, is_dotted_token);
pub(super) const DOTTED_30: TokenShape = TokenShape::of(is_dotted, 30, is_dotted_token);
pub(super) const BASE64_40: TokenShape = TokenShape::of(is_any_base64, 40, is_mixed);
pub(super) const SLASHED_16: TokenShape = TokenShape::of(is_path_or_dash, 8, has_digit);
pub(super) const SLASHED_40: TokenShape = TokenShape::of(is_path_or_dash, 40, has_digit_and_letter);
/// A name and a password for a registry of images, in base64.
pub(super) const REGISTRY_AUTH: TokenShape = TokenShape::of(is_base64, 12, is_mixed);
/// What signs an address, in base64 with or without escapes.
pub(super) const SIGNATURE: TokenShape = TokenShape::of(is_escaped_base64, 40, has_digit_and_letter);
/// A password as the system stores it.
pub(super) const PASSWORD_HASH: TokenShape = TokenShape::of(is_password_hash, 24, is_mixed);
pub(super) const HEX_32: TokenShape = TokenShape::of(is_hex, 32, has_digit);
pub(super) const HEX_DASHED: TokenShape = TokenShape::of(is_hex_or_dash, 100, has_digit);
pub(super) const UUID: TokenShape = TokenShape::of(is_hex_or_dash, 36, is_uuid);
pub(super) const UPPER_17: TokenShape =
    TokenShape::of(is_alphanumeric, 17, |text: &str| text.len() == 17 && is_upper_token(text));
pub(super) const UPPER_26: TokenShape =
    TokenShape::of(is_alphanumeric, 26, |text: &str| text.len() == 26 && is_upper_token(text));
pub(super) const UPPER_50: TokenShape = TokenShape::of(is_alphanumeric, 50, is_upper_token);
pub(super) const INSIDE_30: TokenShape =
    TokenShape { inside: true, ..TokenShape::of(is_azure, 28, has_digit_and_letter) };
pub(super) const INSIDE_40: TokenShape =
    TokenShape { inside: true, ..TokenShape::of(is_url_safe, 40, has_digit_and_letter) };

impl TokenShape {
    const fn of(belongs: fn(u8) -> bool, bytes_min: usize, proof: fn(&str) -> bool) -> Self {
        Self { belongs, bytes_min, after_dash: true, inside: false, proof }
    }

    /// `spelled` is whether the mark is written exactly as it must be: they are found in any case.
    pub(super) fn judge(
        &self,
        context: &TextContext<'_>,
        spelled: bool,
        start: usize,
        end: usize,
    ) -> Option<Range<usize>> {
        let dashed = !self.after_dash && context.before(start).ends_with(b"-");
        if !spelled || dashed || !(self.inside || context.begins_word(start)) {
            return None;
        }
        context.may_begin(start);
        let run = context.run(end, VALUE_BYTES_MAX, self.belongs);
        let is_cut = context.byte(run.end).is_some() && context.text[run.end..].starts_with(CUT);
        let enough = if is_cut {
            run.text.len() >= CUT_BYTES_MIN && (has_digit(run.text) || has_upper(run.text))
        } else {
            run.text.len() >= self.bytes_min && (self.proof)(run.text)
        };
        enough.then_some(end..run.end)
    }
}

/// `Bearer` and a token.
pub(super) fn bearer(context: &TextContext<'_>, end: usize) -> Option<Range<usize>> {
    let spaces = context.run(end, 4, |byte| byte == b' ');
    if spaces.text.is_empty() {
        return None;
    }
    context.may_begin(spaces.end);
    let run = context.run(spaces.end, VALUE_BYTES_MAX, is_bearer);
    let token = run.text.trim_end_matches('.');
    let enough =
        token.len() >= 8 && is_mixed(token) && has_digit(token) || token.len() >= 24 && is_mixed(token);
    enough.then_some(spaces.end..spaces.end + token.len())
}

/// `Authorization: Basic` and a name with its password, in base64.
pub(super) fn basic(context: &TextContext<'_>, end: usize) -> Option<Range<usize>> {
    let spaces = context.run(end, 4, |byte| byte == b' ');
    if spaces.text.is_empty() {
        return None;
    }
    context.may_begin(spaces.end);
    let run = context.run(spaces.end, VALUE_BYTES_MAX, is_base64);
    (run.text.len() >= 8).then_some(spaces.end..run.end)
}

/// An address with a name and a password before its host.
pub(super) fn address(context: &TextContext<'_>, end: usize) -> Option<Range<usize>> {
    let user = context.run(end, USER_BYTES_MAX, |byte| is_userinfo(byte) && byte != b':');
    // A token may stand there alone. It begins at its first digit, so that ordinary host names are not held back.
    let digit = user.text.bytes().position(|byte| byte.is_ascii_digit());
    let token = digit.filter(|_| user.text.bytes().all(is_word)).map(|at| end + at);
    if let Some(from) = token {
        context.may_begin(from);
    }
    match context.byte(user.end) {
        Some(b':') => {}
        Some(b'@') => {
            let is_token = user.text.len() >= 20 && has_digit_and_letter(user.text);
            return token.filter(|_| is_token).map(|from| from..user.end);
        }
        _ => return None,
    }
    context.may_begin(user.end + 1);
    let password = context.run(user.end + 1, VALUE_BYTES_MAX, is_userinfo);
    let is_secret = !password.text.is_empty()
        && context.byte(password.end) == Some(b'@')
        && !is_placeholder(password.text);
    is_secret.then_some(user.end + 1..password.end)
}

/// `curl -u name:password`: the password, in the same word as the option or the next.
pub(super) fn user_option(context: &TextContext<'_>, start: usize, end: usize) -> Option<Range<usize>> {
    let is_long = context.text[start..end].starts_with("--");
    let gap = context.run(end, 4, |byte| matches!(byte, b' ' | b'=' | b'"' | b'\''));
    if is_long && gap.text.is_empty() {
        return None;
    }
    let user = context.run(gap.end, USER_BYTES_MAX, |byte| is_userinfo(byte) && byte != b':');
    if user.text.is_empty() || context.byte(user.end) != Some(b':') {
        return None;
    }
    context.may_begin(user.end + 1);
    let password = context.run(user.end + 1, VALUE_BYTES_MAX, |byte| {
        is_userinfo(byte) || matches!(byte, b'/' | b'@' | b'#' | b'?')
    });
    let is_secret = is_password(password.text) && !password.text.starts_with("//");
    is_secret.then_some(user.end + 1..password.end)
}

/// The values of a header `Cookie`, up to the end of the line.
pub(super) fn cookie(context: &TextContext<'_>, start: usize, end: usize) -> Option<Range<usize>> {
    if !context.begins_word(start) {
        return None;
    }
    context.may_begin(end);
    let run = context.run(end, VALUE_BYTES_MAX, |byte| {
        (b' '..0x7f).contains(&byte) && !matches!(byte, b'"' | b'\'' | b'`' | b'\\' | b'<' | b'>')
    });
    let value = run.text.trim_end();
    // A constant or a field of that name has a type behind it, and blanks around the sign.
    let gives = |part: &str| {
        let Some((name, value)) = part.split_once('=') else { return false };
        !name.is_empty()
            && !part.contains(' ')
            && value.len() >= 8
            && has_digit(value)
            && is_mixed(value)
            && !is_placeholder(value)
    };
    value.split("; ").any(gives).then_some(end..end + value.len())
}

/// A password behind the option of one of the programs that take it so.
pub(super) fn password_option(context: &TextContext<'_>, start: usize, end: usize) -> Option<Range<usize>> {
    let before = context.before(start);
    let line = before.rsplit(|byte| matches!(byte, b'\n' | b'|' | b';' | b'&')).next().unwrap_or_default();
    let runs = |names: &[&str]| {
        names.iter().any(|name| line.windows(name.len()).any(|part| part == name.as_bytes()))
    };
    let (attached, apart) = match &context.text[start..end] {
        " -p" => (runs(&["mysql", "mariadb"]), runs(&["sshpass", "docker login", "podman login"])),
        " -a" => (false, runs(&["redis-cli"])),
        _ => (false, false),
    };
    if !attached && !apart {
        return None;
    }
    let gap =
        context.run(end, 4, |byte| matches!(byte, b'"' | b'\'') || apart && matches!(byte, b' ' | b'='));
    context.may_begin(gap.end);
    let run = context.run(gap.end, VALUE_BYTES_MAX, |byte| {
        byte > b' ' && byte < 0x7f && !matches!(byte, b'"' | b'\'' | b'`' | b'\\' | b'|' | b';')
    });
    is_password(run.text).then_some(gap.end..run.end)
}

/// Three parts with dots between, the first two of which are JSON in base64.
pub(super) fn jwt(context: &TextContext<'_>, start: usize, end: usize) -> Option<Range<usize>> {
    if &context.text[start..end] != "eyJ" || !context.begins_word(start) {
        return None;
    }
    context.may_begin(start);
    let header = context.run(end, JWT_PART_BYTES_MAX, is_url_safe);
    if context.byte(header.end) != Some(b'.') || header.text.len() < 8 {
        return None;
    }
    let payload = context.run(header.end + 1, VALUE_BYTES_MAX, is_url_safe);
    if !payload.text.starts_with("eyJ") || payload.text.len() < 8 {
        return None;
    }
    if context.byte(payload.end) != Some(b'.') {
        return Some(end..payload.end);
    }
    let signature = context.run(payload.end + 1, VALUE_BYTES_MAX, is_url_safe);
    let to = if signature.text.is_empty() { payload.end } else { signature.end };
    Some(end..to)
}

/// What stands between the first and the last line of a private key.
pub(super) fn private_key(context: &TextContext<'_>, end: usize) -> Option<Range<usize>> {
    let title =
        context.run(end, 40, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ');
    let dashes = context.run(title.end, 5, |byte| byte == b'-');
    if !title.text.ends_with("PRIVATE KEY") && !title.text.ends_with("PRIVATE KEY BLOCK")
        || dashes.text.len() < 5
    {
        return None;
    }
    let gap = gap(context, dashes.end);
    context.may_begin(gap);
    let block = context.run(gap, KEY_BLOCK_BYTES_MAX, is_key_block);
    let body = without_gap(block.text);
    let letters = body.bytes().filter(|byte| is_base64(*byte)).count();
    (letters >= 32).then_some(gap..gap + body.len())
}

/// Where the spaces and line ends end, also those that are spelled out.
fn gap(context: &TextContext<'_>, from: usize) -> usize {
    let mut at = from;
    while at - from < GAP_BYTES_MAX {
        context.may_begin(at);
        at += match context.byte(at) {
            Some(byte) if byte.is_ascii_whitespace() => 1,
            Some(b'\\') if matches!(context.byte(at + 1), Some(b'n' | b'r')) => 2,
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

fn is_any_base64(byte: u8) -> bool {
    is_base64(byte) || matches!(byte, b'-' | b'_')
}

fn is_escaped_base64(byte: u8) -> bool {
    is_any_base64(byte) || byte == b'%'
}

fn is_password_hash(byte: u8) -> bool {
    is_base64(byte) || matches!(byte, b'.' | b'$' | b',')
}

fn is_dotted(byte: u8) -> bool {
    is_url_safe(byte) || byte == b'.'
}

fn is_path_or_dash(byte: u8) -> bool {
    is_path(byte) || matches!(byte, b'-' | b'@')
}

fn is_azure(byte: u8) -> bool {
    is_dotted(byte) || byte == b'~'
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'a'..=b'f')
}

fn is_hex_or_dash(byte: u8) -> bool {
    is_hex(byte) || byte == b'-'
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

/// A part without signs is long and has digits: names in programs have short parts, or none.
fn has_digit_and_letter(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    digits >= 2
        && is_mixed(text)
        && text.split(['-', '_', '/', '.', '~', '@']).any(|part| part.len() >= 8 && has_digit(part))
}

fn is_dotted_token(text: &str) -> bool {
    has_digit_and_letter(text) && has_upper(text) && has_lower(text)
}

fn is_upper_token(text: &str) -> bool {
    has_digit(text) && has_upper(text) && !has_lower(text)
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
}

fn is_cloud_id(text: &str) -> bool {
    text.len() == 16 && has_digit(text) && !has_lower(text)
}
