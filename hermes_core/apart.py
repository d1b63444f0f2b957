"""Runs a function that uses plugins in a child process, and hears what it tells."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from hermes_core.activation import deadlines_of
from hermes_core.children import Progress, run_child
from hermes_core.config import Config
from hermes_core.errors import describe
from hermes_core.names import BUILTIN

_START_SECONDS: Final = 10.0

#: What a child says last, if it came to its end; with a reason if that was an error.
_ENDED: Final = "ended"

#: Takes a row of a child's answer to its parent.
Tell = Callable[[dict[str, Any]], None]


class Apart(NamedTuple):
    """What a function in a child process told, and why it did not come to its end, if so."""

    rows: list[dict[str, Any]]
    problem: str = ""


def run_apart(
    config: Config,
    function: str,
    arguments: dict[str, Any],
    *,
    seconds: float = 0.0,
    what: str = "",
    progress: Progress | None = None,
) -> Apart:
    """Have a function that uses plugins run in a child process.

    Args:
        config: What config.yaml says.
        function: Which, as ``module:name``. It gets a `Tell` for each row of its answer.
        arguments: What else it gets.
        seconds: How long it may take, besides loading the plugins.
        what: Whose fault it is if it does not end.
        progress: What it has done so far; while that changes, it may go on.
    """
    limit = _limit(config) + seconds
    what = what or f"plugin {config.selection.name or BUILTIN}"
    request = {"function": function, "arguments": arguments}
    code, rows = _asked(request, config, limit, progress)
    if rows and _ENDED in rows[-1]:
        return Apart(rows[:-1], rows[-1][_ENDED])
    if code is None:
        return Apart(rows, f"{what}: no end after {limit:g} s")
    return Apart(rows, f"{what}: it ended the process that loaded it (exit code {code})")


def _limit(config: Config) -> float:
    deadlines = deadlines_of(config)
    return _START_SECONDS + deadlines.load * (1 + len(config.observers)) + 2 * deadlines.available


def _asked(
    request: dict[str, Any], config: Config, limit: float, progress: Progress | None
) -> tuple[int | None, list[dict[str, Any]]]:
    """A child's exit code, None if it did not end; and the rows of its answer."""
    with tempfile.TemporaryDirectory(prefix="hermes-trial-", ignore_cleanup_errors=True) as folder:
        answer = Path(folder, "answer.jsonl")
        environment = {**os.environ, "HERMES_HOME": str(config.home)}
        request = {"answer": str(answer), **request}
        code = run_child(__name__, request, environment, limit, progress=progress)
        try:
            lines = answer.read_bytes().splitlines()
        except OSError:
            return code, []
    return code, [row for line in lines if isinstance(row := _parsed(line), dict)]


def _parsed(line: bytes) -> Any:
    """What a line says; None if the child ended before it was complete."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def child(request: dict[str, Any]) -> NoReturn:
    """The child's side: each row goes to a file as it comes, since a plugin may end us."""
    module, _, name = request["function"].partition(":")
    with Path(request["answer"]).open("a", encoding="utf-8") as answer:

        def tell(row: dict[str, Any]) -> None:
            answer.write(json.dumps(row) + "\n")
            answer.flush()

        try:
            getattr(import_module(module), name)(tell, **request["arguments"])
            tell({_ENDED: ""})
        except BaseException as error:  # noqa: BLE001 - the answer is the only way to tell
            tell({_ENDED: describe(error)})
    os._exit(0)  # a plugin's threads must not hold us up
