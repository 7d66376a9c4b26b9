"""Each known editor's exact way through the real binary, and what a person would see in it.

All tests of one editor share a server process, each has a session of its own; the last one starts a second
process. A problem that a screen noticed on the way fails the test that closes the connection.
"""

from contextlib import contextmanager

import pytest
from connection import Connection, Refused
from editors import EDITORS
from screens import unfenced

# Said at once, then waits for the test: live output is output that is seen before the command ends.
LIVE = "run echo '# first'; while [ ! -e {gate} ]; do sleep 0.02; done; echo '```'; echo last"


@pytest.fixture(scope="module", params=EDITORS, ids=lambda editor: editor.name)
def editor(request):
    return request.param


@pytest.fixture(scope="module")
def place(editor, tmp_path_factory):
    root = tmp_path_factory.mktemp(editor.name.replace(".", "-"))
    (root / "workspace").mkdir()
    return root


@pytest.fixture(scope="module")
def connection(editor, place):
    """The editor at a server; leaving says what went wrong on the way."""
    connection = Connection(editor, place / "home", place / "workspace")
    try:
        connection.start()
        yield connection
        problems = connection.leave()
    finally:
        connection.kill()
    assert not problems, "\n".join(problems)


@pytest.fixture
def session(connection):
    return connection.new_session()[0]


@pytest.fixture
def workspace(place):
    return place / "workspace"


def only(found):
    (single,) = found
    return single


def output_has(screen, line):
    """Whether a command's output has this line: in a terminal that is shown, or in a text. Its title is no output."""
    blocks = [item for tool in screen.of_kind("execute") for item in tool["content"]]
    terminals = [screen.terminals[item["terminalId"]]["text"] for item in blocks if item["type"] == "terminal"]
    texts = [item["content"]["text"] for item in blocks if item["type"] == "content"]
    return any(line in text.splitlines() for text in terminals + texts)


def test_editor_is_greeted_in_words_that_it_reads(connection):
    hello = connection.hello
    assert hello["protocolVersion"] == 1
    assert hello["agentInfo"]["name"] and hello["agentInfo"]["version"]
    assert hello["agentCapabilities"]["loadSession"] is True
    # Markers are objects (JetBrains reads nothing else), and what is false is left out (agent-shell shows it).
    assert all(isinstance(each, dict) for each in hello["agentCapabilities"]["sessionCapabilities"].values())
    assert all(each is True for each in hello["agentCapabilities"]["promptCapabilities"].values())
    # The first method is taken without asking by CodeCompanion and marimo: it must succeed.
    first = hello["authMethods"][0]["id"]
    assert connection.request("authenticate", {"methodId": first}) == {}


def test_editor_streams_an_answer(connection, session):
    assert connection.prompt(session, "stream 3") == "end_turn"
    screen = connection.screens[session]
    assert "chunk 3" in screen.said()
    if not connection.editor.complains:
        assert screen.title == "stream 3"
    assert all(command["name"] and command["description"] for command in screen.commands)


def test_editor_finds_one_picker_of_each_kind(connection):
    _, created = connection.new_session()
    options = {option["id"]: option for option in created["configOptions"]}
    categories = [option["category"] for option in options.values() if "category" in option]
    for category in ("mode", "model", "thought_level"):
        assert categories.count(category) == 1, categories
    assert options["thinking"]["category"] == "thought_level"
    for option in options.values():
        if option["type"] == "select":
            assert option["currentValue"] in [each["value"] for each in option["options"]]
    modes = created["modes"]
    assert modes["currentModeId"] in [mode["id"] for mode in modes["availableModes"]]


def test_editor_shows_that_an_unknown_mode_is_no_mode(connection, session):
    with pytest.raises(Refused) as refused:
        connection.request("session/set_mode", {"sessionId": session, "modeId": "no such mode"})
    assert refused.value.code == -32602


def test_editor_allows_a_command(connection, session, workspace):
    assert connection.prompt(session, "run touch allowed.txt", "allow_once") == "end_turn"
    assert (workspace / "allowed.txt").exists()
    screen = connection.screens[session]
    tool = only(screen.of_kind("execute"))
    assert screen.status(tool) == "completed"
    assert "touch allowed.txt" in screen.label(tool)
    assert tool["rawInput"]["command"] == "touch allowed.txt"
    # Most show an option by its name: "always" says what it is about.
    names = {option["kind"]: option["name"] for option in connection.asked[-1]["parameters"]["options"]}
    assert "touch" in names["allow_always"] and "touch" in names["reject_always"]


