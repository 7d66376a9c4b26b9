//! What otter calls the tools: as chimera does, but for the argument of its shell.

use crate::siblings::{ToolName, ToolNames};

pub(crate) const TOOLS: ToolNames = ToolNames(&[
    ToolName {
        ours: "shell",
        theirs: "bash",
        arguments: &[("command", "cmd"), ("timeout_seconds", "timeout")],
    },
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
]);
