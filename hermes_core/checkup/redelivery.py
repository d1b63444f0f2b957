"""Delivers what is waiting, and fills gaps from the archive, when a person asks for it.

`deliver` and `backfill` load a plugin, so they run in a sandboxed child process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from json import dumps
from pathlib import Path
from time import time
from typing import Any, Final

from hermes_core.checkup.child_process import ChildResults, run_plugin_code
from hermes_core.checkup.deliveries import ActiveProvider, active_provider
from hermes_core.config import Config, PluginFacts, load_config
from hermes_core.config.names import normalise
from hermes_core.config.storage import home_database
from hermes_core.dispatch import as_builtin, new_event
from hermes_core.errors import HermesError
from hermes_core.loading.activation import activate, activate_builtin, deadlines_of
from hermes_core.manager.from_config import redactor_for, revive
from hermes_core.outbox import (
    Outbox,
    OutboxStore,
    Stream,
    StreamKey,
    WriteState,
    admin,
    deliver_inherited,
    open_outbox,
)
from hermes_core.outbox.admin import BackfillResult, add_archived, refill_missed
from hermes_core.outbox.records import ProviderKey
from hermes_core.session import SessionContext

_SLACK_SECONDS: Final = 10.0
_NOT_WAITING: Final = (WriteState.SKIPPED, WriteState.FAILED, WriteState.MISSED)


@dataclass(frozen=True, slots=True)
class StreamReport:
    """The result of delivering the writes of one session.

    Attributes:
        provider: For which provider they are.
        owner: Its owner.
        session: The session.
        delivered: How many writes were delivered.
        waiting: How many are still waiting.
        skipped: How many were skipped after repeated failures.
        failed: How many failed permanently.
        reason: Why some were not delivered.
    """

    provider: str
    owner: str
    session: str
    delivered: int = 0
    waiting: int = 0
    skipped: int = 0
    failed: int = 0
    reason: str = ""


# -- the command's side -----------------------------------------------------------------------


def retry(config: Config, number: int = 0) -> ChildResults[StreamReport]:
    """Deliver now: the session of one write, or all; also what failed or was skipped.

    Raises:
        HermesError: There is no such write, or it has no content.
    """
    # Opened here as well, so that a wrong number is reported without starting a child process.
    store = admin.open_store(config, set_aside=True)
    try:
        if number and admin.entry(store, number).state == WriteState.MISSED:
            raise HermesError(
                f"write {number} has no content: there was no room for it",
                hint="run: hermes-plugins outbox backfill",
            )
        if admin.entries(store, limit=1):  # creates no file where there is none
            admin.retry(store, number)
        if not store.waiting_streams():
            if store.problem is None:
                return ChildResults()
            return ChildResults((), str(store.problem), store.problem.hint)
        deadlines = deadlines_of(config)
        seconds = deadlines.initialize + deadlines.write + deadlines.shutdown + _SLACK_SECONDS
        stream = admin.entry(store, number).stream if number else 0
        call = partial(deliver, config.home, stream)
        # A backlog of a week can take an hour, so the deadline restarts with every delivery.
        return run_plugin_code(config, call, seconds=seconds, progress=partial(_left, store))
    finally:
        store.close()


def queue_note(config: Config, session: SessionContext, change: Mapping[str, Any]) -> bool:
    """Store a change of the notes for the external provider, without loading it.

    It is delivered like what an ended process left: by `deliver_queued`, or by the next agent.

    Args:
        config: What config.yaml says.
        session: In which session, and for whom, it was made.
        change: The arguments of ``on_memory_write``.

    Returns:
        Whether there is a provider that gets it.

    Raises:
        HermesError: It can't be stored.
    """
    active = active_provider(config)
    if not active.provider:
        return False
    redactor = redactor_for(config, _own_secrets(config))
    payload = dumps(redactor.redact(dict(change)).value, default=str)
    store = admin.open_store(config, set_aside=True)
    try:
        key = StreamKey.of(active.provider, active.owner, session)
        if not _add(store, key, payload):
            raise HermesError(
                f"the outbox is full: {active.provider} does not get this change",
                hint="see: hermes-plugins outbox status",
            )
    finally:
        store.close()
    return True


def _add(store: OutboxStore, key: StreamKey, payload: str) -> bool:
    write = admin.NewWrite(key, new_event(), payload, time(), hook="on_memory_write")
    return admin.add_write(store, write)


def _own_secrets(config: Config) -> set[str]:
    """The values of the provider's variables: they are known without loading it."""
    facts = config.selection.facts.get(normalise(config.selection.name), PluginFacts())
    return {value for name in facts.env if (value := os.environ.get(name))}


