"""Checks that Honcho works, in the workspace in use: a key may be valid for that one alone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from hermes_core import HermesError
from hermes_core.service import Cause, failure, read_own_file, save_own_file
from hermes_memory_honcho.client import (
    HonchoError,
    NotFoundError,
    Peer,
    Session,
    SessionConfiguration,
    SessionPeerConfig,
)
from hermes_memory_honcho.names import Queue
from hermes_memory_honcho.service import HonchoService

# -- progress of Honcho's conclusions -----------------------------------------------------------
# A server says how many pieces of work wait, not whether anybody does them. It may wait half an
# hour for more messages, so only a longer standstill is a sign. What was seen last is stored in
# the home.

_STANDSTILL: Final = 45 * 60.0
_START_IT: Final = "start it beside the server: python -m src.deriver"


def progress_line(queue: Queue, home: Path, now: float = 0.0) -> str:
    """One line for a person: how much is done and waits, and a warning if nobody works."""
    line = f"{queue.done} done, {queue.working} at work, {queue.waiting} waiting"
    now = now or time.time()
    since = _unchanged_since(queue, home / "honcho" / "queue.json", now)
    if not queue.waiting or queue.working:
        return line
    if now - since > _STANDSTILL:
        clock = time.strftime("%Y-%m-%d %H:%M", time.localtime(since))
        idle = f"nothing was done since {clock}: the deriver does not run"
        return f"{line}. WARNING: {idle} ({_START_IT})"
    if not queue.done:
        return f"{line}. None is done yet: if that stays so, the deriver does not run ({_START_IT})"
    return line


def _unchanged_since(queue: Queue, file: Path, now: float) -> float:
    seen = {"done": queue.done, "idle": bool(queue.waiting and not queue.working)}
    kept: dict[str, object] = {}
    with suppress(HermesError):
        kept = read_own_file(file)
    since = kept.get("since")
    if isinstance(since, int | float) and {key: kept.get(key) for key in seen} == seen:
        return float(since)
    with suppress(HermesError, OSError):  # other checks report a read-only home
        save_own_file(file, {**seen, "since": now})
    return now


# -----------------------------------------------------------------------------------------------
# Proof that Honcho works, in the workspace that is in use: a key may be for that one alone

_LOOK_SECONDS: Final = 5.0  # who runs `status` waits for it
_FOUND_SECONDS: Final = 15.0
_REMOVED_SECONDS: Final = 10.0
_POLL: Final = 0.2
#: Nothing is to be concluded from what a probe says.
_SILENT: Final = {name: {"enabled": False} for name in ("reasoning", "summary", "dream")}


def look(service: HonchoService, home: Path) -> str:
    """Ask how far conclusions are: that takes a key, a right and the database, and makes nothing.

    A workspace proves nothing: the server answers for it from a cache.
    """
    began = time.monotonic()
    with service.wire.within(_LOOK_SECONDS):
        queue = service.queue()
    took = time.monotonic() - began
    place = (
        f"{service.honcho.base_url} answers in {took:.2f} s, workspace {service.names.workspace}"
    )
    if queue is None:
        return f"{place} (not there yet: the first turn makes it)"
    return f"{place}; conclusions: {progress_line(queue, home)}"


def write_and_find(service: HonchoService) -> str:
    """Write a message to a session that is made for it, find it, remove both.

    Raises:
        BackendError: It was not found in time.
    """
    name = f"hermes-probe-{secrets.token_hex(6)}"
    marker = f"marker-{secrets.token_hex(6)}"
    ai, unseen = service.names.ai, SessionPeerConfig(observe_me=False, observe_others=False)
    session = service.honcho.session(
        name, configuration=SessionConfiguration.model_validate(_SILENT), peers=[(ai, unseen)]
    )
    try:
        said = Peer(ai, service.honcho).message(f"This is a test entry: {marker}")
        session.add_messages([said])

        def found() -> bool:
            return any(marker in each.content for each in session.search(marker))

        if not _until(found, _FOUND_SECONDS):
            raise failure(
                Cause.BROKEN,
                service="honcho",
                where=service.honcho.base_url,
                detail="a message that it took was not found again",
            )
    finally:
        refused = _refusal_to_delete(session)
    if refused:
        return f"a message was written and found; its session {name} stays: {refused}"
    if _until(lambda: _is_gone(session), _REMOVED_SECONDS):
        return "a message was written, found and removed"
    return (
        f"a message was written and found; the removal of its session {name} is queued, and not "
        "done yet: the server's deriver does that"
    )


def _refusal_to_delete(session: Session) -> str:
    """Delete a session; why the server does not, or ""."""
    try:
        session.delete()
    except HonchoError as error:
        return str(error) or type(error).__name__
    return ""


def _is_gone(session: Session) -> bool:
    """Deletions are accepted at once, and carried out in the background."""
    try:
        return not session.messages(size=1).items
    except NotFoundError:
        return True


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL)
    return True
