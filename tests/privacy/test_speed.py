"""No text takes long: neither an ordinary one nor one that was made to."""

from __future__ import annotations

import os
from time import process_time

import pytest
from support.canaries import body

from hermes_core.privacy import Redactor

CLEAN = "The agent reads the report and writes a summary: 12 steps, see https://a.example/wiki.\n"
MEGABYTE = 1_000_000
#: CPU time, not elapsed time. What grows with the square of the length takes minutes.
LENGTH = MEGABYTE if os.environ.get("HERMES_STRESS") else MEGABYTE // 5
PIECES = [
    "a", "sk-", "eyJ.", "eyJ_", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----\n", "://a:", "a://b:c@",
    "password=", "password: ", "token is ", "bearer ", "key: ", "api_key=a1-", "=sig", "?sig=",
    "ghp_", "SK", "12345678:AA", "a-", "1//0", "\\n", "login x password ", "authorization: basic ",
    "-----BEGIN PRIVATE KEY-----AAAAAAAAAAAAAAAAAAAA", "hooks.slack.com/services/", "A.", "é", "İ",
    "[redacted: secret]", "\x00", "%20", "aaaaaa ",
]  # fmt: skip


def seconds(value: object, redactor: Redactor) -> float:
    begin = process_time()
    redactor.redact(value)
    return process_time() - begin


@pytest.mark.scaled
@pytest.mark.parametrize("piece", PIECES)
def test_a_text_that_was_made_to_take_long_does_not(piece):
    text = piece * (LENGTH // len(piece))
    assert seconds(text, Redactor(["canary-4711"])) < 3


@pytest.mark.stress
def test_a_clean_text_costs_little():
    redactor = Redactor([body(40)])
    redactor.redact(CLEAN)
    kilobyte, megabyte = (CLEAN * 12)[:1000], (CLEAN * 12_000)[:MEGABYTE]
    best = min(_each(redactor, kilobyte, 100) for _ in range(10))
    assert best < 100e-6
    assert min(seconds(megabyte, redactor) for _ in range(5)) < 0.2


def _each(redactor: Redactor, text: str, times: int) -> float:
    begin = process_time()
    for _ in range(times):
        redactor.redact(text)
    return (process_time() - begin) / times
