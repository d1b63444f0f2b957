"""Every error is one line: what, where, what to do."""

import sys

import pytest
from support.web_servers import NO_ROUTE, PAGE, Answer, answering

from hermes_core import HermesError
from hermes_core.errors import WriteRefused
from hermes_core.service import BackendError, Cause


def told(agent) -> BackendError:
    with pytest.raises(BackendError) as error:
        agent.say("x")
    assert "\n" not in str(error.value)
    return error.value


@pytest.mark.parametrize(
    ("status", "cause", "todo"),
    [
        (401, Cause.WRONG_KEY, "hermes-plugins setup honcho"),
        (403, Cause.FORBIDDEN, "hermes-plugins setup honcho"),
        (402, Cause.QUOTA, "your plan"),
        (429, Cause.QUOTA, "your plan"),
        (500, Cause.BROKEN, "server's log"),
        (503, Cause.UNREACHABLE, "check that it is running"),
        (405, Cause.TOO_OLD, "upgrade"),
        (418, Cause.REFUSED, "hermes-plugins log"),
    ],
)
def test_an_answer_that_is_no_good_has_a_cause(server, agent, status, cause, todo):
    server.behaviour.refuse = status
    error = told(agent())
    assert error.cause is cause
    assert server.url in str(error)
    assert todo in str(error)


def test_a_wrong_key_is_named_as_such(server, agent, monkeypatch):
    server.behaviour.key = "right"
    monkeypatch.setenv("HONCHO_SERVER_KEY", "wrong")
    error = told(agent())
    assert error.cause is Cause.WRONG_KEY
    assert "wrong" not in str(error).replace("the key was refused", "")
    monkeypatch.setenv("HONCHO_SERVER_KEY", "right")
    agent().say("x")


def test_a_server_that_is_away_is(server, agent):
    one = agent()
    server.stop()
    assert told(one).cause is Cause.UNREACHABLE
    with pytest.raises(HermesError, match="can't be reached"):
        one.recall("dog?")


def test_a_server_that_is_slow_is(server, agent):
    one = agent(config={"timeout": 0.2})
    server.behaviour.delay = 3.0
    error = told(one)
    assert error.cause is Cause.SLOW
    assert len(server.requests) == 1


def test_something_else_at_the_address_is_no_honcho(server, agent, monkeypatch):
    monkeypatch.setenv("HONCHO_BASE_URL", f"{server.url}/blog")
    assert told(agent()).cause is Cause.TOO_OLD


@pytest.mark.parametrize("answer", [Answer(200, PAGE), Answer(404, PAGE), Answer(404, NO_ROUTE)])
def test_a_wrong_address_is_no_empty_memory(agent, monkeypatch, answer):
    with answering(answer) as url:
        monkeypatch.setenv("HONCHO_BASE_URL", url)
        one = agent()
        with pytest.raises(BackendError, match="check its address"):
            one.recall("What is the dog called?")
        assert "check its address" in str(told(one))


def test_why_a_server_can_not_be_reached_is_said(agent, monkeypatch):
    monkeypatch.setenv("HONCHO_BASE_URL", "ftp://127.0.0.1")
    error = told(agent())
    assert error.cause is Cause.UNREACHABLE
    assert "unsupported protocol" in str(error)


def test_what_the_server_says_of_a_refused_request_is_told_without_the_request(server, agent):
    one = agent(config={"messageMaxChars": 50_000})
    with pytest.raises(BackendError) as error:
        one.say("private " * 5000)
    assert "at most 25000 characters" in str(error.value)
    assert "private" not in str(error.value)


@pytest.mark.parametrize(
    ("status", "final"), [(422, True), (413, True), (409, False), (400, False), (418, False)]
)
def test_only_what_is_about_the_content_is_refused_for_good(server, agent, status, final):
    server.behaviour.refuse = status
    assert isinstance(told(agent()), WriteRefused) is final


def test_a_missing_sdk_says_how_to_install_it(home, monkeypatch):
    from hermes_memory_honcho.provider import explained

    error = explained(ImportError("No module named 'honcho'"), "honcho", "")
    assert "pip install 'honcho-ai>=2.7,<3'" in str(error)


def test_without_a_session_writes_raise_and_tools_answer(home):
    from hermes_memory_honcho.provider import HonchoProvider

    provider = HonchoProvider()
    assert provider.prefetch("x") == ""
    assert provider.system_prompt_block() == ""
    assert provider.on_pre_compress([]) == ""
    assert "error" in provider.handle_tool_call("honcho_search", {"query": "x"})
    provider.shutdown()


def test_importing_the_package_imports_neither_the_plugin_nor_the_sdk():
    import subprocess

    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import hermes_memory_honcho; "
        "bad = {'honcho', 'hermes_core'} & set(sys.modules); assert not bad, bad; "
        "import hermes_memory_honcho.provider; "
        "bad = {'honcho', 'httpx', 'pydantic'} & set(sys.modules); assert not bad, bad"
    )
    from support.our_plugins import PLUGINS

    source = str(PLUGINS / "honcho" / "src")
    subprocess.run([sys.executable, "-c", code, source], check=True)
