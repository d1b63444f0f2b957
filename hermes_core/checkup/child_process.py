"""Runs a function that uses plugin code in a sandboxed child process.

A plugin may hang, exit or crash; none of that reaches the caller. The child has a deadline, and
every process that it started ends with it.

The function is passed as a function and called with the given arguments. What it yields crosses
the process boundary as one JSON line per dataclass, written as soon as it is known: if the
plugin ends the process, the results before that are not lost. JSON rather than pickle, because
unpickling runs code, and the child has run a plugin's.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import IO, Any, Final, Generic, NoReturn, TypeVar

from hermes_core.config import Config
from hermes_core.errors import HermesError, describe, one_line
from hermes_core.loading.activation import deadlines_of
from hermes_core.privacy import without_secrets
from hermes_core.provider import BUILTIN
from hermes_core.storage.child import (
    arguments_of,
    decode,
    encode,
    end_child,
    function_called,
    function_name,
    map_texts,
    start_child,
)
from hermes_core.storage.outages import Outage, known_outages, note_outages, remembered_outages

#: The version of the lines between parent and child. Both run the same installed code, except
#: when somebody upgrades it in between.
FORMAT: Final = 1

# An interpreter and our imports take under a second; a busy machine or a virus scanner many.
_START_SECONDS: Final = 10.0
#: How often to look whether a child makes progress.
_LOOK_SECONDS: Final = 0.5

Progress = Callable[[], object]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ChildResults(Generic[Result]):
    """What a function in a child process yielded, and why it did not reach its end, if so.

    ``problem`` ends with the hint, if there is one.
    """

    results: tuple[Result, ...] = ()
    problem: str = ""
    hint: str = ""

    def error(self, hint: str = "") -> HermesError:
        """The problem as an error, with its hint, or else with this one."""
        what = self.problem.removesuffix(f" ({self.hint})") if self.hint else self.problem
        return HermesError(what, hint=self.hint or hint)


@dataclass(frozen=True, slots=True)
class _LastLine:
    """The last line of a child that reached its end; with the error, if it was one.

    ``outages``: the servers that it could not reach, so that the parent does not try in vain.
    """

    problem: str = ""
    hint: str = ""
    outages: tuple[Outage, ...] = ()


# -- the parent's side ------------------------------------------------------------------------


def run_plugin_code(
    config: Config,
    call: Callable[[], Iterable[Result]],
    *,
    seconds: float = 0.0,
    what: str = "",
    progress: Progress | None = None,
) -> ChildResults[Result]:
    """Run a function that uses plugins in a child process.

    Args:
        config: What config.yaml says.
        call: A module-level function that yields frozen dataclasses, or a `functools.partial`
            of one. `encode` has to accept its arguments.
        seconds: How long it may take, besides loading the plugins.
        what: What to blame in ``problem`` if it does not end.
        progress: Returns a value that changes while the child makes progress; as long as it
            does, the child may go on.
    """
    limit = _limit(config) + seconds
    what = what or f"plugin {config.selection.name or BUILTIN}"
    with tempfile.TemporaryDirectory(prefix="hermes-child-", ignore_cleanup_errors=True) as folder:
        # A file and not a pipe: a plugin prints to stdout, and a pipe that nobody drains blocks
        # it.
        answer = Path(folder, "results.jsonl")
        environment = {**os.environ, "HERMES_HOME": str(config.home)}
        written = partial(_write_results, answer, function_name(call), *arguments_of(call))
        code = run_child(written, environment, limit, progress=progress)
        results = list(read_lines(answer))
    # Without the last line the child did not reach its end, whatever its exit code: a plugin may
    # call os._exit(0).
    if results and isinstance(results[-1], _LastLine):
        note_outages(results[-1].outages)
        return ChildResults(tuple(results[:-1]), results[-1].problem, results[-1].hint)
    ended = f"ended the process that loaded it (exit code {code})"
    problem = f"no result after {limit:g} s" if code is None else ended
    return ChildResults(tuple(results), f"{what}: {problem}")


def _limit(config: Config) -> float:
    deadlines = deadlines_of(config)
    # `available` twice: `is_available` and `unavailable_reason`. Observers load one after the
    # other.
    return _START_SECONDS + deadlines.load * (1 + len(config.observers)) + 2 * deadlines.available


def run_child(
    call: Callable[[], object],
    environment: Mapping[str, str],
    limit: float,
    *,
    output: int | IO[bytes] = subprocess.DEVNULL,
    cwd: Path | None = None,
    progress: Progress | None = None,
) -> int | None:
    """Run a function in a child process, and end every process that it leaves behind.

    Args:
        call: A module-level function, or a `functools.partial` of one.
        environment: The child's whole environment.
        limit: Seconds until it is ended.
        output: Where its standard output and error go.
        cwd: Where it runs; by default in the current directory.
        progress: As for `run_plugin_code`.

    Returns:
        Its exit code; None if it did not end in time.
    """
    process, token = start_child(call, environment, output=output, cwd=cwd)
    try:
        # Not `communicate`, which waits for the end of the pipes: a process that the child leaves
        # behind may hold them open for ever.
        with suppress(BrokenPipeError):
            if process.stdin is not None:
                process.stdin.close()
        return _exit_code(process, limit, progress)
    finally:
        end_child(process, token)


def _exit_code(
    process: subprocess.Popen[bytes], limit: float, progress: Progress | None
) -> int | None:
    """None if it still runs after the limit, without progress."""
    # Progress restarts the limit: a long list of deliveries is not a hang.
    before = progress() if progress is not None else None
    end = monotonic() + limit
    while True:
        try:
            return process.wait(limit if progress is None else min(limit, _LOOK_SECONDS))
        except subprocess.TimeoutExpired:
            now = progress() if progress is not None else None
            if now != before:
                before, end = now, monotonic() + limit
            elif monotonic() >= end:
                return None


# -- the child's side -------------------------------------------------------------------------


def _write_results(
    answer: Path, function: str, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> NoReturn:
    """Write each result of a function to a file as soon as it is known."""
    with answer.open("a", encoding="utf-8") as file:
        # Whatever the plugin put its secrets into: they stay in this process.
        writer = LineWriter(file, without_secrets)
        with remembered_outages():
            try:
                for each in function_called(function)(*arguments, **keywords):
                    writer.write(each)
                writer.write(_LastLine(outages=known_outages()))
            except BaseException as error:  # noqa: BLE001 - the file is the only way to report it
                hint = one_line(error.hint) if isinstance(error, HermesError) else ""
                writer.write(_LastLine(describe(error), hint, known_outages()))
    os._exit(0)  # does not wait for a plugin's threads


# -- the lines between the two ----------------------------------------------------------------


class LineWriter:
    """Writes values as JSON lines, each complete before the next plugin code runs."""

    def __init__(self, file: IO[str], mask: Callable[[str], str] = str) -> None:
        self._file = file
        self._mask = mask
        self._line({"format": FORMAT})

    def write(self, value: Any) -> None:
        """Write one value."""
        self._line(map_texts(encode(value), self._mask))

    def _line(self, value: Any) -> None:
        self._file.write(json.dumps(value) + "\n")
        # Flushed and not only written: os._exit in a plugin drops what Python has buffered.
        self._file.flush()


def read_lines(file: Path) -> Iterator[Any]:
    """The values that `LineWriter` wrote; a last line that is cut off is left out."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return
    # Another format: our own package was upgraded between the start of parent and child.
    if not lines or _parsed(lines[0]) != {"format": FORMAT}:
        return
    for line in lines[1:]:
        # The rest of the results is still good.
        with suppress(ValueError, TypeError, AttributeError, KeyError):
            yield decode(json.loads(line))


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
