//! Which crate may depend on which: the table in `ARCHITECTURE.md` against what cargo says.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;

use xtask::command::{self, cargo};

/// Each crate of the workspace with the crates of the workspace that it depends on.
pub type Edges = BTreeMap<String, BTreeSet<String>>;

/// Development tools, not rooms of the house: they have no row, and nobody may build on them.
pub const WITHOUT_A_ROW: [&str; 3] = ["drills", "xtask", "testkit"];

/// The edges that end up in a product; development dependencies are free.
pub fn crates() -> anyhow::Result<Edges> {
    let direct = direct_dependencies("normal,build")?;
    let inside = |name: &String| direct.contains_key(name);
    Ok(direct
        .iter()
        .map(|(name, to)| (name.clone(), to.iter().filter(|to| inside(to)).cloned().collect()))
        .collect())
}

/// Every crate from outside that one of ours names, for whatever purpose.
pub fn external() -> anyhow::Result<BTreeSet<String>> {
    let direct = direct_dependencies("normal,build,dev")?;
    Ok(direct.values().flatten().filter(|name| !direct.contains_key(*name)).cloned().collect())
}

pub fn check(architecture: &str, crates: &Edges) -> Vec<String> {
    let allowed = allowed_edges(architecture);
    if allowed.is_empty() {
        return vec!["ARCHITECTURE.md: no table with the columns `crate` and `may depend on`".to_owned()];
    }
    let mut problems = Vec::new();
    for (name, dependencies) in crates.iter().filter(|(name, _)| !WITHOUT_A_ROW.contains(&name.as_str())) {
        let Some(may) = allowed.get(name) else {
            problems.push(format!("ARCHITECTURE.md: the crate {name} has no row in the table"));
            continue;
        };
        for to in dependencies {
            let tool = WITHOUT_A_ROW.contains(&to.as_str());
            if tool || !(may.contains(to) || may.contains("all")) {
                problems.push(format!(
                    "crates/{name} depends on {to}, which the table in ARCHITECTURE.md forbids"
                ));
            }
        }
    }
    let gone = allowed.keys().filter(|name| !crates.contains_key(*name));
    problems.extend(gone.map(|name| format!("ARCHITECTURE.md: there is no crate {name}")));
    problems
}

fn allowed_edges(architecture: &str) -> Edges {
    let rows =
        architecture.lines().skip_while(|line| !line.replace(' ', "").starts_with("|crate|maydependon|"));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', ""));
        let (name, may) = (cells.next()?, cells.next()?);
        let may = may.split(',').map(str::trim).filter(|to| !to.is_empty() && *to != "-");
        Some((name, may.map(str::to_owned).collect()))
    })
    .collect()
}

/// Each crate of the workspace with all that it depends on directly.
fn direct_dependencies(kinds: &str) -> anyhow::Result<Edges> {
    let ask =
        ["tree", "--workspace", "--all-features", "--target", "all", "--depth", "1", "--prefix", "depth"];
    let tree =
        command::output(cargo().args(ask).args(["--no-dedupe", "--edges", kinds, "--format", " {p}"]))?;
    parse_tree(&tree).context("reading the output of cargo tree")
}

/// What a package of ours is called in the house: rooms have short names there, packages those of a registry.
fn room(package: &str) -> &str {
    package.strip_prefix("ropewalk-").unwrap_or(package)
}

/// Lines such as `0 ropewalk-engine v0.1.0 (/path)` and, for what it depends on, `1 serde v1.0.2`.
fn parse_tree(tree: &str) -> Option<Edges> {
    let mut edges = Edges::new();
    let mut current = String::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split(' ');
        let (depth, package) = (words.next()?, words.next()?);
        let name = room(package).to_owned();
        if depth == "0" {
            edges.entry(name.clone()).or_default();
            current = name;
        } else {
            edges.get_mut(&current)?.insert(name);
        }
    }
    Some(edges)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "text\n\n| crate | may depend on | must never know |\n|---|---|---|\n\
                         | engine | - | JSON |\n| wire | `engine` | sockets |\n| ropewalk | all | - |\n\nmore";

    fn check_tree(tree: &str) -> Vec<String> {
        check(TABLE, &parse_tree(tree).unwrap())
    }

    #[test]
    fn an_edge_of_the_table_is_allowed_and_another_is_not() {
        let good = "0 ropewalk-engine v0 (/e)\n\n0 wire v0 (/w)\n1 ropewalk-engine v0 (/e)\n\n0 ropewalk v0 (/r)\n1 wire v0\n";
        assert_eq!(check_tree(good), Vec::<String>::new());
        let bad = "0 engine v0 (/e)\n1 wire v0 (/w)\n\n0 wire v0 (/w)\n\n0 ropewalk v0 (/r)\n";
        assert_eq!(check_tree(bad).len(), 1);
    }

    #[test]
    fn rows_and_crates_must_be_the_same() {
        let more = "0 engine v0\n\n0 wire v0\n\n0 ropewalk v0\n\n0 cellar v0\n\n0 xtask v0\n";
        assert_eq!(check_tree(more), ["ARCHITECTURE.md: the crate cellar has no row in the table"]);
        assert_eq!(check_tree("0 engine v0\n\n0 ropewalk v0\n"), ["ARCHITECTURE.md: there is no crate wire"]);
    }

    #[test]
    fn nothing_is_built_on_the_testkit() {
        let tree = "0 engine v0\n\n0 wire v0\n\n0 testkit v0\n\n0 ropewalk v0\n1 testkit v0\n";
        assert_eq!(check_tree(tree).len(), 1);
    }
}
