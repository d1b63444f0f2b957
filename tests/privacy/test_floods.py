"""No text takes long that was made to. What an ordinary one costs is in benchmarks/."""

from __future__ import annotations

import os

import pytest
from support.growth import assert_linear

from hermes_core.privacy import Redactor

LENGTH = 1_000_000 if os.environ.get("HERMES_STRESS") else 200_000
PIECES = [
    "a", "sk-", "eyJ.", "eyJ_", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----\n", "://a:", "a://b:c@",
    "password=", "password: ", "token is ", "bearer ", "key: ", "api_key=a1-", "=sig", "?sig=",
    "ghp_", "SK", "12345678:AA", "a-", "1//0", "\\n", "login x password ", "authorization: basic ",
    "-----BEGIN PRIVATE KEY-----AAAAAAAAAAAAAAAAAAAA", "hooks.slack.com/services/", "A.", "é", "İ",
    "[redacted: secret]", "\x00", "%20", "aaaaaa ",
]  # fmt: skip


@pytest.mark.scaled
@pytest.mark.parametrize("piece", PIECES)
def test_a_text_that_was_made_to_take_long_does_not(piece):
    redactor = Redactor(["canary-4711"])
    assert_linear(redactor.redact, lambda length: piece * (length // len(piece)), LENGTH)
