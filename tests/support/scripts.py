"""Python programs in a process of their own, for what can't be tried in this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

_TESTS = Path(__file__).parents[1]

_PRELUDE = f"""
import os, sys, threading, time
sys.path.insert(0, {str(_TESTS)!r})
from hermes_core import Deadlines, MemoryManager, MemoryProvider, hookimpl
"""


def run_script(source: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a program that may import tests/support, to its end."""
    return subprocess.run(
        [sys.executable, "-P", "-W", "ignore::DeprecationWarning", "-c", _PRELUDE + dedent(source)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
