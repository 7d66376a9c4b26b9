"""The official Python SDK, in the versions that the arguments name, as the client of the real binary.

usage: python.py FOLDER VERSION.., where FOLDER has a folder for each version; each runs in a process of its own.

The same walk as `typescript.test.mjs`: new, stream, permission (allow, reject, cancelled), edit, command with
live output, cancel, load after a restart. Until 0.6 requests were models and names in camel case; since 0.7 they
are arguments and in snake case. Only `Agent` and `Editor` know that.
"""

import asyncio
import json
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version

# The version that is found first: `main` starts a process for each.
import acp
from acp import schema

TAP = pathlib.Path(__file__).parent.parent / "tap.py"
DEADLINE_S = 60
LIMIT_BYTES = 1 << 24
# Kinds of updates that make up what a person reads; every version knows them.
TEXTS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
READ = {*TEXTS, "tool_call", "tool_call_update", "plan"}
ENDED = {"completed", "failed"}
TOOL_FIELDS = ("title", "kind", "status", "content", "locations", "rawInput", "rawOutput")
CAMEL_CASE = not hasattr(acp, "connect_to_agent")


def plain(model):
    return model.model_dump(by_alias=True, exclude_none=True, mode="json")


class Agent:
    """The SDK's connection under one set of names."""

    def __init__(self, editor, process):
        if CAMEL_CASE:
            self.connection = acp.ClientSideConnection(lambda _: editor, process.stdin, process.stdout)
        else:
            self.connection = acp.connect_to_agent(editor, process.stdin, process.stdout)

    async def initialize(self):
        files = {"fs": {"readTextFile": True, "writeTextFile": True}}
        if CAMEL_CASE:
            request = {"protocolVersion": acp.PROTOCOL_VERSION, "clientCapabilities": files}
            return plain(await self.connection.initialize(schema.InitializeRequest.model_validate(request)))
        capabilities = schema.ClientCapabilities.model_validate(files)
        hello = await self.connection.initialize(acp.PROTOCOL_VERSION, client_capabilities=capabilities)
        return plain(hello)

    async def new(self, cwd):
        if CAMEL_CASE:
            request = {"cwd": cwd, "mcpServers": []}
            return plain(await self.connection.newSession(schema.NewSessionRequest.model_validate(request)))["sessionId"]
        return (await self.connection.new_session(cwd=cwd, mcp_servers=[])).session_id

    async def load(self, session, cwd):
        if CAMEL_CASE:
            request = {"sessionId": session, "cwd": cwd, "mcpServers": []}
            await self.connection.loadSession(schema.LoadSessionRequest.model_validate(request))
        else:
            await self.connection.load_session(cwd=cwd, session_id=session, mcp_servers=[])

    async def prompt(self, session, text):
        request = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
        model = schema.PromptRequest.model_validate(request)
        if CAMEL_CASE:
            return plain(await self.connection.prompt(model))["stopReason"]
        return (await self.connection.prompt(session_id=session, prompt=model.prompt)).stop_reason

    async def cancel(self, session):
        if CAMEL_CASE:
            await self.connection.cancel(schema.CancelNotification(sessionId=session))
        else:
            await self.connection.cancel(session_id=session)


