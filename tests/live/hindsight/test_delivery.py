"""Every turn arrives once, whatever happens to the server."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

import pytest
from support.hindsight_agents import new_bank, provider_on, set_up
from support.notes import output_of, start_python

from hermes_core import HermesError, MemoryManager

TURNS = 50
_AGENT = """
import sys
from hermes_core import MemoryManager

home, session, said, asked = sys.argv[1:]
manager = MemoryManager.from_config(home)
manager.initialize_all(session)
if said:
    manager.sync_all(said, "Noted.")
    assert manager.flush_pending(60), "it was not delivered"
print(manager.recall_block(asked, session_id=session) if asked else "")
manager.shutdown_all()
"""


def units(engine, bank: str) -> list[str]:
    """All memories of a bank, asked without the plugin."""
    found = engine.get(f"/v1/default/banks/{bank}/memories/list?limit=1000")["items"]
    return [each["text"] for each in found]


def delivered(manager: MemoryManager, seconds: float = 120) -> bool:
    """Wait until nothing is left to be delivered."""
    end = time.monotonic() + seconds
    while not manager.flush_pending(5):
        if time.monotonic() > end:
            return False
    return True


def run_agent(home, site, session: str, said: str, asked: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site.folder)}
    return output_of(start_python(_AGENT, home, session, said, asked, env=environment), 120)


def test_what_one_process_stores_another_recalls_in_its_first_turn(engine, home, site):
    set_up(home, site, engine.url, bank_id=new_bank())
    run_agent(home, site, "monday", "The deploy key lives in the blue safe.", "")
    assert "blue safe" in run_agent(home, site, "tuesday", "", "Where is the deploy key?")


@pytest.mark.parametrize("queued", [False, True], ids=["worked in at once", "queued there"])
def test_all_of_fifty_turns_are_there_once_after_server_and_database_were_killed(
    engine, home, site, queued
):
    bank = new_bank()
    set_up(home, site, engine.url, bank_id=bank, retain_async=queued)
    manager = MemoryManager.from_config(home)
    manager.initialize_all("long talk")
    for number in range(TURNS):
        manager.sync_all(f"Number {number} is the word{number}.", "Noted.")
        if number == TURNS // 3:
            manager.flush_pending(0.2)  # some have arrived, one is under way
            engine.kill()
            engine.database.kill()
    engine.database.start()
    engine.start()
    assert delivered(manager)
    manager.shutdown_all()
    end = time.monotonic() + 60
    while len(found := units(engine, bank)) < TURNS and time.monotonic() < end:
        time.sleep(0.2)  # the server works on what it has queued
    assert sorted(found) == sorted(
        f"User: Number {number} is the word{number}.\nAssistant: Noted." for number in range(TURNS)
    )
    documents = engine.documents(bank)
    assert len(documents) == len(set(documents)) == TURNS


def test_a_turn_that_is_written_again_replaces_itself(engine, home):
    bank = new_bank()
    with provider_on(home, engine.url, bank_id=bank) as provider:
        for attempt in (1, 2, 3):
            provider.sync_turn("Tea is green.", "Yes.", turn_id="turn-7", attempt=attempt)
    assert engine.documents(bank) == ["turn-7"]
    assert units(engine, bank) == ["User: Tea is green.\nAssistant: Yes."]


def test_a_turn_on_which_the_server_still_works_when_it_is_tried_again_is_there_once(
    engine, model, home, monkeypatch
):
    bank, said = new_bank(), "User: Tea is green.\nAssistant: Yes."
    with provider_on(home, engine.url, bank_id=bank, timeout=1) as provider:
        monkeypatch.setattr(model, "delay", 3.0)
        for attempt in (1, 2, 3):
            with pytest.raises(HermesError, match="did not answer in time"):
                provider.sync_turn("Tea is green.", "Yes.", turn_id="turn-7", attempt=attempt)
        monkeypatch.setattr(model, "delay", 0.0)
    with provider_on(home, engine.url, bank_id=bank) as provider:
        provider.sync_turn("Tea is green.", "Yes.", turn_id="turn-7", attempt=4)
    end = time.monotonic() + 6  # the others come to their end meanwhile
    while time.monotonic() < end:
        assert units(engine, bank) == [said]
        time.sleep(0.2)
    assert engine.documents(bank) == ["turn-7"]


def test_a_long_turn_that_was_cut_off_is_whole_after_the_next_attempt(
    engine, model, home, monkeypatch
):
    bank, whole = new_bank(), new_bank()
    long = "\n\n".join(f"Paragraph {number} is about word{number}. " * 40 for number in range(500))
    path = f"/v1/default/banks/{bank}/documents/long"

    def write(provider, attempt: int = 1) -> None:
        with suppress(HermesError):
            provider.sync_turn(long, "Noted.", turn_id="long", attempt=attempt)

    with provider_on(home, engine.url, bank_id=whole) as provider:
        write(provider)
    with provider_on(home, engine.url, bank_id=bank) as provider:
        monkeypatch.setattr(model, "delay", 0.2)
        writing = threading.Thread(target=write, args=(provider,))
        writing.start()
        while writing.is_alive() and not engine.has(path):
            time.sleep(0.02)
        engine.kill()
        writing.join()
        monkeypatch.setattr(model, "delay", 0.0)
        engine.start()
        assert 0 < engine.get(path)["memory_unit_count"] < len(units(engine, whole))
        write(provider, attempt=2)
    assert sorted(units(engine, bank)) == sorted(units(engine, whole))


def test_while_the_server_is_away_a_write_raises_one_line_and_recall_too(home):
    with provider_on(home, "http://127.0.0.1:9") as provider:
        with pytest.raises(HermesError, match="can't be reached") as written:
            provider.sync_turn("a", "b", turn_id="t", attempt=1)
        with pytest.raises(HermesError, match="can't be reached"):
            provider.prefetch("a")
    assert "\n" not in str(written.value)
    assert "127.0.0.1:9" in str(written.value)


def test_a_switch_of_sessions_ships_nothing_again(engine, home, site):
    bank = new_bank()
    set_up(home, site, engine.url, bank_id=bank)
    manager = MemoryManager.from_config(home)
    manager.initialize_all("first")
    manager.sync_all("The cat is called Mia.", "Nice.")
    manager.on_session_switch("second", parent_session_id="first")
    manager.sync_all("The dog is called Rex.", "Nice.")
    assert delivered(manager)
    manager.shutdown_all()
    assert len(engine.documents(bank)) == 2
    listed = engine.get(f"/v1/default/banks/{bank}/documents")["items"]
    assert sorted(tuple(sorted(each["tags"])) for each in listed) == [
        ("parent:first", "session:second"),
        ("session:first",),
    ]
