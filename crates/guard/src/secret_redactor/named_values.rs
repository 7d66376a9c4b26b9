//! Values that are secret because of the name they are assigned to: `password=`, `"api_key": `, `--token `.
//!
//! Programs are full of such names, and what is assigned to them there is hardly ever a secret but a type, a variable,
//! a call, a placeholder. So the value must look like a secret: by its characters, and by what follows it.

use std::ops::Range;

use super::text_around_match::TextContext;
use super::token_shapes::{VALUE_BYTES_MAX, has_lower, has_upper};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretKind {
    /// Chosen by people, so it may be short and nearly a word.
    Password,
    /// Made by machines, so it is neither.
    Token,
}

/// The longest distance from the name to the value.
const NAME_BYTES_MAX: usize = 80;
/// How far back the dashes of an option are looked for.
const OPTION_BYTES_MAX: usize = 24;
const SPACES_MAX: usize = 16;
/// A dotted name is rarely longer.
const PATH_BYTES_MAX: usize = 40;
/// Endings with which a name is still the name of a secret.
const NAME_ENDINGS: [&str; 7] = ["access", "base", "hash", "key", "secret", "token", "value"];

/// Where the value behind a name begins, and how it was introduced.
struct ValueStart {
    at: usize,
    quote: Option<u8>,
    /// Nothing but the sign itself stands between name and value.
    tight: bool,
    colon: bool,
}

pub(super) fn judge(
    context: &TextContext<'_>,
    key: SecretKind,
    start: usize,
    end: usize,
) -> Option<Range<usize>> {
    let given = given(context, start, end)?;
    let run = match given.quote {
        Some(quote) => context.run(given.at, VALUE_BYTES_MAX, |byte| {
            byte != quote && byte != b'\\' && !byte.is_ascii_whitespace()
        }),
        None => context.run(given.at, VALUE_BYTES_MAX, is_bare),
    };
    let value = run.text.trim_end_matches('.');
    let is_secret = !run.text.is_empty() && is_secret(key, &given, context.byte(run.end), value);
    is_secret.then_some(given.at..given.at + value.len())
}

/// `DB_PASS=..`, `pass: ..`: programs also have passes of other kinds, and tests print the word, so the value
/// must follow at once, or be in quotes, or look like nothing else.
pub(super) fn pass(context: &TextContext<'_>, start: usize, end: usize) -> Option<Range<usize>> {
    let is_prefixed = context.before(start).ends_with(b"_");
    if !is_prefixed && !context.begins_word(start) {
        return None;
    }
    let found = judge(context, SecretKind::Password, start, end)?;
    let value = &context.text[found.clone()];
    let quoted = context.before(found.start).ends_with(b"\"") || context.before(found.start).ends_with(b"'");
    let tight = context.text[end..found.start].trim_matches(['"', '\'']) == "=";
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let strong = value.len() >= 8 && digits >= 2 && !value.contains(['_', '/', '.']);
    let is_small = context.text[start..end] == *"pass";
    (tight || (quoted || strong) && (is_prefixed || is_small)).then_some(found)
}

/// Whether a text is a secret if it is the value of such a name, whole and in quotes.
pub(super) fn is_quoted_secret(key: SecretKind, value: &str) -> bool {
    !value.bytes().any(|byte| byte.is_ascii_whitespace()) && !is_placeholder(value) && is_likely(key, value)
}

/// Whether a text that stands where a password does looks like one.
pub(super) fn is_password(value: &str) -> bool {
    !is_placeholder(value) && is_likely(SecretKind::Password, value)
}

/// Text that stands for a value that is somewhere else.
pub(super) fn is_placeholder(value: &str) -> bool {
    let first = value.as_bytes().first().copied().unwrap_or_default();
    let same = value.bytes().all(|byte| byte == first);
    same || matches!(first, b'$' | b'<' | b'{' | b'[' | b'*' | b'%')
        || ["${", "{{", "$(", "{}", "...", "…", "***"].iter().any(|sign| value.contains(sign))
}

fn given(context: &TextContext<'_>, start: usize, end: usize) -> Option<ValueStart> {
    let name = name_end(context, end)?;
    let closed = context.run(name, 3, |byte| matches!(byte, b'"' | b'\'' | b']' | b')' | b'\\' | b'`')).end;
    let spaced = context.run(closed, SPACES_MAX, is_space).end;
    let sign = context.run(spaced, 2, |byte| matches!(byte, b'=' | b':' | b'>'));
    let is_sign = matches!(sign.text, "=" | ":" | "==" | ":=" | "=>");
    // `--password hunter2`: only behind an option does a space give a value.
    let gives_by_space = sign.text.is_empty()
        && spaced > name
        && (is_option(context, start) || has_before(context, start, b"login "));
    // `define('DB_PASSWORD', '..')`
    let is_defined = sign.text.is_empty() && closed > name && has_before(context, start, b"define(");
    let comma = is_defined && context.byte(spaced) == Some(b',');
    // `<password>..</password>`
    let is_element = sign.text == ">" && spaced == name && is_tag(context, start);
    if !is_sign && !gives_by_space && !comma && !is_element {
        return None;
    }
    let value = context.run(sign.end + usize::from(comma), SPACES_MAX, is_space).end;
    context.may_begin(value);
    let quoted = if is_element { Some((0, b'<')) } else { opening_quote(context, value) };
    let at = value + quoted.map_or(0, |(length, _)| length);
    context.may_begin(at);
    (at - start <= NAME_BYTES_MAX).then_some(ValueStart {
        at,
        quote: quoted.map(|(_, quote)| quote),
        tight: closed == name && value == name + sign.text.len(),
        colon: sign.text == ":",
    })
}

