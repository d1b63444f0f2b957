"""Overview, Recall, Provider and Outbox with an external provider."""

from __future__ import annotations

import json
import re

import pytest
from support.inspected import RIGHT, WRONG, Browser, add_provider, configure, fill, wait

from hermes_core import MemoryManager, load_config
from hermes_core.conformance.model import FAILED, Report, Result


@pytest.fixture
def home(tmp_path, few_distributions):
    folder = tmp_path / "home"
    configure(folder, "  provider: facts\n")
    add_provider(folder, facts=("The deploy key is with Ann.",))
    return folder


def opened(folder):
    return Browser(folder).enter()


def test_the_overview_says_whether_the_memory_works(home):
    fill(home)
    page = opened(home)
    try:
        page.get("/")
        text = page.finished("/")
        assert "The memory works: facts answers and accepts writes." in text
        assert "sync_turn" not in text
        assert re.search(r'href="/provider#calls">\d+</a> calls', text)
        assert 'href="/outbox?state=waiting">0</a>' in text
        assert 'href="/notes#book-memory">1 entry</a>' in text
    finally:
        page.close()


def test_the_overview_names_what_does_not_work(home):
    (home / "plugins" / "facts" / "__init__.py").write_text("raise RuntimeError('<b>no')", "utf-8")
    page = opened(home)
    try:
        page.get("/")
        text = page.finished("/")
        assert "does not work" in text
        assert "&lt;b&gt;no" in text
    finally:
        page.close()


@pytest.mark.stress
def test_recall_shows_who_returned_what_and_corrects_it(home):
    add_facts = json.dumps(["The deploy key is with Ann.", "Kim is on call."])
    (home / "facts.json").write_text(add_facts, "utf-8")
    page = opened(home)
    try:
        page.post("/recall/ask", question="Who is on call?")
        text = page.finished()
        assert "From facts" in text
        assert "Kim is on call." in text
        assert "provider:facts" in text
        assert "&lt;memory-context&gt;" in text
        page.post(
            "/recall/correct", question="Who is on call?", wrong="Kim is on call.",
            right="Ann is on call.", book="memory",
        )  # fmt: skip
        text = page.finished()
        assert "Deleted: facts 1" in text
        assert "Ann is on call." in text
        page.idle()
        assert "Kim is on call." not in json.loads((home / "facts.json").read_text("utf-8"))
        wait(lambda: "Ann is on call." in json.loads((home / "facts.json").read_text("utf-8")))
    finally:
        page.close()


@pytest.mark.stress
def test_a_corrected_note_is_asked_for_again(home):
    configure(home)
    fill(home)
    page = opened(home)
    try:
        page.post("/recall/ask", question="Which server?")
        text = page.finished()
        part = text[text.index(WRONG) :]
        version = re.search(r'name="version" value="([^"]*)"', part)[1]
        again = re.search(r'name="again" value="([^"]*)"', part)[1]
        page.post("/notes/edit", book="memory", version=version, text=RIGHT, again=again)
        assert "/recall?job=" in page.address
        text = page.finished()
        assert RIGHT in text
        assert WRONG not in text
        assert "Which server?" in text
    finally:
        page.close()


def test_an_empty_question_is_refused(home):
    page = opened(home)
    try:
        assert "the message is empty" in page.post("/recall/ask", 400, question="  ")
    finally:
        page.close()


@pytest.mark.stress
def test_a_provider_that_hangs_holds_up_no_page(home):
    add_provider(home, "slow", on_recall="import time; time.sleep(3600)")
    configure(home, "  provider: slow\n  timeouts:\n    prefetch: 1\n")
    page = opened(home)
    try:
        page.post("/recall/ask", question="Who?")
        assert "Asking the memory providers" in page.get(page.address)
        for path in ("/", "/notes", "/conversations", "/provider", "/outbox", "/live"):
            page.get(path)
        assert "no answer in time" in page.finished()
    finally:
        page.close()


def test_settings_tools_and_calls(home):
    fill(home)
    page = opened(home)
    try:
        page.post("/provider/tools")
        text = page.finished()
        assert "facts_search" in text
        assert "Search the facts." in text
        assert "session_search" in text
        assert "sync_turn" in text
        calls = page.get("/provider?of=builtin&hook=initialize")
        assert "initialize" in calls.partition('id="calls"')[2]
        assert "The log has no such call." in page.get("/provider?failed=1")
    finally:
        page.close()


