"""`hermes-plugins sessions`: list, search, show, import, export, delete, check and repair."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from hermes_builtin.sessions import display
from hermes_builtin.sessions.archive import (
    EVERYBODY,
    HIDDEN_SOURCES,
    ROLES,
    Archive,
    Message,
    Scope,
    SearchOptions,
    Session,
    message_origin,
)
from hermes_builtin.sessions.conversations import open_archive
from hermes_builtin.sessions.display import link
from hermes_builtin.sessions.hermes_agent import not_imported
from hermes_builtin.sessions.importers import import_file, import_folder
from hermes_builtin.sessions.location import Location, locate
from hermes_builtin.sessions.query import age, parse
from hermes_builtin.sessions.request import linked
from hermes_builtin.sessions.results import (
    exported,
    message_facts,
    search_conversations,
    session_facts,
)
from hermes_builtin.sessions.spool import Spool
from hermes_builtin.sessions.words import storable
from hermes_core import DatabaseError, HermesError
from hermes_core.cli.output import (
    amount,
    bold,
    json_escaped,
    note,
    paint,
    plain,
    print_json,
    print_table,
    progress,
    progress_if_slow,
    say,
    say_text,
)
from hermes_core.cli.usage import HintedUsageError
from hermes_core.errors import CHECK_FOLDER
from hermes_core.privacy.origin import is_external
from hermes_core.session import TERMINAL, identity_text
from hermes_core.storage.files import replace_file
from hermes_core.storage.home import resolve_home

# -- helpers of all commands --------------------------------------------------------------------

_json_option = click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
_yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


def _as_id(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str | None:
    """An id that was typed, as the archive has it; None for any."""
    return identity_text(value) if value else None


_user_option = click.option(
    "--user", default="", help="Show only conversations of this user.", callback=_as_id
)
_platform_option = click.option(
    "--platform", default="", help="The platform of that user.", callback=_as_id
)


def _platform_of(archive: Archive, user: str | None, platform: str | None) -> str | None:
    """The platform of a user; None if they are not known.

    Raises:
        HermesError: Several platforms have users of this id, who are different people.
    """
    known = sorted({place for place, _ in archive.people(user)}) if user else []
    if platform is not None or len(known) < 2:  # noqa: PLR2004 - there is nothing to choose
        return platform if platform is not None else next(iter(known), None)
    raise HermesError(
        f"user id {user} exists on several platforms: {', '.join(map(plain, known))}",
        hint="add --platform",
    )


@contextmanager
def _open_archive(ctx: click.Context) -> Iterator[tuple[Archive, Location]]:
    home = resolve_home(ctx.obj)
    where = locate(home)
    with closing(where.open()) as archive:
        _hand_over(home, archive)
        yield archive, where


def _hand_over(home: Path, archive: Archive) -> None:
    """Store the turns that wait in the spool; say how many could not be."""
    spool = Spool(home, partial(open_archive, home))
    error = spool.hand_over(archive)
    waiting = spool.waiting()
    if error is not None:  # newer than the reason in the spool
        note(waiting._replace(why=str(error)).text)
    elif waiting.text:
        note(f"{waiting.text}. They are not included.")


@contextmanager
def _open_damaged_archive(ctx: click.Context) -> Iterator[tuple[Archive, Location]]:
    """The archive to be checked or repaired, which may be too damaged to be recognised."""
    home = resolve_home(ctx.obj)
    try:
        where = locate(home)
    except DatabaseError:
        # `locate` could not read the file. If it were hermes-agent's, `repair` refuses it by its
        # application id.
        path = home / "state.db"
        if not path.is_file():
            raise
        where = Location(str(path), path=path)
    with closing(where.open()) as archive:
        yield archive, where


def _find_session(archive: Archive, session_id: str) -> Session:
    """The conversation that a person names by its id, or by the link that an agent showed them."""
    session = archive.session(session_id, EVERYBODY)
    if session is None:
        found = archive.session(linked(session_id)[1], EVERYBODY)
        # The link must be the session's own: its profile is part of it, and ids may repeat between
        # profiles.
        session = found if found is not None and link(found) == session_id.strip() else None
    if session is None:
        raise HermesError(
            "no such conversation",
            where=session_id,
            hint="see: hermes-plugins sessions list",
        )
    return session


def _mention_not_imported(missing: int, where: Location) -> None:
    if missing:
        note(f"Not imported from hermes-agent: {amount(missing, 'conversation')}.")
        note(f"hint: run: hermes-plugins sessions import {where.theirs}")


def _contents(sessions: int, messages: int) -> str:
    return f"{amount(sessions, 'conversation')} with {amount(messages, 'message')}"


def _date(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "?"


# -- import, export -----------------------------------------------------------------------------


@click.command("import")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--user", default="", help="User to import for, if FILE names none.", callback=_as_id)
@_platform_option
@click.option("--profile", default="", help="Profile to import for, if FILE names none.")
@click.option("--hidden", is_flag=True, help="Include conversations hidden in hermes-agent.")
@_json_option
@click.pass_context
def import_command(
    ctx: click.Context, /, file: Path | None, json_wanted: bool, **given: Any
) -> None:
    """Import the conversations of FILE.

    Skips messages that are already stored.
    FILE is hermes-agent's state.db (by default that of this home), JSONL of messages, the
    conversations.json of ChatGPT or Claude, or a session of Claude Code or Codex. It may also be a
    folder with such sessions: ~/.claude/projects or ~/.codex/sessions.
    """
    with _open_archive(ctx) as (archive, where):
        source = file or where.theirs
        if source is None:
            raise HintedUsageError(
                "FILE is missing: hermes-agent has no conversations in this home",
                hint="run: hermes-plugins sessions import FILE",
            )
        if not source.exists():
            raise HermesError("no such file", where=str(source), hint="check the path")
        # Importing the archive into itself would read and write the same rows.
        if (
            where.theirs is None
            and where.path
            and where.path.exists()
            and source.samefile(where.path)
        ):
            todo = "its conversations are in this home already: hermes-plugins sessions list"
            raise HermesError("this is the archive itself", where=str(source), hint=todo)
        with progress("Importing conversations", 1) as step:
            platform = _platform_of(archive, given["user"], given["platform"]) or TERMINAL
            owner = Scope(given["user"], profile=given["profile"], platform=platform)
            if source.is_dir():
                taken = import_folder(archive, source, owner, step.update)
            else:
                taken = import_file(archive, source, owner, step.update, hidden=given["hidden"])
    if json_wanted:
        print_json(**taken._asdict())
        ctx.exit(1 if taken.problem else 0)
    say(
        f"Imported {_contents(taken.sessions, taken.messages)} from {taken.origin}; "
        f"already stored: {taken.known:,}."
    )
    if taken.problem:
        raise HermesError(
            taken.problem,
            where=str(source),
            hint=f"{amount(taken.skipped, 'entry')} skipped; everything else was imported",
        )
    if taken.skipped:
        note(f"Skipped {amount(taken.skipped, 'line')} that can't be read.")


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--user", default="", help="Export only conversations of this user.", callback=_as_id)
@_platform_option
@click.pass_context
def export(ctx: click.Context, file: Path | None, user: str | None, platform: str | None) -> None:
    """Write all conversations as JSONL.

    Writes one conversation per line, to FILE or standard output ("-").
    """
    with _open_archive(ctx) as (archive, _):
        wanted = archive.sessions(Scope(user_id=user, platform=platform))
        lines = (exported(archive, session) for session in wanted)
        if file is None or str(file) == "-":
            for line in lines:
                click.echo(json_escaped(line))  # data: not wrapped on a terminal
            return
        written = []
        with progress("Reading conversations", archive.stats().sessions) as step:
            for line in lines:
                written.append(line)
                step.advance()
        # Atomically, and private: an export that fails half way must not replace an older one.
        try:
            replace_file(file, "".join(f"{line}\n" for line in written).encode(), mode=0o600)
        except OSError as error:
            what = f"can't be written: {error.strerror or error}"
            raise HermesError(what, where=str(file), hint=CHECK_FOLDER) from error
        say(f"Wrote {amount(len(written), 'conversation')} to {file}.")


# -- list, search, show, stats ------------------------------------------------------------------

_BROWSED: Final = 20
_WIDTH: Final = 60


@click.command("list")
@click.option(
    "--limit",
    default=_BROWSED,
    show_default=True,
    type=click.IntRange(1),
    help="Show at most this many.",
)
@_user_option
@_platform_option
@click.option("--all", "hidden", is_flag=True, help="Include conversations of subagents and tools.")
@_json_option
@click.pass_context
def list_command(ctx: click.Context, /, limit: int, json_wanted: bool, **given: Any) -> None:
    """Show the conversations with the newest messages."""
    scope = Scope(user_id=given["user"], platform=given["platform"])
    with _open_archive(ctx) as (archive, where):
        found = archive.browse(scope, limit, hidden=given["hidden"])
        missing = not_imported(where.theirs, archive) if where.theirs else 0
        previews = [archive.first(each, 1, ("user",)) for each in found]
    if json_wanted:
        print_json(sessions=list(map(session_facts, found)), not_imported=missing)
        return
    rows = [
        (each.id, _date(each.active), each.source, str(each.messages), _title(each, first))
        for each, first in zip(found, previews, strict=True)
    ]
    if rows:
        print_table(("ID", "LAST", "SOURCE", "MESSAGES", "ABOUT"), rows, [""] * len(rows))
    else:
        note("There are no conversations yet.")
    _mention_not_imported(missing, where)


def _title(session: Session, first: list[Message]) -> str:
    text = session.title or (first[0].content[: 4 * _WIDTH] if first else "")
    text = plain(text)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"


@click.command(context_settings={"ignore_unknown_options": True})  # -word is not an option
@click.argument("query", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--limit",
    default=5,
    show_default=True,
    type=click.IntRange(1, 50),
    help="Show at most this many.",
)
@_user_option
@_platform_option
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(ROLES),
    help="Search only messages of these roles.",
)
@click.option("--sort", type=click.Choice(["newest", "oldest"]), help="Sort by time.")
@_json_option
@click.pass_context
def search(ctx: click.Context, /, query: tuple[str, ...], json_wanted: bool, **given: Any) -> None:
    """Search past conversations.

    QUERY has words, "phrases", -without, prefix*, role:, after: and before:.
    """
    options = SearchOptions(
        Scope(user_id=given["user"], platform=given["platform"]),
        frozenset(given["roles"] or (*ROLES, "")),
        given["limit"],
        None if given["sort"] is None else given["sort"] == "newest",
        # A person sees everything in their archive; only the model's tool hides subagents.
        hidden=True,
    )
    # The shell has removed quotes; a phrase needs them escaped or in single quotes.
    asked = parse(storable(" ".join(query)))
    with _open_archive(ctx) as (archive, where):
        with progress_if_slow("Indexing conversations") as step:
            archive.index_pending(step)  # the search reports it if that is not possible
        found = search_conversations(archive, asked, options)
        missing = not_imported(where.theirs, archive) if where.theirs else 0
    results = found.results
    if json_wanted:
        print_json(
            results=[
                {
                    **session_facts(session),
                    "message_id": message.id,
                    "role": message.role,
                    "snippet": text,
                }
                for session, message, text in results
            ],
            approximate=found.approximate,
            behind=found.behind,
            reason=found.reason,
            not_imported=missing,
        )
        return
    for session, message, text in results:
        source = plain(session.source)
        say(f"{bold(plain(session.id))}  {_date(message.at)}  {source}  {message.role}")
        say(f"    {_marked(plain(text))}", indent=4)
    if not results:
        note(found.reason)
    elif found.approximate:
        note("These words are very frequent; only the newest matches are ranked.")
    if found.behind:
        note(f"The newest messages were not searched: {found.behind}")
    if not results:
        _mention_not_imported(missing, where)


def _marked(text: str) -> str:
    # Every second piece is a hit.
    pieces = text.replace("<<<", ">>>").split(">>>")
    return "".join(paint(piece, "active") if at % 2 else piece for at, piece in enumerate(pieces))


@click.command()
@click.argument("session_id", metavar="ID")
@_json_option
@click.pass_context
def show(ctx: click.Context, session_id: str, json_wanted: bool) -> None:
    """Print a conversation."""
    with _open_archive(ctx) as (archive, _):
        session = _find_session(archive, session_id)
        if json_wanted:
            print_json(
                session=session_facts(session),
                messages=[message_facts(session, each) for each in archive.messages(session)],
            )
            return
        say(bold(f"{plain(session.id)}  {display.when(session.started)}  {plain(session.source)}"))
        for message in archive.messages(session):
            name = message.extra.get("tool_name") or message.role
            say()
            origin = message_origin(session.source, message)
            label = f"  [{plain(origin)}]" if is_external(origin) else ""
            # Set by `hermes-plugins sync`.
            if machine := message.extra.get("machine"):
                label += f"  (from {plain(str(machine))})"
            say(f"{bold(plain(str(name)))}  {_date(message.at)}{label}")
            say_text(message.content, "  ", 2)


@click.command()
@_json_option
@click.pass_context
def stats(ctx: click.Context, json_wanted: bool) -> None:
    """Show how much the archive holds."""
    with _open_archive(ctx) as (archive, where):
        found = archive.stats()
        missing = not_imported(where.theirs, archive) if where.theirs else 0
    if json_wanted:
        print_json(path=where.shown, **found._asdict(), not_imported=missing)
        return
    say(f"{where.shown}: {found.bytes / 1e6:,.1f} MB")
    say(f"{amount(found.sessions, 'conversation')}, {amount(found.messages, 'message')}")
    if found.oldest is not None and found.newest is not None:
        say(f"from {_date(found.oldest)} to {_date(found.newest)}")
    for source, count in found.by_source.items():
        hidden = " (not searched by the tool)" if source in HIDDEN_SOURCES else ""
        say(f"  {plain(source) or '?'}: {amount(count, 'conversation')}{hidden}")
    _mention_not_imported(missing, where)


# -- delete, forget, prune; check, repair -------------------------------------------------------


@click.command()
@click.argument("session_id", metavar="ID")
@_yes_option
@_json_option
@click.pass_context
def delete(ctx: click.Context, session_id: str, yes: bool, json_wanted: bool) -> None:
    """Delete one conversation.

    Only from the archive: `hermes-plugins forget --session` also covers outbox, log and provider.
    """
    _forget(ctx, lambda archive: [_find_session(archive, session_id)], yes, json_wanted)


@click.command()
@click.option(
    "--user", required=True, help="Delete the conversations of this user.", callback=_as_id
)
@_platform_option
@_yes_option
@_json_option
@click.pass_context
def forget(
    ctx: click.Context, user: str | None, platform: str | None, yes: bool, json_wanted: bool
) -> None:
    """Delete all conversations of a user.

    Only from the archive: `hermes-plugins forget --user` also covers notes, outbox and provider.
    """
    if not user:
        raise click.UsageError("--user is empty.")

    def theirs(archive: Archive) -> list[Session]:
        _platform_of(archive, user, platform)  # one person, not two who have the same id
        return list(archive.sessions(Scope(user_id=user, platform=platform)))

    _forget(ctx, theirs, yes, json_wanted)


@click.command()
@click.option(
    "--older-than",
    "older",
    required=True,
    metavar="AGE",
    help="Delete those without a message for, say, 90d or 12w.",
)
@_yes_option
@_json_option
@click.pass_context
def prune(ctx: click.Context, older: str, yes: bool, json_wanted: bool) -> None:
    """Delete old conversations."""
    seconds = age(older)
    if seconds is None:
        raise click.UsageError(f"{older!r} is not an age such as 90d, 12w or 1y.")
    limit = time.time() - seconds
    _forget(
        ctx,
        lambda archive: [each for each in archive.sessions(EVERYBODY) if each.active < limit],
        yes,
        json_wanted,
    )


def _forget(
    ctx: click.Context,
    choose: Callable[[Archive], list[Session]],
    yes: bool,
    json_wanted: bool,
) -> None:
    with _open_archive(ctx) as (archive, _):
        chosen = choose(archive)
        messages = sum(session.messages for session in chosen)
        question = f"Delete {_contents(len(chosen), messages)}?"
        # Without a terminal nobody can answer: then nothing is deleted, rather than waiting for
        # input.
        if chosen and not yes and not (sys.stdin.isatty() and click.confirm(question, err=True)):
            raise HermesError("nothing was deleted", hint="use --yes to delete them")
        with progress("Deleting conversations", 1) as step:
            gone = archive.delete(chosen, step.update)
    if json_wanted:
        print_json(sessions=len(chosen), messages=gone)
    else:
        say(f"Deleted {_contents(len(chosen), gone)}.")


@click.command()
@_json_option
@click.pass_context
def check(ctx: click.Context, json_wanted: bool) -> None:
    """Check the archive for damage.

    Also runs the queries of the search tool. Exit code 1 if there is damage.
    """
    with (
        _open_damaged_archive(ctx) as (archive, where),
        progress("Checking the archive", 1) as step,
    ):
        problems = archive.check(step.update)
    if json_wanted:
        print_json(path=where.shown, problems=[problem._asdict() for problem in problems])
    elif not problems:
        say(f"{where.shown} has no damage.")
    for problem in () if json_wanted else problems:
        say(plain(problem.what))
    if problems:
        only = all(problem.index_only for problem in problems)
        note(f"{'The conversations are intact; only the index is damaged' if only else 'Damaged'}.")
        note("hint: run: hermes-plugins sessions repair")
        ctx.exit(1)


@click.command()
@_json_option
@click.pass_context
def repair(ctx: click.Context, json_wanted: bool) -> None:
    """Repair the archive, after making a verified copy."""
    with (
        _open_damaged_archive(ctx) as (archive, where),
        progress("Indexing conversations", 1) as step,
    ):
        done = archive.repair(step.update)
        _hand_over(resolve_home(ctx.obj), archive)
    if json_wanted:
        print_json(path=where.shown, **done)
    elif not done["problems"]:
        say(f"{where.shown} has no damage; nothing was changed.")
    else:
        copy = f"; a copy of the damaged file is {done['copy']}" if done["copy"] else ""
        say(f"Repaired {where.shown}{copy}.")
        if done["lost"] is None:
            say("Nothing in it could be read; the archive is new and empty.")
        elif done["lost"]:
            say(f"Not recovered: {amount(done['lost'], 'message')}.")
        if done["recover"]:
            say(f"hint: SQLite's shell may recover more: {done['recover']}")


# -- `hermes-plugins sessions`: past conversations, for the person whose they are ---------------

_COMMANDS: Final = (
    list_command,
    search,
    show,
    stats,
    import_command,
    export,
    delete,
    forget,
    prune,
    check,
    repair,
)


@click.group("sessions")
def sessions() -> None:
    """Search and manage past conversations."""


for _command in _COMMANDS:
    sessions.add_command(_command)
