"""Every kind of token is found wherever it stands; what only looks a little like one stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.canaries import CANARIES, Canary

from hermes_core.privacy import Redactor

HARMLESS = (Path(__file__).parent / "harmless.txt").read_text("utf-8").splitlines()
SURROUNDINGS = {
    "alone": "{}",
    "in prose": "I put {} there, thanks.",
    "before a full stop": "It is {}.",
    "in quotes": "key '{}' and \"{}\"",
    "in brackets": "(see {})",
    "in JSON": '{{"value": "{}", "n": 1}}',
    "in escaped JSON": '"{{\\"value\\": \\"{}\\"}}"',
    "after an escaped line end": "one\\n{}\\ntwo",
    "in a query": "https://a.example/b?x={}&y=2",
    "in an export": "export X={}\nls",
    "in backticks": "`{}`",
    "in a table": "| {} | 3 |",
    "in Chinese": "令牌是{}。",
}
TOKENS = [canary for canary in CANARIES if canary.within == "{}"]


def named(canaries: list[Canary] | tuple[Canary, ...]) -> list[object]:
    return [pytest.param(each, id=f"{each.kind}-{n}") for n, each in enumerate(canaries)]


def test_more_than_60_kinds_are_known():
    assert len({canary.kind for canary in CANARIES}) >= 60


@pytest.mark.parametrize("canary", named(CANARIES))
def test_each_kind_is_found_and_called_by_its_name(canary):
    text = canary.within.replace("{}", canary.secret)
    value, kinds = Redactor().redact(text)
    assert canary.secret not in value
    assert value == canary.within.replace("{}", f"[redacted: {canary.kind}]")
    assert kinds == (canary.kind,)


@pytest.mark.parametrize("surrounding", SURROUNDINGS)
def test_every_token_is_found_in_every_surrounding(surrounding):
    for canary in TOKENS:
        text = SURROUNDINGS[surrounding].format(canary.secret, canary.secret)
        value = Redactor().redact(text).value
        assert canary.secret not in value
        assert canary.secret[-12:].strip("-") not in value
        assert f"[redacted: {canary.kind}]" in value


def test_a_harmless_text_stays_what_it_is():
    for line in HARMLESS:
        assert Redactor().redact(line) == (line, ())
        assert Redactor().redact({"role": "user", "content": line}).kinds == ()


def test_harmless_texts_together_are_harmless_too():
    assert len(HARMLESS) >= 100
    assert Redactor().redact("\n".join(HARMLESS)).kinds == ()


def test_after_a_key_that_is_cut_off_the_talk_goes_on():
    key = next(each.secret for each in CANARIES if each.within == "cut off: {}")
    value = Redactor().redact(f"{key}\nand that is all that I have").value
    assert value == "[redacted: private-key]\nand that is all that I have"


def test_of_a_url_only_the_password_is_masked():
    value = Redactor().redact("amqp://joe:k4ninchen@mq.example/vhost").value
    assert value == "amqp://joe:[redacted: database-password]@mq.example/vhost"
