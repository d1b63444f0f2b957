"""`ProviderServer`: the child's side of a provider in its own process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter, iscoroutine, signature
from io import BufferedReader, BufferedWriter
from typing import Any

from hermes_core.dispatch.call import Deadlines, Invocations, method_of
from hermes_core.dispatch.caller import ProviderInstance, set_caller
from hermes_core.dispatch.isolation_messages import (
    ATTRIBUTES,
    LONGEST_LINE,
    MOST_BYTES,
    MOST_LOGGED,
    UNLOAD,
    MessageWriter,
    as_json,
    attribute_of,
    error_message,
    json_default,
    read_message,
)
from hermes_core.dispatch.values import plain_value
from hermes_core.dispatch.worker import EventLoop, Worker, as_exception
from hermes_core.errors import ProviderCallError
from hermes_core.hookspecs import HOOKS, Lane
from hermes_core.provider import PARTS, ForgetRequest, MemoryProvider


class _EarlyParts(list[str]):
    """What `hand_over` returns early, sent as it comes."""

    def __init__(self, send: Callable[[str], None]) -> None:
        super().__init__()
        self._pass_on = send

    def append(self, text: str) -> None:
        super().append(text)
        self._pass_on(text)


class ProviderServer:
    """In the child: calls the provider's methods as the host asks.

    Args:
        provider: What the plugin has.
        instance: For whom it is called.
        incoming: The host's requests.
        outgoing: The answers.
        deadlines: How long a coroutine may run. The host itself waits no longer for any call.
    """

    def __init__(
        self,
        provider: MemoryProvider,
        instance: ProviderInstance,
        incoming: BufferedReader,
        outgoing: BufferedWriter,
        deadlines: Deadlines,
    ) -> None:
        self._provider = provider
        self._instance = instance
        self._incoming = incoming
        self._writer = MessageWriter(outgoing, json_default)
        self._deadlines = deadlines
        self._pid = os.getpid()
        self._workers = {lane: Worker(f"memory-{instance.name}-{lane}") for lane in Lane}
        self._loop = EventLoop(f"memory-{instance.name}-loop")
        self._sent_attributes: dict[str, Any] = {}
        self._logged = 0

    def serve(self, **loaded: Any) -> None:
        """Tell the host what was loaded, and make its calls until it closes the pipe."""
        invocations = Invocations(self._provider)
        methods = {
            hook: _parameters(method_of(self._provider, hook))
            for hook in HOOKS
            if invocations[hook] is not None
        }
        handler = _ForwardingHandler(self._log)
        logging.getLogger().addHandler(handler)
        self._send({"methods": methods, "attributes": self._attributes(), **loaded})
        # The host is trusted, and a whole conversation may be long.
        while (request := read_message(self._incoming, trusted=True)) is not None:
            if "environment" in request:
                os.environ.update(request["environment"])
            elif request.get("terminal"):
                # On the main thread, as in a process without a pipe.
                with _terminal(request["terminal"]):
                    self._call(request)
            else:
                hook = request["hook"]
                lane = HOOKS[hook].lane if hook in HOOKS else Lane.MAIN
                self._workers[lane].submit(partial(self._call, request))

    def _call(self, request: Mapping[str, Any]) -> None:
        try:
            self._answer(request)
        except BaseException:  # noqa: BLE001 - the plugin has broken what an answer needs
            os._exit(1)  # or the host would wait until its deadline

    def _answer(self, request: Mapping[str, Any]) -> None:
        number, hook = request["id"], request["hook"]
        set_caller(self._instance)
        if hook == "prefetch":
            PARTS.set(_EarlyParts(lambda text: self._send({"id": number, "part": text})))
        try:
            value = self._value(hook, request["args"], request["keywords"])
            answer: dict[str, Any] = {"value": value}
            if (size := len(as_json(answer, json_default))) > MOST_BYTES:
                raise ProviderCallError(f"returned too much: {size:,} bytes")  # noqa: TRY301
        except BaseException as error:  # noqa: BLE001 - the provider boundary
            answer = {"error": error_message(as_exception(error))}
        changed = self._attributes()
        if changed != self._sent_attributes:
            answer["attributes"] = self._sent_attributes = changed
        self._send({"id": number, **answer})

    def _value(self, hook: str, args: list[Any], keywords: dict[str, Any]) -> Any:
        if hook == UNLOAD:
            while self._instance.unload:
                self._instance.unload.pop().dispose()
            return None
        method = method_of(self._provider, hook)
        if method is None and hook == "initialize_for_inspection":
            method = method_of(self._provider, "initialize")
        if method is None:
            raise ProviderCallError(f"it no longer has {hook}")
        if hook == "forget":  # JSON has made a list of it
            args = [ForgetRequest(*each) for each in args]
            keywords = {name: ForgetRequest(*each) for name, each in keywords.items()}
        value = method(*args, **keywords)
        if iscoroutine(value):
            rule = HOOKS[hook]
            seconds = getattr(self._deadlines, rule.deadline)
            # The host waits for twice the budget of a recall, whose answer may serve later.
            value = self._loop.run(value, 2 * seconds if hook == "prefetch" else seconds)
        return plain_value(hook, value)

    def _attributes(self) -> dict[str, Any]:
        return {name: attribute_of(self._provider, name) for name in ATTRIBUTES}

    def _log(self, level: int, text: str) -> None:
        self._logged += 1
        if self._logged <= MOST_LOGGED:
            self._send({"log": text[:LONGEST_LINE], "level": level})

    def _send(self, message: Mapping[str, Any]) -> None:
        # A copy of this process that a plugin made by a fork, and that came back from the plugin:
        # it must not answer in our name.
        if os.getpid() != self._pid:
            os._exit(0)
        with suppress(OSError):  # the host is gone, and so are we soon
            self._writer.send(message)


def refuse(outgoing: BufferedWriter, error: Exception) -> None:
    """In the child: tell the host why the plugin could not be loaded."""
    MessageWriter(outgoing, json_default).send({"error": error_message(error)})


def _parameters(method: Callable[..., Any] | None) -> list[tuple[str, int, bool]] | None:
    """The parameters of a method: name, kind, and whether it has a default."""
    try:
        found = signature(method).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):  # written in C: it takes whatever it is given
        return None
    return [(each.name, int(each.kind), each.default is not Parameter.empty) for each in found]


class _ForwardingHandler(logging.Handler):
    """Sends what the plugin logs to the host's log, from warnings on."""

    def __init__(self, send: Callable[[int, str], None]) -> None:
        super().__init__(logging.WARNING)
        self._pass_on = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._pass_on(record.levelno, f"{record.name}: {record.getMessage()}")
        except Exception:  # noqa: BLE001 - logging must not fail a call
            self.handleError(record)


@dataclass
class _terminal:  # noqa: N801 - a context manager
    """Gives the child its host's terminal while it asks a person; a pipe has its place else."""

    name: str
    _before: list[int] = field(default_factory=list)

    def __enter__(self) -> None:
        terminal = os.open(self.name, os.O_RDWR | getattr(os, "O_NOCTTY", 0))
        for number in range(3):
            self._before.append(os.dup(number))
            os.dup2(terminal, number)
        os.close(terminal)

    def __exit__(self, *_: object) -> None:
        for number, before in enumerate(self._before):
            os.dup2(before, number)
            os.close(before)
