"""Every offered name has the signature that it has in the real hermes-agent."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
from typing import Any

import pytest
from support.hermes_agent import PEER, needs_hermes_agent

from hermes_core.compat import OFFERED, offer

#: What 0.19.0 has not, and later revisions have.
NEWER = {
    "agent.memory_provider": {
        "INDICATOR_GLYPH",
        "PRE_COMPRESS_CHECKPOINT_API_VERSION",
        "RecallStatus",
        "ctx_bound",
        "is_trivial_prompt",
        "spawn_context_thread",
    },
    "hermes_constants": {"hermes_home_key"},
    "utils": {"read_json_or_empty"},
}

_LOOK = """
import importlib, inspect, json, sys
def shape(value):
    if not inspect.isfunction(value):
        return None
    parameters = inspect.signature(value).parameters.values()
    return [[each.name, each.kind.name, repr(each.default)] for each in parameters]
asked = json.loads(sys.argv[1])
found = {}
for module, names in asked.items():
    there = importlib.import_module(module)
    found[module] = {n: shape(getattr(there, n)) for n in names if hasattr(there, n)}
print(json.dumps(found))
"""


def shape(value: Any) -> list[list[str]] | None:
    if not inspect.isfunction(value):
        return None
    return [
        [each.name, each.kind.name, repr(each.default)]
        for each in inspect.signature(value).parameters.values()
    ]


def offered() -> dict[str, list[str]]:
    offer()
    found = {name: getattr(importlib.import_module(name), "__all__", []) for name in OFFERED}
    return {name: list(names) for name, names in found.items() if names}


@needs_hermes_agent
def test_names_and_signatures_are_those_of_hermes_agent(tmp_path):
    ours = offered()
    done = subprocess.run(
        [PEER, "-P", "-c", _LOOK, json.dumps(ours)],
        env={"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout.splitlines()[-1])
    for module, names in ours.items():
        assert set(names) - set(theirs[module]) == NEWER.get(module, set()), module
        for name, expected in theirs[module].items():
            if expected is not None:
                assert shape(getattr(importlib.import_module(module), name)) == expected, name


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("agent.memory_provider:is_trivial_prompt", "(text)"),
        ("agent.memory_provider:ctx_bound", "(fn)"),
        (
            "agent.memory_provider:spawn_context_thread",
            "(target, *, name, daemon=True, args=(), kwargs=None)",
        ),
        ("hermes_constants:hermes_home_key", "(path=None)"),
        ("utils:read_json_or_empty", "(path)"),
    ],
)
def test_what_later_revisions_have_has_their_signatures(name, parameters):
    offer()
    module, _, attribute = name.partition(":")
    signature = inspect.signature(getattr(importlib.import_module(module), attribute))
    bare = [
        each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()
    ]
    assert str(inspect.Signature(bare)) == parameters
