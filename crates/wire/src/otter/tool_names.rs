//! Otter's names of the tools: chimera's, except for the argument of its shell.

use crate::ferret_otter_common::{CHIMERA_TOOLS, ToolName, ToolNames};

pub(crate) const TOOLS: ToolNames = ToolNames {
    tools: CHIMERA_TOOLS,
    own: &[ToolName {
        ours: "shell",
        theirs: "bash",
        arguments: &[("command", "cmd"), ("timeout_seconds", "timeout")],
    }],
};
