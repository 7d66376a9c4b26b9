//! What a session is called: by its first words where nobody has named it, and never with characters that hide.

use std::sync::Arc;

const TITLE_CHARS_MAX: usize = 60;

/// The first words of what was asked first.
pub fn first_words(text: &str) -> Option<String> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return None;
    }
    if line.chars().count() <= TITLE_CHARS_MAX {
        return Some(line);
    }
    let head: String = line.chars().take(TITLE_CHARS_MAX - 1).collect();
    let last = head.rfind(' ');
    // The redactor does not recognise half a token, which would then be in every list of sessions.
    let is_plain = |word: &str| !word.contains(|c: char| c.is_ascii_digit() || "=:@".contains(c));
    let at_word = match last {
        Some(at) if at > TITLE_CHARS_MAX / 3 || !is_plain(&head[at..]) => at,
        None if !is_plain(&head) => return None,
        _ => head.len(),
    };
    Some(format!("{}…", head[..at_word].trim_end()))
}

/// Whether this character is invisible or changes the text direction: a name with such characters can look
/// like another one. The joiners of emoji and of Indic and Persian words do not count.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A title as it is written down: what is hidden is left out, and what breaks lines is a space.
pub(crate) fn plain_title(title: Arc<str>) -> Arc<str> {
    if !title.chars().any(is_hidden) {
        return title;
    }
    let plain = |c: char| match c {
        c if c.is_whitespace() => Some(' '),
        c if is_hidden(c) => None,
        c => Some(c),
    };
    title.chars().filter_map(plain).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_in_a_title_is_left_out() {
        let title = |text: &str| plain_title(text.into()).to_string();
        assert_eq!(title("fix \u{202e}gnp.exe\u{2069}\u{200e} now\u{61c}"), "fix gnp.exe now");
        assert_eq!(title("one\ntwo\u{7}\u{2028}three\u{e0041}"), "one two three");
        let family = "👩\u{200d}👧 می\u{200c}خواهم";
        assert_eq!(title(family), family, "joiners are part of words");
        for c in ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}') {
            assert!(is_hidden(c), "{c:?}");
        }
    }

    #[test]
    fn titles_are_one_line_cut_at_a_word() {
        assert_eq!(first_words("fix the\n  bug").as_deref(), Some("fix the bug"));
        assert_eq!(first_words("  \n"), None);
        let long = first_words(&"word ".repeat(30)).unwrap();
        assert!(long.chars().count() <= 60 && long.ends_with("word…"), "{long}");
        let key = "a1B2".repeat(30);
        assert_eq!(first_words(&format!("use {key} here")).as_deref(), Some("use…"), "no half of a token");
        assert_eq!(first_words(&key), None);
        assert!(first_words(&"word".repeat(30)).is_some_and(|title| title.starts_with("wordword")));
        assert_eq!(first_words(&"ä".repeat(100)).unwrap().chars().count(), 60);
    }
}
