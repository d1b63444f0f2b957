"""Delivering what waits, and filling gaps from the archive, because a person says so now.

`deliver` and `backfill` run in a child process, since a plugin is loaded for them; see
`hermes_core.apart`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.activation import activate, activate_builtin, chosen, deadlines_of
from hermes_core.apart import Apart, Tell, run_apart
from hermes_core.assembly import redactor_of, revive
from hermes_core.config import Config, load_config
from hermes_core.errors import HermesError
from hermes_core.names import normalise
from hermes_core.outbox import (
    DEAD,
    MISSED,
    Origin,
    Outbox,
    OutboxStore,
    Stream,
    care,
    deliver_left,
    open_outbox,
)
from hermes_core.outbox.backfill import Backfilled, add_archived, refill_missed
from hermes_core.outbox.care import Backlog

_SLACK_SECONDS: Final = 10.0


class Whose(NamedTuple):
    """The provider that is active, by its name and its owner; "" and "" if there is none."""

    provider: str = ""
    owner: str = ""

    def owns(self, whose: Origin | Backlog) -> bool:
        """Whether something in the outbox is for this one."""
        return self.owner == whose.owner and normalise(self.provider) == normalise(whose.provider)


def active_provider(config: Config) -> Whose:
    """Whose writes are delivered: known without loading it, even if it could not be."""
    try:
        info = chosen(config)
    except HermesError:
        info = None
    return Whose() if info is None else Whose(info.name, info.owner)


# -- the command's side ----------------------------------------------------------------------


def retry(config: Config, number: int = 0) -> Apart:
    """Try to deliver now: the stream of one write, or all; dead ones wait again.

    Raises:
        HermesError: There is no such write, or it has no content.
    """
    store = care.open_store(config, mends=True)
    try:
        if number and care.entry(store, number).state == MISSED:
            raise HermesError(
                f"write {number} has no content: there was no room for it",
                hint="run: hermes-plugins outbox backfill",
            )
        if care.entries(store, limit=1):  # where there is nothing, no file is made
            care.wake(store, number)
        if not store.waiting():
            return Apart([], store.file.problem)  # nothing, or nothing that can be read
        deadlines = deadlines_of(config)
        seconds = deadlines.initialize + deadlines.write + deadlines.shutdown + _SLACK_SECONDS
        stream = care.entry(store, number).stream if number else 0
        arguments = {"home": str(config.home), "stream": stream}
        function = "hermes_core.redelivery:deliver"
        progress = partial(_left, store)
        return run_apart(config, function, arguments, seconds=seconds, progress=progress)
    finally:
        store.close()


def _left(store: OutboxStore) -> list[tuple[int, int, float]]:
    return [(each.id, each.writes, each.due) for each in store.waiting()]


def fill_gaps(config: Config, since: float | None) -> Apart:
    """Give missed writes their content back; with ``since``, also let archived turns wait."""
    arguments = {"home": str(config.home), "since": since}
    seconds = deadlines_of(config).write
    return run_apart(config, "hermes_core.redelivery:backfill", arguments, seconds=seconds)


# -- the child's side ------------------------------------------------------------------------


def deliver(tell: Tell, home: str, stream: int) -> None:
    """Deliver each stream, or the one, through an instance of its own; tells of each."""
    config = load_config(Path(home))
    activation = activate(config)
    activation.lease.release()
    if activation.error is not None:
        raise activation.error
    active = active_provider(config)
    outbox = open_outbox(config.home, max_mb=care.max_mb(config), durable=config.durable)
    for each in outbox.store.waiting():
        if stream in (0, each.id):
            tell(_delivered(outbox, each, active))


def _delivered(outbox: Outbox, stream: Stream, active: Whose) -> dict[str, Any]:
    """What became of one stream."""
    store = outbox.store
    origin = stream.origin
    row: dict[str, Any] = {
        "provider": origin.provider,
        "owner": origin.owner,
        "session": origin.session,
        "delivered": 0,
        "waiting": stream.writes,
        "dead": 0,
        "reason": "",
    }
    if not active.owns(origin):
        other = f"; {active.provider} of {active.owner} is" if active.provider else ""
        return row | {"reason": f"{origin.provider} of {origin.owner} is not active{other}"}
    if not store.take(stream.id):
        return row | {"reason": f"left to {process_name(stream.holder)}, which delivers it"}
    before = _states(store, stream.id)
    try:
        deliver_left(outbox, stream, partial(revive, outbox.home))
        reason = ""
    except HermesError as refused:
        reason = str(refused)
    after = _states(store, stream.id)
    waiting = [each for each in after.values() if each.state not in (DEAD, MISSED)]
    dead = [each for number, each in after.items() if each.state == DEAD and number in before]
    told = next((each.error for each in [*waiting, *dead] if each.error), "")
    return row | {
        "delivered": sum(number not in after for number in before),
        "waiting": len(waiting),
        "dead": len(dead),
        "reason": told or reason or ("a call still runs" if waiting else ""),
    }


def _states(store: OutboxStore, stream: int) -> dict[int, care.Entry]:
    return {each.id: each for each in care.entries(store) if each.stream == stream}


def process_name(holder: str) -> str:
    """A process as people call it."""
    host, pid, _ = holder.rsplit("/", 2)
    return f"process {pid} on {host}"


def backfill(tell: Tell, home: str, since: float | None) -> None:
    """Put back what the archive has; tells what came of it, and of each that it has not."""
    config = load_config(Path(home))
    builtin = activate_builtin(config)
    activation = activate(config)
    redactor = redactor_of(config, activation.secrets)

    def mask(value: Any) -> Any:
        return redactor.hand_off(value).value

    store = care.open_store(config, mends=True)
    done = refill_missed(store, partial(_asked(builtin, "archived_turns"), config.home), mask)
    if since is not None and not done.no_room:
        active = active_provider(config)
        if not active.provider:
            raise HermesError(
                "no external provider is active, so nobody could get the turns",
                hint="run: hermes-plugins enable NAME",
            )
        sessions = _asked(builtin, "sessions_since")(config.home, since)
        added = add_archived(store, active, sessions, mask)
        done = done._replace(added=added.added, known=added.known, no_room=added.no_room)
    store.close()
    if store.file.problem and since is None:
        raise HermesError(store.file.problem)
    tell(_told(done))


def _asked(builtin: Any, method: str) -> Callable[..., Any]:
    """What only our own built-in has; another one in its place may lack it."""
    found = getattr(builtin, method, None)
    if found is None:
        raise HermesError("the built-in keeps no conversations to backfill from")
    return found  # type: ignore[no-any-return]


def _told(done: Backfilled) -> dict[str, Any]:
    missing = [
        {"id": each.id, "hook": each.hook, "session": each.origin.session}
        for each in done.not_found
    ]
    return {**done._asdict(), "not_found": missing}
