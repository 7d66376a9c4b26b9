"""SESSION, LOAD, RESUME, LIST, DELETE, CLOSE, ADDDIRS, MODES and CONFIG: the life of a session."""

from agent import is_update_of

HISTORY = {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"}


def here(agent, session, **more):
    return {"sessionId": session, "cwd": agent.cwd, **more}


def updates_between(agent, start, end, session):
    wanted = is_update_of(session)
    return [f["params"]["update"] for f in agent.since(start)[: end - start] if wanted(f)]


def timed_call(agent, method, params):
    """The result, and the updates of the session that came before it."""
    start = agent.position()
    answer = agent.request(method, params)
    assert "result" in answer, f"{method} failed: {answer.get('error')!r}"
    end = start + agent.since(start).index(answer)
    return answer["result"], updates_between(agent, start, end, params["sessionId"])


def test_acp_session_001_new(agent):
    result = agent.new_session()
    assert isinstance(result["sessionId"], str) and result["sessionId"]


def test_acp_session_002_ids_are_distinct(agent):
    ids = [agent.session() for _ in range(5)]
    assert len(set(ids)) == 5


def test_acp_load_001_load(requires):
    agent = requires("loadSession")
    session = agent.session()
    agent.prompt(session, "stream 3")
    assert isinstance(agent.call("session/load", here(agent, session, mcpServers=[])), dict)


def test_acp_load_002_replay_is_complete_before_the_response(requires, start):
    agent = requires("loadSession")
    session = agent.session()
    agent.prompt(session, "stream 50")
    agent.stop()
    again = start()
    again.initialize()
    _, replayed = timed_call(again, "session/load", here(again, session, mcpServers=[]))
    text = "".join(u["content"]["text"] for u in replayed if u["sessionUpdate"] == "agent_message_chunk")
    live = "".join(
        f["params"]["update"]["content"]["text"]
        for f in agent.frames
        if f.get("method") == "session/update" and f["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
    )
    assert text == live != ""
    again.silence(is_update_of(session))


def test_acp_load_003_result_is_an_object(requires):
    agent = requires("loadSession")
    session = agent.session()
    assert isinstance(agent.call("session/load", here(agent, session, mcpServers=[])), dict)


def test_acp_resume_001_without_mcp_servers(requires):
    agent = requires("sessionCapabilities.resume")
    session = agent.session()
    assert isinstance(agent.call("session/resume", here(agent, session)), dict)


def test_acp_resume_002_no_history_before_the_response(requires, start):
    agent = requires("sessionCapabilities.resume")
    session = agent.session()
    agent.prompt(session, "stream 5")
    _, before = timed_call(agent, "session/resume", here(agent, session))
    assert not [u for u in before if u["sessionUpdate"] in HISTORY]
    agent.stop()
    again = start()
    again.initialize()
    _, before = timed_call(again, "session/resume", here(again, session))
    assert not [u for u in before if u["sessionUpdate"] in HISTORY]


def test_acp_list_001_without_filter(requires):
    agent = requires("sessionCapabilities.list")
    session = agent.session()
    agent.prompt(session, "stream 1")
    sessions = agent.call("session/list", {})["sessions"]
    assert session in [each["sessionId"] for each in sessions]


def test_acp_list_002_unused_folder(requires, tmp_path):
    agent = requires("sessionCapabilities.list")
    agent.prompt(agent.session(), "stream 1")
    assert agent.call("session/list", {"cwd": str(tmp_path / "unused")})["sessions"] == []


def test_acp_delete_001_delete(requires):
    agent = requires("sessionCapabilities.delete")
    session = agent.session()
    agent.prompt(session, "stream 1")
    assert agent.call("session/delete", {"sessionId": session}) == {}
    assert session not in [each["sessionId"] for each in agent.call("session/list", {})["sessions"]]


def test_acp_delete_002_unknown_is_no_error(requires):
    agent = requires("sessionCapabilities.delete")
    assert agent.call("session/delete", {"sessionId": "never-created"}) == {}
    session = agent.session()
    assert agent.call("session/delete", {"sessionId": session}) == {}
    assert agent.call("session/delete", {"sessionId": session}) == {}


def test_acp_close_001_idle(requires):
    agent = requires("sessionCapabilities.close")
    session = agent.session()
    assert agent.call("session/close", {"sessionId": session}) == {}


def test_acp_close_002_running_prompt_is_cancelled(requires):
    agent = requires("sessionCapabilities.close")
    for said in ("stream 100000", "run sleep 60"):
        session = agent.session()
        ids = []
        turn = agent.prompt(
            session, said, act=lambda: ids.append(agent.start_request("session/close", {"sessionId": session}))
        )
        assert turn.stop_reason == "cancelled", said
        assert agent.response(ids[0])["result"] == {}


def test_acp_adddirs_001_accepted(requires, tmp_path):
    agent = requires("sessionCapabilities.additionalDirectories")
    more = tmp_path / "more"
    more.mkdir()
    assert agent.new_session(additionalDirectories=[str(more)])["sessionId"]


def test_acp_modes_001_current_is_available(agent):
    modes = agent.new_session()["modes"]
    assert modes["currentModeId"] in [mode["id"] for mode in modes["availableModes"]]


def test_acp_modes_002_set_mode(agent):
    session = agent.new_session()
    current = session["modes"]["currentModeId"]
    other = next(mode["id"] for mode in session["modes"]["availableModes"] if mode["id"] != current)
    start = agent.position()
    agent.call("session/set_mode", {"sessionId": session["sessionId"], "modeId": other})
    changed = agent.wait_for(
        lambda f: f.get("method") == "session/update"
        and f["params"]["update"]["sessionUpdate"] == "current_mode_update",
        timeout=1,
        start=start,
    )
    assert changed is None or changed[0]["params"]["update"]["currentModeId"] == other
    # The mode is kept: a client that comes back is told the same.
    resumed = agent.call("session/resume", here(agent, session["sessionId"]))
    assert resumed["modes"]["currentModeId"] == other


def values(option):
    flat = []
    for each in option["options"]:
        flat += [inner["value"] for inner in each["options"]] if "options" in each else [each["value"]]
    return flat


def test_acp_config_001_current_values_are_valid(agent):
    options = agent.new_session()["configOptions"]
    assert options
    for option in options:
        assert option["type"] == "select"
        assert option["currentValue"] in values(option), option["id"]


def test_acp_config_002_set_returns_the_complete_list(agent):
    session = agent.new_session()
    ids = [option["id"] for option in session["configOptions"]]
    changed = 0
    for option in session["configOptions"]:
        other = next((value for value in values(option) if value != option["currentValue"]), None)
        if other is None:
            continue
        params = {"sessionId": session["sessionId"], "configId": option["id"], "value": other}
        answer = agent.request("session/set_config_option", params)
        if "error" in answer:
            # An option may be for reading only (the sandbox is fixed at the start); it must say so.
            assert answer["error"]["code"] == -32602, answer
            continue
        returned = answer["result"]["configOptions"]
        assert set(ids) <= {each["id"] for each in returned}
        assert next(each for each in returned if each["id"] == option["id"])["currentValue"] == other
        changed += 1
    assert changed


def test_acp_config_003_no_boolean_options_unasked(agent):
    assert all(option["type"] != "boolean" for option in agent.new_session()["configOptions"])


def test_fork_has_the_history_and_a_life_of_its_own(requires):
    """Not a requirement of the kit (unstable), but advertised."""
    agent = requires("sessionCapabilities.fork")
    session = agent.session()
    agent.prompt(session, "stream 3")
    fork = agent.call("session/fork", here(agent, session))["sessionId"]
    assert fork != session
    agent.prompt(fork, "stream 2")
    _, of_fork = timed_call(agent, "session/load", here(agent, fork, mcpServers=[]))
    _, of_origin = timed_call(agent, "session/load", here(agent, session, mcpServers=[]))
    assert said_in(of_fork) == ["stream 3", "stream 2"]
    assert said_in(of_origin) == ["stream 3"]


def said_in(updates):
    return [u["content"]["text"] for u in updates if u["sessionUpdate"] == "user_message_chunk"]
