//! Custom commands from Markdown files: a prompt template with placeholders for arguments.
//!
//! `$1` to `$9` are words, `$ARGUMENTS` is everything that was typed, `$NAME` and `${name}` are arguments
//! that the front matter names or that were typed as `name=value`. Nothing is executed to fill a placeholder:
//! what looks like a shell command stays as it is.
//!
//! **Invariant:** placeholders are filled in one pass, so typed text is never taken for a placeholder.

use std::path::Path;
use std::sync::Arc;

use engine::CommandSpec;

use crate::knowledge::{FrontMatter, TextFile, TextFolder, plain_name};
use crate::summary_without_model::{cut, one_line};

const TEMPLATE_CHARS_MAX: usize = 32_000;
const DESCRIPTION_CHARS_MAX: usize = 300;
/// The maximum size of an expanded prompt.
const PROMPT_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CustomCommand {
    pub(crate) name: Arc<str>,
    pub(crate) of_project: bool,
    description: Arc<str>,
    hint: Option<Arc<str>>,
    /// The names of its arguments, in order.
    arguments: Vec<String>,
    template: Arc<str>,
}

impl CustomCommand {
    /// The commands of a folder, except those with the name of a built-in command.
    pub(crate) fn all(text_folder: &TextFolder, folder: &Path, of_project: bool) -> Vec<Self> {
        let text_files = text_folder.text_files(folder, "md", TEMPLATE_CHARS_MAX);
        let usable = |text_file: TextFile| {
            let command = Self::of(&text_file, of_project);
            if command.is_none() {
                tracing::warn!(file = %text_file.path.display(), "ignoring a command: it needs a plain name of its own");
            }
            command
        };
        text_files.into_iter().filter_map(usable).collect()
    }

    fn of(text_file: &TextFile, of_project: bool) -> Option<Self> {
        let name = plain_name(&text_file.stem).filter(|name| !super::is_built_in(name))?;
        let (front_matter, body) = FrontMatter::split(&text_file.text);
        let arguments =
            front_matter.list("args").or_else(|| front_matter.list("arguments")).unwrap_or_default();
        let first = || body.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let listed = || (!arguments.is_empty()).then(|| format!("<{}>", arguments.join("> <")));
        Some(Self {
            name,
            of_project,
            description: cut(
                &one_line(front_matter.text("description").unwrap_or_else(first)),
                DESCRIPTION_CHARS_MAX,
            )
            .into(),
            hint: front_matter.text("argument-hint").map(str::to_owned).or_else(listed).map(Into::into),
            arguments,
            template: body.trim().into(),
        })
    }

    pub(crate) fn spec(&self) -> CommandSpec {
        CommandSpec {
            name: Arc::clone(&self.name),
            description: Arc::clone(&self.description),
            hint: self.hint.clone(),
        }
    }

    /// The prompt with its placeholders filled. Typed text without a placeholder is appended.
    pub(crate) fn expand(&self, typed: &str) -> String {
        let typed = TypedArguments::read(typed, &self.arguments);
        let (mut prompt, mut used) = (String::new(), false);
        let mut rest = self.template.as_ref();
        while let Some(at) = rest.find('$') {
            prompt.push_str(&rest[..at]);
            let (placeholder, after) = placeholder(&rest[at..]);
            match placeholder.and_then(|name| typed.value(name)) {
                Some(value) => {
                    used = true;
                    prompt.push_str(value);
                }
                None => prompt.push_str(&rest[at..rest.len() - after.len()]),
            }
            rest = after;
            if prompt.len() > PROMPT_BYTES_MAX {
                prompt.truncate(prompt.floor_char_boundary(PROMPT_BYTES_MAX));
                return prompt;
            }
        }
        prompt.push_str(rest);
        if !used && !typed.all.is_empty() {
            prompt.push_str("\n\n");
            prompt.push_str(typed.all);
        }
        prompt
    }
}

/// The name of the placeholder at the beginning of a text, and the text after it.
fn placeholder(text: &str) -> (Option<&str>, &str) {
    let rest = &text[1..];
    if let Some((name, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        if !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') {
            return (Some(name), after);
        }
        return (None, rest);
    }
    let digits = rest.starts_with(|c: char| c.is_ascii_digit());
    let fits = |c: char| if digits { c.is_ascii_digit() } else { c.is_alphanumeric() || c == '_' };
    let end = rest.find(|c: char| !fits(c)).unwrap_or(rest.len());
    ((end > 0).then(|| &rest[..end]), &rest[end..])
}

/// The text that was typed after a command.
struct TypedArguments<'a> {
    all: &'a str,
    words: Vec<String>,
    named: Vec<(String, String)>,
}