def test_editor_rejects_a_command(connection, session, workspace):
    # Not a refusal: Zed would take the person's message away.
    assert connection.prompt(session, "run touch rejected.txt", "reject_once") == "end_turn"
    assert not (workspace / "rejected.txt").exists()
    screen = connection.screens[session]
    assert screen.status(only(screen.of_kind("execute"))) == "failed"


def test_editor_closes_a_question_and_the_turn_is_over(connection, session, workspace):
    if not connection.editor.sends_cancelled:
        pytest.skip("it has no way to close a question")
    assert connection.prompt(session, "run touch closed.txt", "cancelled") == "cancelled"
    assert not (workspace / "closed.txt").exists()
    screen = connection.screens[session]
    assert screen.status(only(screen.of_kind("execute"))) == "failed"
    assert connection.prompt(session, "stream 2") == "end_turn"


def test_editor_cancels_while_a_question_is_open(connection, session, workspace):
    connection.answer = None
    prompt = connection.start_prompt(session, "run touch never.txt")
    connection.until("the question came", lambda: any(not each["answered"] for each in connection.asked))
    connection.cancel(session)
    assert connection.end_prompt(prompt) == "cancelled"
    assert not (workspace / "never.txt").exists()
    screen = connection.screens[session]
    assert screen.status(only(screen.of_kind("execute"))) == "failed"


def test_editor_shows_the_diff_it_is_asked_about(connection, session, workspace):
    path = workspace / "note.md"
    path.write_text("# one\ntwo\n", encoding="utf-8")
    ask = {"sessionId": session, "configId": "approval", "value": "suggest"}
    connection.request("session/set_config_option", ask)
    assert connection.prompt(session, "edit note.md: one => three", "allow_once") == "end_turn"
    assert path.read_text(encoding="utf-8") == "# three\ntwo\n"

    question = connection.asked[-1]["parameters"]["toolCall"]
    diff = question["content"][0]
    assert (diff["type"], diff["path"]) == ("diff", str(path))
    assert "one" in diff["oldText"] and "three" in diff["newText"]
    assert question["locations"][0]["path"] == str(path)

    screen = connection.screens[session]
    tool = only(screen.of_kind("edit"))
    assert screen.status(tool) == "completed"
    assert "note.md" in screen.label(tool)
    shown = only(screen.diffs(tool))
    assert shown[0] == str(path) and "one" in shown[1] and "three" in shown[2]


def test_editor_shows_a_new_file_as_a_diff(connection, session, workspace):
    path = workspace / "new.txt"
    path.unlink(missing_ok=True)
    assert connection.prompt(session, "write new.txt: fresh") == "end_turn"
    assert path.read_text(encoding="utf-8") == "fresh\n"
    screen = connection.screens[session]
    tool = only(screen.of_kind("edit"))
    assert screen.status(tool) == "completed"
    # An editor that reads a missing file as an empty text has had that text.
    old = "" if connection.editor.reads_missing_as_empty else None
    assert only(screen.diffs(tool)) == (str(path), old, "fresh\n")


def test_editor_shows_a_file_as_it_is(connection, session, workspace):
    (workspace / "odd.md").write_text("# not a heading\n```\n* not a list\n", encoding="utf-8")
    assert connection.prompt(session, "read odd.md") == "end_turn"
    screen = connection.screens[session]
    tool = only(screen.of_kind("read"))
    assert screen.status(tool) == "completed"
    assert tool["locations"][0]["path"] == str(workspace / "odd.md")
    assert screen.markdown_is_safe(tool), tool["content"]
    assert "# not a heading\n```\n* not a list" in unfenced(screen.texts(tool)[-1])


def test_editor_shows_a_commands_output_while_it_runs(connection, session, workspace):
    gate = workspace / "gate-own"
    gate.unlink(missing_ok=True)
    connection.answer = "allow_once"
    screen = connection.screens[session]
    prompt = connection.start_prompt(session, LIVE.format(gate=gate.name))

    connection.until("the first line is seen", lambda: output_has(screen, "# first"))
    tool = only(screen.of_kind("execute"))
    assert tool["status"] not in ("completed", "failed")
    gate.touch()
    assert connection.end_prompt(prompt) == "end_turn"
    assert screen.status(tool) == "completed"
    assert "# first" in screen.output(tool) and "last" in screen.output(tool)
    assert screen.markdown_is_safe(tool), tool["content"]
    if connection.editor.streams_terminals:
        terminal = only([item["terminalId"] for item in tool["content"] if item["type"] == "terminal"])
        assert screen.terminals[terminal] == {"text": "# first\n```\nlast\n", "ended": True, "released": False}


