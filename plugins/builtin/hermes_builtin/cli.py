"""`hermes-plugins memory`: the notes, for the person whose they are.

Every change goes through the code that the tool uses, and through a manager, so that the
external provider hears of it too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from hermes_builtin.notes import (
    TARGETS,
    Change,
    History,
    Notebook,
    Notes,
    NotesError,
    Operation,
    Origin,
    Refused,
    Settings,
    Written,
    entry_id,
    operation,
)
from hermes_builtin.notes._format import render
from hermes_builtin.provider import BuiltinProvider
from hermes_core import HermesError, MemoryManager
from hermes_core.cli._output import bold, paint, plain, print_json, say
from hermes_core.config import load_config
from hermes_core.errors import one_line
from hermes_core.home import resolve_home

_COMMAND = Origin("command")

_target = click.option(
    "--target",
    type=click.Choice(TARGETS),
    default="memory",
    show_default=True,
    help="memory: the agent's notebook; user: what it knows about you.",
)
_json = click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")


@click.group("memory")
def memory() -> None:
    """Look at the notes (MEMORY.md and USER.md), change them, take changes back."""


def _notes(ctx: click.Context) -> Notes:
    """The notes, to look at."""
    home = resolve_home(ctx.obj)
    return Notes(home, Settings.of(load_config(home).memory))


@contextmanager
def _writable(ctx: click.Context) -> Iterator[BuiltinProvider]:
    """The built-in within a manager, so that what is written is mirrored."""
    home = resolve_home(ctx.obj)
    load_config(home)  # what is wrong with it stops us before anything is changed
    manager = MemoryManager.from_config(home)
    manager.initialize_all("hermes-plugins", platform="cli")
    builtin = manager.get_provider("builtin")
    if not isinstance(builtin, BuiltinProvider):
        raise HermesError("the built-in is not ours", where=type(builtin).__name__)
    try:
        yield builtin
    except Refused as refused:
        raise _RejectedError(refused) from refused
    finally:
        manager.shutdown_all()
        problems = [str(problem) for problem in manager.problems]
        problems += [
            health["on_memory_write"].last_error
            for name, health in manager.health().items()
            if name != "builtin" and "on_memory_write" in health
        ]
        for problem in filter(None, problems):
            click.echo(f"The external provider was not told: {problem}", err=True)


class _RejectedError(HermesError):
    """A change that can't be made, with what there is to choose from."""

    def __init__(self, refused: Refused) -> None:
        choices = "; ".join(refused.matches)
        super().__init__(refused.text, hint=choices)


def _tell(
    builtin: BuiltinProvider, target: str, written: Written, text: str, json_wanted: bool
) -> None:
    builtin.mirror(target, written.steps, "command")
    page = written.page
    if json_wanted:
        print_json(
            changed=written.changed,
            target=target,
            usage=page.usage,
            entry_count=len(page.entries),
            durable=written.durable,
        )
        return
    say(text if written.changed else "It is so already; nothing was changed.")
    say(f"{target}: {_count(len(page.entries), 'entry')}, {page.usage}")
    if not written.durable:
        click.echo("The disk did not confirm it: a power cut could undo it.", err=True)


@memory.command()
@click.option("--target", type=click.Choice(TARGETS), help="Only this notebook.")
@_json
@click.pass_context
def show(ctx: click.Context, target: str | None, json_wanted: bool) -> None:
    """Show the notes as they are now."""
    notes = _notes(ctx)
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
        lines = [one_line(line) for line in entry["text"].split("\n")]
        say(f"  {entry['id']}  " + f"\n{' ' * 12}".join(lines))
        if entry["objection"]:
            text = f"kept out of the prompt ({entry['objection']})"
            say(paint(f"            {text}; memory allow {entry['id']}", "broken"))


def _count(number: int, what: str) -> str:
    plural = {"entry": "entries"}.get(what, f"{what}s")
    return f"{number} {what if number == 1 else plural}"


@memory.command()
@click.argument("text")
@_target
@_json
@click.pass_context
def add(ctx: click.Context, text: str, target: str, json_wanted: bool) -> None:
    """Add an entry; TEXT may be - for standard input."""
    _change(ctx, target, "add", content=_given(text), json_wanted=json_wanted)


@memory.command()
@click.argument("old")
@click.argument("new")
@_target
@_json
@click.pass_context
def replace(ctx: click.Context, old: str, new: str, target: str, json_wanted: bool) -> None:
    """Replace the entry that has OLD in it by NEW (- for standard input)."""
    _change(ctx, target, "replace", content=_given(new), old_text=old, json_wanted=json_wanted)