def deliver_queued(config: Config, session: SessionContext) -> ChildResults[StreamReport]:
    """Deliver what `queue_note` stored for a session, in a child process."""
    active = active_provider(config)
    key = StreamKey.of(active.provider, active.owner, session)
    store = admin.open_store(config, set_aside=False)
    try:
        found = [each for each in store.waiting_streams() if each.key == key]
    finally:
        store.close()
    if not found:
        return ChildResults()
    deadlines = deadlines_of(config)
    seconds = deadlines.initialize + deadlines.write + deadlines.shutdown + _SLACK_SECONDS
    return run_plugin_code(config, partial(deliver, config.home, found[0].id), seconds=seconds)


def _left(store: OutboxStore) -> list[tuple[int, int, float]]:
    return [(each.id, each.writes, each.due) for each in store.waiting_streams()]


def fill_gaps(config: Config, since: float | None) -> ChildResults[BackfillResult]:
    """Restore the content of missed writes; with ``since``, also queue archived turns."""
    call = partial(backfill, config.home, since)
    return run_plugin_code(config, call, seconds=deadlines_of(config).write)


# -- in the child process ---------------------------------------------------------------------


def deliver(home: Path, stream: int) -> Iterator[StreamReport]:
    """Deliver each stream, or the given one, each through a separate provider instance."""
    config = load_config(home)
    activation = activate(config)
    # Activated only to fail early, with a good message. `revive` activates again for each stream.
    activation.lease.release()
    if activation.error is not None:
        raise activation.error
    active = active_provider(config)
    outbox = open_outbox(
        config.home,
        max_mb=admin.max_mb(config),
        durable=config.durable,
        database=home_database(config.home, config.memory),
    )
    for each in outbox.store.waiting_streams():
        if stream in (0, each.id):
            yield _delivered(outbox, each, active)


def _delivered(outbox: Outbox, stream: Stream, active: ActiveProvider) -> StreamReport:
    """Deliver one stream."""
    store = outbox.store
    key = stream.key
    row = StreamReport(key.provider, key.owner, key.session, waiting=stream.writes)
    # By owner too: a package that took over the name must not receive another one's turns.
    if not active.owns(key):
        other = f"; {active.provider} of {active.owner} is" if active.provider else ""
        reason = f"{key.provider} of {key.owner} is not active{other}"
        return replace(row, reason=reason)
    # A running agent delivers this stream itself; two at once would deliver twice.
    if not store.claim(stream.id):
        return replace(row, reason=f"left to {process_name(stream.holder)}, which delivers it")
    before = _entries(store, stream.id)
    try:
        deliver_inherited(outbox, stream, partial(revive, outbox.home))
        refused = ""
    except HermesError as error:
        refused = str(error)
    after = _entries(store, stream.id)
    waiting = [each for each in after.values() if each.state not in _NOT_WAITING]
    skipped = [each for each in after.values() if each.state == WriteState.SKIPPED]
    failed = [after[each] for each in before.keys() & after.keys() if _has_failed(after[each])]
    failure = next((each.error for each in [*waiting, *skipped, *failed] if each.error), "")
    return replace(
        row,
        # Delivered writes leave the table, so what is gone was delivered.
        delivered=sum(number not in after for number in before),
        waiting=len(waiting),
        skipped=len(skipped),
        failed=len(failed),
        reason=failure or refused or ("a call is still running" if waiting else ""),
    )


def _has_failed(entry: admin.OutboxEntry) -> bool:
    return entry.state == WriteState.FAILED


def _entries(store: OutboxStore, stream: int) -> dict[int, admin.OutboxEntry]:
    return {each.id: each for each in admin.entries(store) if each.stream == stream}


def process_name(holder: str) -> str:
    """A process as people write it."""
    host, pid, _ = holder.rsplit("/", 2)
    return f"process {pid} on {host}"


def backfill(home: Path, since: float | None) -> Iterator[BackfillResult]:
    """Restore what the archive has; the result names each write that it does not have."""
    config = load_config(home)
    builtin = as_builtin(activate_builtin(config))
    if builtin is None:  # the built-in may be replaced by one without an archive
        raise HermesError("the built-in provider has no archive to backfill from")
    activation = activate(config)
    redactor = redactor_for(config, activation.secrets)

    def mask(value: Any) -> Any:
        return redactor.redact(value).value

    store = admin.open_store(config, set_aside=True)
    # First what an agent noted as missed; then, if asked, everything else since the date.
    done = refill_missed(store, partial(builtin.archived_turns, config.home), mask)
    if since is not None and not done.no_room:
        active = active_provider(config)
        if not active.provider:
            raise HermesError(
                "no external provider is active that could get the turns",
                hint="run: hermes-plugins enable NAME",
            )
        sessions = builtin.sessions_since(config.home, since)
        added = add_archived(store, ProviderKey(active.provider, active.owner), sessions, mask)
        done = done._replace(added=added.added, known=added.known, no_room=added.no_room)
    store.close()
    # The damaged file was set aside, and with it the list of what was missed: only --since helps.
    if store.problem is not None and since is None:
        raise store.problem
    yield done
