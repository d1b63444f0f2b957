"""Proof that Honcho works: a message in, found, and removed, in a workspace of its own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from hermes_core.backends import Cause, failure
from hermes_memory_honcho.service import Service
from hermes_memory_honcho.settings import Settings
from hermes_memory_honcho.wire import Honcho, HonchoError, Peer, Session

_FOUND_SECONDS: Final = 15.0
_REMOVED_SECONDS: Final = 10.0
_POLL: Final = 0.2
_NOT_ALLOWED: Final = (401, 403)


def look(service: Service) -> str:
    """Ask for the workspace, which takes a server, a key and a right."""
    began = time.monotonic()
    service.honcho.get_configuration()
    took = time.monotonic() - began
    return f"{service.honcho.base_url} answers in {took:.2f} s, workspace {service.names.workspace}"


def write_and_find(service: Service, settings: Settings) -> str:
    """Write a message to a workspace that is made for it, find it, remove both.

    Raises:
        BackendError: It was not found in time.
    """
    scratch = f"hermes-probe-{secrets.token_hex(6)}"
    honcho = service.wire.honcho(settings, scratch)
    try:
        honcho.get_configuration()  # makes it
    except HonchoError as error:
        if error.status not in _NOT_ALLOWED:
            raise
        return "nothing was written: the key is for this workspace alone"
    return _written_and_found(service, honcho)


def _written_and_found(service: Service, honcho: Honcho) -> str:
    marker = f"marker-{secrets.token_hex(6)}"
    session = Session("probe", honcho)
    try:
        session.add_messages([Peer("probe", honcho).message(f"This is a test entry: {marker}")])

        def found() -> bool:
            return any(marker in each.content for each in session.search(marker))

        if not _until(found, _FOUND_SECONDS):
            raise failure(
                Cause.BROKEN,
                service="honcho",
                where=honcho.base_url,
                detail="a message that it took was not found again",
            )
    finally:
        with suppress(HonchoError):
            session.delete()
        removed = _until(lambda: _is_removed(service, honcho.workspace_id), _REMOVED_SECONDS)
    left = "" if removed else f"; the empty workspace {honcho.workspace_id} could not be removed"
    return f"a message was written, found and removed{left}"


def _is_removed(service: Service, workspace: str) -> bool:
    """Sessions are deleted in the background, and a workspace only after them."""
    with suppress(HonchoError):
        service.honcho.delete_workspace(workspace)
        return True
    return False


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL)
    return True
