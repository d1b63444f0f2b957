"""Runs pip, uv and git: their words are kept, and they get time to clean up after themselves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import IO, Final, NamedTuple

from hermes_core.processes import end_tree

#: How long a child that was interrupted may take to undo what it had begun.
_GRACE_SECONDS: Final = 15

#: Is given each line that a command says, as it comes.
Tell = Callable[[str], None]


#: What takes time, in the words of pip and of uv.
_STEP: Final = re.compile(
    r"\s*(?:Downloading (?P<file>\S+(?<!\.metadata) \(.+\))"
    r"|Building (?:wheels for collected packages: )?(?P<name>.+))"
)


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


def run(
    command: Sequence[str], *, tell: Tell | None = None, prompts: bool = False, **variables: str
) -> Ended:
    """Run a command to its end.

    Args:
        command: What to run; never through a shell.
        tell: Hears what it says, as it says it.
        prompts: Whether it may ask a person, for a password. Then it stays in the group of
            processes that the terminal listens to, and what it starts is its own affair.
        variables: More of its environment.
    """
    with subprocess.Popen(  # noqa: S603
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=os.name == "posix" and not prompts,
        env={**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "utf-8", **variables},
    ) as process:
        said: tuple[list[str], list[str]] = ([], [])
        readers = [
            Thread(target=_hear, args=(stream, lines, tell), daemon=True)
            for stream, lines in zip((process.stdout, process.stderr), said, strict=True)
        ]
        try:
            for each in readers:
                each.start()
            code = process.wait()
        except BaseException:
            _let_end(process, alone=not prompts)
            raise
        finally:
            for each in readers:
                each.join(1)  # a grandchild may hold the other end
    return Ended(code, "".join(said[0]), "".join(said[1]))


def step_teller(tell: Tell) -> Tell:
    """Passes on what takes time, out of all that pip or uv say."""

    def hear(line: str) -> None:
        found = _STEP.match(line)
        if found:
            tell(f"downloading {found['file']}" if found["file"] else f"building {found['name']}")

    return hear


def _hear(stream: IO[str], lines: list[str], tell: Tell | None) -> None:
    for line in stream:
        lines.append(line)
        if tell is not None:
            tell(line)


def _let_end(process: subprocess.Popen[str], *, alone: bool) -> None:
    """Let a child undo what it began; what it started itself ends with it."""
    with suppress(OSError):
        if os.name == "nt":
            process.terminate()
        elif alone:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    if alone:
        end_tree(process, grace=0)
    else:
        process.kill()
