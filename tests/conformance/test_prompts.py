"""PROMPT, PROMPTCAP, CANCEL and META: what a turn accepts and how it ends."""

import base64
import struct
import zlib

import pytest
from agent import STOP_REASONS, is_update_of, text


def png():
    """One white pixel."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\xff")) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


def test_acp_prompt_001_stop_reason_is_defined(agent):
    assert agent.prompt(agent.session(), "hello").stop_reason in STOP_REASONS


def test_acp_prompt_002_updates_name_their_session(agent):
    first, second = agent.session(), agent.session()
    for session in (first, second, first):
        turn = agent.prompt(session, "stream 5")
        # What else a session has to tell, such as its commands, may come while another one's turn runs.
        said = [update for update in turn.updates if update["update"]["sessionUpdate"].endswith("_chunk")]
        assert said
        assert {update["sessionId"] for update in said} == {session}


def test_acp_prompt_003_resource_link(agent):
    link = {"type": "resource_link", "uri": f"file://{agent.cwd}/a.txt", "name": "a.txt"}
    assert agent.prompt(agent.session(), [text("hello"), link]).stop_reason in STOP_REASONS


def test_acp_promptcap_001_image(requires):
    agent = requires("promptCapabilities.image")
    image = {"type": "image", "mimeType": "image/png", "data": png()}
    assert agent.prompt(agent.session(), [text("hello"), image]).stop_reason in STOP_REASONS


def test_acp_promptcap_002_audio(agent):
    """Not advertised: a prompt with audio is answered all the same, if only with a refusal."""
    sound = {"type": "audio", "mimeType": "audio/wav", "data": base64.b64encode(b"RIFF").decode()}
    turn = agent.prompt(agent.session(), [text("hello"), sound])
    if agent.hello["agentCapabilities"].get("promptCapabilities", {}).get("audio"):
        assert turn.stop_reason in STOP_REASONS
    elif "error" in turn.answer:
        assert turn.answer["error"]["code"] == -32602
    else:
        assert turn.stop_reason in STOP_REASONS


@pytest.mark.parametrize("content", [{"text": "fn main() {}"}, {"blob": base64.b64encode(b"\0\1").decode()}])
def test_acp_promptcap_003_embedded_context(requires, content):
    agent = requires("promptCapabilities.embeddedContext")
    resource = {"type": "resource", "resource": {"uri": "file:///main.rs", **content}}
    assert agent.prompt(agent.session(), [text("hello"), resource]).stop_reason in STOP_REASONS


def cancel(agent, session):
    return lambda: agent.notify("session/cancel", {"sessionId": session})


@pytest.mark.parametrize("said", ["stream 100000", "sleep 60000", "run sleep 60"])
def test_acp_cancel_001_ends_as_cancelled(agent, said):
    session = agent.session()
    if said.startswith("sleep"):
        # Nothing may come before the end: cancel without waiting for a sign of life.
        id = agent.start_request("session/prompt", {"sessionId": session, "prompt": [text(said)]})
        cancel(agent, session)()
        assert agent.response(id)["result"]["stopReason"] == "cancelled"
    else:
        assert agent.prompt(session, said, act=cancel(agent, session)).stop_reason == "cancelled"


def test_acp_cancel_002_no_update_after_the_response(agent):
    session = agent.session()
    turn = agent.prompt(session, "stream 100000", act=cancel(agent, session))
    assert turn.stop_reason == "cancelled"
    agent.silence(is_update_of(session), start=turn.end)
    assert agent.prompt(session, "stream 2").stop_reason == "end_turn"


def test_acp_meta_001_meta_is_accepted(agent):
    meta = {"traceparent": "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01", "example.com/own": {"a": [1]}}
    assert agent.prompt(agent.session(), "hello", _meta=meta).stop_reason in STOP_REASONS
