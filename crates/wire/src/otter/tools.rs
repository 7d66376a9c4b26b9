//! What otter calls the tools: as chimera does, but for the argument of its shell.

use crate::siblings::{CHIMERA_TOOLS, ToolName, ToolNames};

pub(crate) const TOOLS: ToolNames = ToolNames {
    tools: CHIMERA_TOOLS,
    own: &[ToolName {
        ours: "shell",
        theirs: "bash",
        arguments: &[("command", "cmd"), ("timeout_seconds", "timeout")],
    }],
};
