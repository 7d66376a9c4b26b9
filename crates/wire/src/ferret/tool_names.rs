//! Ferret's names of the tools.

use crate::ferret_otter_common::{ToolName, ToolNames};

pub(crate) const TOOLS: ToolNames = ToolNames { tools: FERRET_TOOLS, own: &[] };

const FERRET_TOOLS: &[ToolName] = &[
    ToolName { ours: "shell", theirs: "Bash", arguments: &[("timeout_seconds", "timeout")] },
    ToolName { ours: "read", theirs: "Read", arguments: &[] },
    ToolName { ours: "write", theirs: "Write", arguments: &[("text", "content")] },
    ToolName { ours: "edit", theirs: "Edit", arguments: &[("old", "old_string"), ("new", "new_string")] },
    ToolName { ours: "search", theirs: "Grep", arguments: &[("text", "pattern"), ("files", "glob")] },
    ToolName { ours: "glob", theirs: "Glob", arguments: &[] },
    ToolName { ours: "list", theirs: "LS", arguments: &[] },
    ToolName { ours: "fetch", theirs: "WebFetch", arguments: &[] },
    ToolName { ours: "task", theirs: "Task", arguments: &[("agent", "subagent_type")] },
    ToolName { ours: "skill", theirs: "Skill", arguments: &[("name", "skill")] },
];
