"""Secrets in the errors of a plugin: not shown, whatever the error looks like."""

from __future__ import annotations

import traceback

import pytest

from hermes_core import HermesError
from hermes_core.privacy import mask_error, mask_secrets

CANARY = "canary/4711'0815"


class OddError(Exception):
    """Has its text elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.text = CANARY

    def __str__(self) -> str:
        return self.text


def noted() -> Exception:
    error = RuntimeError("fine")
    error.add_note(f"the key was {CANARY}")
    return error


@pytest.mark.parametrize(
    "text", [f"?key={CANARY}", "?key=canary%2F4711%270815", f"{{'key': {CANARY!r}}}"]
)
def test_a_secret_is_masked_however_it_is_written(text):
    shown = mask_secrets(text, [CANARY])
    assert "4711" not in shown
    assert "***" in shown


def test_what_is_short_is_no_secret():
    assert mask_secrets("port 8000", ["8000", ""]) == "port 8000"


@pytest.mark.parametrize(
    "cause",
    [RuntimeError(f"GET ?key={CANARY}"), OSError(5, CANARY), OddError(), KeyError(CANARY), noted(),
     ExceptionGroup("two", [ValueError(CANARY)])],
    ids=lambda cause: type(cause).__name__,
)  # fmt: skip
def test_neither_an_error_nor_its_cause_shows_it(cause):
    error = HermesError(f"failed: {CANARY}", where="plugin acme", hint=f"not {CANARY}")
    error.__cause__ = cause
    mask_error(error, [CANARY])
    text = str(error) + "".join(traceback.format_exception(error))
    assert "4711" not in text
    assert "plugin acme: failed: *** (not ***)" in text


def test_errors_that_cause_each_other_come_to_an_end():
    first, second = ValueError(CANARY), ValueError(CANARY)
    first.__cause__, second.__cause__ = second, first
    mask_error(first, [CANARY])
    assert (str(first), str(second)) == ("***", "***")
