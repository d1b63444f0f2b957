"""`hermes-plugins memory`: show, change and approve notes, and undo changes.

Every change goes through the code that the tool uses, and through a manager, so that the
external provider receives it too.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

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
    PendingWrite,
    Person,
    Planned,
    Refused,
    Written,
    entry_id,
    importing,
    operation,
    previews,
    render,
)
from hermes_builtin.notes.export import Export
from hermes_builtin.notes.guard import SECRET
from hermes_builtin.notes.notebook import NotesFile
from hermes_builtin.notes.people import PER_USER
from hermes_builtin.provider import BuiltinProvider
from hermes_core import HermesError, MemoryManager
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
from hermes_core.config import load_config
from hermes_core.storage.home import resolve_home

# -- helpers of all commands --------------------------------------------------------------------
#
# Every change goes through the code that the tool uses, and through a manager, so that the
# external provider receives it, too.

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
    notes = Notes.open(home, load_config(home).memory)
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
        raise HermesError("the built-in is not ours", where=type(builtin).__name__)
    try:
        yield builtin
    except Refused as refused:
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


_SHOW: Final = "to see the entries: hermes-plugins memory show"
_PENDING: Final = "to see the ids: hermes-plugins memory pending"


class RejectedError(HermesError):
    """A change that can't be made, with what there is to choose from."""

    def __init__(self, refused: Refused) -> None:
        hint = "; ".join(previews(refused.matches)) or (_SHOW if refused.current else "")
        super().__init__(refused.text, hint=hint)


# -- `memory edit` ------------------------------------------------------------------------------


class Draft:
    """A text for an editor. Its file stays until it is discarded: it may hold all there is."""

    def __init__(self, text: str, name: str) -> None:
        self._before = f"{text}\n".encode() if text else b""
        # A copy, not the notebook itself: an editor would bypass lock, guard and history.
        handle, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".md")
        with os.fdopen(handle, "wb") as file:
            file.write(self._before)
        self.path = Path(path)

    @property
    def kept(self) -> str:
        """Where the person finds what they wrote."""
        return f"your text is kept in {self.path}"

    def edit(self) -> str | None:
        """What the person made of it; None if they left it as it was."""
        try:
            click.edit(filename=str(self.path))
        except click.ClickException as error:
            if self._is_changed():
                raise HermesError(error.message, hint=self.kept) from error
            self.discard()
            raise
        if not self._is_changed():
            self.discard()
            return None
        try:
            # Bytes: text mode would translate line ends, and a comparison with what was written
            # would differ.
            return self.path.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise HermesError(
                "the editor did not save UTF-8 text; nothing was changed", hint=self.kept
            ) from error

    def discard(self) -> None:
        """It was taken over, or never changed."""
        self.path.unlink(missing_ok=True)

    def _is_changed(self) -> bool:
        return self.path.exists() and self.path.read_bytes() != self._before


# -- `hermes-plugins memory pending`, `approve`, `reject` and `allow`: only a person decides ----

_names = click.argument("names", nargs=-1, required=True, metavar="ID|all")


@click.command()
@click.argument("name", metavar="ID")
@json_option
@click.pass_context
def allow(ctx: click.Context, name: str, json_wanted: bool) -> None:
    """Allow a text that the guard blocks.

    No tool of the model can do this.
    """
    text = notes_of(ctx).allow(name)
    if json_wanted:
        print_json(allowed={"id": entry_id(text), "text": text})
    else:
        say(f"Allowed: {plain(text)}")


@click.command()
@json_option
@click.pass_context
def pending(ctx: click.Context, json_wanted: bool) -> None:
    """Show the writes that wait for your approval."""
    notes = notes_of(ctx)
    waiting = notes.planned()
    blocked = notes.blocked()
    if json_wanted:
        rows = [_pending_row(*each) for each in waiting]
        print_json(pending=rows, blocked=[each._asdict() for each in blocked])
        return
    for staged, planned in waiting:
        session = f"  session {plain(staged.session)}" if staged.session else ""
        say(f"{staged.id}  {plain(staged.target)}{session}")
        if staged.reason:
            say(f"    waits because {plain(staged.reason)}", indent=4)
        for each in planned:
            _print_planned(each)
    for refused in blocked:
        line = f"{refused.id}  refused by the guard ({refused.reason}): {plain(refused.text)}"
        say(paint(line, "broken"))
    if not waiting and not blocked:
        say("Nothing is pending.")


