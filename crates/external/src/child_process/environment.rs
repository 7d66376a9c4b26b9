//! The environment variables of an agent program: a few harmless ones, and those that its entry in the
//! settings names.
//!
//! API keys of one provider are of no use to the agent of another, so none is passed on unless it is named.

use std::ffi::{OsStr, OsString};

/// Variables that every program gets.
const PLAIN: [&str; 8] = ["HOME", "PATH", "TMPDIR", "TERM", "LANG", "USER", "LOGNAME", "SHELL"];
const PLAIN_PREFIXES: [&str; 2] = ["LC_", "XDG_"];

/// The complete environment of an agent, made from ours: the harmless variables, those that its entry passes
/// on, and those that it sets. Of several values for one name, the last counts.
pub fn environment(
    ours: impl IntoIterator<Item = (OsString, OsString)>,
    pass: &[String],
    set: &[(String, String)],
) -> Vec<(OsString, OsString)> {
    let set_already = |name: &OsStr| set.iter().any(|(known, _)| OsStr::new(known) == name);
    let passed = |name: &OsStr| is_plain(name) || pass.iter().any(|known| OsStr::new(known) == name);
    let mut environment: Vec<(OsString, OsString)> = Vec::new();
    environment.extend(ours.into_iter().filter(|(name, _)| passed(name) && !set_already(name)));
    for (name, value) in set {
        environment.retain(|(known, _)| known != OsStr::new(name));
        environment.push((name.into(), value.into()));
    }
    environment
}

fn is_plain(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    PLAIN.contains(&name) || PLAIN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_plain_named_or_set_is_passed_on() {
        let ours = [
            ("HOME", "/home/me"),
            ("LC_ALL", "C"),
            ("XDG_CONFIG_HOME", "/home/me/.config"),
            ("OPENAI_API_KEY", "a"),
            ("ANTHROPIC_API_KEY", "b"),
            ("LD_PRELOAD", "c"),
            ("TERM", "dumb"),
        ];
        let ours = ours.map(|(name, value)| (name.into(), value.into()));
        let set =
            [("TERM", "xterm"), ("A", "1"), ("A", "2")].map(|(name, value)| (name.into(), value.into()));
        let given = environment(ours, &["OPENAI_API_KEY".into(), "MISSING".into()], &set);
        let given: Vec<_> =
            given.iter().map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap())).collect();
        let expected = [
            ("HOME", "/home/me"),
            ("LC_ALL", "C"),
            ("XDG_CONFIG_HOME", "/home/me/.config"),
            ("OPENAI_API_KEY", "a"),
            ("TERM", "xterm"),
            ("A", "2"),
        ];
        assert_eq!(given, expected);
    }
}
