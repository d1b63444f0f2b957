"""When providers are asked to recall, what they are asked, and what is said of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.providers import Recorder, raising, running

import hermes_core
from hermes_core import MemoryManager, RecallStatus
from hermes_core.testing import FakeProvider


@pytest.mark.parametrize("query", ["", "  \n", None, 5])
def test_nobody_is_asked_for_a_blank_query(query: Any) -> None:
    builtin, external = Recorder("builtin", prefetch="b"), Recorder(prefetch="e")
    with running(builtin, external) as manager:
        assert manager.prefetch_all(query) == ""
        assert manager.recall_block(query) == ""
        assert manager.recall(query) == ("", (), ())
        manager.queue_prefetch_all(query)
        assert manager.flush_pending(60)
    for each in (builtin, external):
        assert not each.of("prefetch") + each.of("queue_prefetch")


TRIVIAL = ["", " ", None, "/new", "ok", "OK!", " thanks :) ", "go ahead…", "hi?", "Yes, ", "lgtm"]
WORTH_IT = ["k8s", "yolo", "note", "hindsight", "ok let us go", "thanks a lot", "ok 👍", "no-op"]


@pytest.mark.parametrize("text", TRIVIAL)
def test_greetings_acknowledgements_and_commands_are_trivial(text: str | None) -> None:
    assert hermes_core.is_trivial_prompt(text)


@pytest.mark.parametrize("text", WORTH_IT)
def test_what_says_something_is_not_trivial(text: str) -> None:
    assert not hermes_core.is_trivial_prompt(text)
    assert hermes_core.TRIVIAL_PROMPT_RE.match(text) is None


@pytest.mark.parametrize(
    ("count", "said"),
    [(1, "recalled 1 memory"), (3, "recalled 3 memories"), (0, "recalled relevant memory")],
)
def test_a_recall_is_described_in_one_line(count: int, said: str) -> None:
    external = FakeProvider(recall_status=RecallStatus("Acme", count))
    with running(external) as manager:
        assert manager.describe_recall() == f"🧠 Acme — {said}"


def test_several_recalls_are_described_side_by_side() -> None:
    builtin = Recorder("builtin", recall_status=RecallStatus("Notes", 1, "*"))
    theirs = SimpleNamespace(provider_label="Acme", count=2, glyph="+")
    with running(builtin, Recorder(recall_status=theirs)) as manager:
        expected = "* Notes — recalled 1 memory  + Acme — recalled 2 memories"
        assert manager.describe_recall() == expected


@pytest.mark.parametrize("answer", [None, "text", raising(OSError("down"))])
def test_nothing_is_described_if_nothing_was_recalled(answer: Any) -> None:
    with running(Recorder(recall_status=answer)) as manager:
        assert manager.describe_recall() == ""


def test_a_recall_of_an_earlier_turn_is_not_described_again() -> None:
    external = FakeProvider(prefetch="- tea", recall_status=RecallStatus("Acme", 1))
    with running(external) as manager:
        manager.prefetch_all("tea?")
        assert manager.describe_recall()
        manager.prefetch_all(" ")
        assert manager.describe_recall() == ""


@pytest.mark.parametrize("given", ["2.5", 2.5])
def test_the_budget_of_recall_may_be_a_number_or_one_as_text(given: Any) -> None:
    assert MemoryManager(external_prefetch_timeout=given)._deadlines.prefetch == 2.5


@pytest.mark.parametrize("given", ["soon", "-1", -1, "nan"])
def test_a_budget_that_is_no_number_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        MemoryManager(external_prefetch_timeout=given)
