"""Variables that a provider declares: known before its import, once it was enabled."""

from __future__ import annotations

import pytest
from support.fielded import add_plugin

FIELD = {"key": "token", "secret": True, "env_var": "DECLARED_KEY"}
TOLD = "def is_available(self):\n    return AT_IMPORT.get('DECLARED_KEY') == 'x'\n"


@pytest.mark.parametrize(
    "command", [("enable", "acme", "--force"), ("setup", "acme", "--no-input")]
)
def test_it_is_set_before_the_import(machine, command):
    add_plugin(machine.home, (FIELD,), TOLD)
    (machine.home / ".env").write_text("DECLARED_KEY=x\n")
    machine.run(*command, "--grant", "DECLARED_KEY")
    assert machine.pins["acme"]["env"] == ["DECLARED_KEY"]
    assert machine.json("status")["provider"]["works"] is True
