"""Commands that look: list, search, show, stats."""

from __future__ import annotations

from typing import Any, Final

import click

from hermes_builtin.sessions import _show
from hermes_builtin.sessions._hermes_agent import not_imported
from hermes_builtin.sessions._model import EVERYBODY, HIDDEN_SOURCES, ROLES, Message, Scope, Session
from hermes_builtin.sessions._query import Query, parse
from hermes_builtin.sessions._words import storable
from hermes_builtin.sessions.archive import Archive, SearchOptions
from hermes_builtin.sessions.commands._exchange import exported
from hermes_builtin.sessions.commands._shared import (
    archive_of,
    as_text,
    date,
    facts_of,
    json_option,
    known,
    tell_of_theirs,
)
from hermes_core.cli._output import bold, paint, plain, print_json, print_table, say

_BROWSED: Final = 20
_WIDTH: Final = 60


@click.command("list")
@click.option("--limit", default=_BROWSED, show_default=True, type=click.IntRange(1))
@click.option("--user", default="", help="Only this user's.", callback=as_text)
@click.option("--all", "hidden", is_flag=True, help="Also those of subagents and tools.")
@json_option
@click.pass_context
def list_command(
    ctx: click.Context, limit: int, user: str, hidden: bool, json_wanted: bool
) -> None:
    """Show the conversations with the newest messages."""
    with archive_of(ctx) as (archive, where):
        found = archive.browse(Scope(user_id=user), limit, hidden=hidden)
        missing = not_imported(where.theirs, archive) if where.theirs else 0
        previews = [archive.first(each, 1, ("user",)) for each in found]
    if json_wanted:
        print_json(sessions=list(map(facts_of, found)), not_imported=missing)
        return
    rows = [
        (each.id, date(each.active), each.source, str(each.messages), _title(each, first))
        for each, first in zip(found, previews, strict=True)
    ]
    if rows:
        print_table(("ID", "LAST", "SOURCE", "MESSAGES", "ABOUT"), rows, [""] * len(rows))
    else:
        click.echo("There are no conversations yet.", err=True)
    tell_of_theirs(missing, where)


def _title(session: Session, first: list[Message]) -> str:
    text = session.title or (first[0].content[: 4 * _WIDTH] if first else "")
    text = plain(text)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"


@click.command(context_settings={"ignore_unknown_options": True})  # -word is no option
@click.argument("query", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--limit", default=5, show_default=True, type=click.IntRange(1, 50))
@click.option("--user", default="", help="Only this user's.")
@click.option("--role", "roles", multiple=True, type=click.Choice(ROLES), help="Only these roles.")
@click.option("--sort", type=click.Choice(["newest", "oldest"]), help="By time.")
@json_option
@click.pass_context
def search(ctx: click.Context, /, query: tuple[str, ...], json_wanted: bool, **given: Any) -> None:
    """Search conversations: words, "phrases", -without, prefix*, role:, after:, before:."""
    options = SearchOptions(
        Scope(user_id=storable(given["user"])),
        frozenset(given["roles"] or (*ROLES, "")),
        given["limit"],
        None if given["sort"] is None else given["sort"] == "newest",
        hidden=True,
    )
    asked = parse(storable(" ".join(query)))
    with archive_of(ctx) as (archive, where):
        found = archive.search(asked, options)
        reason = "" if found.hits else _why_nothing(archive, asked, options)
        anchors = [
            archive.around(hit.session, hit.message_id, 0, ()).messages for hit in found.hits
        ]
        missing = not_imported(where.theirs, archive) if where.theirs else 0
    results = [
        (hit.session, anchor[0], _show.snippet(anchor[0], found.words))
        for hit, anchor in zip(found.hits, anchors, strict=True)
        if anchor
    ]
    if json_wanted:
        print_json(
            results=[
                {
                    **facts_of(session),
                    "message_id": message.id,
                    "role": message.role,
                    "snippet": text,
                }
                for session, message, text in results
            ],
            approximate=found.approximate,
            behind=found.behind,
            reason=reason,
            not_imported=missing,
        )
        return
    for session, message, text in results:
        source = plain(session.source)
        say(f"{bold(plain(session.id))}  {date(message.at)}  {source}  {message.role}")
        say(f"    {_marked(plain(text))}")
    if not results:
        click.echo(reason, err=True)
    elif found.approximate:
        click.echo("These words are very frequent: the newest were looked at.", err=True)
    if found.behind:
        click.echo(f"The newest messages were not looked at: {found.behind}", err=True)
    if not results:
        tell_of_theirs(missing, where)


def _why_nothing(archive: Archive, query: Query, options: SearchOptions) -> str:
    """What kept a search from finding anything, or that there is nothing."""
    every_role = options._replace(roles=frozenset((*ROLES, "")))
    for other, where, reason in (
        (query._replace(roles=frozenset()), every_role, "other roles have said it"),
        (query, options._replace(scope=EVERYBODY), "it was said in conversations of others"),
        (query._replace(after=None, before=None), options, "it was said at another time"),
        (query.with_nothing_excluded(), options, "all that match have what is excluded"),
        (query.with_nothing_required(), options, "its words are there, but not in a row"),
    ):
        if archive.search(other, where).hits:
            return f"Nothing is found like this; {reason}."
    return "No conversation has these words."


def _marked(text: str) -> str:
    pieces = text.replace("<<<", ">>>").split(">>>")
    return "".join(paint(piece, "active") if at % 2 else piece for at, piece in enumerate(pieces))


@click.command()
@click.argument("session_id", metavar="ID")
@json_option
@click.pass_context
def show(ctx: click.Context, session_id: str, json_wanted: bool) -> None:
    """Print a conversation."""
    with archive_of(ctx) as (archive, _):
        session = known(archive, session_id)
        if json_wanted:
            print_json(
                session=facts_of(session), messages=list(map(exported, archive.messages(session)))
            )
            return
        say(bold(f"{plain(session.id)}  {_show.when(session.started)}  {plain(session.source)}"))
        for message in archive.messages(session):
            name = message.extra.get("tool_name") or message.role
            say(f"\n{bold(plain(str(name)))}  {date(message.at)}")
            for line in message.content.splitlines():
                say(f"  {plain(line)}")


@click.command()
@json_option
@click.pass_context
def stats(ctx: click.Context, json_wanted: bool) -> None:
    """Say how much the archive holds."""
    with archive_of(ctx) as (archive, where):
        found = archive.stats()
        missing = not_imported(where.theirs, archive) if where.theirs else 0
    if json_wanted:
        print_json(path=str(where.path), **found._asdict(), not_imported=missing)
        return
    say(f"{where.path}: {found.bytes / 1e6:,.1f} MB")
    say(f"{found.sessions:,} conversations, {found.messages:,} messages")
    if found.oldest is not None and found.newest is not None:
        say(f"from {date(found.oldest)} to {date(found.newest)}")
    for source, count in found.by_source.items():
        hidden = " (not searched by the tool)" if source in HIDDEN_SOURCES else ""
        say(f"  {plain(source) or '?'}: {count:,}{hidden}")
    tell_of_theirs(missing, where)
