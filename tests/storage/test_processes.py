"""Processes: a name that is never used again."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from hermes_core.storage import processes


@pytest.mark.skipif(sys.platform == "win32" or not shutil.which("ps"), reason="needs ps")
def test_without_proc_the_start_of_a_process_is_the_same_in_every_time_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "Path", lambda _: Path(os.devnull, "none"))
    monkeypatch.setenv("TZ", "UTC")
    began = processes.started(os.getpid())
    monkeypatch.setenv("TZ", "JST-9")
    assert began
    assert processes.started(os.getpid()) == began
