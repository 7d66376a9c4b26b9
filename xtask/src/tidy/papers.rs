//! Documents that make a claim about the code: the claim has to be true.

use std::collections::BTreeSet;

use super::File;

/// Each outside crate has a line with its name in backticks, which says why we need it.
pub fn dependencies(document: &str, workspace_manifest: &str, used: &BTreeSet<String>) -> Vec<String> {
    let declared = workspace_dependencies(workspace_manifest);
    let explained = |name: &str| {
        let quoted = format!("`{name}`");
        document.lines().any(|line| line.contains(&quoted))
    };
    let names: BTreeSet<&str> = used.iter().map(String::as_str).chain(declared).collect();
    let missing = names.into_iter().filter(|name| !explained(name));
    missing.map(|name| format!("docs/dependencies.md: no line says why we need `{name}`")).collect()
}

/// The names in `[workspace.dependencies]` that are not crates of our own.
fn workspace_dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest.lines().skip_while(|line| line.trim() != "[workspace.dependencies]").skip(1);
    let section = section.take_while(|line| !line.starts_with('['));
    section.filter(|line| !line.contains("path = ")).filter_map(|line| {
        let name = line.split(['=', '.']).next()?.trim();
        (!name.is_empty() && !name.starts_with('#')).then_some(name)
    })
}

/// Each row `| row | state | code | test |` that says `yes` or `part` names code and tests that exist.
pub fn features(document: &str, files: &[File]) -> Vec<String> {
    let known = Known::new(files);
    let mut problems = Vec::new();
    for row in document.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [id, state, code, tests, ..] = cells[..] else { continue };
        let word = state.split_whitespace().next().unwrap_or_default().trim_matches([',', ':', '(']);
        if !["yes", "part"].contains(&word) {
            continue;
        }
        let missing_code = names(code).into_iter().filter(|path| !known.has_path(path));
        problems.extend(missing_code.map(|path| format!("docs/features.md: {id}: there is no file {path}")));
        let tests = names(tests);
        if tests.is_empty() {
            problems.push(format!("docs/features.md: {id}: says `{word}` and names no test"));
        }
        let missing_tests = tests.into_iter().filter(|test| !known.has_test(test));
        problems.extend(missing_tests.map(|test| format!("docs/features.md: {id}: there is no test {test}")));
    }
    problems
}

/// How many promises each section of the list has.
const PROMISES: [(&str, usize); 28] = [
    ("A", 21),
    ("B", 18),
    ("C", 32),
    ("D", 17),
    ("E", 36),
    ("F", 12),
    ("G", 22),
    ("H", 20),
    ("I", 12),
    ("J", 13),
    ("K", 14),
    ("L", 21),
    ("M", 5),
    ("N", 12),
    ("O", 22),
    ("P", 6),
    ("Q", 13),
    ("R", 8),
    ("S", 5),
    ("T", 10),
    ("U", 5),
    ("V", 8),
    ("W", 8),
    ("X", 9),
    ("Y", 10),
    ("Z", 16),
    ("AA", 6),
    ("CC", 9),
];

/// Every promise has one row, in order, and the page's own count of those that are kept is true.
pub fn promises(document: &str) -> Vec<String> {
    let expected = PROMISES
        .iter()
        .flat_map(|(section, count)| (1..=*count).map(move |number| format!("{section}{number}")));
    let expected: Vec<String> = expected.collect();
    let rows = document.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
        let [id, state, ..] = cells[..] else { return None };
        let numbered =
            id.starts_with(|c: char| c.is_ascii_uppercase()) && id.ends_with(|c: char| c.is_ascii_digit());
        numbered.then_some((id, state))
    });
    let rows: Vec<(&str, &str)> = rows.collect();
    let mut problems = Vec::new();
    let missing = expected.iter().filter(|id| rows.iter().all(|(row, _)| row != id));
    problems.extend(missing.map(|id| format!("docs/features.md: {id} has no row")));
    if problems.is_empty() && rows.iter().map(|(id, _)| *id).ne(expected.iter().map(String::as_str)) {
        problems.push("docs/features.md: a row stands twice, is none of the list, or is out of order".into());
    }
    let kept = rows.iter().filter(|(_, state)| state.split_whitespace().next() == Some("yes")).count();
    let count = format!("{kept} of {} are kept", expected.len());
    if !document.contains(&count) {
        problems.push(format!("docs/features.md: does not say \"{count}\""));
    }
    problems
}

