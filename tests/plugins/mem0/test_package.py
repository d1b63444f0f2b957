"""The package: a door like any third party's, and nothing heavy behind it."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from support.our_plugins import install_plugin

_IMPORTED = """
import sys
import hermes_memory_mem0
heavy = {"mem0", "httpx", "openai", "qdrant_client", "jsonschema", "posthog"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


def test_importing_it_imports_no_sdk(importable):
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_its_entry_point_registers_a_provider_of_its_name(site):
    install_plugin("mem0", site.folder)
    (found,) = entry_points(group="hermes_agent.memory_providers", name="mem0")
    made = []

    class Context:
        def register_memory_provider(self, provider):
            made.append(provider)

    found.load()(Context())
    assert [each.name for each in made] == ["mem0"]
    assert made[0].confirms_delivery is True


@pytest.mark.stress
def test_the_conformance_kit_passes_without_a_network_and_without_settings(machine):
    done = machine.run("check", "mem0", "--level", "should")
    assert done.code == 0, done.out


@pytest.mark.stress  # tests/plugins/honcho runs the kit in every run
@pytest.mark.parametrize(
    "variable", ["MEM0_API_KEY=m0-any-key-will-do", "MEM0_HOST=http://mem0.invalid"]
)
def test_the_conformance_kit_passes_without_a_network_with_settings(machine, variable):
    done = machine.run("check", "mem0", "--level", "should", "--env", variable)
    assert done.code == 0, done.out
