"""Every offered name has the signature that it has in the real hermes-agent."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.hermes_agent import PEERS, missing

from hermes_core.loading.compat import OFFERED, offer_hermes_agent_modules

#: What 0.20.1.2 has not, and later revisions have: a whole module (None), or some of its names.
NEWER_THAN_20: dict[str, set[str] | None] = {
    "agent.memory_manager": {"memory_provider_tools_exposed"},
    "agent.memory_provider": {
        "PRE_COMPRESS_CHECKPOINT_API_VERSION",
        "ctx_bound",
        "spawn_context_thread",
    },
    "agent.redact": {"REDACTION_UNAVAILABLE", "redact_for_egress"},
    "agent.turn_author": None,
    "utils": {"read_json_or_empty"},
}
#: What 0.19.0 has not, and 0.20.1.2 has.
NEWER_THAN_19: dict[str, set[str] | None] = {
    "agent.context_compressor": {"is_compaction_summary_message"},
    "agent.memory_provider": {
        "INDICATOR_GLYPH",
        "RecallStatus",
        "TRIVIAL_PROMPT_RE",
        "is_trivial_prompt",
    },
    "hermes_cli.config": {"read_user_config_raw"},
    "hermes_cli.plugins": {"resolve_module_origin"},
    "hermes_constants": {"hermes_home_key"},
    "plugins.memory": {"ENTRY_POINTS_GROUP", "find_provider_entry_point"},
    "tools.lazy_deps": {"InstallSpecsResult", "install_specs"},
    "utils": {"atomic_roundtrip_yaml_save", "atomic_write_text"},
}
#: What has more parameters in 0.20.1.2 than in 0.19.0; each has a default.
GREW = {
    "apply_wal_with_fallback",
    "atomic_yaml_write",
    "curses_radiolist",
    "feature_install_command",
    "get_hermes_dir",
    "load_memory_provider",
    "memory_provider_tools_enabled",
    "open_credentialed_url",
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
    try:
        there = importlib.import_module(module)
    except ModuleNotFoundError:
        continue
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
    offer_hermes_agent_modules()
    found = {name: getattr(importlib.import_module(name), "__all__", []) for name in OFFERED}
    return {name: list(names) for name, names in found.items() if names}


def theirs_of(release: str, ours: dict[str, list[str]], folder: Path) -> dict[str, Any]:
    """What a release has of those names: a function's parameters, None for anything else."""
    if reason := missing(release):
        pytest.skip(reason)
    done = subprocess.run(
        [PEERS[release], "-P", "-c", _LOOK, json.dumps(ours)],
        env={"HERMES_HOME": str(folder), "HOME": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def lacking(ours: dict[str, list[str]], theirs: dict[str, Any]) -> dict[str, set[str] | None]:
    """What a release has not: whole modules, or names in one."""
    less = {
        module: set(names) - set(theirs[module]) if module in theirs else None
        for module, names in ours.items()
    }
    return {module: names for module, names in less.items() if names is None or names}


def newer_than(*releases: dict[str, set[str] | None]) -> dict[str, set[str] | None]:
    newer: dict[str, set[str] | None] = {}
    for release in releases:
        for module, names in release.items():
            newer[module] = None if names is None else names | (newer.get(module) or set())
    return newer


def ours_of(module: str, name: str) -> list[list[str]] | None:
    return shape(getattr(importlib.import_module(module), name))


def test_names_and_signatures_are_those_of_0_20(tmp_path):
    ours = offered()
    theirs = theirs_of("0.20", ours, tmp_path)
    assert lacking(ours, theirs) == NEWER_THAN_20
    other = {
        f"{module}.{name}": expected
        for module, names in theirs.items()
        for name, expected in names.items()
        if expected is not None and ours_of(module, name) != expected
    }
    assert other == {}


def test_what_works_with_0_19_works(tmp_path):
    ours = offered()
    theirs = theirs_of("0.19", ours, tmp_path)
    assert lacking(ours, theirs) == newer_than(NEWER_THAN_20, NEWER_THAN_19)
    grew = set()
    for module, names in theirs.items():
        for name, expected in names.items():
            found = ours_of(module, name)
            if expected is None or found == expected:
                continue
            assert found is not None
            assert found[: len(expected)] == expected, f"{module}.{name}"
            assert all(
                default != "<class 'inspect._empty'>" for _, _, default in found[len(expected) :]
            )
            grew.add(name)
    assert grew == GREW


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("agent.memory_manager:memory_provider_tools_exposed", "(agent)"),
        ("agent.memory_provider:ctx_bound", "(fn)"),
        (
            "agent.memory_provider:spawn_context_thread",
            "(target, *, name, daemon=True, args=(), kwargs=None)",
        ),
        ("agent.redact:redact_for_egress", "(text)"),
        ("agent.turn_author:a2a_key", "(author)"),
        ("agent.turn_author:bot_author_id", "(profile, origin=None)"),
        ("agent.turn_author:local_origin", "()"),
        ("agent.turn_author:parse_turn_author", "(raw)"),
        ("agent.turn_author:plugin_author_for_event", "(event)"),
        ("agent.turn_author:plugin_author_id", "(plugin_id)"),
        ("agent.turn_author:plugin_turn_author", "(plugin_id, name='')"),
        ("agent.turn_author:turn_author_env", "(author)"),
        ("utils:read_json_or_empty", "(path)"),
    ],
)
def test_what_later_revisions_have_has_their_signatures(name, parameters):
    offer_hermes_agent_modules()
    module, _, attribute = name.partition(":")
    signature = inspect.signature(getattr(importlib.import_module(module), attribute))
    bare = [
        each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()
    ]
    assert str(inspect.Signature(bare)) == parameters
