"""What goes wrong is said in one line: what, where, what to do."""

import pytest
from support.mem0_places import Place
from support.mem0_servers import Mem0Server
from support.web_servers import NO_ROUTE, PAGE, Answer, answering

from hermes_core import HermesError
from hermes_core.outbox.failures import Fault, fault_of, retry_after
from hermes_core.service import BackendError, Cause

KEY = "m0-a-wrong-key"
WRONG = {
    "platform": {"api_key": KEY},
    "self-hosted": {"server_key": KEY},
    "oss": {"llm_key": KEY},
}
ADDRESS = {"platform": "platform_url", "self-hosted": "host", "oss": "llm_url"}


def _error(provider, attempt=1):
    with pytest.raises(BackendError) as caught:
        provider.sync_turn("I live in Lisbon.", "Noted.", turn_id="t1", attempt=attempt)
    line = str(caught.value)
    assert "\n" not in line
    return caught.value


def test_a_wrong_key_is_named_and_nothing_is_stored(place):
    if place.mode == "oss":
        place.behind.key = "the-right-one"
    provider = place.provider(config=WRONG[place.mode])
    error = _error(provider)
    assert error.cause is Cause.WRONG_KEY
    assert "hermes-plugins setup mem0" in error.hint
    assert KEY not in str(error)
    with pytest.raises(BackendError, match="key was refused"):
        provider.prefetch("Where do I live?")
    assert provider.probe(write=False).ok is False
    if place.mode == "oss":
        place.behind.key = ""
    assert place.texts() == []


def test_a_place_that_is_away_is_named_with_its_address(home, unused):
    for mode, key in ADDRESS.items():
        config = {"mode": mode, key: unused, "api_key": "k"}
        provider = Place(home, config, None).provider()
        error = _error(provider)
        assert error.cause is Cause.UNREACHABLE
        assert f"mem0 at {unused}: can't be reached" in str(error)
        provider.shutdown()


@pytest.fixture
def unused():
    """An address at which nobody listens."""
    with Mem0Server() as server:
        return server.url


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (403, Cause.FORBIDDEN),
        (429, Cause.QUOTA),
        (402, Cause.QUOTA),
        (400, Cause.REFUSED),
        (500, Cause.BROKEN),
        (503, Cause.UNREACHABLE),
    ],
)
def test_what_a_server_answers_becomes_a_cause(place, status, cause):
    provider = place.provider()
    place.behind.status = status
    assert _error(provider).cause is cause
    place.behind.status = 0
    provider.sync_turn("I live in Lisbon.", "Noted.", turn_id="t1", attempt=2)
    assert place.texts() == ["I live in Lisbon."]


def test_a_slow_server_costs_a_recall_no_more_than_its_time(place):
    provider = place.provider(config={"recall_timeout": 0.2})
    provider.handle_tool_call("mem0_search", {"query": "Is it open?"})
    place.behind.delay = 2.0
    with pytest.raises(BackendError, match="did not answer in time"):
        provider.prefetch("Where do I live?")
    place.behind.delay = 0.0


def test_a_slow_server_costs_a_write_no_more_than_its_time(place):
    provider = place.provider(config={"timeout": 1.0})
    provider.handle_tool_call("mem0_search", {"query": "Is it open?"})
    place.behind.delay = 4.0
    assert _error(provider).cause is Cause.SLOW
    place.behind.delay = 0.0


@pytest.mark.parametrize("mode", ["platform", "self-hosted"])
def test_an_address_at_which_something_else_is_is_told(mode, home):
    with answering(Answer(200, PAGE)) as url:
        provider = Place(home, {"mode": mode, ADDRESS[mode]: url, "api_key": "k"}, None).provider()
        error = _error(provider)
        assert "not what a Mem0 server says" in str(error)
        assert "check its address" in str(error)
        provider.shutdown()


