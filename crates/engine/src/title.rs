//! What a session is called where nobody has named it.

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
    let at_word = head.rfind(' ').filter(|at| *at > TITLE_CHARS_MAX / 3).unwrap_or(head.len());
    Some(format!("{}…", head[..at_word].trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_one_line_cut_at_a_word() {
        assert_eq!(first_words("fix the\n  bug").as_deref(), Some("fix the bug"));
        assert_eq!(first_words("  \n"), None);
        let long = first_words(&"word ".repeat(30)).unwrap();
        assert!(long.chars().count() <= 60 && long.ends_with("word…"), "{long}");
        assert_eq!(first_words(&"ä".repeat(100)).unwrap().chars().count(), 60);
    }
}
