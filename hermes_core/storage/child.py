"""A function in a child process: how it is started and ended, and the values that reach it.

The child imports the function by its name and gets the import path of its parent. Values cross
as JSON rather than pickle, because unpickling runs code, and a child may have run a plugin's.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final

from hermes_core.storage.processes import end_tree

#: In the environment of a child and, unless they clear it, of all processes that it starts.
TOKEN: Final = "HERMES_PLUGINS_CHILD"  # noqa: S105 - a name

#: The variables that a program needs to run, which tell a plugin nothing about its user.
SYSTEM_VARIABLES: Final = (
    "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC",
    "PATHEXT", "WINDIR", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
)  # fmt: skip

# The parent's import path comes first: it is where the plugin was found. One line, and not all of
# the input: some parents write more later.
_CHILD: Final = (
    "import json, sys; request = json.loads(sys.stdin.buffer.readline()); "
    "sys.path[:] = request['path']; "
    f"from {__name__} import call_requested; call_requested(request)"
)


def start_child(
    call: Callable[[], object],
    environment: Mapping[str, str],
    *,
    output: int | IO[bytes] = subprocess.DEVNULL,
    errors: int | IO[bytes] | None = None,
    cwd: Path | None = None,
    mark: str = TOKEN,
) -> tuple[subprocess.Popen[bytes], str]:
    """Start a process that calls a function; its standard input stays open.

    Args:
        call: A module-level function, or a `functools.partial` of one.
        environment: The child's whole environment.
        output: Where its standard output goes.
        errors: Where its standard error goes; by default to the same place.
        cwd: Where it runs; by default in the current directory.
        mark: The variable that has the token.

    Returns:
        The process, and the token that is in the environment of all that it starts.
    """
    token = secrets.token_hex(16)
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        # -P: the working folder must not shadow our modules or the standard library.
        [sys.executable, "-P", "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output if errors is None else errors,
        # Its own process group, so that everything in it can be ended at once.
        start_new_session=os.name == "posix",
        env={**environment, mark: token},
        cwd=cwd,
    )
    with suppress(BrokenPipeError):
        if process.stdin is not None:
            process.stdin.write(json.dumps(_request(call)).encode() + b"\n")
            process.stdin.flush()
    return process, token


def end_child(process: subprocess.Popen[bytes], token: str, mark: str = TOKEN) -> None:
    """End a process and all that it started, also what has left its process group."""
    end_tree(process, grace=0)
    # A daemon has another group and another parent, but still our token in its environment.
    for each in processes_with(token, mark):
        with suppress(OSError):
            os.kill(each, signal.SIGKILL)


def processes_with(token: str, mark: str = TOKEN) -> list[int]:
    """The processes with that token in their environment, where the system shows it (Linux)."""
    wanted = f"{mark}={token}".encode()
    found = []
    # The processes of other users can't be read, which is suppressed below.
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def _request(call: Callable[[], object]) -> dict[str, Any]:
    arguments, keywords = arguments_of(call)
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


def arguments_of(call: Callable[..., object]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a `functools.partial` passes to its function."""
    return (call.args, call.keywords) if isinstance(call, partial) else ((), {})


# -- in the child ---------------------------------------------------------------------------


def call_requested(request: Mapping[str, Any]) -> None:
    """Call the function that the parent asked for."""
    function_called(request["function"])(
        *decode(request["arguments"]), **decode(request["keywords"])
    )


def function_called(name: str) -> Callable[..., Any]:
    """The function that `function_name` named."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found


# -- the values between the two -------------------------------------------------------------

# The keys under which JSON holds what it has no notation for.
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


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """What `encode` returned, with its texts changed; names of types and of enums stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_texts(each, change) for each in value]
    if not isinstance(value, dict):
        return value
    kept = (_TYPE, _VALUE)
    return {key: each if key in kept else map_texts(each, change) for key, each in value.items()}


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
