"""`hermes-plugins memory`: the notes, for the person whose they are."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any

import click

from hermes_builtin.notes import (
    TARGETS,
    Change,
    History,
    Notebook,
    NotesError,
    Operation,
    Origin,
    Page,
    Written,
    entry_id,
    operation,
    render,
)
from hermes_builtin.notes._commands import indented, json_option, notes_of, writable
from hermes_builtin.notes._deciding import allow, approve, pending, reject
from hermes_builtin.notes._editor import Draft
from hermes_builtin.provider import BuiltinProvider
from hermes_core import HermesError
from hermes_core.cli._output import bold, paint, plain, print_json, say

_COMMAND = Origin("command")

_target = click.option(
    "--target",
    type=click.Choice(TARGETS),
    default="memory",
    show_default=True,
    help="memory: the agent's notebook; user: what it knows about you.",
)


@click.group("memory")
def memory() -> None:
    """Look at the notes (MEMORY.md and USER.md), change them, take changes back."""


def _tell(
    builtin: BuiltinProvider, target: str, written: Written, text: str, json_wanted: bool
) -> None:
    builtin.mirror(target, written.steps, "command")
    page = written.page
    if json_wanted:
        _print_state(target, page, changed=written.changed, durable=written.durable)
        return
    say(text if written.changed else "It is so already; nothing was changed.")
    say(f"{target}: {_count(len(page.entries), 'entry')}, {page.usage}")
    if not written.durable:
        click.echo("The disk did not confirm it: a power cut could undo it.", err=True)


def _print_state(target: str, page: Page, *, changed: bool, durable: bool = True) -> None:
    print_json(
        changed=changed,
        target=target,
        usage=page.usage,
        entry_count=len(page.entries),
        durable=durable,
    )


@memory.command()
@click.option("--target", type=click.Choice(TARGETS), help="Only this notebook.")
@json_option
@click.pass_context
def show(ctx: click.Context, target: str | None, json_wanted: bool) -> None:
    """Show the notes as they are now."""
    notes = notes_of(ctx)
    books = {name: _book(notes.notebooks[name]) for name in ([target] if target else TARGETS)}
    waiting = len(notes.pending.all())
    if json_wanted:
        print_json(notebooks=books, pending=waiting)
    else:
        for name, book in books.items():
            _print_book(name, book)
        if waiting:
            say(f"{_count(waiting, 'write')} waiting for approval: hermes-plugins memory pending")
    if any(book["error"] for book in books.values()):
        ctx.exit(1)


def _book(notebook: Notebook) -> dict[str, Any]:
    book: dict[str, Any] = {"path": str(notebook.file.path), "usage": "", "entries": []}
    try:
        page = notebook.read()
        findings = notebook.findings(page.entries)
    except NotesError as error:
        return {**book, "error": str(error)}
    book |= {"usage": page.usage, "error": ""}
    book["entries"] = [
        {"id": entry_id(each), "text": each, "objection": str(findings.get(each, ""))}
        for each in page.entries
    ]
    return book


def _print_book(name: str, book: dict[str, Any]) -> None:
    say(bold(f"{name}  {book['usage'] or 'unreadable'}") + f"  {book['path']}")
    if book["error"]:
        click.echo(f"  {book['error']}", err=True)
    for entry in book["entries"]:
        say(indented(entry["text"], f"  {entry['id']}  ", 12))
        if entry["objection"]:
            text = f"kept out of the prompt ({entry['objection']})"
            say(paint(f"            {text}; memory allow {entry['id']}", "broken"))


def _count(number: int, what: str) -> str:
    plural = {"entry": "entries"}.get(what, f"{what}s")
    return f"{number} {what if number == 1 else plural}"


@memory.command()
@click.argument("text")
@_target
@json_option
@click.pass_context
def add(ctx: click.Context, text: str, target: str, json_wanted: bool) -> None:
    """Add an entry; TEXT may be - for standard input."""
    _change(ctx, target, "add", content=_given(text), json_wanted=json_wanted)


@memory.command()
@click.argument("old")
@click.argument("new")
@_target
@json_option
@click.pass_context
def replace(ctx: click.Context, old: str, new: str, target: str, json_wanted: bool) -> None:
    """Replace the entry that has OLD in it by NEW (- for standard input)."""
    _change(ctx, target, "replace", content=_given(new), old_text=old, json_wanted=json_wanted)


@memory.command()
@click.argument("old")
@_target
@json_option
@click.pass_context
def remove(ctx: click.Context, old: str, target: str, json_wanted: bool) -> None:
    """Remove the entry that has OLD in it."""
    _change(ctx, target, "remove", old_text=old, json_wanted=json_wanted)


def _given(text: str) -> str:
    if text != "-":
        return text
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise HermesError("standard input is not UTF-8 text") from error


def _change(
    ctx: click.Context,
    target: str,
    action: str,
    *,
    content: str | None = None,
    old_text: str | None = None,
    json_wanted: bool,
) -> None:
    with writable(ctx) as builtin:
        wanted: Operation = operation(action, content, old_text)
        written = builtin.notes.change(target, [wanted], _COMMAND)
        _tell(builtin, target, written, "Saved.", json_wanted)


@memory.command()
@_target
@json_option
@click.pass_context
def edit(ctx: click.Context, target: str, json_wanted: bool) -> None:
    """Open a notebook in your editor ($VISUAL or $EDITOR)."""
    page = notes_of(ctx).notebooks[target].read()
    draft = Draft(render(page.entries), target)
    text = draft.edit()
    if text is None:
        if json_wanted:
            _print_state(target, page, changed=False)
        else:
            say("Nothing was changed.")
        return
    try:
        with writable(ctx) as builtin:
            written = builtin.notes.notebooks[target].edited(page.entries, text, _COMMAND)
            _tell(builtin, target, written, "Saved.", json_wanted)
    except HermesError as error:
        if not json_wanted:
            say("Your text, so that it is not lost:\n" + text)
        raise HermesError(str(error), hint=draft.kept) from error
    draft.discard()


@memory.command()
@click.option("--target", type=click.Choice(TARGETS), help="Only this notebook.")
@click.option("--limit", default=20, show_default=True, help="How many changes.")
@json_option
@click.pass_context
def history(ctx: click.Context, target: str | None, limit: int, json_wanted: bool) -> None:
    """Show what was changed, when and by whom, newest first."""
    notes = notes_of(ctx)
    with suppress(HermesError):  # what can't be read now is told by show
        if notes.history.exists:
            notes.catch_up()
    log = notes.history
    changes = log.changes(target, limit) if log.exists else []
    rows = [_row(log, each) for each in changes]
    if json_wanted:
        print_json(changes=rows)
        return
    for row in rows:
        session = f", session {row['session']}" if row["session"] else ""
        what = f"{row['target']}  {row['action']} by {row['who']}{session}"
        say(f"{row['id']:>5}  {row['at']}  {what}")
        for sign, key in (("-", "removed"), ("+", "added")):
            for entry in row[key]:
                say(f"       {sign} {plain(entry)}")
    if not rows:
        say("No change has been recorded yet.")


def _row(log: History, change: Change) -> dict[str, Any]:
    before, after = log.before(change), change.known.entries
    return {
        "id": change.id,
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(change.at)),
        "target": change.target,
        "who": change.who,
        "action": change.action,
        "session": change.session,
        "removed": [entry for entry in before if entry not in after],
        "added": [entry for entry in after if entry not in before],
    }


@memory.command()
@click.argument("number", type=int, required=False, metavar="[ID]")
@json_option
@click.pass_context
def undo(ctx: click.Context, number: int | None, json_wanted: bool) -> None:
    """Take back a change: the newest, or the one with this ID. Can itself be undone."""
    with writable(ctx) as builtin:
        change, written = builtin.notes.undo(number, _COMMAND)
        _tell(builtin, change.target, written, f"Change {change.id} was undone.", json_wanted)


for _each in (allow, pending, approve, reject):
    memory.add_command(_each)
