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
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, Generic, NoReturn, TypeVar

from hermes_core.config import Config
from hermes_core.errors import describe
from hermes_core.loading.activation import deadlines_of
from hermes_core.privacy import without_secrets
from hermes_core.provider import BUILTIN
from hermes_core.storage.processes import end_tree

#: The version of the lines between parent and child. Both run the same installed code, except
#: when somebody upgrades it in between.
FORMAT: Final = 1

#: In the environment of the child and, unless they clear it, of all processes that it starts.
TOKEN: Final = "HERMES_PLUGINS_CHILD"  # noqa: S105 - a name

# An interpreter and our imports take under a second; a busy machine or a virus scanner many.
_START_SECONDS: Final = 10.0

# The parent's import path comes first: it is where the plugin was found.
_CHILD: Final = (
    "import json, sys; request = json.load(sys.stdin); sys.path[:] = request['path']; "
    f"from {__name__} import call_requested; call_requested(request)"
)

Progress = Callable[[], object]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ChildResults(Generic[Result]):
    """What a function in a child process yielded, and why it did not reach its end, if so."""

    results: tuple[Result, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _End:
    """The last line of a child that reached its end; with the error, if it was one."""

    problem: str = ""


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
        written = partial(_write_results, answer, function_name(call), *_arguments(call))
        code = run_child(written, environment, limit, progress=progress)
        results = list(read_lines(answer))
    # Without the last line the child did not reach its end, whatever its exit code: a plugin may
    # call os._exit(0).
    if results and isinstance(results[-1], _End):
        return ChildResults(tuple(results[:-1]), results[-1].problem)
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
    token = secrets.token_hex(16)
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        # -P: the working folder must not shadow our modules or the standard library.
        [sys.executable, "-P", "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        # Its own process group, so that everything in it can be ended at once.
        start_new_session=os.name == "posix",
        env={**environment, TOKEN: token},
        cwd=cwd,
    )
    try:
        # Not `communicate`, which waits for the end of the pipes: a process that the child leaves
        # behind may hold them open for ever.
        with suppress(BrokenPipeError):
            if process.stdin is not None:
                process.stdin.write(json.dumps(_request(call)).encode())
                process.stdin.close()
        return _exit_code(process, limit, progress)
    finally:
        # The child's process group first, then what has left it: a daemon has another group
        # and another parent, but still our token in its environment.
        end_tree(process, grace=0)
        for each in processes_with(token):
            with suppress(OSError):
                os.kill(each, signal.SIGKILL)


def _exit_code(
    process: subprocess.Popen[bytes], limit: float, progress: Progress | None
) -> int | None:
    """None if it still runs after the limit, without progress."""
    # Progress restarts the limit: a long list of deliveries is not a hang.
    before = progress() if progress is not None else None
    while True:
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            now = progress() if progress is not None else None
            if now == before:
                return None
            before = now


def processes_with(token: str) -> list[int]:
    """The processes with that token in their environment, where the system shows it (Linux)."""
    mark = f"{TOKEN}={token}".encode()
    found = []
    # The processes of other users can't be read, which is suppressed below.
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def _request(call: Callable[[], object]) -> dict[str, Any]:
    arguments, keywords = _arguments(call)
    return {
        "path": sys.path,
        "function": function_name(call),
        "arguments": encode(arguments),
        "keywords": encode(keywords),
    }


def function_name(call: Callable[..., object]) -> str:
    """``module:name`` of a function, under which a child process finds it.

    Raises:
        TypeError: It is not at the top level of a module.
    """
    function = call.func if isinstance(call, partial) else call
    name = getattr(function, "__qualname__", "<")
    # A nested function or a lambda has "<locals>" or "<lambda>" in its name.
    if not name.isidentifier():
        raise TypeError(f"a child process can't import {function!r}")
    return f"{function.__module__}:{name}"


def _arguments(call: Callable[..., object]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (call.args, call.keywords) if isinstance(call, partial) else ((), {})


# -- the child's side -------------------------------------------------------------------------


def call_requested(request: Mapping[str, Any]) -> None:
    """Call the function that the parent asked for."""
    _function(request["function"])(*decode(request["arguments"]), **decode(request["keywords"]))


def _function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found


def _write_results(
    answer: Path, function: str, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> NoReturn:
    """Write each result of a function to a file as soon as it is known."""
    with answer.open("a", encoding="utf-8") as file:
        # Whatever the plugin put its secrets into: they stay in this process.
        writer = LineWriter(file, without_secrets)
        try:
            for each in _function(function)(*arguments, **keywords):
                writer.write(each)
            writer.write(_End())
        except BaseException as error:  # noqa: BLE001 - the file is the only way to report it
            writer.write(_End(describe(error)))
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
        self._line(_mapped(encode(value), self._mask))

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


#: The keys under which JSON holds what it has no notation for.
_TYPE, _TUPLE, _PATH, _MAP, _VALUE = "$type", "$tuple", "$path", "$map", "$value"


def encode(value: Any) -> Any:  # noqa: PLR0911 - one per kind of value
    """A value as JSON can hold it: data types of ours, enums, paths, containers, plain values.

    Raises:
        TypeError: It has something else in it.
    """
    # First, since a StrEnum is a str and an IntEnum an int.
    if isinstance(value, Enum):
        return {_TYPE: _type_name(value), _VALUE: value.value}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Path):
        return {_PATH: str(value)}
    # Before `tuple`, since a named tuple is one.
    names = _field_names(type(value))
    if names is not None:
        return {_TYPE: _type_name(value), **{each: encode(getattr(value, each)) for each in names}}
    if isinstance(value, tuple):
        return {_TUPLE: [encode(each) for each in value]}
    if isinstance(value, list):
        return [encode(each) for each in value]
    # As pairs: JSON's keys are texts, and a key "$type" of the caller must not be read as ours.
    if isinstance(value, Mapping):
        return {_MAP: [[encode(key), encode(each)] for key, each in value.items()]}
    raise TypeError(f"{type(value).__name__} can't cross the process boundary")


def decode(value: Any) -> Any:  # noqa: PLR0911 - one per kind of value
    """What `encode` encoded.

    Raises:
        ValueError: It names a type that is not one of hermes_core's.
    """
    if isinstance(value, list):
        return [decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    if _PATH in value:
        return Path(value[_PATH])
    if _TUPLE in value:
        return tuple(decode(each) for each in value[_TUPLE])
    if _MAP in value:
        return {decode(key): decode(each) for key, each in value[_MAP]}
    kind = _known_type(value.pop(_TYPE))
    if issubclass(kind, Enum):
        return kind(value[_VALUE])
    return kind(**{name: decode(each) for name, each in value.items()})


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """What `encode` returned, with its texts changed; names of types and of enums stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(each, change) for each in value]
    if not isinstance(value, dict):
        return value
    kept = (_TYPE, _VALUE)
    return {key: each if key in kept else _mapped(each, change) for key, each in value.items()}


def _type_name(value: object) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _known_type(name: str) -> type:
    """A dataclass, named tuple or enum of hermes_core: a plugin can write to the file, too."""
    module, _, attribute = name.partition(":")
    # The plugin runs in the child and may write any line to the file. Only plain data types of
    # ours are made from it.
    if not module.startswith("hermes_core."):
        raise ValueError(f"{name} is not a type of hermes_core")
    found = getattr(import_module(module), attribute, None)
    if not isinstance(found, type) or not (
        issubclass(found, Enum) or _field_names(found) is not None
    ):
        raise ValueError(f"{name} is not a dataclass, a named tuple or an enum")
    return found


def _field_names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass or named tuple; None if it is neither."""
    if is_dataclass(kind):
        return tuple(each.name for each in fields(kind) if each.init)
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
