//! What a room must never know, as far as its text shows it; and how large a room may be.
//!
//! The table in `ARCHITECTURE.md` says it in words. A pattern here is what those words look like in code: it is searched
//! in product code alone, without comments and tests.

use std::collections::BTreeMap;

use super::File;

/// Lines of product code in one crate: more, and nobody has all of it in mind.
const CRATE_LINES_MAX: usize = 20_000;
/// The same for the rooms that were made when the outside was taken apart.
const SMALL_CRATE_LINES_MAX: usize = 10_000;
const SMALL: [&str; 7] = ["access", "app", "bridge", "external", "metrics", "server", "service"];

struct Wall {
    /// Pieces of text of which each gives it away.
    signs: &'static [&'static str],
    /// Rooms that may.
    rooms: &'static [&'static str],
    reason: &'static str,
}

const WALLS: [Wall; 5] = [
    Wall {
        signs: &["\"session/", "\"_session/", "\"_agent/", "\"permission/respond\"", "\"tool/approve\""],
        rooms: &["wire", "external"],
        reason: "names of methods are a dialect's: they stand in `wire` (`methods.rs`); `external` is a client of others",
    },
    Wall {
        signs: &["\"SELECT ", "\"INSERT ", "\"UPDATE ", "\"DELETE FROM ", "\"CREATE TABLE ", "\"PRAGMA "],
        rooms: &["store", "hub"],
        reason: "SQL is written in `store`, and in `hub` for its own tables",
    },
    Wall {
        signs: &["axum::"],
        rooms: &["access", "server", "hub", "embed"],
        reason: "HTTP is what doors speak: `access`, `server`, `hub`, and `embed`, which hands out a router",
    },
    Wall {
        signs: &["env::var", "env::vars", "env::var_os"],
        rooms: &["ropewalk"],
        reason: "only the binary reads the environment; give what it says as a parameter",
    },
    Wall {
        signs: &["rusqlite::", "tokio_postgres::"],
        rooms: &["store"],
        reason: "databases are reached through `store`",
    },
];

pub fn check(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut sizes = BTreeMap::<&str, usize>::new();
    for file in files {
        let Some(room) = product_room(&file.path) else { continue };
        let product = product_lines(&file.text);
        *sizes.entry(room).or_default() += product.len();
        problems.extend(broken(room, &file.path, &product));
    }
    problems.extend(sizes.iter().filter_map(|(room, lines)| too_large(room, *lines)));
    problems
}

/// The room whose product a file is part of. What fuzzers call (`fuzz.rs`) is built for them and tests alone.
pub(super) fn product_room(path: &str) -> Option<&str> {
    let (room, within) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let is_test = within == "fuzz.rs" || within.ends_with("tests.rs") || within.contains("tests/");
    (within.ends_with(".rs") && room != "testkit" && !is_test).then_some(room)
}

/// Without the tests at the end of the file.
pub(super) fn product_lines(text: &str) -> Vec<&str> {
    let lines: Vec<_> = text.lines().collect();
    let is_tests = |at: usize| {
        let next = lines.iter().skip(at + 1).find(|line| !line.starts_with("#["));
        lines[at] == "#[cfg(test)]"
            && next.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    };
    let end = (0..lines.len()).find(|at| is_tests(*at)).unwrap_or(lines.len());
    lines[..end].to_vec()
}

fn broken(room: &str, path: &str, product: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    for (index, line) in product.iter().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
        for wall in WALLS.iter().filter(|wall| !wall.rooms.contains(&room)) {
            if let Some(sign) = wall.signs.iter().find(|sign| line.contains(**sign)) {
                problems.push(format!("{path}:{}: {sign} in the room {room}: {}", index + 1, wall.reason));
            }
        }
    }
    problems
}

fn too_large(room: &str, lines: usize) -> Option<String> {
    let max = if SMALL.contains(&room) { SMALL_CRATE_LINES_MAX } else { CRATE_LINES_MAX };
    (lines > max).then(|| format!("crates/{room}: {lines} lines of product code; {max} is the ceiling"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        check(&[File { path: path.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn what_a_room_must_not_know_is_found_in_its_product_alone() {
        let text = "const A: &str = \"session/new\";\n";
        assert_eq!(problems("crates/server/src/a.rs", text), 1);
        assert_eq!(problems("crates/wire/src/a.rs", text), 0);
        assert_eq!(problems("crates/server/tests/it/a.rs", text), 0);
        assert_eq!(problems("crates/server/src/http/tests.rs", text), 0);
        assert_eq!(problems("crates/server/src/a.rs", &format!("// {text}")), 0);
        assert_eq!(problems("crates/server/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{text}}}\n")), 0);
        assert_eq!(problems("crates/engine/src/a.rs", "let home = std::env::var(\"HOME\");\n"), 1);
        assert_eq!(problems("crates/service/src/a.rs", "use axum::Router;\n"), 1);
        assert_eq!(problems("crates/agent/src/a.rs", "run(\"SELECT 1\");\n"), 1);
    }

    #[test]
    fn a_room_has_a_ceiling() {
        let text = "fn a() {}\n".repeat(SMALL_CRATE_LINES_MAX + 1);
        assert_eq!(problems("crates/server/src/a.rs", &text), 1);
        assert_eq!(problems("crates/wire/src/a.rs", &text), 0);
        assert_eq!(problems("crates/wire/src/a.rs", &text.repeat(2)), 1);
    }
}
