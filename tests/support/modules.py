"""Sources of plugins in every shape, and fresh interpreters to try them in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

from support.scripts import import_path

_CLASS = """
from hermes_core import MemoryProvider

class {kind}(MemoryProvider):
    @property
    def name(self):
        return {name!r}

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        pass

    def get_tool_schemas(self):
        return []
"""


def provider_class(name: str, kind: str = "Provider", body: str = "") -> str:
    """A module with one provider class and nothing else; ``body`` goes into the class."""
    return _CLASS.format(kind=kind, name=name) + indent(dedent(body), "    ")


def duck_class(name: str, kind: str = "Duck") -> str:
    """The same, of a class that knows nothing of ours."""
    return (
        provider_class(name, kind)
        .replace("from hermes_core import MemoryProvider\n", "")
        .replace("(MemoryProvider)", "")
    )


def leaves_a_mark(mark: Path) -> str:
    """A statement that writes a file when it is run: nobody should run it to list."""
    return f"open({str(mark)!r}, 'w').close()\n"


def waits_for(signal: Path) -> str:
    """Statements that hang until a file appears, so that a test can let them go.

    They also end when the folder is gone: a thread that is slow to look must not hang for ever.
    """
    return (
        "import os.path, time\n"
        f"while os.path.exists({str(signal.parent)!r}) and not os.path.exists({str(signal)!r}):\n"
        "    time.sleep(0.005)\n"
    )


def run_python(
    code: str, *, home: Path, site: Path | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that has the site on its import path.

    Where `few_distributions` hides what is installed, the interpreter does not see it either.
    """
    environment = {**os.environ, "HERMES_HOME": str(home), "PYTHONIOENCODING": "utf-8"}
    if site is not None:
        environment["PYTHONPATH"] = str(site)
    return subprocess.run(
        [sys.executable, "-P", "-c", import_path() + dedent(code)],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout,
        check=False,
    )
