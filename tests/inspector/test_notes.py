"""Notes on the page: what is shown, what is changed, and that nothing is overwritten."""

from __future__ import annotations

import json
import re
import time

import pytest
from support.inspected import RIGHT, WRONG, Browser, add_provider, configure, fill, version_of, wait

from hermes_core import MemoryManager

FAST = True
pytestmark = pytest.mark.usefixtures("both_storages")


@pytest.fixture
def filled(tmp_path, few_distributions, both_storages):
    home = tmp_path / "home"
    configure(home)
    fill(home)
    return home


def notes_of(home):
    manager = MemoryManager.from_config(home)
    manager.initialize_all("reader", platform="cli")
    read = {"action": "read", "target": "memory"}
    found = json.loads(manager.handle_tool_call("memory", read))["entries"]
    manager.shutdown_all()
    return found


def test_an_entry_says_where_it_comes_from(page):
    text = page.get("/notes")
    entry = text[text.index(WRONG) :][:600]
    assert ">user<" in entry
    assert "by the agent" in entry
    assert "/conversations/monday?like=" in entry
    assert "#change-" in entry


def test_add_edit_remove_and_undo(page, filled):
    page.post("/notes/add", book="memory", text="Deploys are on Mondays.")
    assert notes_of(filled) == [WRONG, "Deploys are on Mondays."]
    page.post(
        "/notes/edit", book="memory", version=version_of(page.get("/notes"), WRONG), text=RIGHT
    )
    assert notes_of(filled)[0] == RIGHT
    history = page.get("/notes/history")
    assert "<del>stage-1.</del>" in history
    assert "<ins>stage-2.</ins>" in history
    number = re.search(r'name="change" value="(\d+)"', history)[1]
    assert "was undone" in page.post("/notes/undo", change=number, back="/notes/history")
    assert notes_of(filled)[0] == WRONG
    version = version_of(page.get("/notes"), "Deploys are")
    page.post("/notes/remove", book="memory", version=version)
    assert notes_of(filled) == [WRONG]


def test_the_words_of_a_person_have_their_origin(page, filled):
    page.post("/notes/add", book="memory", text="Deploys are on Mondays.")
    text = page.get("/notes")
    entry = text[text.index("Deploys are") :][:400]
    assert ">person<" in entry
    assert "by you, on this page" in entry


def test_the_second_of_two_tabs_is_refused_and_sees_both(page, filled):
    version = version_of(page.get("/notes"), WRONG)
    page.post("/notes/edit", book="memory", version=version, text=RIGHT)
    answer = page.post("/notes/edit", 409, book="memory", version=version, text="It is stage-3.")
    assert "Nothing was overwritten" in answer
    assert "<ins>stage-2.</ins>" in answer
    assert "It is stage-3." in answer
    assert notes_of(filled) == [RIGHT]
    answer = page.post("/notes/remove", 409, book="memory", version=version)
    assert notes_of(filled) == [RIGHT]
    # Their text can be taken over on purpose.
    current = re.search(r'name="version" value="([0-9a-f]{64})"', answer)[1]
    page.post("/notes/remove", book="memory", version=current)
    assert notes_of(filled) == []


def test_an_agent_that_removes_an_entry_meanwhile_is_not_overwritten(page, filled):
    version = version_of(page.get("/notes"), WRONG)
    agent = MemoryManager.from_config(filled)
    agent.initialize_all("tuesday", platform="cli")
    call = {"action": "remove", "target": "memory", "old_text": WRONG}
    agent.handle_tool_call("memory", call)
    agent.shutdown_all()
    assert "conversation tuesday" in page.post(
        "/notes/edit", 409, book="memory", version=version, text=RIGHT
    )
    assert notes_of(filled) == []


def test_the_notebook_of_an_earlier_day(page, filled):
    today = time.strftime("%Y-%m-%d")
    page.post("/notes/remove", book="memory", version=version_of(page.get("/notes"), WRONG))
    assert WRONG not in page.get(f"/notes?day={today}").partition("Newest changes")[0]
    assert "No notes on that day" in page.get("/notes?day=2001-02-03")
    assert "that is not a day" in page.get("/notes?day=soon", 400)
    shown = page.get(f"/notes?day={today}")
    assert "Prefers short answers." in shown
    assert "/notes/edit" not in shown  # the past can't be edited


def test_the_cap_of_a_notebook_counts_here_too(page, filled):
    assert "may have 2,200" in page.post("/notes/add", 400, book="memory", text="x" * 3000)
    assert notes_of(filled) == [WRONG]


def test_staged_writes_are_approved_and_rejected(page, filled):
    config = filled / "config.yaml"
    text = config.read_text("utf-8") or "memory:\n"
    config.write_text(f"{text}  write_approval: true\n", "utf-8")
    agent = MemoryManager.from_config(filled)
    agent.initialize_all("tuesday", platform="cli")
    for content in ("First.", "Second."):
        call = {"action": "add", "target": "memory", "content": content}
        agent.handle_tool_call("memory", call)
    agent.shutdown_all()
    text = page.get("/notes")
    assert "Waiting for your approval" in text
    first, second = re.findall(r'name="id" value="([0-9a-f]{8})"><button>Approve', text)
    assert "Approved" in page.post("/notes/approve", id=first)
    assert "Rejected" in page.post("/notes/reject", id=second)
    assert notes_of(filled) == [WRONG, "First."]
    assert "pending" in page.post("/notes/approve", 400, id=first)


def test_a_change_reaches_the_provider_without_the_page_waiting_for_it(tmp_path, few_distributions):
    home = tmp_path / "home"
    configure(home, "  provider: facts\n")
    add_provider(home, facts=(WRONG,))
    fill(home)
    page = Browser(home).enter()
    try:
        version = version_of(page.get("/notes"), WRONG)
        page.post("/notes/edit", book="memory", version=version, text=RIGHT)
        wait(lambda: RIGHT in json.loads((home / "facts.json").read_text("utf-8")))
    finally:
        page.idle()
        page.close()


@pytest.mark.files_only
def test_a_provider_that_hangs_delays_no_change(tmp_path, few_distributions):
    home = tmp_path / "home"
    configure(home)
    fill(home)
    add_provider(home, before="import time; time.sleep(3600)")
    configure(home, "  provider: facts\n  timeouts:\n    initialize: 1\n    load: 1\n")
    page = Browser(home).enter()
    try:
        version = version_of(page.get("/notes"), WRONG)
        page.post("/notes/edit", book="memory", version=version, text=RIGHT)
        # It waits in the outbox, and every page is there.
        assert "on_memory_write" in page.get("/outbox")
        for path in ("/", "/notes", "/conversations", "/provider", "/recall"):
            page.get(path)
        # However many deliveries wait for it, what was saved is not called a failure.
        for number in range(6):
            text = page.post("/notes/add", book="user", text=f"Fact number {number}.")
            assert "Saved." in text
    finally:
        page.close()
