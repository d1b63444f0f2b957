"""The messages between a host and a provider in its own process, and exceptions in them.

A message is a length and so many bytes of JSON. JSON rather than pickle, since unpickling runs
code and the child is not trusted: whatever it sends, the host makes plain values of it, or ends
the child.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping
from io import BufferedReader, BufferedWriter
from json import dumps, loads  # bound before a plugin can replace them
from typing import Any, Final

from hermes_core.dispatch.values import opaque
from hermes_core.errors import HermesError, describe

#: What a plugin registered with ``ctx.on_unload``; not a hook, but called like one.
UNLOAD: Final = "on_unload"
#: Attributes of a provider that are sent with its answers, and their defaults.
ATTRIBUTES: Final = {"confirms_delivery": False, "pre_compress_checkpoint_api_version": 1}
#: The largest answer. A text that a provider returns has at most 10,000,000 characters.
MOST_BYTES: Final = 16 << 20
#: How many lines of a child are logged, and how much of each.
MOST_LOGGED: Final = 1_000
LONGEST_LINE: Final = 2_000

_LENGTH: Final = struct.Struct(">I")
# Of lists and mappings, each of which takes twenty times its bytes in memory.
_MOST_BRACKETS: Final = 1_000_000
_LONGEST_CHAIN: Final = 5

#: Exceptions that are made again on the host's side, by their full names.
KnownErrors = Mapping[str, type[Exception]]


class MessageError(Exception):
    """What arrived is not a message."""


class MessageWriter:
    """Writes whole messages, whichever thread sends them.

    Args:
        file: Where to.
        default: Returns what takes the place of a value that JSON has no notation for.
    """

    def __init__(self, file: BufferedWriter, default: Callable[[Any], Any]) -> None:
        self.file = file
        self.lock = threading.Lock()
        self._default = default

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message as a whole."""
        data = as_json(message, self._default)
        with self.lock:
            if self.file.closed:  # the child has ended since; a ValueError would blame the message
                raise BrokenPipeError
            self.file.write(_LENGTH.pack(len(data)) + data)
            self.file.flush()


def as_json(message: Mapping[str, Any], default: Callable[[Any], Any]) -> bytes:
    """The bytes of a message."""
    text = dumps(message, ensure_ascii=False, default=default, skipkeys=True)
    # Lone surrogates, which people's ids may have, pass in both directions.
    return text.encode("utf-8", "surrogatepass")


def json_default(value: Any) -> Any:
    """In the child: what `plain_value` leaves of a provider's value, and JSON does not know."""
    if isinstance(value, set | frozenset):
        return list(value)
    return {"$opaque": type(value).__name__}


def read_message(file: BufferedReader, *, trusted: bool) -> dict[str, Any] | None:
    """The next message; None at the end.

    Raises:
        MessageError: It is none. Text that is printed to the pipe begins with too large a length.
    """
    header = file.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    if length > MOST_BYTES and not trusted:
        raise MessageError(f"sent {length:,} bytes at once, or something that is not an answer")
    data = file.read(length)
    if len(data) < length:
        return None
    if not trusted and data.count(b"[") + data.count(b"{") > _MOST_BRACKETS:
        raise MessageError("sent too many values at once")
    try:
        message = loads(data, object_hook=_restored)
    except (ValueError, RecursionError) as error:
        raise MessageError("sent something that is not an answer") from error
    if not isinstance(message, dict):
        raise MessageError("sent something that is not an answer")
    return message


def _restored(mapping: dict[str, Any]) -> Any:
    name = mapping.get("$opaque")
    return opaque(name) if isinstance(name, str) and len(mapping) == 1 else mapping


# -- exceptions ------------------------------------------------------------------------------------


def error_message(error: BaseException, depth: int = 0) -> dict[str, Any]:
    """An exception: its classes, its text, what says whose fault it is, and its cause."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    known = dict(vars(error)) if isinstance(error, HermesError) else {}
    for name in ("status_code", "status", "retry_after"):
        known.setdefault(name, attribute_of(error, name))
    known["status_code"] = known["status_code"] or attribute_of(
        attribute_of(error, "response"), "status_code"
    )
    return {
        "types": [f"{each.__module__}.{each.__qualname__}" for each in type(error).__mro__],
        "text": describe(error).removeprefix(f"{type(error).__name__}: "),
        "state": {key: value for key, value in known.items() if _is_plain(value)},
        "cause": None
        if cause is None or depth >= _LONGEST_CHAIN
        else error_message(cause, depth + 1),
    }


def attribute_of(owner: object, name: str) -> Any:
    """An attribute of a plugin's object; None if there is none or it raises."""
    try:
        return getattr(owner, name, None)
    except Exception:  # noqa: BLE001 - a property of the plugin's
        return None


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def error_from(data: Any, known: KnownErrors) -> Exception:
    """The exception that a message describes; of the plugin's own classes only the name is kept.

    Raises:
        MessageError: It describes none.
    """
    try:
        names = [str(each) for each in data["types"]]
        text, state = str(data["text"]), dict(data["state"])
        kind = next((known[each] for each in names if each in known), Exception)
        short = names[0].rpartition(".")[2] if names else ""
        if kind.__name__ != short and short.isidentifier():
            kind = type(short[:100], (kind,), {})
        error = kind.__new__(kind, text)
        error.args = (text,)
        if isinstance(error, HermesError):
            state = {"what": text, "where": "", "hint": "", **state}
        vars(error).update({str(key): value for key, value in state.items() if _is_plain(value)})
        cause = data.get("cause")
        error.__cause__ = None if cause is None else error_from(cause, known)
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as problem:
        raise MessageError("sent an error that can't be read") from problem
    return error
