"""Commands that forget (delete, forget, prune) and those that mend (check, repair)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

from hermes_builtin.sessions._model import EVERYBODY, Scope, Session
from hermes_builtin.sessions._query import age
from hermes_builtin.sessions.commands._shared import (
    archive_of,
    as_text,
    damaged_archive_of,
    json_option,
    known,
    progress_bar,
    yes_option,
)
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_core import HermesError
from hermes_core.cli._output import plain, print_json, say


@click.command()
@click.argument("session_id", metavar="ID")
@yes_option
@json_option
@click.pass_context
def delete(ctx: click.Context, session_id: str, yes: bool, json_wanted: bool) -> None:
    """Forget one conversation."""
    _forget(ctx, lambda archive: [known(archive, session_id)], yes, json_wanted)


@click.command()
@click.option("--user", required=True, help="Whose conversations to forget.", callback=as_text)
@yes_option
@json_option
@click.pass_context
def forget(ctx: click.Context, user: str, yes: bool, json_wanted: bool) -> None:
    """Forget all conversations of a user. The notes are not touched."""
    if not user:
        raise click.UsageError("--user is empty.")
    _forget(ctx, lambda archive: list(archive.sessions(Scope(user_id=user))), yes, json_wanted)


@click.command()
@click.option("--older-than", "older", required=True, metavar="AGE", help="Such as 90d, 12w, 1y.")
@yes_option
@json_option
@click.pass_context
def prune(ctx: click.Context, older: str, yes: bool, json_wanted: bool) -> None:
    """Forget conversations without a message for some time."""
    seconds = age(older)
    if seconds is None:
        raise click.UsageError(f"{older!r} is no age: say 90d, 12w or 1y.")
    limit = time.time() - seconds
    _forget(
        ctx,
        lambda archive: [each for each in archive.sessions(EVERYBODY) if each.active < limit],
        yes,
        json_wanted,
    )


def _forget(
    ctx: click.Context,
    choose: Callable[[SqliteArchive], list[Session]],
    yes: bool,
    json_wanted: bool,
) -> None:
    with archive_of(ctx) as (archive, _):
        chosen = choose(archive)
        messages = sum(session.messages for session in chosen)
        question = f"Forget {len(chosen):,} conversations with {messages:,} messages for good?"
        if chosen and not yes and not (sys.stdin.isatty() and click.confirm(question, err=True)):
            raise HermesError("nothing was forgotten", hint="say --yes to go on without a question")
        with progress_bar("Forgetting", json_wanted) as progress:
            gone = archive.delete(chosen, progress)
    if json_wanted:
        print_json(sessions=len(chosen), messages=gone)
    else:
        say(f"{len(chosen):,} conversations with {gone:,} messages are forgotten.")


@click.command()
@json_option
@click.pass_context
def check(ctx: click.Context, json_wanted: bool) -> None:
    """Look for damage, also with the queries that the tool uses. Exit 1 if there is any."""
    with (
        damaged_archive_of(ctx) as (archive, where),
        progress_bar("Checking", json_wanted) as progress,
    ):
        problems = archive.check(progress)
    if json_wanted:
        print_json(path=str(where.path), problems=[problem._asdict() for problem in problems])
    elif not problems:
        say(f"{where.path} is whole.")
    for problem in () if json_wanted else problems:
        say(plain(problem.what))
    if problems:
        only = all(problem.index_only for problem in problems)
        click.echo(
            f"{'The conversations are whole, the index is not' if only else 'There is damage'}. "
            "Run: hermes-plugins sessions repair",
            err=True,
        )
        ctx.exit(1)


@click.command()
@json_option
@click.pass_context
def repair(ctx: click.Context, json_wanted: bool) -> None:
    """Make the archive whole again, after keeping a verified copy of it."""
    with (
        damaged_archive_of(ctx) as (archive, where),
        progress_bar("Indexing", json_wanted) as progress,
    ):
        done = archive.repair(progress)
    if json_wanted:
        print_json(path=str(where.path), **done)
    elif not done["problems"]:
        say(f"{where.path} is whole; nothing was done.")
    else:
        say(f"{where.path} is repaired; as it was, it is kept in {done['copy']}.")
        if done["lost"] is None:
            say("Nothing in it could be read: a new archive is begun.")
        elif done["lost"]:
            say(f"{done['lost']:,} messages could not be read any more.")