@pytest.mark.parametrize("mode", ["platform", "self-hosted"])
@pytest.mark.parametrize("body", [PAGE, NO_ROUTE])
def test_a_server_without_mem0s_addresses_is_no_memory_that_is_missing(mode, home, body):
    with answering(Answer(404, body)) as url:
        provider = Place(home, {"mode": mode, ADDRESS[mode]: url, "api_key": "k"}, None).provider()
        error = _error(provider)
        assert error.cause is Cause.TOO_OLD
        assert "check its address" in str(error)
        provider.shutdown()


@pytest.mark.parametrize("mode", [*WRONG])
@pytest.mark.parametrize("body", ['{"x": 1}', "[1]", "null", ""])
def test_an_answer_that_is_not_mem0s_is_no_stored_turn(mode, home, body):
    with answering(Answer(200, body)) as url:
        provider = Place(home, {"mode": mode, ADDRESS[mode]: url, "api_key": "k"}, None).provider()
        _error(provider)
        with pytest.raises(BackendError):
            provider.prefetch("Where do I live?")
        answer = provider.handle_tool_call("mem0_add", {"content": "I live in Lisbon."})
        assert "error" in answer
        provider.shutdown()


def test_an_address_that_is_no_model_is_told_as_such(home):
    with answering(Answer(200, PAGE)) as url:
        provider = Place(home, {"mode": "oss", "llm_url": url}, None).provider()
        error = _error(provider)
        assert "an answer was not understood" in str(error)
        assert "check its address" in str(error)
        provider.shutdown()


@pytest.mark.parametrize("mode", [*WRONG])
def test_why_a_place_can_not_be_reached_is_said(mode, home):
    config = {"mode": mode, ADDRESS[mode]: "ftp://127.0.0.1", "api_key": "k"}
    provider = Place(home, config, None).provider()
    error = _error(provider)
    assert error.cause is Cause.UNREACHABLE
    assert "unsupported protocol" in str(error)
    provider.shutdown()


def test_a_platform_that_takes_a_turn_and_fails_with_it_at_once_has_not_taken_it(
    platform, monkeypatch
):
    failed = {"status": "FAILED", "message": "out of memory"}
    monkeypatch.setattr(platform.behind, "_added", lambda _: (200, failed))
    assert "out of memory" in str(_error(platform.provider()))


def test_a_recall_does_not_wait_for_a_write_that_is_still_opening_the_store(oss):
    provider = oss.provider(config={"recall_timeout": 0.3})
    oss.behind.thawed.clear()
    provider.sync_turn("I live in Lisbon.", "Noted.")  # without an outbox: on another thread
    assert oss.behind.reached.wait(60)
    with pytest.raises(BackendError, match="still being opened"):
        provider.prefetch("Where do I live?")
    oss.behind.thawed.set()


def test_a_tool_answers_with_the_line(place):
    provider = place.provider()
    place.behind.status = 500
    assert "the server failed" in provider.handle_tool_call("mem0_search", {"query": "Lisbon"})


def test_without_a_key_it_starts_and_says_what_to_do(home):
    from hermes_memory_mem0 import Mem0Provider

    provider = Mem0Provider()
    provider.initialize("s1", hermes_home=str(home), provider_config={"mode": "platform"})
    with pytest.raises(HermesError, match="MEM0_API_KEY"):
        provider.prefetch("Where do I live?")
    assert "MEM0_API_KEY" in provider.probe(write=False).detail
    provider.shutdown()


@pytest.mark.parametrize("mode", [*WRONG])
@pytest.mark.parametrize("status", [429, 502, 503])
def test_how_long_a_service_wants_to_be_left_alone_is_told(mode, status, home):
    with answering(Answer(status, '{"detail": "slow down"}', retry_after="17")) as url:
        provider = Place(home, {"mode": mode, ADDRESS[mode]: url, "api_key": "k"}, None).provider()
        assert retry_after(_error(provider)) == 17.0
        provider.shutdown()


