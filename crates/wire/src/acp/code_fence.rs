//! Code fences around text that is not Markdown, for clients that render everything as Markdown.
//!
//! Without a fence, a command's output and a file's text lose their line breaks, and `# x` becomes a
//! heading.

use std::path::Path;

/// The language of a fence around a command's output.
pub(super) const CONSOLE: &str = "console";

/// The shortest run of backticks that opens a fence in Markdown.
const FENCE_CHARS_MIN: usize = 3;
/// A longer file extension says nothing about the language.
const EXTENSION_BYTES_MAX: usize = 16;

/// Wraps the text in a fence that is longer than any fence inside the text. An empty text stays empty.
pub(super) fn fenced(language: &str, text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let fence = "`".repeat(longest_run(text).saturating_add(1).max(FENCE_CHARS_MIN));
    let line_end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{line_end}{fence}")
}

/// The highlighting language of the files; empty if they are of several languages.
pub(super) fn language<'a>(paths: impl IntoIterator<Item = &'a Path>) -> String {
    let mut paths = paths.into_iter().map(of_file);
    let first = paths.next().unwrap_or_default();
    if paths.all(|other| other == first) { first } else { String::new() }
}

/// Maps common file extensions to the names that highlighters use; any other extension is its own name.
fn of_file(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let extension = match name.rsplit_once('.') {
        Some((_, extension)) => extension,
        None if matches!(name.as_str(), "makefile" | "dockerfile") => name.as_str(),
        None => "",
    };
    let language = match extension {
        "rs" => "rust",
        "py" | "pyi" => "python",
        "js" | "mjs" | "cjs" => "javascript",
        "ts" | "mts" | "cts" => "typescript",
        "md" | "markdown" => "markdown",
        "yml" => "yaml",
        "sh" | "bash" => "bash",
        "rb" => "ruby",
        "kt" | "kts" => "kotlin",
        "h" => "c",
        "cc" | "cxx" | "hpp" | "hh" => "cpp",
        "cs" => "csharp",
        "htm" => "html",
        "txt" | "log" => "",
        other => other,
    };
    let plain = language.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if plain && language.len() <= EXTENSION_BYTES_MAX { language.to_owned() } else { String::new() }
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_longer_than_any_inside() {
        assert_eq!(fenced("console", "a\nb\n"), "```console\na\nb\n```");
        assert_eq!(fenced("", "no line end"), "```\nno line end\n```");
        assert_eq!(fenced("markdown", "```rust\nx\n```\n"), "````markdown\n```rust\nx\n```\n````");
        assert_eq!(fenced("x", "a ````` b"), "``````x\na ````` b\n``````");
        assert_eq!(fenced("console", ""), "");
    }

    #[test]
    fn a_file_is_highlighted_by_its_name() {
        for (path, expected) in [
            ("/p/a.rs", "rust"),
            ("/p/A.PY", "python"),
            ("/p/x.toml", "toml"),
            ("/p/Makefile", "makefile"),
            ("/p/LICENSE", ""),
            ("/p/notes.txt", ""),
            ("/p/a.`x", ""),
            ("/p/a.with space", ""),
            ("/", ""),
        ] {
            assert_eq!(language([Path::new(path)]), expected, "{path}");
        }
        assert_eq!(language([Path::new("a.rs"), Path::new("b/c.rs")]), "rust");
        assert_eq!(language([Path::new("a.rs"), Path::new("b.py")]), "");
        assert_eq!(language([]), "");
    }
}