@memory.command()
@click.argument("old")
@_target
@_json
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
    with _writable(ctx) as builtin:
        wanted: Operation = operation(action, content, old_text)
        written = builtin.notes.change(target, [wanted], _COMMAND)
        _tell(builtin, target, written, "Saved.", json_wanted)


@memory.command()
@_target
@_json
@click.pass_context
def edit(ctx: click.Context, target: str, json_wanted: bool) -> None:
    """Open a notebook in your editor ($VISUAL or $EDITOR)."""
    base = _notes(ctx).notebooks[target].read().entries
    text = click.edit(render(base), extension=".md")
    if text is None:
        say("Nothing was changed.")
        return
    try:
        with _writable(ctx) as builtin:
            written = builtin.notes.notebooks[target].edited(base, text, _COMMAND)
            _tell(builtin, target, written, "Saved.", json_wanted)
    except HermesError:
        say("Your text, so that it is not lost:\n" + text)
        raise


@memory.command()
@click.option("--target", type=click.Choice(TARGETS), help="Only this notebook.")
@click.option("--limit", default=20, show_default=True, help="How many changes.")
@_json
@click.pass_context
def history(ctx: click.Context, target: str | None, limit: int, json_wanted: bool) -> None:
    """Show what was changed, when and by whom, newest first."""
    notes = _notes(ctx)
    with suppress(HermesError):  # what can't be read now is told by show
        if notes.history.path.exists():
            notes.catch_up()
    log = notes.history
    changes = log.changes(target, limit) if log.path.exists() else []
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
@_json
@click.pass_context
def undo(ctx: click.Context, number: int | None, json_wanted: bool) -> None:
    """Take back a change: the newest, or the one with this ID. Can itself be undone."""
    with _writable(ctx) as builtin:
        change, written = builtin.notes.undo(number, _COMMAND)
        _tell(builtin, change.target, written, f"Change {change.id} was undone.", json_wanted)


@memory.command()
@click.argument("name", metavar="ID")
@click.pass_context
def allow(ctx: click.Context, name: str) -> None:
    """Vouch for a text that the guard objects to. Only you can: no tool of the model does."""
    say(f"Allowed: {plain(_notes(ctx).allow(name))}")


@memory.command()
@_json
@click.pass_context
def pending(ctx: click.Context, json_wanted: bool) -> None:
    """Show the writes that wait for your approval."""
    notes = _notes(ctx)
    staged = notes.pending.all()
    blocked = notes.blocked()
    if json_wanted:
        rows = [
            {**each._asdict(), "operations": [one._asdict() for one in each.operations]}
            for each in staged
        ]
        print_json(pending=rows, blocked=[each._asdict() for each in blocked])
        return
    for each in staged:
        say(f"{each.id}  {each.target}  {plain(each.summary)}")
    for refused in blocked:
        told = f"{refused.id}  refused by the guard ({refused.reason}): {plain(refused.text)}"
        say(paint(told, "broken"))
    if not staged and not blocked:
        say("Nothing is pending.")


@memory.command()
@click.argument("names", nargs=-1, required=True, metavar="ID|all")
@_json
@click.pass_context
def approve(ctx: click.Context, names: tuple[str, ...], json_wanted: bool) -> None:
    """Carry out writes that wait."""
    approved = []
    with _writable(ctx) as builtin:
        for name in _named(builtin.notes, names):
            staged, written = builtin.notes.approve(name, Origin("tool, approved"))
            builtin.mirror(staged.target, written.steps, "command", staged.session)
            approved.append({"id": name, "target": staged.target, "summary": staged.summary})
            if not json_wanted:
                say(f"Approved: {plain(staged.summary)}")
    if json_wanted:
        print_json(approved=approved)


@memory.command()
@click.argument("names", nargs=-1, required=True, metavar="ID|all")
@click.pass_context
def reject(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Throw writes away that wait."""
    notes = _notes(ctx)
    for name in _named(notes, names):
        if not notes.pending.exists(name):
            raise NotesError(f"nothing with the id {name} is pending")
        notes.pending.discard(name)
        say(f"Rejected: {name}")


def _named(notes: Notes, names: tuple[str, ...]) -> list[str]:
    return [each.id for each in notes.pending.all()] if names == ("all",) else list(names)
