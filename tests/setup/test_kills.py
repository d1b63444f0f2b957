"""A process that dies between any two writes of `setup`: the old state or the new one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.fielded import add_plugin, env_of, run_process_with, saved_of
from support.scripts import import_path

TESTS = Path(__file__).parents[1]
COMPILER = shutil.which("gcc") or shutil.which("cc")

# Every 7th call in the stress run, since each takes a whole set-up; here two or three.
STEP = 7 if os.environ.get("HERMES_STRESS") else 503

#: Dies in front of the write of one file, counted from 1: "config.yaml 1".
DEATH = """
import os, signal
name, number = os.environ["DIE_AT"].split()
left = [int(number)]
real = os.replace

def replace(source, target, **options):
    if os.path.basename(os.fspath(target)) == name:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
    return real(source, target, **options)

os.replace = os.rename = replace
"""


@pytest.mark.stress
@pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the fault shim with")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_PRELOAD is Linux")
def test_a_fault_at_any_call_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    shim = tmp_path / "fault_shim.so"
    source = TESTS / "builtin" / "fault_shim.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
    program = import_path() + "from support.setup_kills import main; main()"
    result = subprocess.run(
        [sys.executable, "-P", "-c", program, tmp_path, str(STEP)],
        env={**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    report = json.loads(result.stdout)
    assert report["wrong"] == []
    assert report["faults"] > 600 // STEP


@pytest.fixture
def killed(machine):
    """A machine whose set-up of acme dies in front of the write of config.yaml."""
    add_plugin(machine.home, (), name="beta")
    (machine.site.folder / "sitecustomize.py").write_text(DEATH)
    result = run_process_with(
        machine, "k\n", "setup", "acme", "--set", "timeout=7", "--secret-stdin", "api_key",
        DIE_AT="config.yaml 1",
    )  # fmt: skip
    assert result.code == -signal.SIGKILL
    (machine.site.folder / "sitecustomize.py").unlink()
    return machine


posix = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")


@posix
def test_status_finishes_what_was_decided(killed):
    assert killed.json("status")["provider"]["works"] is True
    assert killed.memory["acme"] == {"timeout": 7}
    assert env_of(killed) == "ACME_API_KEY=k\n"
    assert saved_of(killed) == {"mode": "cloud", "timeout": 7}
    assert not (killed.home / "setup.json").exists()


@posix
@pytest.mark.parametrize("works", [True, False])
def test_what_is_decided_afterwards_is_not_taken_back(killed, works):
    if not works:
        add_plugin(killed.home, module="raise RuntimeError('boom')")
    killed.run("disable").done()
    assert killed.json("status")["provider"] is None
    assert killed.json("status")["provider"] is None


@posix
def test_a_value_that_is_set_afterwards_stays(killed):
    killed.run("config", "set", "memory.acme.timeout", "8").done()
    killed.json("status")
    assert killed.memory["acme"] == {"timeout": 8}


@posix
def test_another_provider_that_is_enabled_afterwards_stays(killed):
    killed.run("enable", "beta").done()
    killed.json("status")
    assert killed.json("status")["provider"]["name"] == "beta"
    assert killed.memory["provider"] == "beta"


@posix
def test_a_journal_that_can_not_be_read_is_told_and_the_built_in_goes_on(machine):
    (machine.home / "setup.json").write_text("{")
    result = machine.run("status")
    assert result.code == 1
    assert "an unfinished setup can't be read" in result.out
    assert "built-in:  active (always)" in result.lines
    line = machine.run("config", "show").failed()
    assert str(machine.home / "setup.json") in line
