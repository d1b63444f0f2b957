"""The command line: `hermes-plugins`."""

from __future__ import annotations

import os
import sys

from hermes_core.errors import HermesError


def main() -> None:
    """Entry point of the console script: run a command, tell failures in one line."""
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal can't show must not end the listing.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        sys.exit(_run(sys.argv[1:]))
    except BrokenPipeError:  # `... | head`: nobody reads on, so nothing more is said
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        text = str(error) if isinstance(error, HermesError) else _unexpected(error)
        sys.stderr.write(f"hermes-plugins: {' '.join(text.split())}\n")
        sys.exit(1)


def _run(arguments: list[str]) -> int:
    # `list` is run by prompts and scripts, and importing click takes longer than all it does.
    from hermes_core.cli._list import parse_list, run_list  # noqa: PLC0415

    request = parse_list(arguments)
    if request is not None:
        return run_list(request)
    from hermes_core.cli._commands import cli  # noqa: PLC0415

    cli(prog_name="hermes-plugins")
    return 0


def _unexpected(error: Exception) -> str:
    return f"unexpected {type(error).__name__}: {error} (--debug shows where)"
