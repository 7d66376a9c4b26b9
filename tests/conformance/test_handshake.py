"""INIT, SCHEMA, AUTH and CLIENTCAP: what is agreed at the start, and what follows from it."""

from acp_schema import check_payload


def test_acp_init_001_result_is_valid(raw):
    result = raw.initialize()
    assert check_payload("Response", "initialize", result) == []
    assert type(result["protocolVersion"]) is int


def test_acp_init_002_version_1(raw):
    assert raw.initialize(1)["protocolVersion"] == 1


def test_acp_init_003_unsupported_version_is_not_echoed(raw):
    info = {"name": "from-the-future", "version": "9"}
    assert raw.initialize(65535, info=info)["protocolVersion"] == 1


def test_acp_init_004_agent_info(agent):
    info = agent.hello["agentInfo"]
    assert info["name"] == "ropewalk"
    assert info["version"]


def test_acp_schema_001_a_whole_exchange_is_valid(agent):
    """The harness judges each frame; this test only sees to it that there are many kinds of them."""
    session = agent.session()
    for said in ("stream 3", "run echo hi", "write a.txt: b", "read a.txt", "list", "think", "plan"):
        assert agent.prompt(session, said).stop_reason == "end_turn", said
    agent.call("session/list", {})
    agent.call("session/load", {"sessionId": session, "cwd": agent.cwd, "mcpServers": []})
    agent.call("session/close", {"sessionId": session})
    agent.stop()
    kinds = {f["params"]["update"]["sessionUpdate"] for f in agent.frames if f.get("method") == "session/update"}
    chunks = {"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"}
    assert chunks | {"tool_call", "tool_call_update", "plan"} <= kinds
    assert agent.problems == []


def test_acp_schema_002_no_unknown_fields(agent):
    """The walk over unknown keys is part of the harness's check; here each result is checked once more by name."""
    session = agent.new_session()
    assert check_payload("Response", "session/new", session) == []
    turn = agent.prompt(session["sessionId"], "run echo hi")
    assert check_payload("Response", "session/prompt", turn.answer["result"]) == []
    for update in turn.updates:
        assert check_payload("Notification", "session/update", update) == []
    for call in turn.calls:
        assert check_payload("Request", call["method"], call["params"]) == []


def test_acp_auth_001_method_ids_are_unique(agent):
    ids = [method["id"] for method in agent.hello.get("authMethods", [])]
    assert len(ids) == len(set(ids))


def test_acp_auth_002_no_terminal_method_unasked(agent):
    assert all(method.get("type") != "terminal" for method in agent.hello.get("authMethods", []))


def test_acp_auth_003_session_after_authenticate(agent):
    """With methods on offer, one of them opens the door; with none, an invented one is refused and no door is shut."""
    methods = agent.hello.get("authMethods", [])
    answer = agent.request("authenticate", {"methodId": methods[0]["id"] if methods else "never-offered"})
    assert "error" in answer or isinstance(answer["result"], dict)
    if not methods:
        assert answer["error"]["code"] != -32000
    assert agent.session()


def test_acp_auth_004_logout(requires):
    agent = requires("auth.logout")
    assert agent.call("logout", {}) == {}


def test_acp_auth_005_no_auth_error_without_methods(agent):
    answer = agent.request("session/new", {"cwd": agent.cwd, "mcpServers": []})
    if not agent.hello.get("authMethods"):
        assert answer.get("error", {}).get("code") != -32000
    assert "result" in answer


def use_files_and_commands(agent):
    session = agent.session()
    said = ("write a.txt: hello", "read a.txt", "list", "run cat a.txt")
    return [agent.prompt(session, each) for each in said]


def test_acp_clientcap_001_no_file_calls_unasked(agent):
    for turn in use_files_and_commands(agent):
        assert turn.stop_reason == "end_turn"
        assert turn.called("fs/") == []


def test_acp_clientcap_002_no_terminal_calls_unasked(agent):
    for turn in use_files_and_commands(agent):
        assert turn.stop_reason == "end_turn"
        assert turn.called("terminal/") == []


def test_acp_clientcap_003_no_elicitation_unasked(agent):
    for turn in use_files_and_commands(agent):
        assert turn.called("elicitation/") == []
