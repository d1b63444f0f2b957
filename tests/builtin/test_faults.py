"""Every system call of every operation on the notes fails once; the file stays whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPILER = shutil.which("gcc") or shutil.which("cc")

# Every call in the stress run; here every thirteenth, in an order that hits all kinds of them.
STEP = 1 if os.environ.get("HERMES_STRESS") else 13

pytestmark = [
    pytest.mark.scaled,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the fault shim with"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_PRELOAD is Linux"),
    pytest.mark.files_only("about system calls on files"),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("shim") / "fault_shim.so"
    source = HERE / "fault_shim.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", target, source, "-ldl"], check=True)
    return target


@pytest.mark.stress
@pytest.mark.parametrize("operation", ["add", "replace", "remove", "batch"])
def test_a_fault_at_any_call_leaves_the_old_file_or_the_new_and_an_honest_answer(
    operation: str, shim: Path, tmp_path: Path
) -> None:
    result = subprocess.run(
        [sys.executable, "-P", HERE / "fault_runner.py", tmp_path, operation, str(STEP)],
        env={**os.environ, "LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(result.stdout)
    assert report["wrong"] == []
    assert report["faults"] > 100 // STEP
