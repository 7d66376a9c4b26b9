"""Fixtures: server processes that are always ended, and whose every frame has to follow the schema."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "clients"))

from agent import Agent  # noqa: E402


@pytest.fixture
def start(tmp_path):
    """Starts a server process in a workspace of its own; all processes of a test share their state."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    agents = []

    def start_one():
        agent = Agent(tmp_path / "home", workspace)
        agents.append(agent)
        return agent

    yield start_one
    for agent in agents:
        agent.stop()
    problems = [problem for agent in agents for problem in agent.problems]
    assert not problems, "frames against the official schema:\n" + "\n".join(problems)


@pytest.fixture
def raw(start):
    """A server that has not been greeted yet."""
    return start()


@pytest.fixture
def agent(start):
    """A greeted server; the client has no abilities."""
    agent = start()
    agent.initialize()
    return agent


@pytest.fixture
def requires(agent):
    """Our server has every optional ability that these tests are about: missing one is a failure, no skip."""

    def check(path):
        value = agent.hello["agentCapabilities"]
        for key in path.split("."):
            assert isinstance(value, dict) and key in value, f"{path} is not advertised"
            value = value[key]
        assert value is True or isinstance(value, dict), f"{path} is {value!r}"
        return agent

    return check
