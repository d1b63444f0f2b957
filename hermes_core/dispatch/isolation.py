"""A provider in its own process (``isolation: process``): the host's side.

`IsolatedProvider` is what the host calls: an object with the methods of the plugin's provider,
each of which sends a request and waits for the answer. `ProviderServer` (`isolation_server`) runs
in the child and makes the calls, each lane on its own thread, as the host does for a provider of
its own process. `isolation_messages` is what they send to each other.

A child that ends makes the calls fail that it was running. The next call starts another one and
initialises it for the current session. A child that ends again and again is started after 1, 2,
4 ... 60 seconds.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from inspect import Parameter, Signature
from itertools import count
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hermes_core.dispatch.call import Deadlines
from hermes_core.dispatch.isolation_messages import (
    ATTRIBUTES,
    LONGEST_LINE,
    MOST_LOGGED,
    UNLOAD,
    KnownErrors,
    MessageError,
    MessageWriter,
    error_from,
    read_message,
)
from hermes_core.dispatch.worker import Worker, rounded
from hermes_core.errors import (
    AgentEnded,
    DeadlineExceeded,
    ProviderCallError,
    ProviderPaused,
    describe,
    one_line,
)
from hermes_core.hookspecs import HOOKS, Lane
from hermes_core.provider import (
    ForgetReport,
    MemoryPage,
    ProbeResult,
    RecallStatus,
    hand_over,
)
from hermes_core.session import SessionContext

if TYPE_CHECKING:
    import subprocess

#: The variable with the token of a child; a child of `checkup` may have another one besides.
ISOLATED: Final = "HERMES_PLUGINS_ISOLATED"

_MOST_PARTS: Final = 10_000
#: How long a child may take to end by itself, so that its ``atexit`` functions run.
_END_SECONDS: Final = 1.0
#: How long an interpreter and our imports may take on a busy machine.
_START_SECONDS: Final = 20.0
_LONGEST_WAIT: Final = 60.0
#: A child that lived so long did not die of its start.
_LONG_LIFE: Final = 60.0
_STARTS: Final = ("initialize", "initialize_for_inspection")
_ENDS: Final = ("shutdown", UNLOAD)
#: What JSON makes a list of.
_SHAPES: Final[Mapping[str, Callable[..., Any]]] = {
    "recall_status": RecallStatus,
    "probe": ProbeResult,
    "forget": ForgetReport,
    "list_memories": MemoryPage,
}


class ChildProcess(NamedTuple):
    """A child that was started: its process, and the token of what it starts."""

    process: subprocess.Popen[bytes]
    token: str


class _Call(NamedTuple):
    hook: str
    answers: SimpleQueue[Any]


class _ChildEnd(NamedTuple):
    """Why a child ended, and what the calls raise that it was running."""

    reason: str
    kind: type[ProviderCallError] = ProviderCallError

    def error(self, hook: str) -> ProviderCallError:
        if self.kind is AgentEnded:
            return AgentEnded(AgentEnded.TEXT)
        return self.kind(f"its process {self.reason} while {hook} ran")


class _Child:
    """One run of the child process: sends requests, and hands out the answers.

    Args:
        launched: The process.
        name: The provider's name.
        report: Called with level and text of what the plugin logs.
        clock: Measures how long it lives.
    """

    def __init__(
        self,
        launched: ChildProcess,
        name: str,
        report: Callable[[int, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._launched = launched
        self._report = report
        self._clock = clock
        self._began = clock()
        self._writer = MessageWriter(launched.process.stdin, _as_plain)  # type: ignore[arg-type]
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._calls: dict[int, _Call] = {}
        self._first: SimpleQueue[Any] = SimpleQueue()
        self._logged = 0
        self.attributes: dict[str, Any] = dict(ATTRIBUTES)
        #: Why it ended; None while it runs.
        self.end: _ChildEnd | None = None
        self.seconds = 0.0
        Worker(f"memory-{name}-pipe", linger=0).submit(self._read)

    def loaded(self, seconds: float) -> dict[str, Any]:
        """What the child says about the plugin that it has loaded."""
        try:
            found = self._first.get(timeout=seconds)
        except Empty:
            self.stop(_ChildEnd(f"did not load it within {rounded(seconds)} s", DeadlineExceeded))
            found = self.end
        if isinstance(found, _ChildEnd):
            raise found.error("its import")
        return dict(found)

    def ask(
        self, hook: str, args: Any, keywords: Any, *, seconds: float | None = None, **more: Any
    ) -> Any:
        """Have a method called; returns the message with its value, or raises."""
        answers: SimpleQueue[Any] = SimpleQueue()
        with self._lock:
            if self.end is not None:
                raise self.end.error(hook)
            number = next(self._numbers)
            self._calls[number] = _Call(hook, answers)
        try:
            self._send({"id": number, "hook": hook, "args": args, "keywords": keywords, **more})
            return self._answer(hook, answers, seconds)
        finally:
            with self._lock:
                self._calls.pop(number, None)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._writer.send(message)
        except OSError:
            self.stop(_ChildEnd("closed its pipe"))

    def set_environment(self, environment: Mapping[str, str]) -> None:
        """Set variables in the child."""
        self._send({"environment": dict(environment)})

    def _answer(self, hook: str, answers: SimpleQueue[Any], seconds: float | None) -> Any:
        for _ in range(_MOST_PARTS):
            try:
                answer = answers.get(timeout=seconds)
            except Empty:
                self.stop(
                    _ChildEnd(f"did not answer within {rounded(seconds or 0)} s", DeadlineExceeded)
                )
                continue
            if isinstance(answer, _ChildEnd):
                raise answer.error(hook)
            if "part" not in answer:
                return answer
            hand_over(str(answer["part"]))
        self.stop(_ChildEnd("sent too many parts of an answer"))
        raise ProviderCallError("its process sent too many parts of an answer")

    def running(self, lane: Lane) -> str:
        """The hook of a lane that the child is calling; "" if none."""
        with self._lock:
            hooks = [each.hook for each in self._calls.values()]
        return next((each for each in hooks if each in HOOKS and HOOKS[each].lane is lane), "")

    # -- what arrives ----------------------------------------------------------------------

    def _read(self) -> None:
        """On its own thread: hand out answers until the pipe is closed."""
        end = _ChildEnd("")
        try:
            for message in self._messages():
                self._accept(message)
        except MessageError as error:
            end = _ChildEnd(str(error))
        except (OSError, ValueError):
            pass  # it was closed on our side
        self.stop(end if end.reason else _ChildEnd(self._exit()))
        if self._launched.process.stdout is not None:
            self._launched.process.stdout.close()

    def _messages(self) -> Iterator[dict[str, Any]]:
        file = self._launched.process.stdout
        first = read_message(file, trusted=False)  # type: ignore[arg-type]
        if first is None:
            return
        self._first.put(first)
        while (message := read_message(file, trusted=False)) is not None:  # type: ignore[arg-type]
            yield message

    def _accept(self, message: dict[str, Any]) -> None:
        if "log" in message:
            self._logged += 1
            if self._logged <= MOST_LOGGED:
                level = logging.ERROR if message.get("level") == logging.ERROR else logging.WARNING
                self._report(level, one_line(str(message["log"])[:LONGEST_LINE]))
            return
        attributes = message.get("attributes")
        if isinstance(attributes, dict):
            self.attributes.update({key: attributes.get(key) for key in ATTRIBUTES})
        number = message.get("id")
        with self._lock:
            call = self._calls.get(number) if isinstance(number, int) else None
            if call is not None and "part" not in message:
                del self._calls[number]  # type: ignore[arg-type]
        if call is None:  # answered twice, or never asked: a copy of the process, or an attack
            raise MessageError("sent an unexpected answer")
        call.answers.put(message)

    def _exit(self) -> str:
        """How the process ended, which closed its end of the pipe."""
        import subprocess  # noqa: PLC0415 - as in `stop`

        try:
            code = self._launched.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        if code < 0:
            with suppress(ValueError):
                return f"ended ({signal.Signals(-code).name})"
        return f"ended (exit code {code})"

    # -- the end ---------------------------------------------------------------------------

    def stop(self, end: _ChildEnd) -> None:
        """End the process and all that it started; whoever waits for an answer gets ``end``."""
        # 10 ms, which only an agent with an isolated plugin pays: starting one has imported them.
        import subprocess  # noqa: PLC0415

        from hermes_core.storage.child import end_child  # noqa: PLC0415

        with self._lock:
            if self.end is not None:
                return
            self.end = end
            self.seconds = self._clock() - self._began
            calls = list(self._calls.values())
        self._first.put(end)
        for call in calls:
            call.answers.put(end)
        process, token = self._launched
        # Closing waits for a thread that writes, which waits for the child: kill it first then.
        if self._writer.lock.acquire(timeout=0.1):
            with suppress(OSError):
                self._writer.file.close()
            self._writer.lock.release()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS if end.kind is AgentEnded else 0)
        end_child(process, token, ISOLATED)


class _RemoteMethod:
    """One method of the provider, with its signature."""

    def __init__(self, call: Callable[..., Any], hook: str, parameters: Any) -> None:
        self._call = call
        self._hook = hook
        if parameters is not None:
            self.__signature__ = Signature([_parameter(*each) for each in parameters])

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self._call(self._hook, args, keywords)


def _parameter(name: str, kind: int, optional: bool) -> Parameter:
    kinds = {int(each): each for each in type(Parameter.VAR_KEYWORD)}  # type: ignore[attr-defined]
    default = None if optional and kinds[kind] in _WITH_DEFAULT else Parameter.empty
    return Parameter(name, kinds[kind], default=default)


_WITH_DEFAULT: Final = (
    Parameter.POSITIONAL_ONLY,
    Parameter.POSITIONAL_OR_KEYWORD,
    Parameter.KEYWORD_ONLY,
)


class IsolatedProvider:
    """A provider in its own process, as the host sees it: a duck type of `MemoryProvider`.

    It has the methods, and their signatures, that the plugin's own provider has.

    Args:
        name: The name under which it is listed.
        launch: Starts a child with these variables.
        deadlines: How long loading and initialising may take.
        known_errors: Exceptions that arrive as what they were.
        report: Called with level and text of what the plugin logs.
        clock: Measures how long children live. A test passes its own.
    """

    confirms_delivery = False
    pre_compress_checkpoint_api_version = 1

    def __init__(
        self,
        name: str,
        launch: Callable[[Mapping[str, str]], ChildProcess],
        deadlines: Deadlines,
        known_errors: KnownErrors,
        report: Callable[[int, str], None],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.name = name
        self._listed = name
        self._launch = launch
        self._variables: dict[str, str] = {}
        self._deadlines = deadlines
        self._known = known_errors
        self._report = report
        self._clock = clock
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._child: _Child | None = None
        self._closed = False
        self._resume: Callable[[], object] | None = None
        self._resuming = False
        self._failures = 0
        self._failed: _Child | None = None
        self._earliest = 0.0

    def load(self) -> dict[str, Any]:
        """Start the child; returns what it says about the plugin.

        Raises:
            Exception: Why the plugin can't be loaded, as in one process.
        """
        with self._lock:
            self._child = child = self._started()
            loaded = self._loaded(child)
            try:
                for hook, parameters in loaded["methods"].items():
                    if hook in HOOKS:
                        setattr(self, hook, _RemoteMethod(self._call, hook, parameters))
                self.name = str(loaded["name"])
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                child.stop(_ChildEnd("sent something that is not an answer"))
                raise ProviderCallError("its process sent something unreadable") from error
            return loaded

    def resume_with(self, resume: Callable[[], object]) -> None:
        """Say how a new child learns the current session: by a call of ``initialize``."""
        self._resume = resume

    def set_environment(self, environment: Mapping[str, str]) -> None:
        """Set variables in the child that runs, and in every later one."""
        self._variables = {name: value for name, value in environment.items() if value}
        child = self._child
        if child is not None:
            child.set_environment(self._variables)

    def unload(self) -> None:
        """Call what the plugin registered with ``ctx.on_unload``."""
        self._call(UNLOAD, (), {})

    def close(self) -> None:
        """End the child. Nothing can be called afterwards."""
        self._closed = True
        child = self._child
        if child is not None and self._pid == os.getpid():
            child.stop(_ChildEnd("was ended", AgentEnded))

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()

    # -- one call --------------------------------------------------------------------------

    def _call(self, hook: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        child = self._ready(hook)
        if child is None:
            return None
        more = {"terminal": _terminal_name()} if hook in HOOKS and HOOKS[hook].interactive else {}
        seconds = self._deadlines.initialize if self._resuming else None
        answer = child.ask(hook, args, _sendable(keywords), seconds=seconds, **more)
        vars(self).update(child.attributes)
        try:
            if "error" in answer:
                raise error_from(answer["error"], self._known)
            value = answer["value"]
            shape = _SHAPES.get(hook)
            return value if shape is None or value is None else shape(*value)
        except (MessageError, KeyError, TypeError) as error:
            child.stop(_ChildEnd("sent an answer that can't be read"))
            raise ProviderCallError("its process sent an answer that can't be read") from error

    def _ready(self, hook: str) -> _Child | None:
        """The child that makes the call; None if it is over, and nothing is left to end."""
        lane = HOOKS[hook].lane if hook in HOOKS else Lane.MAIN
        with self._lock:
            self._renew_after_fork()
            child = self._child
            if child is not None and child.end is None and (hung := child.running(lane)):
                # The host waits for a call of a lane until its deadline, and no longer.
                child.stop(_ChildEnd(f"was ended, because {hung} hung,", DeadlineExceeded))
            if child is not None and child.end is None:
                return child
            if self._closed:
                raise AgentEnded(AgentEnded.TEXT)
            if hook in _ENDS:
                return None
            return self._restarted(resume=hook not in _STARTS)

    def _renew_after_fork(self) -> None:
        """Leave the child to the process that started it."""
        if self._pid != os.getpid():
            self._pid, self._child = os.getpid(), None

    def _restarted(self, *, resume: bool) -> _Child:
        self._count_failure()
        wait = self._earliest - self._clock()
        if wait > 0 and self._failed is not None and self._failed.end is not None:
            raise ProviderPaused(
                f"its process {self._failed.end.reason}; it ended {self._failures} times in a row "
                f"and is started again in {max(wait, 1):.0f} s"
            )
        self._child = child = self._started()
        self._loaded(child)
        if resume and self._resume is not None:
            self._resuming = True
            try:
                self._resume()
            except Exception as error:
                child.stop(_ChildEnd("could not be initialised"))
                raise ProviderPaused(
                    f"its process was started again, and initialize failed: {describe(error)}"
                ) from error
            finally:
                self._resuming = False
        return child

    def _count_failure(self) -> None:
        """Let a child that has ended count, once; the first one is replaced immediately."""
        child = self._child
        if child is None or child.end is None or child is self._failed:
            return
        self._failed = child
        self._failures = 1 if child.seconds >= _LONG_LIFE else self._failures + 1
        wait = 0.0 if self._failures == 1 else 2.0 ** min(self._failures - 2, 10)
        self._earliest = self._clock() + min(wait, _LONGEST_WAIT)

    def _started(self) -> _Child:
        try:
            return _Child(self._launch(self._variables), self._listed, self._report, self._clock)
        except OSError as error:
            raise ProviderCallError(f"its process can't be started: {describe(error)}") from error

    def _loaded(self, child: _Child) -> dict[str, Any]:
        loaded = child.loaded(self._deadlines.load + _START_SECONDS)
        if "error" in loaded:
            child.stop(_ChildEnd("could not load it"))
            raise error_from(loaded["error"], self._known)
        return loaded


def is_isolated(provider: object) -> bool:
    """Whether a provider runs in its own process."""
    return isinstance(provider, IsolatedProvider)


def _sendable(keywords: dict[str, Any]) -> dict[str, Any]:
    """Keywords without objects of the host, which can't leave its process.

    An object that says who talks, such as a UUID, is sent as text: without it, two people would be
    one.
    """
    return {
        key: value
        for key, value in keywords.items()
        if value is None or isinstance(value, _PLAIN) or key in _SESSION_FIELDS
    }


_PLAIN: Final = (str, int, float, bool, list, tuple, Mapping)
_SESSION_FIELDS: Final = frozenset(each.name for each in fields(SessionContext))


def _as_plain(value: Any) -> Any:
    """What a host passes and JSON does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, set | frozenset) else str(value)


def _terminal_name() -> str:
    """The terminal of this process, by a name under which the child can open it."""
    if os.name == "nt":
        return "CON"
    try:
        return os.ttyname(0)
    except OSError:
        return os.devnull