def _pending_row(staged: PendingWrite, planned: list[Planned]) -> dict[str, Any]:
    operations = [
        {"action": each.action, "content": each.content, "old_text": each.old_text}
        for each in staged.operations
    ]
    changes = [
        {
            "action": each.wanted.action,
            "removed": each.goes,
            "added": each.wanted.content,
            "problem": each.problem.text if each.problem else "",
        }
        for each in planned
    ]
    row = {**staged._asdict(), "origin": staged.origin}
    return {**row, "operations": operations, "changes": changes}


def _print_planned(planned: Planned) -> None:
    wanted = planned.wanted
    say(f"    {wanted.action}")
    if planned.goes:
        say_text(planned.goes, "      - ", 8)
    if wanted.action != "remove":
        say_text(wanted.content, "      + ", 8)
    if planned.problem is not None:
        line = f"      can't be applied now: {plain(planned.problem.text)}"
        say(paint(line, "broken"))


@click.command()
@_names
@json_option
@click.pass_context
def approve(ctx: click.Context, names: tuple[str, ...], json_wanted: bool) -> None:
    """Approve writes that wait.

    A write that fails does not stop the others.
    """
    approved, failed = [], []
    notes = notes_of(ctx)
    with ExitStack() as stack:
        agents: dict[Person, BuiltinProvider] = {}
        for name in _named(notes, names):
            try:
                person = notes.owner(notes.pending.get(name).target)
                if person not in agents:
                    agents[person] = stack.enter_context(writable(ctx, person))
                staged, written = agents[person].notes.approve(name, Author("tool, approved"))
            except Refused as refused:
                failed.append({"id": name, "error": str(RejectedError(refused))})
                continue
            except HermesError as error:
                what = str(HermesError(error.what, where=error.where))
                failed.append({"id": name, "error": what})
                continue
            # Here and not in `approve`: `Notes` knows no provider.
            target = notes.book(staged.target).target
            agents[person].mirror(target, written.steps, "command", staged.session)
            approved.append({"id": name, "target": staged.target, "summary": staged.summary})
            if not json_wanted:
                say(f"Approved: {plain(staged.summary)}")
    if json_wanted:
        print_json(approved=approved, failed=failed)
        ctx.exit(1 if failed else 0)
    if failed:
        texts = (
            f"{each['id']} is still pending: {each['error']}"
            if notes.pending.exists(each["id"])
            else each["error"]
            for each in failed
        )
        raise NotesError("; ".join(texts), hint=_PENDING)


@click.command()
@_names
@json_option
@click.pass_context
def reject(ctx: click.Context, names: tuple[str, ...], json_wanted: bool) -> None:
    """Discard pending writes."""
    notes = notes_of(ctx)
    # All names are checked before the first one is discarded: a typo changes nothing.
    rejected = _named(notes, names)
    for name in rejected:
        if not notes.pending.exists(name):
            raise NotesError(f"nothing with the id {name} is pending", hint=_PENDING)
    for name in rejected:
        notes.pending.discard(name)
        if not json_wanted:
            say(f"Rejected: {name}")
    if json_wanted:
        print_json(rejected=rejected)


def _named(notes: Notes, names: tuple[str, ...]) -> list[str]:
    return [each.id for each in notes.pending.all()] if names == ("all",) else list(names)


# -- `hermes-plugins memory`: the notes, for the person whose they are --------------------------

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
    """Show and change the notes that the agent keeps.

    The notes are MEMORY.md and USER.md, as files or in PostgreSQL.
    """


def _print_result(
    builtin: BuiltinProvider, target: str, written: Written, text: str, json_wanted: bool
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
    found = [(_shown_name(each), importing.entries_of(text)) for each, text in _texts(paths)]
    with progress("Staging", sum(len(entries) for _, entries in found)) as shown:
        done = []
        for name, entries in found:
            done.append(importing.stage(notes, given["target"], entries, name))
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
        for file in importing.files_in(Path(path)):
            yield str(file), importing.text_of(file)


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
@of_user
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
        while watch:
            time.sleep(_WATCH_SECONDS)
            try:
                _export(notes, export_to, json_wanted, everything=False)
            except HermesError as error:  # the server may come back
                note(str(error))


def _export(notes: Notes, copies: Export, json_wanted: bool, *, everything: bool) -> None:
    done = [copies.step(book) for book in notes.all_notebooks()]
    new = [each for each in done if everything or each.written or each.edited]
    if json_wanted:
        if new:
            print_json(exported=[each._asdict() for each in new])
        return
    for each in new:
        if each.kept:
            note(f"{each.path} was not a copy of the notes; it is kept as {each.kept}")
        if each.edited:
            say(f"{each.target}: your changes were taken over from {each.path}")
        elif each.written:
            say(f"{each.target}: written to {each.path}")
        else:
            say(f"{each.target}: up to date in {each.path}")


for _each in (allow, pending, approve, reject):
    memory.add_command(_each)