def test_a_secret_is_only_set_or_not_set(home, monkeypatch):
    source = home / "plugins" / "facts" / "__init__.py"
    fields = """
    def get_config_schema(self):
        return [{"key": "api_key", "description": "Key", "secret": True, "env_var": "FACTS_KEY"},
                {"key": "place", "description": "Place", "default": "here"}]

    def is_available"""
    source.write_text(source.read_text("utf-8").replace("\n    def is_available", fields), "utf-8")
    monkeypatch.setenv("FACTS_KEY", "Zx81-very-secret-value")
    page = opened(home)
    try:
        page.get("/provider")
        text = page.finished("/provider")
        assert "api_key" in text
        assert re.search(r'set <span class="tag">secret', text)
        assert "here" in text
        assert "Zx81-very-secret-value" not in text
    finally:
        page.close()


@pytest.mark.stress
def test_enable_and_disable_with_the_test_of_the_command(home):
    add_provider(home, "other")
    add_provider(home, "broken")
    (home / "plugins" / "broken" / "__init__.py").write_text(
        "def register(ctx): raise RuntimeError('it is broken')", "utf-8"
    )
    page = opened(home)
    try:
        assert "is disabled" in page.post("/provider/disable")
        assert load_config(home).selection.name == ""
        page.post("/provider/enable", name="broken")
        text = page.finished()
        assert "broken does not work, so nothing was changed." in text
        assert "it is broken" in text
        assert load_config(home).selection.name == ""
        page.post("/provider/enable", name="other")
        assert "other is enabled." in page.finished()
        assert load_config(home).selection.name == "other"
        assert (home / "plugins.lock.json").exists()
        assert "no external provider" not in page.post("/provider/disable")
        assert "no external provider is active" in page.post("/provider/disable", 400)
        page.idle()
    finally:
        page.close()


def test_the_outbox_is_shown_retried_and_dropped(home):
    add_provider(home, "down", on_turn="raise ConnectionError('<i>down')")
    configure(home, "  provider: down\n")
    manager = MemoryManager.from_config(home)
    manager.initialize_all("monday", platform="cli")
    for number in range(2):
        manager.sync_all(f"Question {number}", "Answer", session_id="monday")
    manager.shutdown_all()
    page = opened(home)
    try:
        text = page.get("/outbox")
        assert "2 waiting" in text
        assert "&lt;i&gt;down" in text
        first, second = re.findall(r'href="/outbox/(\d+)"', text)
        assert "Question 0" in page.get(f"/outbox/{first}")
        page.post("/outbox/retry", write=first)
        assert "still waiting" in page.finished()
        assert f"Removed write {first}." in page.post("/outbox/drop", write=first)
        assert "there is no write" in page.post("/outbox/drop", 400, write=first)
        # It is delivered as soon as the provider works.
        source = home / "plugins" / "down" / "__init__.py"
        source.write_text(
            source.read_text("utf-8").replace("raise ConnectionError", "str"), "utf-8"
        )
        page.post("/outbox/retry")
        assert "1 write delivered" in page.finished()
        assert "The outbox is empty." in page.get("/outbox")
        assert second
    finally:
        page.close()


def test_the_result_of_the_checks_is_shown(home):
    page = opened(home)
    facts = ("HP110", "must", "identity", "It has a name", "docs", FAILED)
    result = Result(*facts, happened="<b>no", fix="Name it")
    report = Report("facts", "", "1.0", "directory", "1", "1", False, 1.0, (result,))
    try:
        job = page.site.jobs.start("conformance", "Checking", lambda: report)
        wait(lambda: not page.site.jobs.get(job.id).running)
        text = page.get("/provider")
        assert "1 failed" in text
        assert "&lt;b&gt;no" in text
        assert "Name it" in text
    finally:
        page.close()


def test_what_changes_is_announced(home):
    configure(home)
    fill(home)
    page = opened(home)
    try:
        before = json.loads(page.get("/live"))
        assert json.loads(page.get("/live")) == before
        # A page says what it shows: what changes between it and the first look is noticed.
        assert all(value in page.get("/notes") for value in before.values())
        page.post("/notes/add", book="memory", text="New.")
        after = json.loads(page.get("/live"))
        assert after["notes"] != before["notes"]
        assert after["conversations"] == before["conversations"]
        (home / "memories" / "MEMORY.md").write_text("Somebody's edit.", "utf-8")
        assert json.loads(page.get("/live"))["notes"] != after["notes"]
    finally:
        page.close()
