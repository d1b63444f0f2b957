"""Conversations on the page: browse, filter, search, read, export, forget."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.inspected import WRONG, configure, fill

from hermes_builtin.sessions.archive import NewMessage, SessionFacts
from hermes_builtin.sessions.location import locate
from hermes_core import load_config
from hermes_inspector.conversations import BROWSED

DAY = 86_400.0
NOON = 1_763_467_200.0  # 2025-11-18 12:00 UTC


@pytest.fixture
def filled(tmp_path, few_distributions, both_storages):
    home = tmp_path / "home"
    configure(home)
    fill(home)
    return home


def add(home: Path, name: str, text: str, at: float, **facts: str) -> None:
    archive = locate(home, load_config(home).memory).open()
    archive.append(SessionFacts(name, started=at, **facts), [NewMessage("user", text, at)])
    archive.close()


def titles(text: str) -> list[str]:
    return re.findall(r'class="title"><a href="[^"]*">([^<]*)<', text)


def test_browsing_goes_on_where_a_page_ended(page, filled):
    archive = locate(filled, load_config(filled).memory).open()
    for number in range(BROWSED + 10):
        at = NOON - number // 2  # two at a time have the same
        said = [NewMessage("user", f"Talk {number}.", at)]
        archive.append(SessionFacts(f"talk-{number}", "cli", started=at), said)
    archive.close()
    first = page.get("/conversations")
    shown = titles(first)
    assert len(shown) == BROWSED
    older = re.search(r'href="([^"]*older=[^"]*)"', first)[1].replace("&amp;", "&")
    rest = titles(page.get(older))
    assert len(shown) + len(rest) == BROWSED + 11
    assert not {*shown} & {*rest}
    assert "Older conversations" not in page.get(older).partition("<main")[2]


def test_filters_by_day_platform_and_user(page, filled):
    add(filled, "t1", "On the phone.", NOON, source="telegram", user_id="ann")
    add(filled, "t2", "Two days later.", NOON + 2 * DAY, source="telegram", user_id="kim")
    get = lambda query: titles(page.get(f"/conversations?{query}"))  # noqa: E731
    assert get("user=ann") == ["On the phone."]
    assert get("platform=telegram") == ["Two days later.", "On the phone."]
    assert get("since=2025-11-18&until=2025-11-18") == ["On the phone."]
    assert get("since=2025-11-19&until=2025-11-21") == ["Two days later."]
    assert get("query=days&until=2025-11-18") == []
    assert get("query=days&since=2025-11-19&until=2025-11-21") == ["Two days later."]
    assert "that is not a day" in page.get("/conversations?since=x", 400)
    assert "that page does not exist" in page.get("/conversations?older=x", 400)


def test_a_search_marks_the_hit_and_leads_to_it(page):
    text = page.get("/conversations?query=billing")
    assert "<mark>billing</mark>" in text
    address = re.search(r'href="(/conversations/monday\?at=\d+[^"#]*)', text)[1]
    talk = page.get(address.replace("&amp;", "&"))
    assert talk.count("data-wanted") == 1
    wanted = talk[talk.index("data-wanted") :][:600]
    assert "<mark>billing</mark>" in wanted
    assert "the hit" in wanted


def test_a_search_that_finds_nothing_says_why(page):
    assert "No conversation matches." in page.get("/conversations?query=zebra")
    assert "other users match" in page.get("/conversations?query=billing&user=nobody")


def test_a_note_leads_to_what_was_said(page):
    talk = page.get("/conversations/monday?like=The+staging+server+is+stage-1.")
    wanted = talk[talk.index("data-wanted") :][:500]
    assert "Remember" in wanted


def test_a_long_conversation_is_read_in_parts(page, filled):
    archive = locate(filled, load_config(filled).memory).open()
    said = [NewMessage("user", f"line {number}", NOON + number) for number in range(400)]
    archive.append(SessionFacts("long", "cli", started=NOON), said)
    archive.close()
    first = page.get("/conversations/long")
    assert "300 messages after" in first
    assert "line 99<" in first
    assert "line 100<" not in first
    address = re.search(r'href="([^"]*\?at=\d+)">300', first)[1]
    assert "line 100<" in page.get(address)


def test_an_unknown_conversation(page):
    assert "no such conversation" in page.get("/conversations/nothing", 400)


def test_export_is_what_can_be_imported(page):
    rows = [json.loads(each) for each in page.get("/export").splitlines()]
    assert [each["session_id"] for each in rows] == ["monday"]
    one = json.loads(page.get("/conversations/monday/export"))
    assert one == rows[0]
    assert WRONG in one["messages"][0]["content"]


def test_forgetting_shows_first_and_leaves_a_receipt(page, filled):
    page.post("/forget/look", text="stage-1")
    text = page.finished()
    assert "This would be deleted" in text
    assert "MEMORY.md" in text
    assert WRONG in page.get("/notes")  # nothing is deleted yet
    job = re.search(r"job=([0-9a-f]{16})", page.address)[1]
    page.post("/forget/delete", job=job)
    text = page.finished()
    assert "not found" in text
    receipt = page.get(re.search(r'href="(/forget/receipt[^"]*)"', text)[1])
    assert json.loads(receipt)["complete"] is True
    assert "stage-1" not in receipt
    assert "stage-1" not in page.get("/notes").partition("Newest")[0]
    assert "[forgotten]" in page.get("/conversations/monday")


def test_a_conversation_is_forgotten_from_its_page(page):
    assert "/forget?session=monday" in page.get("/conversations/monday")
    page.post("/forget/look", session="monday")
    job = re.search(r"job=([0-9a-f]{16})", page.address)[1]
    assert "conversations" in page.finished()
    page.post("/forget/delete", job=job)
    page.finished()
    assert titles(page.get("/conversations")) == []


def test_forgetting_needs_one_subject_and_a_search(page):
    assert "nothing to forget" in page.post("/forget/look", 400)
    assert "nothing to forget" in page.post("/forget/look", 400, text="abcdef", user="ann")
    assert "too short" in page.post("/forget/look", 400, text="a")
    assert "search for it first" in page.post("/forget/delete", 400, job="x")
    assert "no `forget` was interrupted" in _finish(page)


def _finish(page) -> str:
    page.post("/forget/finish")
    return page.finished()


def test_searching_the_files_does_not_take_the_database_from_the_page(page, filled):
    log = filled / "state.db-wal"
    page.get("/conversations")
    if not log.exists():
        pytest.skip("the archive is not a file")
    page.post("/forget/look", text="make release")
    page.finished()
    # Another process that closes the database is not the last one that has it open.
    command = [sys.executable, "-P", "-m", "hermes_core", "--home", str(filled), "sessions", "list"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert log.exists()
