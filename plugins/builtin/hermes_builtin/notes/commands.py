"""`hermes-plugins memory`: show, change and approve notes, and undo changes.

Every change goes through the code that the tool uses, and through a manager, so that the
external provider receives it too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from hermes_builtin.notes import (
    COMMAND,
    TARGETS,
    Author,
    Change,
    History,
    Notebook,
    Notes,
    NotesError,
    Operation,
    Page,
    Person,
    WriteResult,
    entry_id,
    note_import,
    operation,
    render,
)
from hermes_builtin.notes.command_notes import json_option, notes_of, of_user, writable
from hermes_builtin.notes.draft import Draft
from hermes_builtin.notes.export import Export
from hermes_builtin.notes.guard import SECRET
from hermes_builtin.notes.notes_text import NotesFile
from hermes_builtin.notes.pending_commands import allow, approve, pending, reject
from hermes_builtin.provider import BuiltinProvider
from hermes_core import HermesError
from hermes_core.cli.output import (
    amount,
    bold,
    note,
    paint,
    plain,
    print_json,
    progress,
    say,
    say_text,
)
from hermes_core.storage.home import resolve_home

_COMMAND = Author(COMMAND)

_target = click.option(
    "--target",
    type=click.Choice(TARGETS),
    default="memory",
    show_default=True,
    help="Use MEMORY.md (memory) or USER.md (user).",
)


@click.group("memory")
def memory() -> None:
    """Show and change the notes that the agent stores.

    The notes are MEMORY.md and USER.md, as files or in PostgreSQL.
    """


def _print_result(
    builtin: BuiltinProvider, target: str, written: WriteResult, text: str, json_wanted: bool
) -> None:
    builtin.mirror(target, written.steps, "command")
    page = written.page
    if json_wanted:
        conflicts = {"conflicts": list(written.conflicts)} if written.conflicts else {}
        _print_state(target, page, changed=written.changed, durable=written.durable, **conflicts)
        return
    say(text if written.changed else "Nothing to change.")
    say(f"{target}: {amount(len(page.entries), 'entry')}, {page.usage}")
    if not written.durable:
        note("The disk did not confirm it: a power cut could undo it.")


def _print_state(
    target: str, page: Page, *, changed: bool, durable: bool = True, **more: Any
) -> None:
    print_json(
        changed=changed,
        target=target,
        usage=page.usage,
        entry_count=len(page.entries),
        durable=durable,
        **more,
    )


@memory.command()
@click.option("--target", type=click.Choice(TARGETS), help="Show only this notebook.")
@click.option("--origin", "origin_wanted", is_flag=True, help="Show where each note comes from.")
@of_user
@json_option
@click.pass_context
def show(
    ctx: click.Context, /, target: str | None, origin_wanted: bool, json_wanted: bool, **given: Any
) -> None:
    """Show the notes as they are now."""
    notes = notes_of(ctx, given["user"], given["platform"])
    books = {name: _book(notes.notebooks[name]) for name in ([target] if target else TARGETS)}
    waiting = len(notes.pending.all())
    if json_wanted:
        print_json(notebooks=books, pending=waiting)
    else:
        for name, book in books.items():
            _print_book(name, book, origin_wanted=origin_wanted)
        if waiting:
            writes = amount(waiting, "write")
            say(f"waiting for approval: {writes} (see: hermes-plugins memory pending)")
    if any(book["error"] for book in books.values()):
        ctx.exit(1)


def _book(notebook: Notebook) -> dict[str, Any]:
    book: dict[str, Any] = {"path": notebook.text.place, "usage": "", "entries": []}
    try:
        page = notebook.read()
        findings = notebook.findings(page.entries)
        origins = notebook.origins(page.entries)
    except NotesError as error:
        return {**book, "error": str(error)}
    book |= {"usage": page.usage, "error": ""}
    book["entries"] = [
        {
            "id": entry_id(each),
            "text": each,
            "objection": str(findings.get(each, "")),
            "origin": origins[each],
        }
        for each in page.entries
    ]
    return book


def _print_book(name: str, book: dict[str, Any], *, origin_wanted: bool) -> None:
    say(bold(f"{name}  {book['usage'] or 'unreadable'}") + f"  {book['path']}")
    if book["error"]:
        note(book["error"])
    for entry in book["entries"]:
        say_text(entry["text"], f"  {entry['id']}  ", 12)
        if origin_wanted:
            say(f"{'':12}origin: {plain(entry['origin'])}", indent=12)
        if entry["objection"]:
            say(paint(f"{'':12}not in the prompt: {entry['objection']}", "broken"), indent=12)
            todo = f"to allow it: hermes-plugins memory allow {entry['id']}"
            if entry["objection"].startswith(f"{SECRET}: "):
                todo = f"store it with `hermes-plugins secrets set` and remove it here, or {todo}"
            say(f"{'':12}hint: {todo}", indent=12)


@memory.command()
@click.argument("text")
@_target
@of_user
@json_option
@click.pass_context
def add(ctx: click.Context, /, text: str, **given: Any) -> None:
    """Add an entry; TEXT may be - for standard input."""
    _change(ctx, "add", given, content=_given(text))


@memory.command("import")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@_target
@of_user
@json_option
@click.pass_context
def import_notes(ctx: click.Context, /, paths: tuple[str, ...], **given: Any) -> None:
    """Stage the notes of another agent.

    FILE is CLAUDE.md, AGENTS.md, another text, a file of OMI-AI, a folder such as
    ~/.codex/memories, or - for standard input. Each item of a list and each paragraph waits until
    you approve it.
    """
    notes = notes_of(ctx, given["user"], given["platform"])
    found = [(_shown_name(each), note_import.entries_of(text)) for each, text in _texts(paths)]
    with progress("Staging", sum(len(entries) for _, entries in found)) as shown:
        done = []
        for name, entries in found:
            done.append(note_import.stage(notes, given["target"], entries, name))
            shown.advance(len(entries))
    ids = [name for each in done for name in each.ids]
    known = sum(each.known for each in done)
    refused = [text for each in done for text in each.refused]
    if given["json_wanted"]:
        print_json(staged=ids, known=known, refused=refused)
        return
    say(f"Staged {amount(len(ids), 'note')}; already known: {known:,}.")
    for text in refused:
        note(f"not staged: {plain(text)}")
    if ids:
        note("hint: run: hermes-plugins memory pending, then memory approve ID")


def _texts(paths: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if path == "-":
            yield "standard input", _given(path)
            continue
        for file in note_import.files_in(Path(path)):
            yield str(file), note_import.text_of(file)


def _shown_name(path: str) -> str:
    return Path(path).name


@memory.command()
@click.argument("old")
@click.argument("new")
@_target
@of_user
@json_option
@click.pass_context
def replace(ctx: click.Context, /, old: str, new: str, **given: Any) -> None:
    """Replace the entry that contains OLD with NEW.

    Use - to read NEW from standard input.
    """
    _change(ctx, "replace", given, content=_given(new), old_text=old)


@memory.command()
@click.argument("old")
@_target
@of_user
@json_option
@click.pass_context
def remove(ctx: click.Context, /, old: str, **given: Any) -> None:
    """Remove the entry that contains OLD."""
    _change(ctx, "remove", given, old_text=old)


def _given(text: str) -> str:
    if text != "-":
        return text
    try:
        # The buffer: the encoding of standard input depends on the locale, the notes are UTF-8.
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise HermesError("standard input is not UTF-8 text", hint="convert it to UTF-8") from error


def _change(
    ctx: click.Context,
    action: str,
    given: Mapping[str, Any],
    *,
    content: str | None = None,
    old_text: str | None = None,
) -> None:
    target, person = given["target"], notes_of(ctx, given["user"], given["platform"]).person
    with writable(ctx, person) as builtin:
        wanted: Operation = operation(action, content, old_text)
        written = builtin.notes.change(target, [wanted], _COMMAND)
        _print_result(builtin, target, written, "Saved.", given["json_wanted"])


@memory.command()
@_target
@of_user
@json_option
@click.pass_context
def edit(ctx: click.Context, target: str, user: str, platform: str, json_wanted: bool) -> None:
    """Open a notebook in your editor ($VISUAL or $EDITOR)."""
    # No lock while the editor is open, which may be hours. `edited` merges with what came in
    # between.
    notes = notes_of(ctx, user, platform)
    page = notes.notebooks[target].read()
    draft = Draft(render(page.entries), target)
    text = draft.edit()
    if text is None:
        if json_wanted:
            _print_state(target, page, changed=False)
        else:
            say("Nothing was changed.")
        return
    try:
        with writable(ctx, notes.person) as builtin:
            written = builtin.notes.notebooks[target].edited(page.entries, text, _COMMAND)
            _print_result(builtin, target, written, "Saved.", json_wanted)
            if written.conflicts and not json_wanted:
                entries = amount(len(written.conflicts), "entry")
                note(f"Somebody else changed {entries} that you changed, too: both are kept.")
    except HermesError as error:
        if not json_wanted:
            # Twice on purpose, on the terminal and in the file: the person wrote it and it is
            # nowhere else.
            say("Your text was not saved:")
            say_text(text)
        raise HermesError(str(error), hint=draft.kept) from error
    draft.discard()


@memory.command()
@click.option("--target", type=click.Choice(TARGETS), help="Show only this notebook.")
@click.option("--limit", default=20, show_default=True, help="Show at most this many changes.")
@click.option("--user", default="", help="Show changes to this user's USER.md.")
@click.option("--platform", default="", help="The platform of that user.")
@json_option
@click.pass_context
def history(ctx: click.Context, /, target: str | None, limit: int, **given: Any) -> None:
    """Show what was changed, when and by whom, newest first."""
    notes = notes_of(ctx, given["user"], given["platform"])
    json_wanted = given["json_wanted"]
    if given["user"]:
        target = notes.notebooks[target or "user"].key
    log = notes.history
    # A look must not create a history, nor start a new one in place of one that can't be read.
    if log.exists:
        log.changes(limit=1)
        with suppress(HermesError):  # `show` reports what can't be read now
            notes.catch_up()
    changes = log.changes(target, limit) if log.exists else []
    rows = [_row(log, each) for each in changes]
    if json_wanted:
        print_json(changes=rows)
        return
    for row in rows:
        session = f", session {row['session']}" if row["session"] else ""
        what = f"{row['target']}  {row['action']} by {row['who']}{session}"
        say(f"{row['id']:>5}  {row['at'][:19].replace('T', ' ')}  {what}", indent=7)
        for sign, key in (("-", "removed"), ("+", "added")):
            for entry in row[key]:
                label = f"  [{plain(row['origins'][entry])}]" if sign == "+" else ""
                say(f"       {sign} {plain(entry)}{label}")
    if not rows:
        say("No change has been recorded yet.")


def _row(log: History, change: Change) -> dict[str, Any]:
    before, after = log.before(change), change.known.entries
    added = [entry for entry in after if entry not in before]
    return {
        "id": change.id,
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(change.at)),
        "target": change.target,
        "who": change.who,
        "action": change.action,
        "session": change.session,
        # By entry, not by line: that is what `undo` restores.
        "removed": [entry for entry in before if entry not in after],
        "added": added,
        "origins": log.origins(change.target, added),
    }


@memory.command()
@click.argument("number", type=int, required=False, metavar="[ID]")
@json_option
@click.pass_context
def undo(ctx: click.Context, number: int | None, json_wanted: bool) -> None:
    """Undo the newest change, or the one with this ID.

    An undo can itself be undone.
    """
    notes = notes_of(ctx)
    known = notes.history.change(number) if number is not None and notes.history.exists else None
    person = Person() if known is None else notes.owner(known.target)
    with writable(ctx, person) as builtin:
        change, written = builtin.notes.undo(number, _COMMAND)
        target = notes.book(change.target).target
        _print_result(builtin, target, written, f"Change {change.id} was undone.", json_wanted)


#: How often `memory export --watch` looks at the notes and at their copies.
_WATCH_SECONDS: Final = 1.0


@memory.command()
@click.option("--watch", is_flag=True, help="Keep the files in sync until you press Ctrl-C.")
@json_option
@click.pass_context
def export(ctx: click.Context, watch: bool, json_wanted: bool) -> None:
    """Write notes that are in PostgreSQL to MEMORY.md and USER.md.

    What you change in these files is taken over when you export again, or at once with --watch.
    """
    notes = notes_of(ctx)
    if isinstance(notes.notebooks["memory"].text, NotesFile):
        paths = {name: book.text.place for name, book in notes.notebooks.items()}
        if json_wanted:
            print_json(exported=[], files=paths)
        else:
            say(f"The notes are files already: {', '.join(paths.values())}")
        return
    export_to = Export(resolve_home(ctx.obj) / "memories")
    with suppress(KeyboardInterrupt):
        _export(notes, export_to, json_wanted, everything=True)
        shown = ""
        while watch:
            time.sleep(_WATCH_SECONDS)
            try:
                _export(notes, export_to, json_wanted, everything=False)
                shown = ""
            except HermesError as error:  # the server may come back
                if str(error) != shown:
                    note(str(error))
                shown = str(error)


def _export(notes: Notes, copies: Export, json_wanted: bool, *, everything: bool) -> None:
    done = [copies.step(book) for book in notes.all_notebooks()]
    new = [each for each in done if everything or each.written or each.edited]
    if json_wanted:
        if new:
            print_json(exported=[each._asdict() for each in new])
        return
    for each in new:
        if each.kept:
            note(f"{each.path} was not a copy of the notes; it was saved as {each.kept}")
        if each.edited:
            say(f"{each.target}: your changes were taken over from {each.path}")
        elif each.written:
            say(f"{each.target}: written to {each.path}")
        else:
            say(f"{each.target}: up to date in {each.path}")


for _each in (allow, pending, approve, reject):
    memory.add_command(_each)