/// Where the name ends, if what follows still makes it the name of a secret.
fn name_end(context: &TextContext<'_>, end: usize) -> Option<usize> {
    let mut at = end;
    loop {
        let joined = usize::from(matches!(context.byte(at), Some(b'_' | b'-')));
        let ending = NAME_ENDINGS.iter().find(|ending| context.has_word(at + joined, ending));
        match ending {
            Some(ending) if at - end < NAME_BYTES_MAX => at += joined + ending.len(),
            _ => break,
        }
    }
    let goes_on =
        context.byte(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    (!goes_on).then_some(at)
}

/// Whether the name is that of an option on a command line, which begins with two dashes.
fn is_option(context: &TextContext<'_>, start: usize) -> bool {
    let before = context.before(start);
    let before = &before[before.len().saturating_sub(OPTION_BYTES_MAX)..];
    let name = before.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-').count();
    before[before.len() - name..].starts_with(b"--")
}

fn has_before(context: &TextContext<'_>, start: usize, text: &[u8]) -> bool {
    context.before(start).windows(text.len()).any(|part| part.eq_ignore_ascii_case(text))
}

/// Whether the name is that of an element in angle brackets.
fn is_tag(context: &TextContext<'_>, start: usize) -> bool {
    let before = context.before(start);
    let name =
        before.iter().rev().take_while(|byte| super::token_shapes::is_word(**byte) || **byte == b'-').count();
    before[..before.len() - name].ends_with(b"<")
}

/// The quote that a value begins with and how many bytes it takes: `"`, `\"`, `b'`.
fn opening_quote(context: &TextContext<'_>, at: usize) -> Option<(usize, u8)> {
    let quote = |at| context.byte(at).filter(|byte| matches!(byte, b'"' | b'\'' | b'`'));
    match context.byte(at)? {
        b'\\' | b'b' | b'r' | b'f' | b'u' => quote(at + 1).map(|quote| (2, quote)),
        _ => quote(at).map(|quote| (1, quote)),
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn is_bare(byte: u8) -> bool {
    !byte.is_ascii_whitespace()
        && !byte.is_ascii_control()
        && !matches!(
            byte,
            b'"' | b'\''
                | b'`'
                | b','
                | b';'
                | b'('
                | b')'
                | b'['
                | b']'
                | b'{'
                | b'}'
                | b'<'
                | b'>'
                | b'|'
                | b'&'
                | b'\\'
        )
}

/// `next` is what stands behind the value.
fn is_secret(key: SecretKind, given: &ValueStart, next: Option<u8>, value: &str) -> bool {
    if is_placeholder(value) {
        return false;
    }
    if given.quote.is_some() {
        // A text with spaces in it is a message, not a value.
        return !next.is_some_and(|byte| byte.is_ascii_whitespace()) && is_likely(key, value);
    }
    match next {
        // A call, an index, a type with parameters.
        Some(b'(' | b'[' | b'{' | b'<') => false,
        // More code follows, so a variable is likelier than a value.
        Some(b',' | b';' | b')' | b']' | b'}' | b'>') => is_likely(key, value) && is_hardly_code(value),
        _ if given.colon && !given.tight && is_type(value) => false,
        _ => is_likely(key, value) && !is_path(value),
    }
}

/// Whether it is made of the characters that secrets are made of.
fn is_likely(key: SecretKind, value: &str) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = has_lower(value) || has_upper(value);
    let signs = value.bytes().any(|byte| {
        matches!(byte, b'!' | b'@' | b'#' | b'^' | b'&' | b'*' | b'+' | b'=' | b'~' | b'$' | b'%')
    });
    let somewhere =
        value.contains("://") || value.contains("::") || (value.starts_with(['/', '.']) && !has_upper(value));
    match key {
        _ if somewhere => false,
        SecretKind::Password => {
            value.len() >= 6 && (letters && (digits > 0 || signs) || digits == value.len())
        }
        SecretKind::Token => {
            value.len() >= 8
                && letters
                && (digits >= 2 || digits == 1 && has_lower(value) && has_upper(value))
        }
    }
}

/// Long and random enough that no name in a program looks like it.
fn is_hardly_code(value: &str) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    value.len() >= 12 && digits >= 3 && !is_path(value)
}

/// A name with dots, as programs write them.
fn is_path(value: &str) -> bool {
    let is_name = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && part.bytes().all(super::token_shapes::is_word)
    };
    value.len() < PATH_BYTES_MAX && value.contains('.') && value.split('.').all(is_name)
}

/// The name of a type, as programs write them.
fn is_type(value: &str) -> bool {
    value.len() < 16
        && value.starts_with(|first: char| first.is_ascii_uppercase())
        && !value.ends_with(|last: char| last.is_ascii_digit())
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
