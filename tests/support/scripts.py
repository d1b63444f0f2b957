"""Python programs in a process of their own, for what can't be tried in this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

_TESTS = Path(__file__).parents[1]

_PRELUDE = f"""
import os, sys, threading, time
sys.path.insert(0, {str(_TESTS)!r})
from hermes_core import Deadlines, MemoryManager, MemoryProvider, hookimpl
"""


def import_path() -> str:
    """A statement for another interpreter: where `few_distributions` hides what is installed here,
    it is hidden there, too."""
    installed = str(Path(pytest.__file__).parents[1])
    if installed in sys.path:
        return ""
    few = sys.path[-1]
    return f"import sys; sys.path[:] = [{few!r} if p == {installed!r} else p for p in sys.path]\n"


def run_script(source: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a program that may import tests/support, to its end."""
    code = import_path() + _PRELUDE + dedent(source)
    return subprocess.run(
        [sys.executable, "-P", "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
