"""The notes that a command shows or changes, and the options that say whose they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final, TypeVar

import click

from hermes_builtin.notes import Notes, Person, RefusalError, previews
from hermes_builtin.notes.people import PER_USER
from hermes_builtin.provider import BuiltinProvider
from hermes_core import HermesError, MemoryManager
from hermes_core.cli.output import plain, progress, warn
from hermes_core.config import load_config
from hermes_core.storage.home import resolve_home

json_option: Final = click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")


_Command = TypeVar("_Command", bound=Callable[..., Any])


def of_user(command: _Command) -> _Command:
    """Add the options that name the user whose USER.md it is."""
    for option in (
        click.option("--platform", default="", help="The platform of that user."),
        click.option("--user", default="", help="Use the USER.md of this user."),
    ):
        command = option(command)
    return command


def notes_of(ctx: click.Context, user: str = "", platform: str = "") -> Notes:
    """The notes of a user or of the person at the terminal, to look at.

    Raises:
        HermesError: All users share one USER.md, or it is not clear who is meant.
    """
    home = resolve_home(ctx.obj)
    notes = Notes.open(home, load_config(home, plugins=False).memory)
    if not user:
        return notes
    if notes.settings.user_notes != PER_USER:
        hint = "run: hermes-plugins config set memory.user_notes per-user"
        raise HermesError("all users share one USER.md", hint=hint)
    if platform:
        return notes.of(Person(platform, user))
    known = [each for each in notes.people() if each.user_id == user]
    if len(known) != 1:
        platforms = ", ".join(plain(each.platform) for each in known) or "none"
        raise HermesError(
            f"it is not clear who {plain(user)} is: platforms with notes of that user: {platforms}",
            hint="add --platform",
        )
    return notes.of(known[0])


@contextmanager
def writable(ctx: click.Context, person: Person) -> Iterator[BuiltinProvider]:
    """The built-in within a manager, so that what is written is mirrored.

    It runs as the person whose notes they are: the external provider keeps them for that person.
    """
    home = resolve_home(ctx.obj)
    # What is wrong with it stops us before anything is changed.
    external = load_config(home).selection.name
    # The command is an agent for a moment: what it can't deliver now waits in the outbox.
    with progress(f"Starting {external}") if external else nullcontext():
        manager = MemoryManager.from_config(home)
        who = {"user_id": person.user_id} if person.user_id else {}
        manager.initialize_all("hermes-plugins", platform=person.platform, **who)
    builtin = manager.get_provider("builtin")
    if not isinstance(builtin, BuiltinProvider):
        raise HermesError("the built-in provider has been replaced", where=type(builtin).__name__)
    try:
        yield builtin
    except RefusalError as refused:
        raise RejectedError(refused) from refused
    finally:
        # Also after an error: changes that were made before it are delivered.
        with progress(f"Sending to {external}") if external else nullcontext():
            manager.shutdown_all()
        for problem in manager.problems:
            warn(problem.without_hint, problem.hint)
        _say_undelivered(manager)


def _say_undelivered(manager: MemoryManager) -> None:
    """Say what the external provider has not received; errors of the notes were raised already."""
    waits = manager.shutdown_drain_state.get("waiting_writes")
    hint = "it waits in the outbox, and is delivered later; to see it: hermes-plugins outbox list"
    for name, health in manager.health().items():
        mirrored = health.get("on_memory_write") if name != "builtin" else None
        error = mirrored.last_error if mirrored is not None else ""
        if name != "builtin" and (error or waits):
            why = f": {error}" if error else ""
            warn(f"{name} has not received every change{why}", hint if waits else "")


SHOW_HINT: Final = "to see the entries: hermes-plugins memory show"


PENDING_HINT: Final = "to see the ids: hermes-plugins memory pending"


class RejectedError(HermesError):
    """A change that can't be made, with what there is to choose from."""

    def __init__(self, refused: RefusalError) -> None:
        entries = "; ".join(previews(refused.matches)) or (SHOW_HINT if refused.current else "")
        super().__init__(refused.what or refused.text, hint=refused.hint or entries)
