"""The conformance kit against what stands behind each mode."""

import subprocess
import sys

from support.commands import script_of
from support.mem0_places import KEY


def test_the_kit_passes_with_a_backend(served):
    variables = {f"MEM0_{key.upper()}": value for key, value in served.settings.items()}
    if served.mode != "oss":
        variables["MEM0_API_KEY"] = KEY
    options = [part for pair in variables.items() for part in ("--env", "=".join(pair))]
    command = [str(script_of(sys.executable)), "check", "mem0", "--level", "should", "--live"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout
    assert served.problems() == []


def test_the_kit_passes_with_the_engine_and_without_a_network(installed):
    command = [str(script_of(sys.executable)), "check", "mem0", "--level", "should"]
    options = ["--env", "MEM0_MODE=oss", "--env", "MEM0_LLM_URL=http://model.invalid/v1"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout
