"""`ServiceProvider`, with a service that is a list."""

import json
import threading
import time

import pytest

from hermes_core import HermesError, MemoryManager, RecallStatus
from hermes_core.service import (
    BackendError,
    Cause,
    CompletedTurn,
    RecallResult,
    ServiceProvider,
    Tool,
    cause_of_status,
    failure,
)


class AcmeError(Exception):
    pass


class Acme(ServiceProvider):
    label = "Acme"
    name = "acme"

    def __init__(self):
        super().__init__()
        self.kept = []
        self.events = []
        self.down = False

    def is_available(self):
        return True

    def connect(self, start):
        self.events.append(("connect", start))

    def disconnect(self):
        self.events.append("disconnect")

    def recall(self, query, session_id):
        self._reach()
        found = [turn.user for turn in self.kept if query in turn.user]
        return RecallResult("\n".join(found), len(found))

    def write_turn(self, turn):
        self._reach()
        self.kept.append(turn)

    def write_note(self, note):
        self.events.append(note)

    def write_delegation(self, delegation):
        self.events.append(delegation)

    def write_ending(self, ending):
        self.events.append(ending)

    def switch(self, old, new, *, parent, reset, rewound):
        self.events.append(("switch", old, new, parent))

    def explain(self, error):
        return failure(
            Cause.UNREACHABLE, service=self.name, where="http://there", detail=str(error)
        )

    def try_out(self, *, write):
        self._reach()
        return "works"

    def tools(self):
        parameters = {
            "type": "object",
            "properties": {"text": {"type": "string"}, "top": {"type": "integer", "maximum": 9}},
            "required": ["text"],
        }
        return [
            Tool({"name": "acme_find", "description": "", "parameters": parameters}, self._find),
            Tool(
                {"name": "acme_add", "description": "", "parameters": parameters},
                lambda args: {"result": args["text"]},
                writes=True,
            ),
        ]

    def _find(self, args):
        self._reach()
        return {"result": args["text"], "top": args.get("top", 3)}

    def _reach(self):
        if self.down:
            raise AcmeError("no route")


@pytest.fixture
def acme(tmp_path):
    provider = Acme()
    provider.initialize("s1", hermes_home=str(tmp_path), agent_context="primary", user_id="ann")
    yield provider
    provider.shutdown()


def test_connect_is_told_what_the_host_said(acme, tmp_path):
    start = acme.start
    assert (start.home, start.user_id, start.profile) == (tmp_path, "ann", "default")
    assert acme.events == [("connect", start)]


def test_a_host_with_an_outbox_has_its_turn_written_where_it_asks(acme):
    acme.sync_turn("hello", "hi", session_id="s2", turn_id="t1", attempt=2)
    (turn,) = acme.kept
    assert (turn.id, turn.attempt, turn.session_id, turn.user) == ("t1", 2, "s2", "hello")


def test_a_write_that_the_service_did_not_take_raises_one_line(acme):
    acme.down = True
    with pytest.raises(BackendError, match=r"^acme at http://there: can't be reached: no route \("):
        acme.sync_turn("hello", "hi", turn_id="t1")


def test_a_host_without_an_outbox_has_its_turns_queued_and_drained(acme):
    for number in range(5):
        acme.sync_turn(f"hello {number}", "hi")
    acme.shutdown()
    assert [turn.user for turn in acme.kept] == [f"hello {number}" for number in range(5)]
    assert len({turn.id for turn in acme.kept}) == 5
    assert acme.events[-1] == "disconnect"


@pytest.mark.parametrize("context", ["cron", "subagent", "flush"])
def test_other_contexts_write_nothing(acme, tmp_path, context):
    acme.initialize("s1", hermes_home=str(tmp_path), agent_context=context)
    acme.events.clear()
    acme.sync_turn("hello", "hi", turn_id="t1")
    acme.on_memory_write("add", "user", "likes tea", event_id="e1")
    acme.on_delegation("task", "result", event_id="e2")
    acme.on_session_end([], event_id="e3")
    assert acme.kept == acme.events == []
    assert "only reads" in json.loads(acme.handle_tool_call("acme_add", {"text": "x"}))["error"]
    assert json.loads(acme.handle_tool_call("acme_find", {"text": "x"}))["result"] == "x"


def test_a_note_carries_what_it_replaced_or_removed(acme):
    acme.on_memory_write("replace", "user", "new", {"old_text": "old"}, event_id="e1")
    acme.on_memory_write("remove", "user", "gone", event_id="e2")
    replaced, removed = acme.events[1:]
    assert (replaced.content, replaced.old_text) == ("new", "old")
    assert removed.old_text == "gone"


