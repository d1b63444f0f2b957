"""What another process or session left: delivered through an instance made for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from hermes_core.dispatch import HookCalls, ProviderAdapter
from hermes_core.errors import HermesError, describe
from hermes_core.outbox._layout import Origin, Stream
from hermes_core.outbox._route import Route, back_off

if TYPE_CHECKING:
    from hermes_core.outbox._outbox import Outbox

_OF_THE_SESSION: Final = ("parent_session_id", "session_title")


class Revived:
    """An instance made for the writes that another session left; `close` ends it.

    Args:
        adapter: Calls it.
        close: Gives back what was taken for it.
    """

    def __init__(self, adapter: ProviderAdapter, close: Callable[[], None]) -> None:
        self.adapter = adapter
        self.close = close


#: Makes a fresh instance for an origin, not initialised yet; raises HermesError.
Revive = Callable[[Origin], Revived]


def deliver_left(outbox: Outbox, stream: Stream, revive: Revive) -> bool:
    """Deliver a stream that is ours through a fresh instance; whether nothing is left of it."""
    store = outbox.store
    try:
        keywords = {**_keywords(stream.origin), "hermes_home": str(outbox.home)}
        revived = outbox.fresh(stream.origin, revive)
    except HermesError as error:
        _put_off(outbox, stream, describe(error))
        raise
    adapter = revived.adapter
    hooks = HookCalls()
    hooks.add(adapter)
    try:
        outcome = adapter.initialize(stream.origin.session, keywords)
        if outcome.error is not None:
            _put_off(outbox, stream, adapter.told(outcome.error))
            return False
        route = Route(outbox, stream.origin, adapter, hooks)
        route.stream = stream.id
        route.own()
        route.start()
        while route.busy and not adapter.hangs():
            sleep(0.01)
        return not route.busy and store.count(stream.id) == 0
    finally:
        adapter.shutdown()
        adapter.close(0)
        hooks.close()
        revived.close()


def _keywords(origin: Origin) -> dict[str, Any]:
    try:
        found = json.loads(origin.keywords)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise HermesError(f"the keywords of session {origin.session} can't be read")
    return found


def _put_off(outbox: Outbox, stream: Stream, error: str) -> None:
    """No instance could be made: that is a failure of the write that is next."""
    write = outbox.store.next(stream.id)
    if write is not None:
        due = outbox.store.clock() + back_off(write.attempts)
        outbox.store.failed(write, error, due, dead=False)
    outbox.store.release(stream.id)


def who(origin: Origin) -> dict[str, Any]:
    """The keywords, but for those that tell of the session and not of its user."""
    try:
        found = _keywords(origin)
    except HermesError:
        return {"session": origin.session}
    return {name: value for name, value in found.items() if name not in _OF_THE_SESSION}
