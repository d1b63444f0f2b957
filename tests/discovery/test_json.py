"""What `list --json` says about each provider."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.sites import MEMORY, PLUGINS, add_directory, provider_source

from hermes_core import discover

FIELDS = {
    "name",
    "active",
    "state",
    "source",
    "distribution",
    "version",
    "entry_point",
    "description",
    "problem",
}
STATES = {"active", "installed", "conflict", "broken", "changed", "no-provider"}


@pytest.fixture
def every_state(home, site):
    """One provider in each state that there is."""
    site.add_provider("plain", "plain-memory")
    site.add_provider("twice", "twice-one")
    site.add_provider("twice", "twice-two")
    site.add_provider("pinned", "pinned-memory", "2.0")
    site.add("latin", entry_points=b"[hermes_agent.memory_providers]\n\xff = x\n")
    site.add("tools", groups={PLUGINS: {"tools": "tools_plugin"}})
    add_directory(home, "local", manifest="version: 1.0.0\ndescription: 記憶 here")
    (home / "config.yaml").write_text(
        "memory:\n  provider: pinned\n  pins: {pinned: {owner: pinned-memory, version: '1.0'}}\n",
        "utf-8",
    )


def listed(home, site, *options):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hermes_core", "--home", str(home), "list", *options],
        env={**os.environ, "PYTHONPATH": str(site.folder)},
        capture_output=True,
        encoding="utf-8",
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_every_provider_has_exactly_the_fields_of_the_contract(home, site, every_state):
    answer = listed(home, site, "--json")
    assert answer["schema"] == 1
    assert set(answer) == {"schema", "providers"}
    for each in answer["providers"]:
        assert set(each) == FIELDS
        assert isinstance(each["active"], bool)
        assert all(isinstance(each[field], str) for field in FIELDS - {"active"})


def test_all_states_and_sources_are_told(home, site, every_state):
    providers = listed(home, site, "--json")["providers"]
    assert {each["state"] for each in providers} == STATES
    assert {each["source"] for each in providers} == {"builtin", "directory", "entry-point"}
    by_name = {each["name"]: each for each in providers}
    assert by_name["pinned"]["active"]
    assert by_name["pinned"]["state"] == "changed"
    assert by_name["local"]["description"] == "記憶 here"
    assert [each["problem"] != "" for each in providers] == [
        each["state"] not in ("active", "installed") for each in providers
    ]


def test_it_is_what_discover_gives(home, site, every_state):
    expected = [
        (each.name, each.active, each.state, each.source, each.distribution, each.version)
        for each in discover(home)
    ]
    keys = ("name", "active", "state", "source", "distribution", "version")
    providers = listed(home, site, "--json")["providers"]
    assert [tuple(each[key] for key in keys) for each in providers] == expected


def test_all_also_lists_what_is_only_carried(home, site):
    site.add(
        "carrier",
        files={"carried/__init__.py": provider_source("c"), "carried/plugin.yaml": "name: c"},
    )
    site.add("other", groups={MEMORY: {"other": "other"}})
    plain = {each["name"] for each in listed(home, site, "--json")["providers"]}
    everything = {each["name"] for each in listed(home, site, "--all", "--json")["providers"]}
    assert everything - plain == {"c"}
