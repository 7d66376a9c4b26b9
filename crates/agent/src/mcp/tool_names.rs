//! Tool names that a model can call and a rule can name, made from the names of servers and their tools.
//!
//! Models accept letters, digits, `_` and `-`, 64 in all. Rules ignore case and parse `mcp__server__tool`. So
//! a server's part contains no double underscore, and names that differ only in case count as the same.

use std::collections::HashSet;

const NAME_BYTES_MAX: usize = 64;
const SERVER_BYTES_MAX: usize = 24;

/// The prefix of a server's tool names, different from those that are taken.
pub(super) fn server(name: &str, taken: &HashSet<String>) -> String {
    let mut plain = plain(name);
    while plain.contains("__") {
        plain = plain.replace("__", "_");
    }
    let plain = plain.trim_matches('_');
    let plain = if plain.is_empty() { "server" } else { plain };
    numbered(&plain[..plain.len().min(SERVER_BYTES_MAX)], SERVER_BYTES_MAX, taken)
}

/// The name of a server's tool, different from those that are taken.
pub(super) fn tool(server: &str, name: &str, taken: &HashSet<String>) -> String {
    let whole = format!("mcp__{server}__{}", plain(name));
    if whole.len() <= NAME_BYTES_MAX {
        return numbered(&whole, NAME_BYTES_MAX, taken);
    }
    // Two long names may differ only at their ends, and each must keep its name when the other is removed.
    let mark = format!("_{:06x}", fingerprint(name) & 0x00ff_ffff);
    numbered(&format!("{}{mark}", &whole[..NAME_BYTES_MAX - mark.len()]), NAME_BYTES_MAX, taken)
}

/// The form in which names are compared.
pub(super) fn key(name: &str) -> String {
    name.to_ascii_lowercase()
}

fn plain(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    name.chars().map(allowed).collect()
}

fn numbered(name: &str, bytes_max: usize, taken: &HashSet<String>) -> String {
    if !taken.contains(&key(name)) {
        return name.to_owned();
    }
    let mut number = 2u32;
    loop {
        let mark = format!("_{number}");
        let candidate = format!("{}{mark}", &name[..name.len().min(bytes_max - mark.len())]);
        if !taken.contains(&key(&candidate)) {
            return candidate;
        }
        number += 1;
    }
}

/// FNV-1a: short, and the same everywhere and always.
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(server_name: &str, tools: &[&str]) -> Vec<String> {
        let server = server(server_name, &HashSet::new());
        let mut taken = HashSet::new();
        let mut names = Vec::new();
        for name in tools {
            let name = tool(&server, name, &taken);
            assert!(taken.insert(key(&name)), "{name} twice");
            names.push(name);
        }
        names
    }

    #[test]
    fn names_are_what_models_and_rules_can_read() {
        assert_eq!(
            all("git", &["status", "git.log", "ünï x"]),
            ["mcp__git__status", "mcp__git__git_log", "mcp__git___n__x"]
        );
        assert_eq!(all("a__b  c/", &["t"]), ["mcp__a_b_c__t"]);
        assert_eq!(all("", &[""]), ["mcp__server__"]);
        assert_eq!(all("日本", &["t"]), ["mcp__server__t"]);
    }

    #[test]
    fn names_that_are_alike_are_numbered() {
        assert_eq!(
            all("s", &["t", "t", "T", "t_2"]),
            ["mcp__s__t", "mcp__s__t_2", "mcp__s__T_3", "mcp__s__t_2_2"]
        );
        let taken = HashSet::from(["git".to_owned()]);
        assert_eq!(server("Git", &taken), "Git_2");
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let long = "x".repeat(100);
        let names = all(&long, &[&format!("{long}a"), &format!("{long}b"), &format!("{long}b")]);
        assert!(names.iter().all(|name| name.len() == NAME_BYTES_MAX), "{names:?}");
        let server = server(&long, &HashSet::from([key(&long[..SERVER_BYTES_MAX])]));
        assert_eq!(server.len(), SERVER_BYTES_MAX);
    }
}
