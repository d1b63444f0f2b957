"""A known secret is found in whatever way it is written."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.secret_formats import FORMATS, SECRET, betrays

from hermes_core import HermesError
from hermes_core.privacy import Redactor, mask_error, mask_secrets

#: Of other shapes: a key of digits and letters, a pass phrase, and one that is not ASCII.
SECRETS = (
    SECRET,
    "sk4f9a8b7c6d5e4f3a2b1c",
    "correct-horse-battery-staple-77",
    "gehe\u00efm/nis-4711-abc",
)


def test_there_are_forty_formats():
    assert len(FORMATS) >= 40


@pytest.mark.parametrize("form", FORMATS)
def test_an_error_is_masked(form: str):
    written = FORMATS[form](SECRET)
    shown = mask_secrets(f"GET failed: {written} (401)", [SECRET, "another-secret-1234"])
    assert "***" in shown
    assert not betrays(shown, form)
    assert shown.startswith("GET failed: ")
    assert shown.endswith(" (401)")


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("form", FORMATS)
def test_what_leaves_the_machine_is_masked(form: str, secret: str):
    written = FORMATS[form](secret)
    value = {"messages": [{"role": "user", "content": f"it is {written} ok"}]}
    redacted = Redactor([secret], formats=False).redact(value)
    assert redacted.kinds == ("known-secret",)
    assert written not in redacted.value["messages"][0]["content"]


@pytest.mark.parametrize("parts", [2, 3])
def test_a_secret_that_is_split_over_strings_is_masked(parts: int):
    size = len(SECRET) // parts + 1
    pieces = [SECRET[start : start + size] for start in range(0, len(SECRET), size)]
    redacted = Redactor([SECRET], formats=False).redact({"chunks": pieces})
    assert not any(piece in repr(redacted.value) for piece in pieces)


@pytest.mark.parametrize("form", FORMATS)
def test_neither_an_error_nor_its_notes_nor_its_causes_show_it(form: str):
    written = FORMATS[form](SECRET)
    try:
        try:
            raise ValueError(written)
        except ValueError as cause:
            cause.add_note(f"note: {written}")
            error = HermesError(f"failed: {written}", where=written, hint=written)
            error.add_note(written)
            raise error from cause
    except HermesError as caught:
        mask_error(caught, [SECRET])
        text = "".join(traceback.format_exception(caught)) + str(caught) + repr(caught.args)
    assert not betrays(text, form)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_text_without_the_secret_stays_as_it_is(text: str):
    assert mask_secrets(text, [SECRET]) == text


@pytest.mark.parametrize(
    "text", ["port 8000", "super secret key", "Sup3r", "dXNlcg==", "4711 0815", "a" * 10_000]
)
def test_what_is_no_secret_is_kept(text: str):
    assert mask_secrets(text, [SECRET, "8000", "", "abc"]) == text
