"""The official Python SDK as the client of the real binary.

The SDK parses every message into its own models, so this also proves that a client built on
pydantic can read what the server sends. One test is one walk of a user, with as few server
processes as the walk needs.
"""

import asyncio
import os
import pathlib
import sys
from contextlib import asynccontextmanager

import acp
import pytest
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

TAP = pathlib.Path(__file__).parent.parent / "tap.py"
DEADLINE_S = 60
TOOL_FIELDS = ("title", "kind", "status", "content", "locations", "rawInput", "rawOutput")


class Editor(acp.Client):
    """Keeps what it is told and answers questions as the test says."""

    def __init__(self):
        self.updates = []
        self.asked = []
        self.answer = "reject_once"
        self.news = asyncio.Event()

    async def session_update(self, session_id, update, **_):
        self.updates.append((session_id, update.model_dump(by_alias=True, exclude_none=True, mode="json")))
        self.news.set()

    async def request_permission(self, session_id, tool_call, options, **_):
        self.asked.append((tool_call.tool_call_id, [option.kind for option in options]))
        self.news.set()
        if self.answer == "cancelled":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = next(option for option in options if option.kind == self.answer)
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen.option_id))

    def of(self, session_id):
        return [update for session, update in self.updates if session == session_id]

    async def until(self, what, condition):
        """Waits for a state: the SDK runs handlers as tasks, which may end after a reply is seen."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not condition():
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            pytest.fail(f"did not happen in time: {what}")


def fold(updates):
    """What a person would have seen at the end: messages, tool calls and plans in their order."""
    items, tools, plan = [], {}, None
    for update in updates:
        kind = update["sessionUpdate"]
        if kind in ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk"):
            last = items[-1] if items else {}
            text = update["content"].get("text", repr(update["content"]))
            if last.get("message") == kind and last["id"] == update.get("messageId"):
                last["text"] += text
            else:
                items.append({"message": kind, "id": update.get("messageId"), "text": text})
        elif kind in ("tool_call", "tool_call_update"):
            tool = tools.get(update["toolCallId"])
            if tool is None:
                tool = tools[update["toolCallId"]] = {"tool": update["toolCallId"]}
                items.append(tool)
            tool.update({field: update[field] for field in TOOL_FIELDS if update.get(field) is not None})
        elif kind == "plan":
            if plan is None:
                plan = {}
                items.append(plan)
            plan["plan"] = update["entries"]
    return items


def answers(updates):
    kept = [item for item in fold(updates) if item.get("message") != "user_message_chunk"]
    return [{key: value for key, value in item.items() if key != "id"} for item in kept]


def questions(updates):
    return [item["text"] for item in fold(updates) if item.get("message") == "user_message_chunk"]


def tools(updates):
    return [item for item in fold(updates) if "tool" in item]


@asynccontextmanager
async def connect(home):
    """A fresh server process with an editor on it; leaving closes its input and expects exit 0."""
    environment = {**os.environ, "ROPEWALK_HOME": str(home)}
    editor = Editor()
    async with acp.spawn_agent_process(
        editor, sys.executable, str(TAP), env=environment, transport_kwargs={"stderr": None, "limit": 1 << 24}
    ) as (agent, server):
        hello = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        assert hello.protocol_version == 1
        assert hello.agent_capabilities.load_session
        yield agent, editor
    assert server.returncode == 0, "the server exits with 0 when its input ends"


async def say(agent, session, text):
    reply = await agent.prompt(session_id=session, prompt=[acp.text_block(text)])
    return reply.stop_reason


def run(walk):
    async def limited():
        async with asyncio.timeout(2 * DEADLINE_S):
            await walk

    asyncio.run(limited())


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def test_python_sdk_allows_one_command_and_rejects_another(home, workspace):
    async def walk():
        async with connect(home) as (agent, editor):
            session = (await agent.new_session(cwd=str(workspace), mcp_servers=[])).session_id
            editor.answer = "allow_once"
            assert await say(agent, session, "run touch allowed.txt") == "end_turn"
            editor.answer = "reject_once"
            assert await say(agent, session, "run touch rejected.txt") == "end_turn"

            assert (workspace / "allowed.txt").exists()
            assert not (workspace / "rejected.txt").exists()
            allowed, rejected = tools(editor.of(session))
            assert (allowed["status"], rejected["status"]) == ("completed", "failed")
            assert [tool for tool, _ in editor.asked] == [allowed["tool"], rejected["tool"]]
            for _, kinds in editor.asked:
                assert sorted(kinds) == ["allow_always", "allow_once", "reject_always", "reject_once"]

    run(walk())


def test_python_sdk_cancels_a_running_prompt(home, workspace):
    async def walk():
        async with connect(home) as (agent, editor):
            session = (await agent.new_session(cwd=str(workspace), mcp_servers=[])).session_id
            running = asyncio.create_task(say(agent, session, "stream 100000"))
            await editor.until("the stream began", lambda: editor.of(session))
            await agent.cancel(session_id=session)
            assert await running == "cancelled"
            assert await say(agent, session, "stream 3") == "end_turn"

    run(walk())


def test_python_sdk_loads_after_a_restart_what_was_streamed(home, workspace):
    prompts = ["stream 20", "write note.txt: two\nlines", "run echo loud", "run echo no", "think", "plan"]

    async def walk():
        async with connect(home) as (agent, editor):
            session = (await agent.new_session(cwd=str(workspace), mcp_servers=[])).session_id
            for text in prompts:
                editor.answer = "reject_once" if text == "run echo no" else "allow_once"
                assert await say(agent, session, text) == "end_turn"
            streamed = editor.of(session)
        assert (workspace / "note.txt").read_text(encoding="utf-8").rstrip() == "two\nlines"

        async with connect(home) as (agent, editor):
            listed = await agent.list_sessions(cwd=str(workspace))
            assert session in [each.session_id for each in listed.sessions]
            await agent.load_session(cwd=str(workspace), session_id=session, mcp_servers=[])
            await editor.until("the replay is handled", lambda: len(fold(editor.of(session))) >= len(fold(streamed)))
            assert await say(agent, session, "sleep 1") == "end_turn"
            replayed = editor.of(session)
            assert questions(replayed)[: len(prompts)] == prompts
            assert answers(replayed)[: len(answers(streamed))] == answers(streamed)

    run(walk())
