//! The names of tools and of their arguments in each dialect.
//!
//! The log has our own names. Names are translated on the way out, live or as history, and on the way in for
//! sessions that chimera wrote. A tool that is in no table belongs to somebody else (an MCP server, an
//! external agent, or us, if the dialect has no name for it) and keeps its name.

use std::path::Path;

use engine::{NoSuchTool, Opaque, ToolEnd};
use serde_json::{Map, Value};

use super::event_parts::{opaque, result_text};

/// The tools that have another name in a dialect.
pub(crate) struct ToolNames {
    pub(crate) tools: &'static [ToolName],
    /// Names that differ from the dialect whose table is shared; these are looked up first.
    pub(crate) own: &'static [ToolName],
}

pub(crate) struct ToolName {
    pub(crate) ours: &'static str,
    pub(crate) theirs: &'static str,
    /// Arguments with another name: ours, and theirs.
    pub(crate) arguments: &'static [(&'static str, &'static str)],
}

/// The names of chimera's programs, used in the REST API and in chimera's session folders.
pub(crate) const CHIMERA: ToolNames = ToolNames { tools: CHIMERA_TOOLS, own: &[] };

pub(crate) const CHIMERA_TOOLS: &[ToolName] = &[
    ToolName { ours: "shell", theirs: "bash", arguments: &[("timeout_seconds", "timeout")] },
    ToolName { ours: "read", theirs: "read_file", arguments: &[] },
    ToolName { ours: "write", theirs: "write_file", arguments: &[("text", "content")] },
    ToolName {
        ours: "edit",
        theirs: "edit_file",
        arguments: &[("old", "old_string"), ("new", "new_string")],
    },
    ToolName { ours: "search", theirs: "search", arguments: &[("text", "pattern"), ("files", "glob")] },
    ToolName { ours: "list", theirs: "list_files", arguments: &[] },
    ToolName { ours: "fetch", theirs: "web_fetch", arguments: &[] },
    ToolName { ours: "task", theirs: "Task", arguments: &[("agent", "subagent_type")] },
    ToolName { ours: "skill", theirs: "skill", arguments: &[("name", "skill")] },
];

impl ToolNames {
    /// The dialect's name of a tool of ours.
    pub(crate) fn name<'a>(&self, ours: &'a str) -> &'a str {
        self.of_ours(ours).map_or(ours, |tool| tool.theirs)
    }

    /// The input of a tool of ours, with the dialect's names of the arguments.
    pub(crate) fn input(&self, ours: &str, input: &Opaque) -> Value {
        let input = opaque(input);
        match self.of_ours(ours) {
            Some(tool) => {
                renamed(input, &|name| tool.arguments.iter().find(|(own, _)| *own == name).map(|pair| pair.1))
            }
            None => input,
        }
    }

    /// The result of a tool call as one text. Its diffs apply in `folder`.
    pub(crate) fn result(&self, end: &ToolEnd, folder: &Path) -> String {
        let text = result_text(end, folder);
        match NoSuchTool::parse(&text).filter(|_| end.failed) {
            Some(NoSuchTool { name, tools }) => {
                let theirs = |ours: &String| self.name(ours).to_owned();
                NoSuchTool { name: theirs(&name), tools: tools.iter().map(theirs).collect() }.to_string()
            }
            None => text,
        }
    }

    /// Our name of a tool, and its input with our names of the arguments.
    pub(crate) fn ours<'a>(&self, theirs: &'a str, input: Value) -> (&'a str, Value) {
        match self.own.iter().chain(self.tools).find(|tool| tool.theirs == theirs) {
            Some(tool) => {
                let own =
                    |name: &str| tool.arguments.iter().find(|(_, other)| *other == name).map(|pair| pair.0);
                (tool.ours, renamed(input, &own))
            }
            None => (theirs, input),
        }
    }

    fn of_ours(&self, ours: &str) -> Option<&'static ToolName> {
        self.own.iter().chain(self.tools).find(|tool| tool.ours == ours)
    }
}

/// Renames the members of an object, and of the objects in its lists (the edits of one file). A name that
/// exists already is not used a second time.
fn renamed(value: Value, name: &dyn Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(members) = value else { return value };
    let taken = |new: &str| members.contains_key(new);
    let new_names: Vec<String> = members
        .keys()
        .map(|old| name(old).filter(|new| !taken(new)).map_or_else(|| old.clone(), str::to_owned))
        .collect();
    let values = members.into_iter().map(|(_, mut value)| {
        for item in value.as_array_mut().into_iter().flatten().filter(|item| item.is_object()) {
            *item = renamed(item.take(), name);
        }
        value
    });
    Value::Object(new_names.into_iter().zip(values).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ferret, otter};

    #[track_caller]
    fn check(names: &ToolNames, ours: (&str, Value), theirs: (&str, Value)) {
        let input = Opaque(ours.1.to_string().into());
        assert_eq!((names.name(ours.0), names.input(ours.0, &input)), theirs);
        assert_eq!(names.ours(theirs.0, theirs.1), ours);
    }

    #[test]
    fn each_dialect_has_its_own_names_for_tools_and_arguments_both_ways() {
        let command = || ("shell", json!({ "command": "make", "timeout_seconds": 5 }));
        check(&ferret::TOOLS, command(), ("Bash", json!({ "command": "make", "timeout": 5 })));
        check(&otter::TOOLS, command(), ("bash", json!({ "cmd": "make", "timeout": 5 })));
        check(&CHIMERA, command(), ("bash", json!({ "command": "make", "timeout": 5 })));
        let edit = || ("edit", json!({ "path": "a", "edits": [{ "old": "x", "new": "y" }] }));
        let edited = || json!({ "path": "a", "edits": [{ "old_string": "x", "new_string": "y" }] });
        check(&ferret::TOOLS, edit(), ("Edit", edited()));
        check(&otter::TOOLS, edit(), ("edit_file", edited()));
        let search = || ("search", json!({ "text": "x", "files": "*.rs", "path": "." }));
        check(&ferret::TOOLS, search(), ("Grep", json!({ "pattern": "x", "glob": "*.rs", "path": "." })));
    }

    #[test]
    fn what_is_in_no_table_passes_unchanged() {
        for names in [&ferret::TOOLS, &otter::TOOLS, &CHIMERA] {
            for tool in ["mcp__tickets__find", "update_plan", "a tool of another agent"] {
                check(
                    names,
                    (tool, json!({ "old": 1, "command": [2] })),
                    (tool, json!({ "old": 1, "command": [2] })),
                );
            }
            assert_eq!(names.input("shell", &Opaque("make".into())), json!("make"));
        }
        // An external agent may use our tool name with other arguments.
        let both = Opaque(r#"{"command":"make","cmd":"other"}"#.into());
        assert_eq!(otter::TOOLS.input("shell", &both), json!({ "command": "make", "cmd": "other" }));
    }

    #[test]
    fn no_name_is_given_twice() {
        for tools in [ferret::TOOLS.tools, CHIMERA_TOOLS, otter::TOOLS.own] {
            for (at, tool) in tools.iter().enumerate() {
                let rest = &tools[at + 1..];
                assert!(
                    rest.iter().all(|other| other.ours != tool.ours && other.theirs != tool.theirs),
                    "{}",
                    tool.ours
                );
            }
        }
    }
}
