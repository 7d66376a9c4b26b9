//! Rules about the text of files: size, `unsafe`, and what must never be committed.

use super::File;

const LINES_MAX: usize = 800;

/// Where `unsafe` may be written.
const UNSAFE_ROOM: &str = "crates/sandbox/";

/// Folders that exist on somebody's machine only. Written in two pieces, or this file would break its own rule.
const MACHINE_PATHS: [&str; 2] = [concat!("/ro", "ot/"), concat!("/wo", "rk/")];

/// Package registries are reached by package name; which host serves them is the machine's business.
const REGISTRY_HOSTS: [&str; 6] = [
    concat!("registry.", "npmjs.org"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("pypi", ".org"),
    concat!("files.", "pythonhosted.org"),
    concat!("deb.", "debian.org"),
];

/// A line may say why it is right all the same.
const EXCUSE: &str = "tidy:allow";

const CARGO_SOURCE: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

pub fn check(files: &[File]) -> Vec<String> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    let lines = file.text.lines().count();
    if file.has_extension(&["rs", "ts", "tsx", "mjs", "js", "py"]) && lines > LINES_MAX {
        problems.push(format!("{}: {lines} lines; split it, {LINES_MAX} is the ceiling", file.path));
    }
    if file.has_extension(&["rs"]) && !file.path.starts_with(UNSAFE_ROOM) && has_unsafe(&file.text) {
        problems.push(format!("{}: `unsafe` is written in {UNSAFE_ROOM} only", file.path));
    }
    for (index, line) in file.text.lines().enumerate() {
        if let Some(problem) = check_line(&file.path, line) {
            problems.push(format!("{}:{}: {problem}", file.path, index + 1));
        }
    }
    problems
}

fn check_line(path: &str, line: &str) -> Option<String> {
    if line.contains(EXCUSE) {
        return None;
    }
    if let Some(found) = MACHINE_PATHS.iter().find(|folder| names_folder(line, folder)) {
        return Some(format!("{found} is a folder of somebody's machine"));
    }
    if let Some(host) = REGISTRY_HOSTS.iter().find(|host| line.contains(**host)) {
        return Some(format!("{host} is a registry's host; name the package only"));
    }
    if path.ends_with("package-lock.json") && line.trim_start().starts_with("\"resolved\"") {
        return Some("a lock file without hosts has no `resolved`; see tests/clients/README.md".to_owned());
    }
    if path.ends_with("Cargo.lock") && line.starts_with("source = ") && line != CARGO_SOURCE {
        return Some("only the public crate registry is a source".to_owned());
    }
    None
}

/// Whether an absolute path begins here: `/x/` counts, `a/x/` and `./x/` do not.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-/*}$~".contains(c))
    })
}

/// The word in code; not in comments, strings or longer words such as a lint's name.
fn has_unsafe(text: &str) -> bool {
    let code = code_only(text);
    let word = |c: char| c.is_alphanumeric() || c == '_';
    code.split(|c| !word(c)).any(|found| found == "unsafe")
}

/// Rust text with comments and the contents of strings left out.
fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (kept, skipped) = if rest.starts_with("//") {
            ("", rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            ("", rest.find("*/").map_or(rest.len(), |end| end + 2))
        } else if first == '"' {
            ("\"\"", string_length(rest))
        } else if rest.starts_with("r\"") || rest.starts_with("r#") {
            raw_string(rest)
        } else if rest.starts_with("'\"'") {
            ("' '", 3)
        } else {
            (&rest[..first.len_utf8()], first.len_utf8())
        };
        code.push_str(kept);
        rest = &rest[skipped..];
    }
    code
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// What is kept of a text that begins with `r`, and its length; a raw identifier is kept as it is.
fn raw_string(text: &str) -> (&str, usize) {
    let hashes = text[1..].chars().take_while(|c| *c == '#').count();
    if !text[1 + hashes..].starts_with('"') {
        return (&text[..1 + hashes], 1 + hashes);
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let body = 2 + hashes;
    ("\"\"", text[body..].find(&end).map_or(text.len(), |at| body + at + end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(&[File { path: path.to_owned(), text: text.to_owned() }])
    }

    #[test]
    fn unsafe_code_is_found_and_talk_about_it_is_not() {
        assert_eq!(problems("crates/server/src/a.rs", "fn a() { unsafe { b() } }").len(), 1);
        assert_eq!(problems("crates/sandbox/src/a.rs", "fn a() { unsafe { b() } }").len(), 0);
        let talk = "// unsafe\n/* unsafe */ #![deny(unsafe_code)] const A: &str = \"an \\\" unsafe\"; r#\"unsafe \" \"#;";
        assert_eq!(problems("crates/server/src/a.rs", talk), Vec::<String>::new());
        assert_eq!(problems("crates/server/src/a.rs", "const Q: char = '\"'; unsafe fn a() {}").len(), 1);
    }

    #[test]
    fn long_files_are_named() {
        assert_eq!(problems("web/a.ts", &"x\n".repeat(801)).len(), 1);
        assert_eq!(problems("web/a.ts", &"x\n".repeat(800)).len(), 0);
        assert_eq!(problems("docs/a.md", &"x\n".repeat(801)).len(), 0);
    }

    #[test]
    fn machine_paths_are_absolute_ones() {
        let folder = MACHINE_PATHS[1];
        assert_eq!(problems("a.md", &format!("see {folder}notes")).len(), 1);
        assert_eq!(problems("a.md", &format!("see home{folder}notes")).len(), 0);
        assert_eq!(problems("a.md", &format!("see {folder}notes tidy:allow an example")).len(), 0);
    }

    #[test]
    fn registries_are_not_named() {
        assert_eq!(problems("a.md", REGISTRY_HOSTS[0]).len(), 1);
        assert_eq!(problems("x/package-lock.json", "  \"resolved\": \"x\",").len(), 1);
        assert_eq!(problems("Cargo.lock", "source = \"registry+https://elsewhere\"").len(), 1);
        assert_eq!(problems("Cargo.lock", CARGO_SOURCE).len(), 0);
    }
}
