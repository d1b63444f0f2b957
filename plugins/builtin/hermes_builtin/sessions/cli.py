"""`hermes-plugins sessions`: past conversations, for the person whose they are."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import click

from hermes_builtin.sessions import _show
from hermes_builtin.sessions._hermes_agent import not_imported
from hermes_builtin.sessions._model import EVERYBODY, HIDDEN_SOURCES, ROLES, Message, Scope, Session
from hermes_builtin.sessions._place import Place, place
from hermes_builtin.sessions._query import age, parse
from hermes_builtin.sessions.archive import Progress, SearchOptions
from hermes_builtin.sessions.importing import import_file
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_core import HermesError
from hermes_core.cli._output import bold, paint, plain, print_json, print_table, say
from hermes_core.home import resolve_home

_BROWSED: Final = 20
_WIDTH: Final = 60
_TOLD_APART: Final = ("id", "messages")

_json = click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
_yes = click.option("--yes", "-y", is_flag=True, help="Don't ask.")


@click.group("sessions")
def sessions() -> None:
    """Look at past conversations, search, import, export and forget them."""


@contextmanager
def _archive(ctx: click.Context) -> Iterator[tuple[SqliteArchive, Place]]:
    where = place(resolve_home(ctx.obj))
    with closing(SqliteArchive(where.path)) as archive:
        yield archive, where


@contextmanager
def _progress(label: str, json_wanted: bool) -> Iterator[Progress | None]:
    """A bar on standard error, where a person is looking."""
    if json_wanted or not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def update(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        yield update


def _known(archive: SqliteArchive, session_id: str) -> Session:
    session = archive.session(session_id, EVERYBODY)
    if session is None:
        raise HermesError(
            "there is no such conversation",
            where=session_id,
            hint="see: hermes-plugins sessions list",
        )
    return session


def _facts(session: Session) -> dict[str, Any]:
    return {key: value for key, value in session._asdict().items() if key != "number"}


# -- looking -------------------------------------------------------------------------------------


@sessions.command("list")
@click.option("--limit", default=_BROWSED, show_default=True, type=click.IntRange(1))
@click.option("--user", default="", help="Only this user's.")
@click.option("--all", "hidden", is_flag=True, help="Also those of subagents and tools.")
@_json
@click.pass_context
def list_command(
    ctx: click.Context, limit: int, user: str, hidden: bool, json_wanted: bool
) -> None:
    """Show the conversations with the newest messages."""
    with _archive(ctx) as (archive, where):
        found = archive.browse(Scope(user_id=user), limit, hidden=hidden)
        missing = not_imported(where.theirs, archive) if where.theirs else 0
        previews = [archive.first(each, 1, ("user",)) for each in found]
    if json_wanted:
        print_json(sessions=list(map(_facts, found)), not_imported=missing)
        return
    rows = [
        (each.id, _date(each.active), each.source, str(each.messages), _title(each, first))
        for each, first in zip(found, previews, strict=True)
    ]
    if rows:
        print_table(("ID", "LAST", "SOURCE", "MESSAGES", "ABOUT"), rows, [""] * len(rows))
    else:
        click.echo("There are no conversations yet.", err=True)
    _tell_of_theirs(missing, where)


def _tell_of_theirs(missing: int, where: Place) -> None:
    if missing:
        click.echo(
            f"{missing:,} conversations of hermes-agent are not imported. "
            f"Run: hermes-plugins sessions import {where.theirs}",
            err=True,
        )


def _date(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "?"


def _title(session: Session, first: list[Message]) -> str:
    text = session.title or (first[0].content[: 4 * _WIDTH] if first else "")
    text = plain(text)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"


@sessions.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", default=5, show_default=True, type=click.IntRange(1, 50))
@click.option("--user", default="", help="Only this user's.")
@click.option("--role", "roles", multiple=True, type=click.Choice(ROLES), help="Only these roles.")
@click.option("--sort", type=click.Choice(["newest", "oldest"]), help="By time.")
@_json
@click.pass_context
def search(ctx: click.Context, /, query: tuple[str, ...], json_wanted: bool, **given: Any) -> None:
    """Search conversations: words, "phrases", -without, prefix*, role:, after:, before:."""
    options = SearchOptions(
        Scope(user_id=given["user"]),
        frozenset(given["roles"] or (*ROLES, "")),
        given["limit"],
        None if given["sort"] is None else given["sort"] == "newest",
        hidden=True,
    )
    with _archive(ctx) as (archive, where):
        found = archive.search(parse(" ".join(query)), options)
        anchors = [
            archive.around(hit.session, hit.message_id, 0, ()).messages for hit in found.hits
        ]
        missing = not_imported(where.theirs, archive) if where.theirs else 0
    results = [
        (hit.session, anchor[0], _show.snippet(anchor[0].content, found.words))
        for hit, anchor in zip(found.hits, anchors, strict=True)
        if anchor
    ]
    if json_wanted:
        print_json(
            results=[
                {**_facts(session), "message_id": message.id, "role": message.role, "snippet": text}
                for session, message, text in results
            ],
            approximate=found.approximate,
            not_imported=missing,
        )
        return
    for session, message, text in results:
        say(f"{bold(plain(session.id))}  {_date(message.at)}  {session.source}  {message.role}")
        say(f"    {_marked(plain(text))}")
    if not results:
        click.echo("No conversation has these words.", err=True)
    elif found.approximate:
        click.echo("These words are very frequent: the newest were looked at.", err=True)
    if not results:
        _tell_of_theirs(missing, where)


def _marked(text: str) -> str:
    pieces = text.replace("<<<", ">>>").split(">>>")
    return "".join(paint(piece, "active") if at % 2 else piece for at, piece in enumerate(pieces))


@sessions.command()
@click.argument("session_id", metavar="ID")
@_json
@click.pass_context
def show(ctx: click.Context, session_id: str, json_wanted: bool) -> None:
    """Print a conversation."""
    with _archive(ctx) as (archive, _):
        session = _known(archive, session_id)
        if json_wanted:
            print_json(
                session=_facts(session), messages=list(map(_exported, archive.messages(session)))
            )
            return
        say(bold(f"{plain(session.id)}  {_show.when(session.started)}  {session.source}"))
        for message in archive.messages(session):
            name = message.extra.get("tool_name") or message.role
            say(f"\n{bold(plain(str(name)))}  {_date(message.at)}")
            for line in message.content.splitlines():
                say(f"  {plain(line)}")


# -- in and out --------------------------------------------------------------------------------


@sessions.command("import")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--user", default="", help="Whose conversations they are.")
@_json
@click.pass_context
def import_command(ctx: click.Context, file: Path | None, user: str, json_wanted: bool) -> None:
    """Take over the conversations of FILE. What is known already is not stored again.

    FILE is hermes-agent's state.db (by default that of this home), JSONL of messages, or the
    conversations.json of ChatGPT or Claude.
    """
    with _archive(ctx) as (archive, where):
        source = file or where.theirs
        if source is None:
            raise click.UsageError("Name the file: hermes-agent has no conversations in this home.")
        if not source.exists():
            raise HermesError("there is no such file", where=str(source))
        if where.theirs is None and where.path.exists() and source.samefile(where.path):
            raise HermesError("this is the archive itself", where=str(source))
        with _progress("Importing", json_wanted) as progress:
            taken = import_file(archive, source, user, progress)
    if json_wanted:
        print_json(**taken._asdict())
        return
    say(
        f"{taken.sessions:,} conversations with {taken.messages:,} messages from {taken.origin}; "
        f"{taken.known:,} were there already."
    )


@sessions.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--user", default="", help="Only this user's.")
@click.pass_context
def export(ctx: click.Context, file: Path | None, user: str) -> None:
    """Write all conversations as JSONL, one a line, to FILE or standard output."""
    with _archive(ctx) as (archive, _):
        lines = (_line(archive, session) for session in archive.sessions(Scope(user_id=user)))
        if file is None:
            for line in lines:
                say(line)
            return
        from hermes_core.home import replace_file  # noqa: PLC0415

        written = list(lines)
        replace_file(file, "".join(f"{line}\n" for line in written).encode(), mode=0o600)
        say(f"{len(written):,} conversations are in {file}.")


def _line(archive: SqliteArchive, session: Session) -> str:
    return json.dumps(
        {
            "session_id": session.id,
            **{
                key: value
                for key, value in _facts(session).items()
                if key not in ("id", "messages")
            },
            "messages": list(map(_exported, archive.messages(session))),
        },
        ensure_ascii=False,
    )


def _exported(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "content": message.content,
        "timestamp": message.at,
        **message.extra,
    }


# -- forgetting --------------------------------------------------------------------------------


@sessions.command()
@click.argument("session_id", metavar="ID")
@_yes
@_json
@click.pass_context
def delete(ctx: click.Context, session_id: str, yes: bool, json_wanted: bool) -> None:
    """Forget one conversation."""
    _forget(ctx, lambda archive: [_known(archive, session_id)], yes, json_wanted)


@sessions.command()
@click.option("--user", required=True, help="Whose conversations to forget.")
@_yes
@_json
@click.pass_context
def forget(ctx: click.Context, user: str, yes: bool, json_wanted: bool) -> None:
    """Forget all conversations of a user. The notes are not touched."""
    if not user:
        raise click.UsageError("--user is empty.")
    _forget(ctx, lambda archive: list(archive.sessions(Scope(user_id=user))), yes, json_wanted)


@sessions.command()
@click.option("--older-than", "older", required=True, metavar="AGE", help="Such as 90d, 12w, 1y.")
@_yes
@_json
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
    with _archive(ctx) as (archive, _):
        chosen = choose(archive)
        messages = sum(session.messages for session in chosen)
        question = f"Forget {len(chosen):,} conversations with {messages:,} messages for good?"
        if chosen and not yes and not (sys.stdin.isatty() and click.confirm(question, err=True)):
            raise HermesError("nothing was forgotten", hint="say --yes to go on without a question")
        with _progress("Forgetting", json_wanted) as progress:
            gone = archive.delete(chosen, progress)
    if json_wanted:
        print_json(sessions=len(chosen), messages=gone)
    else:
        say(f"{len(chosen):,} conversations with {gone:,} messages are forgotten.")


# -- care --------------------------------------------------------------------------------------


@sessions.command()
@_json
@click.pass_context
def stats(ctx: click.Context, json_wanted: bool) -> None:
    """Say how much the archive holds."""
    with _archive(ctx) as (archive, where):
        found = archive.stats()
        missing = not_imported(where.theirs, archive) if where.theirs else 0
    if json_wanted:
        print_json(path=str(where.path), **found._asdict(), not_imported=missing)
        return
    say(f"{where.path}: {found.bytes / 1e6:,.1f} MB")
    say(f"{found.sessions:,} conversations, {found.messages:,} messages")
    if found.oldest is not None and found.newest is not None:
        say(f"from {_date(found.oldest)} to {_date(found.newest)}")
    for source, count in found.by_source.items():
        hidden = " (not searched by the tool)" if source in HIDDEN_SOURCES else ""
        say(f"  {plain(source) or '?'}: {count:,}{hidden}")
    _tell_of_theirs(missing, where)


@sessions.command()
@_json
@click.pass_context
def check(ctx: click.Context, json_wanted: bool) -> None:
    """Look for damage, also with the queries that the tool uses. Exit 1 if there is any."""
    with _archive(ctx) as (archive, where), _progress("Checking", json_wanted) as progress:
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


@sessions.command()
@_json
@click.pass_context
def repair(ctx: click.Context, json_wanted: bool) -> None:
    """Make the archive whole again, after keeping a verified copy of it."""
    with _archive(ctx) as (archive, where), _progress("Indexing", json_wanted) as progress:
        done = archive.repair(progress)
    if json_wanted:
        print_json(path=str(where.path), **done)
    elif not done["problems"]:
        say(f"{where.path} is whole; nothing was done.")
    else:
        say(f"{where.path} is repaired; as it was, it is kept in {done['copy']}.")
        if done["lost"]:
            say(f"{done['lost']:,} messages could not be read any more.")
