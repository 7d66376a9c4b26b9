"""TRANSPORT, JSONRPC, EXT, ERROR, SHUTDOWN and the informational rows: what holds for any line."""

import json

import pytest
from agent import METHOD_NOT_FOUND, is_response


def exchange(agent):
    """A bit of everything: text, a tool with a question, an error."""
    session = agent.session()
    agent.prompt(session, "stream 5")
    agent.prompt(session, "run echo hello")
    agent.prompt(session, "plan")
    agent.request("_ropewalk_test/unknown")
    return session


def test_acp_transport_001_each_line_is_one_message(agent):
    exchange(agent)
    agent.stop()
    for line, frame in zip(agent.lines, agent.frames, strict=True):
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        assert isinstance(frame, dict), f"not an object: {line!r}"
        assert frame["jsonrpc"] == "2.0"
        assert "method" in frame or "id" in frame


def test_acp_transport_002_output_is_utf8(agent):
    session = agent.session()
    agent.prompt(session, "write grüße.txt: Grüße, 世界 🪢")
    agent.prompt(session, "read grüße.txt")
    agent.stop()
    output = b"".join(agent.lines).decode("utf-8", "strict")
    assert "世界" in json.dumps([json.loads(line) for line in output.splitlines()], ensure_ascii=False)


@pytest.mark.parametrize("id", [0, 7, 2**53, -1, "abc", "7", ""])
def test_acp_jsonrpc_001_id_echoed(agent, id):
    answer = agent.request("session/list", {}, id=id)
    assert json.dumps(answer["id"]) == json.dumps(id)


def test_acp_jsonrpc_002_result_or_error(agent):
    for method, params in [("session/list", {}), ("session/new", {"mcpServers": []}), ("no/such", {})]:
        answer = agent.request(method, params)
        assert ("result" in answer) != ("error" in answer)
        if "error" in answer:
            assert isinstance(answer["error"]["code"], int)
            assert isinstance(answer["error"]["message"], str)


def test_acp_jsonrpc_003_notifications_get_no_response(agent):
    start = agent.position()
    agent.notify("_ropewalk_test/unknown", {"any": "thing"})
    agent.notify("no/such_method")
    agent.notify("session/cancel", {"sessionId": "never-created"})
    agent.notify("session/cancel", {"session": "wrong field"})
    agent.notify("$/cancel_request", {"requestId": 999})
    agent.silence(is_response, start=start)


def test_acp_jsonrpc_004_unknown_method(agent):
    for method in ("no/such_method", "_ropewalk_test/unknown", "session/no_such"):
        assert agent.request(method, {})["error"]["code"] == METHOD_NOT_FOUND


def test_acp_jsonrpc_005_usable_after_an_error(agent):
    assert "error" in agent.request("session/new", {"cwd": 5})
    assert "error" in agent.request("session/prompt", {})
    assert "error" in agent.request("no/such", [])
    assert agent.session()


def test_acp_ext_001_custom_requests_are_answered(agent):
    for params in (None, {}, {"deep": [{"er": None}]}):
        assert is_response(agent.request("_ropewalk_test/custom", params))


def test_acp_error_001_message_is_one_line(agent):
    answers = [
        agent.request("_ropewalk_test/unknown"),
        agent.request("session/new", {"mcpServers": []}),
        agent.request("session/new", {"cwd": "line\nbreak", "mcpServers": []}),
        agent.request("session/prompt", {"sessionId": "no\nsuch", "prompt": []}),
    ]
    for answer in answers:
        message = answer["error"]["message"]
        assert message and "\n" not in message


def test_acp_shutdown_001_exits_when_input_closes(agent):
    agent.session()
    agent.close_input()
    assert agent.wait_exit() == 0


def test_acp_stderr_001_logs_stay_off_the_wire(agent):
    """Informational in the kit (it counts the bytes). Here: stderr is text, and stdout is not a log."""
    exchange(agent)
    agent.stop()
    agent.stderr.decode("utf-8")
    assert all(isinstance(frame, dict) for frame in agent.frames)


@pytest.mark.parametrize("line", [b"{not json\n", b"\xff\xfe\n", b'{"jsonrpc":"2.0","id":1,"method":\n'])
def test_acp_info_parse_001_bad_json(agent, line):
    """Informational in the kit. Ours: -32700 with a null id, and the connection goes on."""
    start = agent.position()
    agent.send_bytes(line)
    frame, _ = agent.wait_for(is_response, start=start)
    assert frame["id"] is None
    assert frame["error"]["code"] == -32700
    assert agent.session()


NOT_REQUESTS = [b'{"foo":"bar"}\n', b"[1]\n", b"[]\n", b"17\n", b'{"jsonrpc":"1.0","id":77,"method":"x"}\n']


@pytest.mark.parametrize("line", NOT_REQUESTS)
def test_acp_info_invalidreq_001_not_a_request(agent, line):
    """Informational in the kit. Ours: -32600, and the connection goes on."""
    start = agent.position()
    agent.send_bytes(line)
    frame, _ = agent.wait_for(is_response, start=start)
    assert frame["error"]["code"] == -32600
    assert agent.session()


def test_acp_info_unknownsession_001_prompt(agent):
    """Informational in the kit. Ours: -32002 that names the session."""
    agent.session()
    answer = agent.request("session/prompt", {"sessionId": "never-created", "prompt": [{"type": "text", "text": "hi"}]})
    assert answer["error"]["code"] == -32002
    assert answer["error"]["data"]["sessionId"] == "never-created"