/// The names in a cell: what stands in backticks, else its words.
fn names(cell: &str) -> Vec<&str> {
    if cell.contains('`') {
        return cell.split('`').skip(1).step_by(2).filter(|name| !name.is_empty()).collect();
    }
    cell.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty() && *name != "-").collect()
}

/// What a row of the feature list may name.
struct Known<'a> {
    paths: BTreeSet<&'a str>,
    functions: BTreeSet<&'a str>,
    titles: String,
}

impl<'a> Known<'a> {
    fn new(files: &'a [File]) -> Self {
        let mut known = Self { paths: BTreeSet::new(), functions: BTreeSet::new(), titles: String::new() };
        for file in files {
            known.paths.insert(&file.path);
            let starts: &[&str] = match file.path.rsplit_once('.').map_or("", |(_, extension)| extension) {
                "rs" => &["fn "],
                "py" => &["def "],
                "ts" | "tsx" | "mjs" => {
                    known.titles.push_str(&file.text);
                    &["function "]
                }
                _ => continue,
            };
            for start in starts {
                known.functions.extend(file.text.split(start).skip(1).filter_map(leading_name));
            }
        }
        known
    }

    /// A file, a folder, or a file with a line or an item after `:`.
    fn has_path(&self, name: &str) -> bool {
        let path = name.split(':').next().unwrap_or(name).trim_end_matches('/');
        let folder = format!("{path}/");
        self.paths.contains(path) || self.paths.iter().any(|known| known.starts_with(&folder))
    }

    /// A test function, a test's title in a TypeScript file, or a script's path; `file::name` is its last part.
    fn has_test(&self, name: &str) -> bool {
        let last = name.rsplit("::").next().unwrap_or(name);
        self.functions.contains(last) || self.has_path(name) || self.titles.contains(&format!("\"{name}\""))
    }
}

fn leading_name(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_promise_has_one_row_and_the_count_is_true() {
        let row = |id: &str, state: &str| format!("| {id} | {state} | | |\n");
        let all: Vec<String> = PROMISES
            .iter()
            .flat_map(|(section, count)| (1..=*count).map(move |number| format!("{section}{number}")))
            .collect();
        let page = |ids: &[String]| -> String { ids.iter().map(|id| row(id, "yes")).collect() };
        let count = format!("{} of {} are kept\n", all.len(), all.len());
        assert_eq!(promises(&(count.clone() + &page(&all))), Vec::<String>::new());
        assert_eq!(promises(&page(&all)).len(), 1, "the count is missing");
        assert_eq!(promises(&(count.clone() + &page(&all[1..]))).len(), 2, "a row and the count");
        let doubled: Vec<String> = all.iter().chain(&all[..1]).cloned().collect();
        assert_eq!(promises(&(count + &page(&doubled))).len(), 2, "a row twice, and the count");
    }

    #[test]
    fn each_dependency_needs_its_line() {
        let manifest = "[workspace.dependencies]\nengine = { path = \"crates/engine\" }\nserde = \"1\"\n\n[profile.dev]\nx = 1\n";
        let used = BTreeSet::from(["tokio".to_owned()]);
        assert_eq!(
            dependencies("| `serde` | why |\n| `tokio` | why |", manifest, &used),
            Vec::<String>::new()
        );
        assert_eq!(dependencies("| `serde` | why |", manifest, &used).len(), 1);
        assert_eq!(dependencies("", manifest, &used).len(), 2);
    }

    fn check_features(row: &str) -> usize {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file("crates/server/src/a.rs", "#[test]\nfn ids_are_echoed() {}"),
            file("tests/x.mjs", "test(\"cancel works\", f)"),
        ];
        features(&format!("| row | state | code | test |\n|---|---|---|---|\n{row}"), &files).len()
    }

    #[test]
    fn a_kept_promise_names_code_and_test_that_exist() {
        assert_eq!(check_features("| A1 | yes | `crates/server/src/a.rs` | `ids_are_echoed` |"), 0);
        assert_eq!(
            check_features("| A1 | yes | crates/server | `cancel works`, `server::ids_are_echoed` |"),
            0
        );
        assert_eq!(check_features("| A1 | yes | `crates/server` | `ids_are_lost` |"), 1);
        assert_eq!(check_features("| A1 | part (why) | `crates/gone.rs` | `ids_are_echoed` |"), 1);
        assert_eq!(check_features("| A1 | yes | `crates/server` | |"), 1);
        assert_eq!(check_features("| A1 | no: later | | |"), 0);
    }
}
