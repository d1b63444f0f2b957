"""The engine in the process: one for each folder, never a lost fact, never a lost collection."""

import json
import multiprocessing
import os
import stat
import subprocess
import sys
from contextlib import contextmanager

import pytest
from support.commands import posix_only
from support.fake_model import FakeModel
from support.mem0_places import Place

from hermes_core import HermesError
from hermes_core.service import BackendError, Cause
from hermes_memory_mem0.settings import Engine

LISBON = "I have moved to Lisbon."


def _say(provider, user=LISBON, *, turn="t1", attempt=1):
    provider.sync_turn(user, "All right.", turn_id=turn, attempt=attempt)


def test_the_model_is_asked_for_facts_and_gives_some(oss):
    _say(oss.provider())
    assert oss.behind.stats()["facts"] == 1
    assert oss.behind.stats()["mem0.extraction"] == 1


def test_the_model_that_was_named_is_asked_whatever_else_the_environment_offers(oss, monkeypatch):
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-1")
    monkeypatch.setenv("OPENROUTER_API_BASE", "http://openrouter.invalid/v1")
    _say(oss.provider())
    assert oss.behind.stats()["facts"] == 1


def test_several_providers_of_one_process_share_the_folder(oss):
    first, second = oss.provider("s1"), oss.provider("s2")
    _say(first)
    assert "Lisbon" in second.prefetch("Which city have I moved to?")
    first.shutdown()
    assert "Lisbon" in second.prefetch("Which city have I moved to?")
    second.shutdown()
    assert "Lisbon" in oss.provider("s3").prefetch("Which city have I moved to?")


def test_a_late_write_does_not_open_the_folder_again(oss):
    provider = oss.provider()
    memories = provider._memories
    provider.shutdown()
    with pytest.raises(HermesError, match="the session is over"):
        memories.open()


def test_a_folder_that_is_open_with_other_settings_is_not_opened_again(oss):
    oss.provider().prefetch("Anything?")
    other = oss.provider(config={"llm_model": "another"})
    with pytest.raises(BackendError, match="other settings"):
        other.prefetch("Anything?")


_HOLDER = """
import sys
from hermes_memory_mem0 import Mem0Provider
provider = Mem0Provider()
provider.initialize("s1", hermes_home=sys.argv[1], provider_config={"mode": "oss", "llm_url": sys.argv[2]})
provider.sync_turn("I have moved to Lisbon.", "All right.", turn_id="t1")
print("open", flush=True)
sys.stdin.read()
provider.shutdown()
"""  # noqa: E501


def _hold(oss, opened, free):
    """What `_HOLDER` does, in a fork: importing mem0ai takes seconds."""
    provider = oss.provider()
    _say(provider)
    opened.set()
    free.wait(60)
    provider.shutdown()


@contextmanager
def _held(oss):
    """Another process has the folder open until the function that this yields was called."""
    context = multiprocessing.get_context("fork")
    opened, free = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(oss, opened, free))
    holder.start()

    def ended():
        free.set()
        holder.join(20)
        return holder.exitcode

    try:
        assert opened.wait(20)
        yield ended
    finally:
        ended()


@posix_only
def test_a_folder_that_another_process_has_is_a_clear_error_until_it_is_free(oss):
    with _held(oss) as ended:
        provider = oss.provider("s2")
        with pytest.raises(BackendError, match="another process has this folder open") as caught:
            provider.prefetch("Which city have I moved to?")
        assert str(oss.home / "mem0" / "qdrant") in str(caught.value)
        with pytest.raises(BackendError):
            _say(provider, "My dog is called Rex.", turn="t2")
        seen = provider.probe(write=False)
        assert (seen.ok, "is open in another process" in seen.detail) == (True, True)
        assert provider.probe(write=True).ok is False
        assert ended() == 0
    assert "Lisbon" in provider.prefetch("Which city have I moved to?")
    _say(provider, "My dog is called Rex.", turn="t2", attempt=2)
    assert oss.texts() == [LISBON, "My dog is called Rex."]


def test_an_embedder_of_another_size_is_an_error_that_says_what_to_do(oss):
    first = oss.provider()
    _say(first)
    oss.behind.dimensions = 64
    with pytest.raises(BackendError, match="64 numbers, the stored ones 1536") as caught:
        _say(first, "My dog is called Rex.", turn="t2")
    assert "nothing was deleted" in str(caught.value)
    first.shutdown()
    with pytest.raises(BackendError, match="64 numbers, the stored ones 1536"):
        oss.provider("s2").prefetch("Which city have I moved to?")
    oss.behind.dimensions = 1536
    assert "Lisbon" in oss.provider("s3").prefetch("Which city have I moved to?")


def test_a_size_that_was_set_up_and_is_not_the_stored_one_is_an_error_too(oss):
    first = oss.provider()
    _say(first)
    first.shutdown()
    (oss.home / "mem0.json").write_text(
        json.dumps({"oss": {"embedder": {"provider": "openai", "config": {"embedding_dims": 64}}}})
    )
    with pytest.raises(BackendError, match="64 numbers, the stored ones 1536"):
        oss.provider("s2", config={"embedder_url": oss.behind.url}).prefetch("Which city?")
    (oss.home / "mem0.json").unlink()
    assert oss.texts() == [LISBON]


