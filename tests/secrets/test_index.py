"""The index has names and no values, and is never taken for empty when it is broken."""

from __future__ import annotations

import json
import os

import pytest

from hermes_core.errors import SecretsError
from hermes_core.secrets import Secrets
from hermes_core.secrets._files import SecretEntry, SecretIndex


def test_it_has_names_and_no_values(home, secrets):
    secrets.set("KEY", "canary-value", "honcho")
    assert json.loads((home / "secrets.json").read_text()) == {
        "schema": 1,
        "secrets": {"KEY": {"store": "dotenv", "provider": "honcho"}},
    }
    if os.name != "nt":
        assert (home / "secrets.json").stat().st_mode & 0o777 == 0o600


def test_what_others_have_put_in_is_kept(home):
    path = home / "secrets.json"
    entry = {"store": "dotenv", "provider": "a", "note": 1}
    path.write_text(json.dumps({"schema": 1, "secrets": {"A": entry}, "more": [2]}))
    SecretIndex(path).change("A", SecretEntry("keyring", "b"))
    assert json.loads(path.read_text()) == {
        "schema": 1,
        "secrets": {"A": {"store": "keyring", "provider": "b", "note": 1}},
        "more": [2],
    }


BROKEN = {
    "no JSON": "{",
    "empty": "",
    "a list": "[]",
    "no schema": "{}",
    "newer": '{"schema": 2, "secrets": {}}',
    "no secrets": '{"schema": 1}',
    "no store": '{"schema": 1, "secrets": {"A": {}}}',
    "unknown store": '{"schema": 1, "secrets": {"A": {"store": "vault"}}}',
    "no entry": '{"schema": 1, "secrets": {"A": 1}}',
    "bad provider": '{"schema": 1, "secrets": {"A": {"store": "dotenv", "provider": 1}}}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_one_is_an_error_that_says_what_to_do_and_is_left_as_it_is(home, secrets, text):
    path = home / "secrets.json"
    path.write_text(text)
    for call in (
        lambda: secrets.set("KEY", "canary-value"),
        lambda: secrets.get("KEY"),
        secrets.names,
        lambda: secrets.delete("KEY"),
        lambda: secrets.move("dotenv"),
    ):
        with pytest.raises(SecretsError) as caught:
            call()
        assert caught.value.where == str(path)
        assert caught.value.hint.startswith("move it away")
    assert path.read_text() == text
    assert not (home / ".env").exists()


def test_what_is_in_dotenv_is_found_without_the_index(home):
    (home / "secrets.json").write_text("{")
    (home / ".env").write_text("KEY=value\n")
    assert Secrets(home).get("KEY") == ("value", "dotenv")