def test_editor_cancels_a_running_command(connection, session):
    connection.answer = "allow_once"
    screen = connection.screens[session]
    prompt = connection.start_prompt(session, "run echo begun; sleep 600")
    connection.until("the command runs", lambda: output_has(screen, "begun"))
    connection.cancel(session)
    assert connection.end_prompt(prompt) == "cancelled"
    assert screen.status(only(screen.of_kind("execute"))) == "failed"
    assert connection.prompt(session, "stream 2") == "end_turn"


TURNS = [
    ("stream 3", None),
    ("write again.txt: two\nlines", None),
    ("run echo loud", "allow_once"),
    ("run touch no", "reject_once"),
]


def test_editor_sees_the_same_after_a_restart(editor, place, connection):
    session, _ = connection.new_session()
    never_prompted, _ = connection.new_session()
    for text, answer in TURNS:
        assert connection.prompt(session, text, answer) == "end_turn"
    before = connection.screens[session]

    again = Connection(editor, place / "home", place / "workspace")
    try:
        again.start()
        if editor.lists:
            listed = again.request("session/list", {"cwd": str(place / "workspace")})["sessions"]
            titles = {each["sessionId"]: each.get("title") for each in listed}
            assert titles[session] == "stream 3"
            assert never_prompted not in titles
            assert all(each["updatedAt"] for each in listed)
        again.load(session)
        after = again.screens[session]
        assert [text for _, text in after.user] == [text for text, _ in TURNS]
        assert after.said() == before.said()
        seen = list(zip(before.tools.values(), after.tools.values(), strict=True))
        assert [after.status(now) for _, now in seen] == ["completed", "completed", "failed"]
        for then, now in seen:
            assert after.label(now) == before.label(then)
            assert after.diffs(now) == before.diffs(then)
        assert output_has(after, "loud")
        assert all(after.markdown_is_safe(now) for _, now in seen if now["status"] == "completed")
        assert again.prompt(session, "stream 2") == "end_turn"
        assert again.leave() == []
    finally:
        again.kill()


with_terminal = pytest.mark.parametrize(
    "editor", [editor for editor in EDITORS if editor.has_terminal], ids=lambda editor: editor.name
)


@contextmanager
def without_sandbox(editor, tmp_path):
    """An editor's connection whose commands run in its terminal, a session on it, and its folder."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    connection = Connection(editor, tmp_path / "home", workspace, ["--sandbox", "off"])
    try:
        connection.start()
        session, _ = connection.new_session()
        yield connection, session, workspace
        assert connection.leave() == []
    finally:
        connection.kill()


@with_terminal
def test_editor_runs_commands_in_its_own_terminal(editor, tmp_path):
    """Without a sandbox commands run in the editor's terminal, which is given back last."""
    with without_sandbox(editor, tmp_path) as (connection, session, workspace):
        screen = connection.screens[session]
        gate = workspace / "gate"
        prompt = connection.start_prompt(session, LIVE.format(gate=gate.name))
        connection.until("the first line is seen", lambda: output_has(screen, "# first"))
        gate.touch()
        assert connection.end_prompt(prompt) == "end_turn"
        tool = only(screen.of_kind("execute"))
        assert screen.status(tool) == "completed"
        terminal = only({item["terminalId"] for item in tool["content"] if item["type"] == "terminal"})
        assert screen.terminals[terminal]["text"] == "# first\n```\nlast\n"
        connection.until("the terminal is given back", lambda: screen.terminals[terminal]["released"])

        prompt = connection.start_prompt(session, "run echo begun; sleep 600")
        connection.until("the command runs", lambda: output_has(screen, "begun"))
        connection.cancel(session)
        assert connection.end_prompt(prompt) == "cancelled"
        assert [screen.status(each) for each in screen.of_kind("execute")] == ["completed", "failed"]
        connection.until("both are given back", lambda: connection.given_back() == [True, True])


@with_terminal
def test_editor_opens_a_terminal_that_nobody_waits_for_any_more(editor, tmp_path):
    """The turn is cancelled while the editor opens the terminal: its command does not run on."""
    with without_sandbox(editor, tmp_path) as (connection, session, workspace):
        connection.slow = True
        prompt = connection.start_prompt(session, "run sleep 600")
        connection.until("a terminal is asked for", lambda: connection.held is not None)
        connection.cancel(session)
        assert connection.end_prompt(prompt) == "cancelled"
        connection.open_held_terminal()
        connection.until("it is given back", lambda: connection.given_back() == [True])