class Editor:
    """Keeps what it is told and answers as the walk says, under the names of both ages."""

    def __init__(self):
        self.updates = []
        self.answer = "allow_once"
        self.wrote = None
        self.news = asyncio.Event()

    def on_connect(self, connection):
        pass

    async def sessionUpdate(self, params):  # noqa: N802
        self.take(params.sessionId if CAMEL_CASE else params.session_id, params.update)

    async def session_update(self, session_id, update, **_):
        self.take(session_id, update)

    def take(self, session, update):
        self.updates.append((session, plain(update)))
        self.news.set()

    async def requestPermission(self, params):  # noqa: N802
        return self.decide(params.options)

    async def request_permission(self, session_id, tool_call, options, **_):
        return self.decide(options)

    def decide(self, options):
        if self.answer == "cancelled":
            outcome = {"outcome": "cancelled"}
        else:
            chosen = next(each for each in map(plain, options) if each["kind"] == self.answer)
            outcome = {"outcome": "selected", "optionId": chosen["optionId"]}
        return schema.RequestPermissionResponse.model_validate({"outcome": outcome})

    async def readTextFile(self, params):  # noqa: N802
        return schema.ReadTextFileResponse(content=pathlib.Path(params.path).read_text(encoding="utf-8"))

    async def read_text_file(self, session_id, path, **_):
        return schema.ReadTextFileResponse(content=pathlib.Path(path).read_text(encoding="utf-8"))

    async def writeTextFile(self, params):  # noqa: N802
        self.write(params.path, params.content)

    async def write_text_file(self, session_id, path, content, **_):
        self.write(path, content)

    def write(self, path, content):
        self.wrote = path
        pathlib.Path(path).write_text(content, encoding="utf-8")

    def of(self, session):
        return [update for owner, update in self.updates if owner == session]

    async def until(self, what, condition):
        """Waits for a state: the SDK runs handlers as tasks, which may end after a reply is seen."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not condition():
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            raise AssertionError(f"did not happen in time: {what}") from None


def fold(updates):
    """What a person would have seen at the end; see `history.mjs`."""
    items, tools = [], {}
    for update in updates:
        kind = update["sessionUpdate"]
        if kind in TEXTS:
            last = items[-1] if items else {}
            text = update["content"]["text"]
            # Old versions drop the messages' ids, so neighbours are one text in every version.
            if last.get("message") == kind:
                last["text"] += text
            else:
                items.append({"message": kind, "text": text})
        elif kind in ("tool_call", "tool_call_update"):
            tool = tools.get(update["toolCallId"])
            if tool is None:
                tool = tools[update["toolCallId"]] = {"tool": update["toolCallId"]}
                items.append(tool)
            tool.update({name: update[name] for name in TOOL_FIELDS if update.get(name) is not None})
    return items


def tools(updates):
    return [item for item in fold(updates) if "tool" in item]


def said(updates):
    """All that the agent said. A live stream has no questions in between, so its messages are not told apart."""
    return "".join(item["text"] for item in fold(updates) if item.get("message") == "agent_message_chunk")


def questions(updates):
    return [item["text"] for item in fold(updates) if item.get("message") == "user_message_chunk"]


def text(tool):
    return "".join(item["content"].get("text", "") for item in tool.get("content", []) if item["type"] == "content")


class Server:
    def __init__(self, home):
        self.home = home

    async def __aenter__(self):
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(TAP),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LIMIT_BYTES,
            env={**os.environ, "ROPEWALK_HOME": str(self.home)},
        )
        self.editor = Editor()
        self.agent = Agent(self.editor, self.process)
        hello = await self.agent.initialize()
        assert hello["protocolVersion"] == 1
        assert hello["agentCapabilities"]["loadSession"] is True
        return self.agent, self.editor

    async def __aexit__(self, kind, *_):
        self.process.stdin.close()
        async with asyncio.timeout(DEADLINE_S):
            status = await self.process.wait()
        assert kind is not None or status == 0, "the server exits with 0 when its input ends"


async def walk(root):
    workspace = root / "workspace"
    workspace.mkdir()
    prompts = []
    async with Server(root / "home") as (agent, editor):
        session = await agent.new(str(workspace))

        async def say(text, answer="allow_once"):
            editor.answer = answer
            prompts.append(text)
            return await agent.prompt(session, text)

        async def ended(count):
            """The tool calls' states, once the SDK has handled every update of the turn."""

            def states():
                return [tool["status"] for tool in tools(editor.of(session))]

            await editor.until(f"{count} tool calls ended", lambda: sum(map(ENDED.__contains__, states())) == count)
            return states()

        assert await say("stream 3") == "end_turn"
        await editor.until("the stream is seen", lambda: "chunk 3" in said(editor.of(session)))

        assert await say("run touch allowed.txt") == "end_turn"
        assert await say("run touch rejected.txt", "reject_once") == "end_turn"
        assert await say("run touch closed.txt", "cancelled") == "cancelled"
        assert await ended(3) == ["completed", "failed", "failed"]
        there = [(workspace / f"{name}.txt").exists() for name in ("allowed", "rejected", "closed")]
        assert there == [True, False, False]

        note = workspace / "note.txt"
        note.write_text("one\n", encoding="utf-8")
        assert await say("edit note.txt: one => two") == "end_turn"
        assert (await ended(4))[-1] == "completed"
        assert note.read_text(encoding="utf-8") == "two\n" and editor.wrote == str(note)
        (diff,) = [item for item in tools(editor.of(session))[-1]["content"] if item["type"] == "diff"]
        assert (diff["oldText"], diff["newText"]) == ("one\n", "two\n")

        def lines():
            return text(tools(editor.of(session))[-1]).splitlines()

        running = asyncio.create_task(say("run echo first; while [ ! -e gate ]; do sleep 0.02; done; echo last"))
        await editor.until("the first line is seen", lambda: "first" in lines())
        assert tools(editor.of(session))[-1]["status"] == "in_progress"
        (workspace / "gate").touch()
        assert await running == "end_turn"
        assert (await ended(5))[-1] == "completed"
        assert "first\nlast" in text(tools(editor.of(session))[-1])

        other = await agent.new(str(workspace))
        flood = asyncio.create_task(agent.prompt(other, "stream 100000"))
        await editor.until("the stream began", lambda: said(editor.of(other)))
        await agent.cancel(other)
        assert await flood == "cancelled"
        assert await agent.prompt(other, "stream 2") == "end_turn"
        streamed = editor.of(session)

    async with Server(root / "home") as (agent, again):
        await agent.load(session, str(workspace))
        await again.until("the replay is handled", lambda: len(said(again.of(session))) >= len(said(streamed)))
        replayed = again.of(session)
        assert questions(replayed) == prompts
        assert said(replayed) == said(streamed)
        assert tools(replayed) == tools(streamed)
        assert await agent.prompt(session, "stream 2") == "end_turn"
    return editor.updates + again.updates


