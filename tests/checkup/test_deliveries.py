"""The state of deliveries: the last real cause, and what a later answer of the service refutes."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core.call_log import CallLog, LoggedCall
from hermes_core.checkup.deliveries import ActiveProvider, DeliveryStatus, delivery_status
from hermes_core.config import Config
from hermes_core.errors import AgentEnded
from hermes_core.outbox import StreamKey, admin

ACTIVE = ActiveProvider("acme", "")
WRONG_KEY = "acme at http://acme.example: the key was refused: 401 (check the key)"
SLOW = "acme at http://acme.example: did not answer in time (raise its timeout)"
READ_ONLY = "acme at http://acme.example: the request was refused: 409 read-only database"


def logged(home: Path, *errors: str) -> None:
    """Writes that failed, the last one just now."""
    with closing(CallLog.of(home)) as log:
        for ago, error in zip(range(len(errors), 0, -1), errors, strict=True):
            at = time.time() - ago
            log.add(LoggedCall(at, "acme", "sync_turn", "s1", "error", 0.1, 10, error))


def waiting(home: Path, count: int) -> None:
    """Writes that wait."""
    store = admin.open_store(Config(home), set_aside=True)
    origin, stream = StreamKey("acme", "", "s1", "{}"), 0
    for number in range(count):
        stream, _ = store.put(origin, stream, (f"e{number}", "sync_turn", "{}"), claim=False)
    store.close()


def stands(home: Path, *, answers: bool) -> DeliveryStatus:
    return delivery_status(Config(home), ACTIVE, answers=answers)


def test_a_key_that_was_corrected_is_recognised_and_what_waits_is_said(home: Path) -> None:
    logged(home, *[WRONG_KEY] * 3)
    waiting(home, 2)
    before = stands(home, answers=False)
    assert "the key was refused" in before.failing
    assert before.problems == ((before.failing, "see: hermes-plugins log --failed"),)
    after = stands(home, answers=True)
    assert (after.failing, after.problems) == ("", ())
    warning = str(*after.warnings)
    assert "the key was refused" in warning
    assert "It answers now: 2 writes still to deliver" in warning
    assert "hermes-plugins outbox retry" in warning


def test_with_nothing_left_to_deliver_it_says_so(home: Path) -> None:
    logged(home, *[WRONG_KEY] * 3)
    warning = str(*stands(home, answers=True).warnings)
    assert warning.endswith("It answers now: nothing is waiting")


@pytest.mark.parametrize("error", [READ_ONLY, SLOW, "ConnectionError: backend is down"])
def test_a_probe_that_only_reads_refutes_no_other_failure(home: Path, error: str) -> None:
    logged(home, *[error] * 3)
    told = stands(home, answers=True)
    assert error in told.failing
    assert [each.what for each in told.problems] == [told.failing]


def test_an_agents_end_is_not_the_cause_if_there_is_another(home: Path) -> None:
    logged(home, WRONG_KEY, WRONG_KEY, AgentEnded.TEXT)
    assert "the key was refused" in stands(home, answers=False).failing


def test_an_agents_end_is_the_cause_if_there_is_no_other(home: Path) -> None:
    logged(home, AgentEnded.TEXT)
    assert AgentEnded.TEXT in stands(home, answers=False).failing


BEHIND = (
    "acme at http://acme.example: the server failed: 502, its model can't be reached or fails",
    "acme at http://acme.example: the server failed: 500 the key was refused by the model",
)


@pytest.mark.parametrize("error", BEHIND)
def test_what_fails_behind_a_service_is_not_refuted_by_an_answer_of_it(
    home: Path, error: str
) -> None:
    logged(home, *[error] * 3)
    assert error in stands(home, answers=True).failing