@pytest.mark.parametrize("code", ["provider_bad_request", "provider_auth_failed"])
def test_what_the_servers_configuration_can_mend_gives_up_no_turn(server, code):
    server.behind.broken = code
    assert fault_of(_error(server.provider())) is not Fault.REFUSED


def test_what_the_models_settings_can_mend_gives_up_no_turn(oss):
    oss.behind.status = 400
    assert fault_of(_error(oss.provider())) is Fault.WRITE


# -- what a server's 502 means ------------------------------------------------------------------

DATABASE = "its database can't be reached"
MODELS = "its model or embeddings provider can't be reached or fails"


@pytest.mark.parametrize(
    ("code", "cause", "told"),
    [
        ("datastore_unavailable", Cause.BROKEN, DATABASE),
        ("vector_store_unavailable", Cause.BROKEN, "its vector store can't be reached"),
        ("provider_unavailable", Cause.BROKEN, MODELS),
        ("provider_auth_failed", Cause.BROKEN, "provider refused the server's key"),
        ("provider_bad_request", Cause.REFUSED, "provider refused the request"),
        ("provider_rate_limited", Cause.QUOTA, "provider limits the server's requests"),
        ("provider_timeout", Cause.SLOW, "provider did not answer the server"),
    ],
)
def test_a_502_is_named_by_what_failed_behind_the_server(server, code, cause, told):
    server.behind.broken = code
    error = _error(server.provider())
    assert error.cause is cause
    assert told in str(error)
    assert "can't be reached: 502" not in str(error)  # the server itself can be
    if cause is not Cause.REFUSED:
        assert "hermes-plugins setup" not in error.hint  # our key is right


@pytest.mark.parametrize(
    ("code", "told"), [("datastore_unavailable", DATABASE), ("provider_unavailable", MODELS)]
)
def test_a_502_that_says_nothing_is_told_apart_by_a_question_to_the_database(server, code, told):
    server.behind.broken, server.behind.tells_codes = code, False
    provider = server.provider()
    assert told in str(_error(provider))
    with pytest.raises(BackendError, match=told):
        provider.prefetch("Where do I live?")
    assert told in provider.probe(write=False).detail
    server.behind.broken = ""
    provider.sync_turn("I live in Lisbon.", "Noted.", turn_id="t1", attempt=2)
    assert server.texts() == ["I live in Lisbon."]


@pytest.mark.parametrize("memory_id", ["7", "not-a-uuid", "../search", "x" * 200])
def test_an_id_that_is_no_uuid_is_an_unknown_memory_and_not_a_server_that_failed(server, memory_id):
    provider = server.provider()
    for tool, more in (("mem0_update", {"text": "I live in Porto."}), ("mem0_delete", {})):
        answer = provider.handle_tool_call(tool, {"memory_id": memory_id, **more})
        assert "Memory not found" in answer
    with pytest.raises(BackendError, match="ids of memories are UUIDs") as caught:
        provider._memories.delete(memory_id)
    assert caught.value.cause is Cause.MISSING


def test_a_502_of_a_proxy_means_that_the_server_behind_it_is_away(home):
    with answering(Answer(502, PAGE)) as url:
        provider = Place(home, {"mode": "self-hosted", "host": url}, None).provider()
        error = _error(provider)
        assert error.cause is Cause.UNREACHABLE
        assert "proxy" in str(error)
        provider.shutdown()


def test_a_recall_that_is_too_slow_names_the_setting_for_recalls(place):
    provider = place.provider(config={"recall_timeout": 0.2})
    provider.handle_tool_call("mem0_search", {"query": "Is it open?"})
    place.behind.delay = 2.0
    with pytest.raises(BackendError, match=r"memory\.mem0\.recall_timeout") as caught:
        provider.prefetch("Where do I live?")
    assert "memory.prefetch_budget" in caught.value.hint
    place.behind.delay = 0.0
