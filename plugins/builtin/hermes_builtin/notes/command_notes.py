"""The notes that a command shows or changes, and the options that say whose they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from hermes_builtin.notes import Notes, Person, RefusalError, previews
from hermes_builtin.notes.people import PER_USER
from hermes_builtin.provider import BuiltinProvider
from hermes_core import HermesError, MemoryManager
from hermes_core.cli.output import note, plain
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
    load_config(home)  # what is wrong with it stops us before anything is changed
    # The command is an agent for a moment: what it can't deliver now waits in the outbox.
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
        manager.shutdown_all()
        problems = [str(problem) for problem in manager.problems]
        problems += [
            health["on_memory_write"].last_error
            for name, health in manager.health().items()
            # Only the external provider's own errors; those of the notes were raised already.
            if name != "builtin" and "on_memory_write" in health
        ]
        for problem in filter(None, problems):
            note(f"The external provider did not receive it: {problem}")


SHOW_HINT: Final = "to see the entries: hermes-plugins memory show"


PENDING_HINT: Final = "to see the ids: hermes-plugins memory pending"


class RejectedError(HermesError):
    """A change that can't be made, with what there is to choose from."""

    def __init__(self, refused: RefusalError) -> None:
        entries = "; ".join(previews(refused.matches)) or (SHOW_HINT if refused.current else "")
        super().__init__(refused.what or refused.text, hint=refused.hint or entries)
