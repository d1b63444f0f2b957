"""How a manager's writes reach the external provider: without secrets, kept, and in order."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from hermes_core.dispatch import HookCalls, Job, ProviderAdapter, new_event
from hermes_core.errors import HermesError, describe
from hermes_core.hookspecs import IDENTITIES
from hermes_core.outbox import DEFAULT_MAX_MB, Mailbox, Origin, Outbox, Revive, open_outbox

logger = logging.getLogger("hermes_core")

#: What a change of session may tell anew of who is spoken with.
_WHO: Final = (
    "user_id",
    "user_id_alt",
    "user_name",
    "chat_id",
    "chat_name",
    "chat_type",
    "thread_id",
    "session_title",
)

#: What a value raises that is no JSON, or can't be searched for secrets.
_UNWRITABLE: Final = (TypeError, ValueError, RecursionError, HermesError)


class OutboxSettings(NamedTuple):
    """How the outbox of a home is kept, and how a provider is made anew for what waits in it.

    ``owner`` is the distribution that the provider came from.
    """

    max_mb: float = DEFAULT_MAX_MB
    durable: bool = False
    owner: str = ""
    revive: Revive | None = None


class Writes:
    """The writes of one manager for its external provider.

    Args:
        adapter: Calls the provider.
        hooks: Where observers see the calls.
        home: Gives the folder of the outbox, asked when a session starts.
        settings: How the outbox is kept.
    """

    def __init__(
        self,
        adapter: ProviderAdapter,
        hooks: HookCalls,
        home: Callable[[], Path],
        settings: OutboxSettings,
    ) -> None:
        self._adapter = adapter
        self._hooks = hooks
        self._home = home
        self._settings = settings
        self._outbox: Outbox | None = None
        self._keywords: dict[str, Any] = {}
        self._box: Mailbox | None = None
        self._boxes: list[Mailbox] = []
        self._problem = ""
        self._damage = ""

    @property
    def warnings(self) -> list[str]:
        """What happened to writes that could not be kept."""
        if self._outbox is not None:
            self._damage = self._outbox.store.file.problem
        return [each for each in (self._problem, self._damage) if each]

    def begin(self, session_id: str, keywords: Mapping[str, Any]) -> None:
        """A session starts: what it writes is kept under its name and its keywords."""
        if self._outbox is None:
            self._outbox = open_outbox(
                self._home(), max_mb=self._settings.max_mb, durable=self._settings.durable
            )
        if self._box is not None:
            self._outbox.leave(self._box)
        self._keywords = dict(keywords)
        self._enter(session_id)

    def _enter(self, session_id: str) -> None:
        if self._outbox is None:
            return
        clean = self._adapter.clean(self._keywords)
        known = {k: v for k, v in clean.items() if k != "hermes_home" and _is_plain(v)}
        origin = Origin(
            self._adapter.name,
            self._settings.owner,
            session_id,
            json.dumps(known, sort_keys=True),
        )
        revive = self._settings.revive
        self._box = self._outbox.mailbox(origin, self._adapter, self._hooks, revive)
        try:
            left = self._outbox.unfinished(self._boxes)
        except HermesError:  # told by `mailbox`
            left = self._boxes
        self._boxes = [*left, self._box]

    def put(self, hook: str, arguments: Mapping[str, Any]) -> None:
        """Keep a write and have it delivered. That it can't be kept is told, not raised."""
        if not self._adapter.does_something(hook):
            self._hooks.only(self._adapter, hook)(**arguments)
            return
        if hook == "sync_turn" and not self._adapter.takes(hook, "messages"):
            arguments = {**arguments, "messages": None}
        try:
            job = self._keep(hook, arguments)
        except HermesError as error:
            self._problem = f"provider {self._adapter.name}: a write was not kept: {error}"
            self._adapter.failed(hook, error)
            logger.error("memory: %s", self._problem)  # noqa: TRY400 - one line says it all
            return
        if hook == "on_session_end" and job is not None:
            self._adapter.boundary = job

    def _keep(self, hook: str, arguments: Mapping[str, Any]) -> Job | None:
        if self._box is None:
            self.begin("", {})
        payload = self._payload(hook, arguments)
        return self._box.put(hook, new_event(), payload) if self._box is not None else None

    def _payload(self, hook: str, arguments: Mapping[str, Any]) -> str:
        """A write as text, without secrets, and without what can't be written."""
        try:
            return self._encoded(arguments)
        except _UNWRITABLE as error:
            logger.warning(
                "memory provider %s: part of a write (%s) is left out: %s",
                self._adapter.name, hook, describe(error),
            )  # fmt: skip
        return self._encoded({name: self._writable(value) for name, value in arguments.items()})

    def _encoded(self, arguments: Mapping[str, Any]) -> str:
        masker = self._adapter.masker
        clean = dict(arguments) if masker is None else masker.hand_off(dict(arguments)).value
        kept = {name: arguments[name] for name in IDENTITIES if name in arguments}
        return json.dumps({**clean, **kept}, default=self._text)

    def _text(self, value: Any) -> str:
        """An object of the host's own, in words. They may hold secrets, as all words."""
        try:
            text = str(value)
        except Exception:  # noqa: BLE001 - somebody else's method
            text = f"<{type(value).__name__}>"
        masker = self._adapter.masker
        return text if masker is None else str(masker.hand_off(text).value)

    def _writable(self, value: Any) -> Any:
        """What can be written of a value: of a list or a mapping, the items that can."""
        if isinstance(value, list):
            return [each for each in value if self._can_write(each)]
        if isinstance(value, dict):
            return {name: each for name, each in value.items() if self._can_write({name: each})}
        return value if self._can_write(value) else None

    def _can_write(self, value: Any) -> bool:
        try:
            self._encoded({"": value})
        except _UNWRITABLE:
            return False
        return True

    def switch(self, session_id: str, parent: str, changes: Mapping[str, Any], call: Any) -> None:
        """Another session runs from now on: behind the old one's writes, before the new one's.

        What the old one could not deliver by then goes through an instance of its own.
        """
        self._adapter.boundary = self._adapter.submit(
            "on_session_switch", partial(self._crossed, self._box, call)
        )
        self._keywords |= {name: changes[name] for name in _WHO if name in changes}
        self._keywords |= {"parent_session_id": parent} if parent else {}
        self._enter(session_id)

    def _crossed(self, old: Mailbox | None, call: Callable[[], Any]) -> None:
        call()
        if old is not None and self._outbox is not None:
            self._outbox.leave(old)

    def flush(self, timeout: float) -> bool:
        """Whether every write is delivered, after at most ``timeout`` seconds."""
        return self._flush(self._boxes, timeout, once=False)

    def finish(self, timeout: float) -> None:
        """Deliver what can be delivered at once, and say what is left."""
        end = monotonic() + timeout
        delivered = self._flush(self._boxes[-1:], timeout, once=True)
        self._adapter.flush_writes(max(end - monotonic(), 0))  # a change of session, too
        if not delivered:
            self._tell_unanswered()
            logger.warning(
                "memory provider %s: %s writes undelivered; they wait in the outbox",
                self._adapter.name, self._count(),
            )  # fmt: skip

    def _tell_unanswered(self) -> None:
        try:
            for box in self._boxes[-1:]:
                box.unanswered()
        except HermesError as error:
            logger.error("memory: %s", error)  # noqa: TRY400 - one line says it all

    def _count(self) -> str:
        """How many writes of the last session wait, as far as that can be told."""
        try:
            return str(self._outbox.store.count(self._boxes[-1].stream)) if self._outbox else "0"
        except HermesError:
            return "some"

    def _flush(self, boxes: list[Mailbox], timeout: float, *, once: bool) -> bool:
        if self._outbox is None:
            return True
        try:
            return self._outbox.flush(boxes, timeout, once=once)
        except HermesError as error:
            logger.error("memory: %s", error)  # noqa: TRY400 - one line says it all
            return False

    def close(self) -> None:
        """Let go of the outbox. What is left is delivered by whoever comes next."""
        _ = self.warnings  # they stay
        outbox, self._outbox = self._outbox, None
        if outbox is not None:
            for box in self._boxes:
                outbox.leave(box)
            outbox.unuse()


def _is_plain(value: Any) -> bool:
    """Whether a keyword can be kept; a host may pass objects of its own."""
    return value is None or isinstance(value, str | int | float | bool)