def test_the_size_of_a_new_store_is_the_embedders(home):
    with FakeModel() as model:
        model.dimensions = 96
        place = Place(home, {"mode": "oss", "llm_url": model.url}, model)
        _say(place.provider())
        assert place.texts() == [LISBON]
        place.close()


def test_no_collection_can_be_deleted(oss):
    provider = oss.provider()
    _say(provider)
    engine = provider._memories._opened
    for removing in (engine.reset, engine.vector_store.delete_col):
        with pytest.raises(HermesError, match="deletes no collection"):
            removing()
    provider.shutdown()
    assert oss.texts() == [LISBON]


class _FailsAfterFacts(FakeModel):
    """Its embeddings fail as soon as facts were extracted: the engine goes on without them."""

    def answer(self, path, body):
        answered = super().answer(path, body)
        self.status = 500 if path.endswith("completions") else self.status
        return answered


def test_facts_that_could_not_be_embedded_are_no_stored_turn(home):
    with _FailsAfterFacts() as model:
        place = Place(home, {"mode": "oss", "llm_url": model.url}, model)
        provider = place.provider()
        provider.prefetch("Anything?")
        with pytest.raises(BackendError) as caught:
            _say(provider)
        assert caught.value.cause is Cause.BROKEN
        assert model.stats()["facts"] == 1
        model.status = 0
        assert place.texts() == []
        place.close()


def test_a_turn_of_which_a_part_could_not_be_stored_is_taken_back_as_a_whole(oss):
    provider = oss.provider()
    client = provider._memories._opened.vector_store.client
    working = client.upsert

    def failing(collection_name, points, **kwargs):
        if any("Rex" in point.payload["data"] for point in points):
            raise OSError(28, "No space left on device")
        return working(collection_name=collection_name, points=points, **kwargs)

    client.upsert = failing
    with pytest.raises(BackendError, match="No space left"):
        _say(provider, f"{LISBON} My dog is called Rex.")
    assert oss.texts() == []
    client.upsert = working
    _say(provider, f"{LISBON} My dog is called Rex.", attempt=2)
    assert oss.texts() == [LISBON, "My dog is called Rex."]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_its_files_are_for_their_owner_alone(oss):
    provider = oss.provider()
    _say(provider)
    provider.shutdown()
    modes = {
        path.relative_to(oss.home): stat.S_IMODE(path.stat().st_mode)
        for path in (oss.home / "mem0").rglob("*")
    }
    assert modes
    assert all(mode in (0o600, 0o700) for mode in modes.values()), modes
    assert stat.S_IMODE((oss.home / "mem0").stat().st_mode) == 0o700


_WATCHED = """
import os, sys, warnings, logging
asked = []
def watch(event, args):
    if event == "socket.getaddrinfo" and args[0] not in ("127.0.0.1", None):
        asked.append(args[0])
    if event == "socket.connect" and args[1][0] != "127.0.0.1":
        asked.append(args[1])
sys.addaudithook(watch)
from hermes_memory_mem0 import Mem0Provider
before = dict(os.environ), list(warnings.filters), logging.getLogger("urllib3").level
provider = Mem0Provider()
provider.initialize("s1", hermes_home=sys.argv[1], provider_config={"mode": "oss", "llm_url": sys.argv[2]})
provider.sync_turn("I have moved to Lisbon.", "All right.", turn_id="t1")
assert "Lisbon" in provider.prefetch("Which city have I moved to?")
provider.shutdown()
assert before == (dict(os.environ), list(warnings.filters), logging.getLogger("urllib3").level)
import mem0.memory.telemetry as telemetry
assert telemetry.MEM0_TELEMETRY is False
print(asked)
"""  # noqa: E501


@pytest.mark.stress
def test_nothing_leaves_the_machine_is_printed_or_changed_in_the_process(oss, importable):
    command = [sys.executable, "-c", _WATCHED, str(oss.home), oss.behind.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "[]\n")
    assert not (oss.home.parent / "user" / ".mem0").exists()


_LEFT = _HOLDER.replace("provider.shutdown()", "")


@pytest.mark.stress
def test_a_process_that_ends_in_the_middle_of_a_session_says_nothing(oss, importable):
    command = [sys.executable, "-c", _LEFT, str(oss.home), oss.behind.url]
    done = subprocess.run(
        command, input="", capture_output=True, text=True, timeout=300, check=True
    )
    assert (done.stdout, done.stderr) == ("open\n", "")
    assert oss.texts() == [LISBON]


def test_a_person_can_turn_telemetry_on(home):
    from hermes_memory_mem0.settings import read_settings

    assert read_settings(home).telemetry is False
    assert read_settings(home, {"telemetry": True}).telemetry is True


def test_a_store_of_ones_own_is_left_as_it_was_set_up(home):
    from hermes_memory_mem0.settings import read_settings

    store = {"provider": "qdrant", "config": {"host": "qdrant.lan", "port": 6333}}
    (home / "mem0.json").write_text(json.dumps({"mode": "oss", "oss": {"vector_store": store}}))
    engine: Engine = read_settings(home).engine
    assert engine.path is None
    assert engine.config["vector_store"]["config"]["host"] == "qdrant.lan"
    assert "path" not in engine.config["vector_store"]["config"]