def test_what_is_queued_belongs_to_the_session_that_said_it(acme):
    acme.on_session_end([{"role": "user", "content": "x"}])
    acme.on_session_switch("s2", parent_session_id="s1")
    acme.sync_turn("hello", "hi")
    acme.shutdown()
    ending = next(each for each in acme.events if hasattr(each, "messages"))
    assert ending.session_id == "s1"
    assert acme.kept[0].session_id == "s2"


def test_recall_asks_with_the_message_at_hand_and_counts(acme):
    acme.sync_turn("tea at five", "noted", turn_id="t1")
    assert acme.prefetch("tea") == "tea at five"
    assert acme.recall_status() == RecallStatus("Acme", 1, "🧠")
    assert acme.prefetch("coffee") == ""
    assert acme.recall_status() is None


def test_tools_answer_with_json_whatever_the_model_sends(acme):
    call = lambda name, args: json.loads(acme.handle_tool_call(name, args))  # noqa: E731
    assert call("acme_find", {"text": "x", "top": None}) == {"result": "x", "top": 3}
    assert "'text' is a required property" in call("acme_find", {})["error"]
    assert "top" in call("acme_find", {"text": "x", "top": 99})["error"]
    assert "no tool" in call("acme_lose", {})["error"]
    acme.down = True
    assert "can't be reached" in call("acme_find", {"text": "x"})["error"]


def test_the_probe_tells_instead_of_raising(acme):
    assert acme.probe(True) == (True, "works")
    acme.down = True
    ok, detail = acme.probe(True)
    assert not ok
    assert "can't be reached" in detail


def test_shutdown_may_come_twice_and_without_initialize():
    provider = Acme()
    provider.shutdown()
    provider.shutdown()
    assert provider.events == []
    with pytest.raises(HermesError, match="initialize"):
        provider.sync_turn("hello", "hi", turn_id="t1")


def test_through_a_manager_nothing_is_lost_while_the_service_is_down(tmp_path):
    acme = Acme()
    acme.down = True
    manager = MemoryManager(home=tmp_path)
    manager.add_provider(acme)
    manager.initialize_all("s1")
    for number in range(3):
        manager.sync_all(f"hello {number}", "hi", session_id="s1")
    manager.flush_pending(0.2)
    acme.down = False
    manager.flush_pending(20)
    manager.shutdown_all()
    assert [turn.user for turn in acme.kept] == ["hello 0", "hello 1", "hello 2"]


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (400, Cause.REFUSED), (401, Cause.WRONG_KEY), (403, Cause.FORBIDDEN), (404, Cause.MISSING),
        (429, Cause.QUOTA), (500, Cause.BROKEN), (503, Cause.UNREACHABLE), (504, Cause.SLOW),
    ],
)  # fmt: skip
def test_a_status_has_a_cause(status, cause):
    assert cause_of_status(status) is cause


def test_what_the_last_user_left_in_the_queue_is_not_written_for_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("hermes_core.service.provider._DRAIN_SECONDS", 0.05)
    acme = Acme()
    acme.initialize("s1", hermes_home=str(tmp_path), user_id="alice")
    acme.down = True
    acme.sync_turn("my secret", "noted")
    (worker,) = [each for each in threading.enumerate() if each.name == "acme-writes"]
    acme.initialize("s2", hermes_home=str(tmp_path), user_id="bob")
    acme.down = False
    worker.join(60)
    assert acme.kept == []
    acme.shutdown()


def test_a_turn_says_when_it_was_said(home):
    provider = Acme()
    manager = MemoryManager(home=home)
    manager.add_provider(provider)
    manager.initialize_all("s1")
    before = time.time()
    manager.sync_all("hello", "hi")
    assert manager.flush_pending(10)
    manager.shutdown_all()
    (turn,) = provider.kept
    assert CompletedTurn._fields[-1] == "said_at"
    assert before - 1 <= turn.said_at <= time.time() + 1


def test_another_user_is_not_served_as_the_one_before(tmp_path):
    provider = Acme()
    facts = {"hermes_home": str(tmp_path), "platform": "telegram", "provider_config": {"a": 1}}
    provider.initialize("s1", user_id="ada", user_id_alt="+1", **facts)
    provider.on_session_switch("s2", parent_session_id="s1", user_id="ada")
    assert "disconnect" not in provider.events  # the same person goes on
    provider.on_session_switch("s1", user_id="bob")
    assert provider.events[-2] == "disconnect"
    start = provider.start
    assert (start.session_id, start.user_id, start.user_id_alt) == ("s1", "bob", "")
    assert (start.platform, start.config) == ("telegram", {"a": 1})
    provider.on_session_switch("s3", user_id="")
    assert provider.start.user_id == ""


def test_an_id_may_be_zero(tmp_path):
    provider = Acme()
    provider.initialize("s1", user_id=0, chat_id=0, hermes_home=str(tmp_path))
    assert (provider.start.user_id, provider.start.chat_id) == ("0", "0")
