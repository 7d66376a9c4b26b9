"""What a person would see: the rules by which each editor turns updates into a screen.

`Screen` has the rules of the specification and, on top of them, what at least one editor needs and the
schema leaves open: a frame that breaks one of those is a problem for every editor, so that a mistake is
found under thirteen names at once and not only under that of the editor which happens to mind.
"""

import re

ENDED = ("completed", "failed")
TOOL_FIELDS = ("title", "kind", "status", "content", "locations", "rawInput", "rawOutput")
STATUSES = ("pending", "in_progress", "completed", "failed")
FENCE = re.compile(r"\A(`{3,})[^`\n]*\n(.*)\n\1\s*\Z", re.DOTALL)


def unfenced(text):
    """The inside of a text that is one fenced block and nothing else, or None."""
    found = FENCE.match(text)
    if found is None:
        return None
    fence, inside = found.groups()
    # A line in it that begins with as many backticks would end the block early.
    early = any(line.lstrip().startswith(fence) for line in inside.splitlines())
    return None if early else inside


class Screen:
    def __init__(self):
        self.tools = {}
        self.messages = []
        self.thoughts = []
        self.user = []
        self.plan = None
        self.title = None
        self.mode = None
        self.commands = None
        self.options = None
        self.usage = None
        # Terminals that can be shown, by their id: what was written to them, and whether they ended.
        self.terminals = {}
        self.problems = []

    def problem(self, text, frame):
        self.problems.append(f"{type(self).__name__}: {text}: {str(frame)[:400]}")

    # What comes in

    def update(self, update):
        kind = update["sessionUpdate"]
        if kind.endswith("_message_chunk") or kind == "agent_thought_chunk":
            self.chunk(kind, update)
        elif kind == "tool_call":
            self.tool_call(update)
        elif kind == "tool_call_update":
            self.tool_call_update(update)
        elif kind == "plan":
            self.plan = update["entries"]
        elif kind == "session_info_update":
            self.title = update.get("title", self.title)
        elif kind == "available_commands_update":
            self.commands = update["availableCommands"]
        elif kind == "current_mode_update":
            self.mode = update["currentModeId"]
        elif kind == "config_option_update":
            self.options = update["configOptions"]
        elif kind == "usage_update":
            self.usage = update
        else:
            self.problem("an update that no editor here has asked for", update)

    def chunk(self, kind, update):
        if not isinstance(update["content"], dict):
            self.problem("the content of a chunk is one block", update)
            return
        text = update["content"].get("text", "")
        lists = {
            "user_message_chunk": self.user,
            "agent_message_chunk": self.messages,
            "agent_thought_chunk": self.thoughts,
        }
        spoken, identity = lists[kind], update.get("messageId")
        if spoken and spoken[-1][0] == identity:
            spoken[-1][1] += text
        else:
            spoken.append([identity, text])

    def tool_call(self, update):
        if update["toolCallId"] in self.tools:
            self.problem("a tool call is announced once", update)
        if not update.get("title"):
            self.problem("a tool call has a title", update)
        self.no_nulls(update)
        self.announce_terminal(update)
        self.tools[update["toolCallId"]] = {"id": update["toolCallId"], "status": "pending", "content": []}
        self.merge(update)

    def tool_call_update(self, update):
        if update["toolCallId"] not in self.tools:
            self.problem("an update of a tool call that was not announced", update)
            return
        tool = self.tools[update["toolCallId"]]
        if tool["status"] in ENDED and "status" not in update:
            self.problem("an update after the end without the status", update)
        self.no_nulls(update)
        self.merge(update)
        self.terminal_meta(update)

    def permission(self, parameters):
        """The tool call in a question is an update too: the question is shown at its tool call."""
        if parameters["toolCall"]["toolCallId"] not in self.tools:
            self.problem("a question about a tool call that was not announced", parameters)
            return
        self.no_nulls(parameters["toolCall"])
        self.merge(parameters["toolCall"])
        kinds = [option["kind"] for option in parameters["options"]]
        if len(set(kinds)) != len(kinds):
            self.problem("two options of one kind", parameters["options"])

    def merge(self, update):
        tool = self.tools[update["toolCallId"]]
        for name in TOOL_FIELDS:
            if update.get(name) is not None:
                tool[name] = update[name]
        self.judge(tool, update)

    def judge(self, tool, update):
        for name in ("rawInput", "rawOutput"):
            if name in update and not isinstance(update[name], dict):
                self.problem(f"{name} is no object", update)
        for location in update.get("locations") or []:
            if not location["path"].startswith("/"):
                self.problem("a location is an absolute path", update)
        for item in update.get("content") or []:
            if item["type"] == "diff" and not item["path"].startswith("/"):
                self.problem("a diff's path is absolute", update)
            if item["type"] == "terminal" and item["terminalId"] not in self.terminals:
                self.problem("a terminal that nobody has announced", update)
        if tool.get("kind") != "execute" and "\n" in tool.get("title", ""):
            self.problem("the title has several lines", update)

    def no_nulls(self, update):
        empty = [name for name in TOOL_FIELDS if name in update and update[name] is None]
        if empty:
            self.problem(f"null as {', '.join(empty)}", update)

    # Terminals

    def announce_terminal(self, update):
        """Terminals of the agent's own are known to those alone who asked for them."""

    def terminal_meta(self, update):
        pass

    def created(self, terminal):
        """The editor has made a terminal for the agent."""
        self.terminals[terminal] = {"text": "", "ended": False, "released": False}

    def released(self, terminal):
        showing = [tool for tool in self.tools.values() if self.shows(tool, terminal)]
        if any(tool["status"] not in ENDED for tool in showing):
            self.problem("a terminal is given back before its tool call ended", terminal)
        self.terminals[terminal]["released"] = True

    @staticmethod
    def shows(tool, terminal):
        return any(item.get("terminalId") == terminal for item in tool["content"])

    # What is seen

    def said(self):
        return "\n".join(text for _, text in self.messages)

    def status(self, tool):
        return tool["status"]

    def label(self, tool):
        return tool["title"]

    def texts(self, tool):
        """The text blocks below a tool call, as Markdown."""
        return [item["content"].get("text", "") for item in tool["content"] if item["type"] == "content"]

    def output(self, tool):
        """What a person reads of a command's output."""
        shown = [self.terminals[item["terminalId"]]["text"] for item in tool["content"] if item["type"] == "terminal"]
        return "\n".join(shown + [unfenced(text) or text for text in self.texts(tool)])

    def diffs(self, tool):
        return [(item["path"], item.get("oldText"), item["newText"]) for item in tool["content"] if item["type"] == "diff"]

    def markdown_is_safe(self, tool):
        """Every text below a tool call is one fenced block: line breaks and `# x` stay what they are."""
        return all(unfenced(text) is not None for text in self.texts(tool))

    def of_kind(self, kind):
        return [tool for tool in self.tools.values() if tool.get("kind") == kind]


