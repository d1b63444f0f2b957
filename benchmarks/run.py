"""Runs every benchmark; exit code 1 if one of them misses a target."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = (
    "adapters.py",
    "backends.py",
    "backup.py",
    "faults.py",
    "start.py",
    "manager.py",
    "mcp_server.py",
    "conformance.py",
    "guard.py",
    "imports.py",
    "origin.py",
    "notes.py",
    "redaction.py",
    "scrubber.py",
    "sessions.py",
    "turn.py",
    "ui.py",
)


def main() -> None:
    folder = Path(__file__).parent
    results = [subprocess.run([sys.executable, folder / name], check=False) for name in BENCHMARKS]
    sys.exit(max(result.returncode for result in results))


if __name__ == "__main__":
    main()