impl<'a> TypedArguments<'a> {
    fn read(all: &'a str, arguments: &[String]) -> Self {
        let (mut plain, mut named) = (Vec::new(), Vec::new());
        for word in words(all) {
            let known = |name: &str| arguments.iter().any(|argument| argument.eq_ignore_ascii_case(name));
            match word.split_once('=').filter(|(name, _)| known(name)) {
                Some((name, value)) => named.push((name.to_owned(), value.to_owned())),
                None => plain.push(word),
            }
        }
        // Unnamed arguments take the words in order; the last takes all the rest.
        let given = |argument: &&String| !named.iter().any(|(name, _)| name.eq_ignore_ascii_case(argument));
        let free: Vec<&String> = arguments.iter().filter(given).collect();
        let value = |(at, argument): (usize, &&String)| {
            let end = if at + 1 == free.len() { plain.len() } else { at + 1 };
            let words: Vec<&str> = plain.iter().take(end).skip(at).map(String::as_str).collect();
            ((*argument).clone(), words.join(" "))
        };
        let ordered: Vec<_> = free.iter().enumerate().map(value).collect();
        named.extend(ordered);
        Self { all, words: plain, named }
    }

    /// `None`: the command has no such argument.
    fn value(&self, name: &str) -> Option<&str> {
        if name == "ARGUMENTS" {
            return Some(self.all);
        }
        if let Ok(number) = name.parse::<usize>() {
            let at = number.checked_sub(1)?;
            return Some(self.words.get(at).map_or("", String::as_str));
        }
        self.named.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Splits into words like a shell, with quotes but nothing else.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut begun, mut quote) = (String::new(), false, None);
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.push(c),
            None if c == '"' || c == '\'' => (quote, begun) = (Some(c), true),
            None if c.is_whitespace() => {
                if begun {
                    words.push(std::mem::take(&mut word));
                    begun = false;
                }
            }
            None => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, typed: &str, expected: &str) {
        let text_file = TextFile { path: "x.md".into(), stem: "x".into(), text: file.into() };
        assert_eq!(
            CustomCommand::of(&text_file, true).unwrap().expand(typed),
            expected,
            "{file:?} {typed:?}"
        );
    }

    #[test]
    fn places_are_filled_once_and_nothing_is_run() {
        check("Fix $1 in $2 ($ARGUMENTS).", "bug \"a b.rs\"", "Fix bug in a b.rs (bug \"a b.rs\").");
        check("Fix $1 and $3.", "one", "Fix one and .");
        check("See $1.", "$2 ${x} $ARGUMENTS", "See $2.");
        check("Costs $ 5, $HOME, ${x y}, $", "", "Costs $ 5, $HOME, ${x y}, $");
        check("!`rm -rf /` @file $0", "a", "!`rm -rf /` @file $0\n\na");
        check(
            "---\nargs: [file, note]\n---\nFix ${file}: $NOTE.",
            "a.rs do it well",
            "Fix a.rs: do it well.",
        );
        check("---\nargs: file, depth\n---\n$file at $DEPTH", "depth=3 x=1", "x=1 at 3");
        check("Just go.", "with this", "Just go.\n\nwith this");
    }

    #[test]
    fn a_prompt_does_not_grow_without_end() {
        let text_file = TextFile { path: "x.md".into(), stem: "x".into(), text: "$ARGUMENTS ".repeat(2_000) };
        let prompt = CustomCommand::of(&text_file, true).unwrap().expand(&"y".repeat(100_000));
        assert_eq!(prompt.len(), PROMPT_BYTES_MAX);
    }

    #[test]
    fn a_command_says_what_it_is_for() {
        let spec = |stem: &str, text: &str| {
            let text_file = TextFile { path: "x.md".into(), stem: stem.into(), text: text.into() };
            CustomCommand::of(&text_file, true).map(|command| command.spec())
        };
        let with_args = spec("fix", "---\ndescription: Fixes\nargs: [file, note]\n---\nGo.").unwrap();
        assert_eq!(
            (with_args.description.as_ref(), with_args.hint.as_deref()),
            ("Fixes", Some("<file> <note>"))
        );
        let plain = spec("fix", "\nGo there.\nMore.").unwrap();
        assert_eq!((plain.description.as_ref(), plain.hint), ("Go there.", None));
        for taken in ["help", "undo", "a b", "../x", ""] {
            assert_eq!(spec(taken, "x"), None, "{taken:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_stands_in_a_file_it_is_filled_in(text in "[a-z$ {}=1é\"']{0,40}", typed in "[a-z$ {}=1é\"']{0,20}") {
            let text_file = TextFile { path: "x.md".into(), stem: "x".into(), text };
            let command = CustomCommand::of(&text_file, true).unwrap();
            let _filled = command.expand(&typed);
        }
    }
}
