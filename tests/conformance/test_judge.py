"""The judge itself: a frame against the schema has to be noticed, or all other tests prove nothing."""

import pytest
from acp_schema import Conversation


def update(**fields):
    return {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": fields}}


def text_chunk(**more):
    return update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "hi"}, **more)


GOOD = [
    text_chunk(messageId="m", _meta={"any": 1}),
    update(sessionUpdate="tool_call", toolCallId="t", title="x", rawInput={"free": {"form": 1}}),
    {"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "end_turn"}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "no"}},
]

BAD = {
    "no version": {**text_chunk(), "jsonrpc": "1.0"},
    "unknown update": update(sessionUpdate="surprise"),
    "content is a list": update(sessionUpdate="agent_message_chunk", content=[{"type": "text", "text": "hi"}]),
    "custom field": text_chunk(eventId=7),
    "custom field in params": {**text_chunk(), "params": {**text_chunk()["params"], "eventId": 7}},
    "custom member of the frame": {**text_chunk(), "extra": 1},
    "unstable update": update(sessionUpdate="plan_removed", planId="p"),
    "wrong status": update(sessionUpdate="tool_call_update", toolCallId="t", status="cancelled"),
    "unknown method": {"jsonrpc": "2.0", "method": "session/surprise", "params": {}},
    "wrong stop reason": {"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "done"}},
    "custom field in a result": {"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "end_turn", "tokens": 1}},
    "result and error": {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": "x"}},
    "error without a message": {"jsonrpc": "2.0", "id": 1, "error": {"code": 1}},
    "nobody asked": {"jsonrpc": "2.0", "id": 99, "result": {}},
    "id of another type": {"jsonrpc": "2.0", "id": "1", "result": {"stopReason": "end_turn"}},
    "not an object": [],
}


def judged(frame):
    conversation = Conversation()
    conversation.client_frame({"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {}})
    return conversation.agent_frame(frame)


@pytest.mark.parametrize("frame", GOOD)
def test_judge_accepts(frame):
    assert judged(frame) == []


@pytest.mark.parametrize("frame", BAD.values(), ids=BAD.keys())
def test_judge_notices(frame):
    assert judged(frame) != []


def test_judge_notices_a_second_answer():
    conversation = Conversation()
    conversation.client_frame({"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {}})
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "end_turn"}}
    assert conversation.agent_frame(answer) == []
    assert conversation.agent_frame(answer) != []
