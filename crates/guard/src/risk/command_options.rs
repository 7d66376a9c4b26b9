//! Reads the options of a command without knowing which of them take values.
//!
//! No word is skipped as "the value of the option before": a word that begins with a dash is always read as an option.
//! So a wrong assumption about a program can make it look riskier, never safer.

use crate::shell::Word;

/// Whether any word is this option: `-x`, `-abx`, `--long`, `--long=value`.
pub(super) fn has(arguments: &[Word], short: &str, long: &[&str]) -> bool {
    options(arguments).any(|text| match text.strip_prefix("--") {
        Some(name) => {
            let name = name.split_once('=').map_or(name, |(name, _)| name);
            long.contains(&name)
        }
        None => text.chars().skip(1).take_while(|c| c.is_ascii_alphanumeric()).any(|c| short.contains(c)),
    })
}

/// The same, also where a long name is abbreviated, as the GNU programs and git take it.
pub(super) fn has_abbreviated(arguments: &[Word], short: &str, long: &[&str]) -> bool {
    let abbreviates = |text: &str| {
        let name = text.strip_prefix("--")?;
        let name = name.split_once('=').map_or(name, |(name, _)| name);
        Some(!name.is_empty() && long.iter().any(|known| known.starts_with(name)))
    };
    has(arguments, short, long) || options(arguments).any(|text| abbreviates(text) == Some(true))
}

/// Whether any word is exactly one of these, or one of these with `=value`.
pub(super) fn names(arguments: &[Word], wanted: &[&str]) -> bool {
    texts(arguments).any(|text| {
        let name = text.split_once('=').map_or(text, |(name, _)| name);
        wanted.contains(&name)
    })
}

/// The text of every word.
pub(super) fn texts(arguments: &[Word]) -> impl Iterator<Item = &str> {
    arguments.iter().map(Word::text)
}

/// Words that begin with a dash, up to `--`.
fn options(arguments: &[Word]) -> impl Iterator<Item = &str> {
    texts(arguments).take_while(|text| *text != "--").filter(|text| text.len() > 1 && text.starts_with('-'))
}

/// Words that are not options.
pub(super) fn operands(arguments: &[Word]) -> impl Iterator<Item = &Word> {
    let end = arguments.iter().position(|word| word.text() == "--").unwrap_or(arguments.len());
    let (before, after) = arguments.split_at(end);
    before
        .iter()
        .filter(|word| !word.text().starts_with('-') || word.text() == "-")
        .chain(after.iter().skip(1))
}

/// The options that a program may have without doing anything but reading.
pub(super) struct ReadOnlyOptions {
    /// Letters without a value.
    pub(super) short: &'static str,
    /// Letters whose value may follow in the same word.
    pub(super) valued: &'static str,
    /// Names without their dashes, in groups with blanks between them.
    pub(super) long: &'static [&'static str],
    /// How many operands it may have; more may be files that it writes.
    pub(super) operands_max: usize,
}

impl ReadOnlyOptions {
    /// Whether every word is literal and every option is on the list.
    pub(super) fn admits(&self, arguments: &[Word]) -> bool {
        let mut operands = 0;
        let mut only_operands = false;
        // `--` behind an option may be the value of that option, and options go on behind it.
        let mut may_be_value = false;
        for word in arguments {
            let Some(text) = word.literal() else { return false };
            if only_operands || text == "-" || !text.starts_with('-') {
                operands += 1;
                may_be_value = false;
            } else if text == "--" {
                only_operands = !may_be_value;
                may_be_value = false;
            } else if !self.admits_option(text) {
                return false;
            } else {
                may_be_value = self.may_take_next(text);
            }
        }
        operands <= self.operands_max
    }

    /// Whether every option that can be read is on the list, whatever the operands are.
    pub(super) fn admits_options(&self, arguments: &[Word]) -> bool {
        options(arguments).all(|text| self.admits_option(text))
    }

    /// Whether the next word may be the value of this option.
    fn may_take_next(&self, text: &str) -> bool {
        match text.strip_prefix("--") {
            Some(long) => !long.contains('='),
            None => text.ends_with(|letter| self.valued.contains(letter)),
        }
    }

    fn admits_option(&self, text: &str) -> bool {
        if let Some(long) = text.strip_prefix("--") {
            let name = long.split_once('=').map_or(long, |(name, _)| name);
            return self
                .long
                .iter()
                .flat_map(|group| group.split_ascii_whitespace())
                .any(|known| known == name);
        }
        for letter in text.chars().skip(1) {
            if self.valued.contains(letter) {
                return true;
            }
            if !self.short.contains(letter) {
                return false;
            }
        }
        true
    }
}
