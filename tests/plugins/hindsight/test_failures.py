"""What goes wrong is one line: the cause, where, and what to do."""

from __future__ import annotations

import os
import sys
import threading

import pytest
from support.hindsight_server import HindsightServer
from support.web_servers import Answer, answering

from hermes_core import HermesError
from hermes_core.service import BackendError, Cause


def refusal(provider) -> BackendError:
    with pytest.raises(BackendError) as refused:
        provider.sync_turn("a", "b", turn_id="t", attempt=1)
    assert "\n" not in str(refused.value)
    return refused.value


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (400, Cause.REFUSED), (401, Cause.WRONG_KEY), (402, Cause.QUOTA), (403, Cause.FORBIDDEN),
        (404, Cause.MISSING), (422, Cause.REFUSED), (429, Cause.QUOTA), (500, Cause.BROKEN),
        (503, Cause.UNREACHABLE),
    ],
)  # fmt: skip
def test_each_status_has_a_cause_and_is_asked_once(server, started, status, cause):
    provider = started()
    server.status = status
    error = refusal(provider)
    assert error.cause == cause
    assert "told to fail" in str(error)
    assert server.url in str(error)
    assert error.hint
    with pytest.raises(BackendError):
        provider.prefetch("colour")
    assert len(server.requests) == 2


def test_how_long_a_server_wants_to_be_left_alone_is_told(started):
    with answering(Answer(429, '{"detail": "slow down"}', retry_after="17")) as url:
        assert refusal(started(api_url=url)).retry_after == 17.0


def test_a_wrong_key_says_how_to_check_it(home, started, server):
    server.key = "right"
    error = refusal(started(server_key="wrong"))
    assert error.cause == Cause.WRONG_KEY
    assert "hermes-plugins setup hindsight" in str(error)
    assert "wrong" not in str(error).replace("wrong_key", "")
    started(server_key="right").sync_turn("a", "b", turn_id="t")


def test_a_server_that_is_not_there(started):
    with HindsightServer() as gone:
        url = gone.url
    assert refusal(started(api_url=url)).cause == Cause.UNREACHABLE


def test_another_server_under_the_address_is_no_empty_bank(server, started):
    provider = started(api_url=f"{server.url}/elsewhere")
    with pytest.raises(BackendError, match="check api_url"):
        provider.prefetch("colour")


def test_a_server_that_takes_too_long(server, started):
    provider = started(timeout=1)
    server.delay = 3
    error = refusal(provider)
    assert error.cause == Cause.SLOW
    assert server.url in str(error)
    assert "hermes-plugins config set memory.hindsight.timeout SECONDS" in str(error)


@pytest.mark.parametrize("answer", [b"<html>", b"{}", b"[]", b'{"success": "perhaps"}'])
def test_an_answer_of_another_form(server, started, answer):
    provider = started()
    server.answer = answer
    assert refusal(provider).cause in (Cause.TOO_OLD, Cause.BROKEN)


def test_without_the_sdk_it_says_what_to_install(home, monkeypatch):
    from hermes_memory_hindsight.provider import HindsightProvider

    monkeypatch.setitem(sys.modules, "hindsight_client", None)
    provider = HindsightProvider()
    with pytest.raises(HermesError, match="pip install"):
        provider.initialize("s", hermes_home=str(home), provider_config={"mode": "local_external"})
    monkeypatch.setattr("hermes_memory_hindsight.provider.find_spec", lambda _: None)
    assert not provider.is_available()
    assert "pip install" in provider.unavailable_reason()


def loops() -> set[threading.Thread]:
    """The threads of event loops. Other plugins in this process may have some of that name."""
    return {each for each in threading.enumerate() if each.name == "hindsight-loop"}


def test_the_client_is_asked_from_many_threads_at_once(server, started):
    before = loops()
    provider = started(bank_id="b")
    failed = []

    def work(number: int) -> None:
        try:
            provider.sync_turn(f"word{number}", "b", turn_id=f"t{number}", attempt=1)
            assert f"word{number}" in provider.prefetch(f"word{number}")
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(server.banks["b"]) == 16
    assert len(loops() - before) == 1


def test_shutdown_ends_the_loop_and_a_new_session_has_another(server, started, home):
    before = loops()
    provider = started(bank_id="b")
    provider.sync_turn("a", "b", turn_id="t", attempt=1)
    (loop,) = loops() - before
    provider.shutdown()
    provider.shutdown()
    loop.join(5)
    assert not loop.is_alive()
    config = {"mode": "local_external", "api_url": server.url, "bank_id": "b"}
    provider.initialize("s2", hermes_home=str(home), provider_config=config)
    assert "User: a" in provider.prefetch("a")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_goes_on_with_connections_of_its_own(server, started):
    provider = started(bank_id="b")
    provider.sync_turn("parent", "b", turn_id="t1", attempt=1)
    child = os.fork()
    if child == 0:
        try:
            provider.sync_turn("child", "b", turn_id="t2", attempt=1)
            provider.shutdown()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    provider.sync_turn("parent", "b", turn_id="t3", attempt=1)
    assert sorted(server.banks["b"]) == ["t1", "t2", "t3"]


def test_a_session_that_asks_nothing_starts_no_thread(started):
    before = threading.active_count()
    started()
    assert threading.active_count() == before