def unknown(record, updates):
    """The kinds of updates that the server sent and the SDK did not hand on."""
    sent = set()
    for path in record.glob("*.jsonl"):
        for entry in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            frame = json.loads(entry["line"]) if entry.get("from") == "server" else {}
            if frame.get("method") == "session/update":
                sent.add(frame["params"]["update"]["sessionUpdate"])
    return sorted(sent - {update["sessionUpdate"] for _, update in updates})


def run(wanted):
    found = version("agent-client-protocol")
    assert found == wanted, f"{wanted} is wanted and {found} is found"
    # It complains about each update that it does not know.
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="ropewalk-sdk-") as root:
        root = pathlib.Path(root)
        # A record of its own, so that the updates can be counted; it is kept where the rig wants it.
        kept, record = os.environ.get("ACP_TAP_DIR"), root / "record"
        os.environ["ACP_TAP_DIR"] = str(record)
        try:
            missed = unknown(record, asyncio.run(asyncio.wait_for(walk(root), 3 * DEADLINE_S)))
        finally:
            if kept:
                shutil.copytree(record, kept, dirs_exist_ok=True)
    print(f"agent-client-protocol {wanted}: {'does not know ' + ', '.join(missed) if missed else 'knows every update'}")
    assert not READ & set(missed), "what a person reads arrives"


def main(installed, versions):
    failed = []
    for wanted in versions:
        environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(installed) / wanted), "SDK_VERSION": wanted}
        if subprocess.run([sys.executable, __file__], env=environment, check=False).returncode != 0:
            failed.append(wanted)
    return f"failed: {', '.join(failed)}" if failed else 0


if __name__ == "__main__":
    if "SDK_VERSION" in os.environ:
        run(os.environ["SDK_VERSION"])
    else:
        sys.exit(main(sys.argv[1], sys.argv[2:]))
