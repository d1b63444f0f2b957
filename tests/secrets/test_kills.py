"""A process that dies, or a disk that fails, between any two steps: the secret is never gone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
COMPILER = shutil.which("gcc") or shutil.which("cc")

# Every call in the stress run; here every 47th, in an order that hits all kinds of them.
STEP = 1 if os.environ.get("HERMES_STRESS") else 47

pytestmark = [
    pytest.mark.scaled,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the fault shim with"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_PRELOAD is Linux"),
]


def test_a_fault_at_any_call_leaves_the_old_secret_or_the_new(tmp_path: Path) -> None:
    shim = tmp_path / "fault_shim.so"
    source = TESTS / "builtin" / "fault_shim.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
    result = subprocess.run(
        [sys.executable, "-P", Path(__file__).with_name("kill_runner.py"), tmp_path, str(STEP)],
        env={**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    report = json.loads(result.stdout)
    assert report["wrong"] == []
    assert report["faults"] > 500 // STEP
