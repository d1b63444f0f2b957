"""Commands that take conversations in and give them out: import, export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from hermes_builtin.sessions._model import Message, Scope, Session
from hermes_builtin.sessions.commands._shared import (
    archive_of,
    facts_of,
    json_option,
    progress_bar,
)
from hermes_builtin.sessions.importing import import_file
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_core import HermesError
from hermes_core.cli._output import print_json, say
from hermes_core.home import replace_file

_TOLD_APART: Final = ("id", "messages")


@click.command("import")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--user", default="", help="Whose they are, where FILE does not say.")
@click.option("--profile", default="", help="Of which profile, where FILE does not say.")
@json_option
@click.pass_context
def import_command(
    ctx: click.Context, file: Path | None, user: str, profile: str, json_wanted: bool
) -> None:
    """Take over the conversations of FILE. What is known already is not stored again.

    FILE is hermes-agent's state.db (by default that of this home), JSONL of messages, or the
    conversations.json of ChatGPT or Claude.
    """
    with archive_of(ctx) as (archive, where):
        source = file or where.theirs
        if source is None:
            raise click.UsageError("Name the file: hermes-agent has no conversations in this home.")
        if not source.exists():
            raise HermesError("there is no such file", where=str(source))
        if where.theirs is None and where.path.exists() and source.samefile(where.path):
            raise HermesError("this is the archive itself", where=str(source))
        with progress_bar("Importing", json_wanted) as progress:
            taken = import_file(archive, source, Scope(user, profile=profile), progress)
    if json_wanted:
        print_json(**taken._asdict())
        return
    say(
        f"{taken.sessions:,} conversations with {taken.messages:,} messages from {taken.origin}; "
        f"{taken.known:,} were there already."
    )


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--user", default="", help="Only this user's.")
@click.pass_context
def export(ctx: click.Context, file: Path | None, user: str) -> None:
    """Write all conversations as JSONL, one a line, to FILE or standard output."""
    with archive_of(ctx) as (archive, _):
        lines = (_line(archive, session) for session in archive.sessions(Scope(user_id=user)))
        if file is None:
            for line in lines:
                say(line)
            return
        written = list(lines)
        replace_file(file, "".join(f"{line}\n" for line in written).encode(), mode=0o600)
        say(f"{len(written):,} conversations are in {file}.")


def _line(archive: SqliteArchive, session: Session) -> str:
    return json.dumps(
        {
            "session_id": session.id,
            **{
                key: value
                for key, value in facts_of(session).items()
                if key not in ("id", "messages")
            },
            "messages": list(map(exported, archive.messages(session))),
        },
        ensure_ascii=False,
    )


def exported(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "content": message.content,
        "timestamp": message.at,
        **message.extra,
    }
