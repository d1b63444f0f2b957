"""What the commands have in common."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import click

from hermes_builtin.sessions._model import EVERYBODY, Session
from hermes_builtin.sessions._place import Place, place
from hermes_builtin.sessions._words import storable
from hermes_builtin.sessions.archive import Progress
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_core import DatabaseError, HermesError
from hermes_core.home import resolve_home

json_option = click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Don't ask.")


def as_text(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    """What was typed, without bytes that are no text."""
    return storable(value)


@contextmanager
def archive_of(ctx: click.Context) -> Iterator[tuple[SqliteArchive, Place]]:
    where = place(resolve_home(ctx.obj))
    with closing(SqliteArchive(where.path)) as archive:
        yield archive, where


@contextmanager
def damaged_archive_of(ctx: click.Context) -> Iterator[tuple[SqliteArchive, Place]]:
    """The archive to be checked or repaired, which may be too damaged to be recognised."""
    home = resolve_home(ctx.obj)
    try:
        where = place(home)
    except DatabaseError:
        where = Place(home / "state.db")
        if not where.path.is_file():
            raise
    with closing(SqliteArchive(where.path)) as archive:
        yield archive, where


@contextmanager
def progress_bar(label: str, json_wanted: bool) -> Iterator[Progress | None]:
    """A bar on standard error, where a person is looking."""
    if json_wanted or not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def update(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        yield update


def known(archive: SqliteArchive, session_id: str) -> Session:
    session = archive.session(session_id, EVERYBODY)
    if session is None:
        raise HermesError(
            "there is no such conversation",
            where=session_id,
            hint="see: hermes-plugins sessions list",
        )
    return session


def facts_of(session: Session) -> dict[str, Any]:
    return {key: value for key, value in session._asdict().items() if key != "number"}


def tell_of_theirs(missing: int, where: Place) -> None:
    if missing:
        click.echo(
            f"{missing:,} conversations of hermes-agent are not imported. "
            f"Run: hermes-plugins sessions import {where.theirs}",
            err=True,
        )


def date(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "?"
