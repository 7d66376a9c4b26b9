//! Command lines: splits a line into words without a shell, and finds a program on the `PATH`.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Programs that run what their first argument names.
const RUNNERS: [&str; 12] =
    ["node", "bun", "deno", "npx", "bunx", "uvx", "uv", "python", "python3", "sh", "bash", "env"];

/// Splits a line into words, with shell quoting. Nothing is expanded or run.
pub fn split(line: &str) -> Result<Vec<OsString>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err("a single quote is not closed"),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next() {
                        Some('"') => break,
                        Some('\\') => word.push(rest.next().ok_or("a double quote is not closed")?),
                        Some(c) => word.push(c),
                        None => return Err("a double quote is not closed"),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(rest.next().ok_or("it ends in a backslash")?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words.into_iter().map(OsString::from).collect())
}

/// Finds an executable: by a relative or absolute path, or by its name on the `PATH`.
pub fn on_path(path: &OsStr, command: &str) -> Option<PathBuf> {
    let runs = |file: &Path| {
        std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if command.contains('/') {
        return std::path::absolute(command).ok().filter(|file| runs(file));
    }
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(command)).find(|file| runs(file))
}

/// A short name for an agent that is given as a command.
pub fn label(command: &[OsString]) -> String {
    let name = |word: &OsString| {
        let file = Path::new(word).file_name().unwrap_or(word).to_string_lossy().into_owned();
        file.chars().filter(|c| c.is_alphanumeric() || "-_.@".contains(*c)).take(40).collect::<String>()
    };
    let mut words = command.iter().map(name);
    let program = words.next().unwrap_or_default();
    let what = match RUNNERS.contains(&program.as_str()) {
        true => words.find(|word| !word.starts_with('-') && !word.is_empty() && word != "run"),
        false => None,
    };
    what.or(Some(program).filter(|program| !program.is_empty())).unwrap_or_else(|| "agent".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart_as_a_shell_would_and_nothing_is_looked_up() {
        for (line, words) in [
            ("opencode acp", &["opencode", "acp"][..]),
            ("  a\tb\n", &["a", "b"]),
            ("'a b' \"c \\\" d\" e\\ f", &["a b", "c \" d", "e f"]),
            ("a'b'\"c\" ''", &["abc", ""]),
            ("echo $HOME `id` ; x > y", &["echo", "$HOME", "`id`", ";", "x", ">", "y"]),
            ("", &[]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
        for line in ["'a", "\"a", "a\\", "\"a\\"] {
            assert!(split(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_program_is_found_by_name_or_by_path_and_must_be_one() {
        let dir = tempfile::tempdir().unwrap();
        let (program, text) = (dir.path().join("agent"), dir.path().join("text"));
        std::fs::write(&program, "").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(&text, "").unwrap();
        let path = std::env::join_paths([Path::new("relative"), Path::new("/nowhere"), dir.path()]).unwrap();
        assert_eq!(on_path(&path, "agent"), Some(program.clone()));
        assert_eq!(on_path(&path, "text"), None);
        assert_eq!(on_path(OsStr::new(""), &program.to_string_lossy()), Some(program));
        assert_eq!(on_path(&path, "./nothing-here"), None);
    }

    #[test]
    fn a_command_is_called_by_what_it_runs() {
        for (line, called) in [
            ("opencode acp", "opencode"),
            ("/opt/bin/my-agent --acp", "my-agent"),
            ("node --no-warnings /opt/x/index.js acp", "index.js"),
            ("npx -y @google/gemini-cli@0.61.0 --acp", "gemini-cli@0.61.0"),
            ("node", "node"),
            ("///", "agent"),
        ] {
            assert_eq!(label(&split(line).unwrap()), called, "{line}");
        }
    }
}