class Zed(Screen):
    """A terminal is made by `_meta.terminal_info` of a `tool_call` (not of an update), written to and ended by the
    `_meta` of updates, and seen only if the call's content has it. One unknown terminal makes Zed drop the whole frame.
    """

    def announce_terminal(self, update):
        announced = update.get("_meta", {}).get("terminal_info")
        if announced is not None:
            self.created(announced["terminal_id"])

    def terminal_meta(self, update):
        meta = update.get("_meta", {})
        if "terminal_info" in meta:
            self.problem("terminal_info in an update is not read", update)
        for name in ("terminal_output", "terminal_exit"):
            if name in meta and meta[name]["terminal_id"] not in self.terminals:
                self.problem(f"{name} of an unknown terminal", update)
                return
        if "terminal_output" in meta:
            self.terminals[meta["terminal_output"]["terminal_id"]]["text"] += meta["terminal_output"]["data"]
        if "terminal_exit" in meta:
            self.terminals[meta["terminal_exit"]["terminal_id"]]["ended"] = True
            code = meta["terminal_exit"].get("exit_code")
            if code is not None and (not isinstance(code, int) or code < 0):
                self.problem("the exit code is no unsigned number", update)


class JetBrains(Screen):
    """kotlinx.serialization: an unknown word of a closed list, or a missing field, drops the whole frame."""

    KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")

    def judge(self, tool, update):
        super().judge(tool, update)
        if update.get("kind", "other") not in self.KINDS:
            self.problem("an unknown kind", update)
        if update.get("status", "pending") not in STATUSES:
            self.problem("an unknown status", update)
        for location in update.get("locations") or []:
            if location.get("line", 0) < 0:
                self.problem("a line is an unsigned number", update)


class CodeCompanion(Screen):
    """One line for a tool call, `Kind: target`, and nothing while it is pending."""

    def label(self, tool):
        if tool["status"] == "pending":
            return None
        kind = tool["kind"].replace("_", " ").capitalize()
        diffs = self.diffs(tool)
        if diffs:
            return f"{kind}: {diffs[0][0]}"
        if tool.get("locations"):
            return f"{kind}: {tool['locations'][0]['path']}"
        return f"{kind}: {tool['title']}"

    def permission(self, parameters):
        super().permission(parameters)
        call = parameters["toolCall"]
        content = call.get("content") or self.tools[call["toolCallId"]]["content"]
        # The diff that is asked about is looked for in the first block, its file in the first location.
        if any(item["type"] == "diff" for item in content):
            if content[0]["type"] != "diff":
                self.problem("the diff is not the first block of the question", parameters)
            if not call.get("locations"):
                self.problem("the question about a diff has no location", parameters)


class AgentShell(Screen):
    """The command and its output in blocks of its own; a terminal's exit code decides over the status."""

    def judge(self, tool, update):
        super().judge(tool, update)
        command = (update.get("rawInput") or {}).get("command")
        if command is not None and not isinstance(command, str | list):
            self.problem("rawInput.command is neither a text nor a list", update)

    def output(self, tool):
        command = tool.get("rawInput", {}).get("command", "")
        return f"{command}\n{super().output(tool)}"


class Toad(Screen):
    """Typed dictionaries: a field of another type makes the whole update vanish."""

    def judge(self, tool, update):
        super().judge(tool, update)
        if not isinstance(update.get("_meta", {}), dict):
            self.problem("_meta is no object", update)
        for item in update.get("content") or []:
            if item["type"] not in ("content", "diff", "terminal"):
                self.problem("an unknown block", update)

    KNOWN = (
        "user_message_chunk",
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "available_commands_update",
        "current_mode_update",
    )

    def update(self, update):
        # What it does not know is dropped, and complained about: see `Editor.complains`.
        if update["sessionUpdate"] in self.KNOWN:
            super().update(update)


class Obsidian(Screen):
    """Blocks of updates are added to those that are there (but diffs replace diffs), and an update without a
    status is pending: only the last update of a call decides what is seen in the end."""

    def merge(self, update):
        tool = self.tools[update["toolCallId"]]
        before = tool["content"]
        super().merge({"status": "pending", **update})
        if update.get("content") is not None:
            if any(item["type"] == "diff" for item in update["content"]):
                before = [item for item in before if item["type"] != "diff"]
            tool["content"] = before + update["content"]
