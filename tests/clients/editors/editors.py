"""What each editor sends and answers, word for word, as its public source does it.

Only what an agent can notice stands here: the parameters of `initialize`, which calls follow it, which
requests the editor answers and with what. What it would show is in `screens.py`.
"""

from dataclasses import dataclass, field

import screens

FILES = {"readTextFile": True, "writeTextFile": True}
NO_FILES = {"readTextFile": False, "writeTextFile": False}


@dataclass(frozen=True)
class Editor:
    name: str
    # Where this was read.
    source: str
    # The parameters of `initialize`.
    hello: dict
    screen: type = screens.Screen
    # Calls `authenticate` with the first method that is offered, before anything else.
    authenticates: bool = False
    # Asks for `session/list` in its folder before it opens an old session.
    lists: bool = True
    # The result of `fs/write_text_file`: some say null.
    write_result: dict | None = field(default_factory=dict)
    # How a file that does not exist is read: an error code, or None for an empty text.
    missing_file: int | None = -32603
    # Closing a question without an answer sends the outcome `cancelled`.
    sends_cancelled: bool = True
    # Answers updates that it does not know with an error whose id is null.
    complains: bool = False
    # Refuses `terminal/kill`.
    refuses_kill: bool = False
    # Ends the server by a signal, not by closing its input.
    terminates: bool = False

    @property
    def capabilities(self):
        return self.hello.get("clientCapabilities", {})

    @property
    def has_terminal(self):
        return self.capabilities.get("terminal") is True

    @property
    def reads_missing_as_empty(self):
        return self.capabilities.get("fs", {}).get("readTextFile") is True and self.missing_file is None

    @property
    def streams_terminals(self):
        return self.capabilities.get("_meta", {}).get("terminal_output") is True


def hello(capabilities, client=None, **extra):
    parameters = {"protocolVersion": 1, "clientCapabilities": capabilities, **extra}
    return parameters if client is None else {**parameters, "clientInfo": client}


EDITORS = [
    Editor(
        "zed",
        "zed-industries/zed 7eec892 (2026-08-22), crates/agent_servers/src/acp.rs, crates/acp_thread",
        hello(
            {
                "fs": FILES,
                "terminal": True,
                "auth": {"terminal": True},
                "session": {"configOptions": {"boolean": {}}},
                "elicitation": {"form": {}, "url": {}},
                "_meta": {"terminal_output": True, "terminal-auth": True},
            },
            {"name": "zed", "title": "Zed", "version": "1.12.0"},
        ),
        screens.Zed,
    ),
    Editor(
        "jetbrains",
        "agentclientprotocol/kotlin-sdk (2026-08-21): the IDEs' own source is not public, so their name here and what"
        " they offer are assumptions",
        hello({"fs": FILES, "terminal": True}, {"name": "JetBrains.IntelliJIdea", "version": "2026.2"}),
        screens.JetBrains,
    ),
    Editor(
        "codecompanion.nvim",
        "olimorris/codecompanion.nvim f1afd025 (2026-08-08), lua/codecompanion/acp, interactions/chat/acp",
        hello({"fs": FILES}, {"name": "CodeCompanion.nvim", "version": "1.0.0"}),
        screens.CodeCompanion,
        authenticates=True,
        terminates=True,
    ),
    Editor(
        "avante.nvim",
        "yetone/avante.nvim a9334315 (2026-08-22), lua/avante/libs/acp_client.lua, lua/avante/llm.lua",
        hello({"fs": FILES}),
        lists=False,
        write_result=None,
        missing_file=-32002,
        sends_cancelled=False,
        terminates=True,
    ),
    Editor(
        "agentic.nvim",
        "carlos-algms/agentic.nvim cea3f3e (2025-11-20): it puts its name among the capabilities",
        hello({"fs": FILES, "terminal": False, "clientInfo": {"name": "Agentic.nvim", "version": "0.0.1"}}),
        lists=False,
        terminates=True,
    ),
    Editor(
        "agent-shell",
        "liaowang11/agent-shell 915de3d (0.74.3, 2026-08-22) on xenodium/acp.el 4d7d58d",
        hello({"fs": FILES}, {"name": "agent-shell", "title": "Emacs Agent Shell", "version": "0.74.3"}),
        screens.AgentShell,
    ),
    Editor(
        "acpx",
        "npm acpx 0.19.1",
        hello({"fs": FILES, "terminal": True}, {"name": "acpx", "version": "0.19.1"}),
    ),
    Editor(
        "vscode-acp-client",
        "formulahendry/vscode-acp e737165 (0.2.0, 2026-05-16), src/core/ConnectionManager.ts",
        hello({"fs": FILES, "terminal": True}, {"name": "vscode-acp-client", "version": "0.2.0"}),
        lists=False,
    ),
    Editor(
        "vscode-acp",
        "omercnet/vscode-acp b0e8411 (2025-12-29), src/acp/client.ts: offers nothing",
        hello({}, {"name": "vscode-acp", "version": "0.0.1"}),
        lists=False,
        terminates=True,
    ),
    Editor(
        "toad",
        "batrachianai/toad f68ebee (0.6.20, 2026-05-17), src/toad/acp/agent.py, protocol.py",
        hello({"fs": FILES, "terminal": True}, {"name": "toad", "title": "Toad", "version": "0.6.20"}),
        screens.Toad,
        lists=False,
        write_result=None,
        missing_file=None,
        sends_cancelled=False,
        complains=True,
        refuses_kill=True,
    ),
    Editor(
        "marimo",
        "marimo-team/marimo 3955fdf (2026-08-21), frontend/src/components/chat/acp/agent-panel.tsx",
        hello({"fs": FILES}),
        authenticates=True,
        lists=False,
        missing_file=None,
    ),
    Editor(
        "obsidian",
        "RAIT-09/obsidian-agent-client a34ea74 (2026-06-13), src/acp, src/services/message-state.ts",
        hello(
            {"fs": NO_FILES, "terminal": True},
            {"name": "obsidian-agent-client", "title": "Agent Client for Obsidian", "version": "0.10.0"},
        ),
        screens.Obsidian,
    ),
    Editor(
        "acp-ui",
        "formulahendry/acp-ui e6e36d0 (2026-05-10), src/stores/session.ts, in a browser",
        hello({"fs": NO_FILES}, {"name": "acp-ui", "title": "ACP UI", "version": "0.1.15"}),
    ),
]
