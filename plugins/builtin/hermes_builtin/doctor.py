"""The checks of the notes and the archive that `hermes-plugins doctor` runs."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from hermes_builtin.notes import HiddenText, Notes, NotesSettings
from hermes_builtin.notes.guard import SECRET
from hermes_builtin.notes.notes_text import NotesFile
from hermes_builtin.notes.people import PER_USER
from hermes_builtin.sessions.archive import Archive
from hermes_builtin.sessions.conversations import open_archive
from hermes_builtin.sessions.hermes_agent import not_imported
from hermes_builtin.sessions.location import locate
from hermes_builtin.sessions.spool import Spool
from hermes_builtin.storage_parts import moved
from hermes_core import ConfigError, HermesError
from hermes_core.cli.output import amount
from hermes_core.config import load_config

_MOVED_HINT: Final = "they wait until memory.storage names the new storage"

#: What was looked at, how it is (ok, warning, problem), details, and what to do.
Row = tuple[str, str, str, str]

#: So many messages are looked up by their words: `doctor` has two minutes for everything.
NEWEST: Final = 1000
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_SEVERAL: Final = 2
_SPOOL_HINT: Final = "the next start of an agent stores them, or: hermes-plugins sessions stats"


def diagnose(home: Path, *, fix: bool) -> Iterator[Row]:
    """Look at the notes and the conversations by using them."""
    yield from _notes(home, fix=fix)
    for warning in sharing(home):
        detail, _, hint = warning.partition("; ")
        yield "USER.md", "warning", detail, hint
    yield from _archive(home, fix=fix)
    if (error := moved(home)) is not None:
        yield "storage", "problem", error.what, error.hint
    for warning in spooled(home):
        detail, _, hint = warning.rpartition("; ")
        yield "conversations", "warning", detail, hint


def sharing(home: Path) -> list[str]:
    """Warn if several users share one USER.md, which is in the prompt of each of them."""
    try:
        settings = NotesSettings.of(load_config(home, plugins=False).memory)
        where = locate(home)
        if settings.user_notes == PER_USER or not settings.user_profile_enabled:
            return []
        with closing(where.open()) as archive:
            users = len(archive.people())
    except HermesError:  # other checks report it
        return []
    if users < _SEVERAL:
        return []
    hint = "run: hermes-plugins config set memory.user_notes per-user"
    return [f"{users:,} users share one USER.md, which is in the prompt of each; {hint}"]


def spooled(home: Path) -> list[str]:
    """Warn if turns wait for the archive."""
    text = Spool(home, partial(open_archive, home)).waiting().text
    if not text:
        return []
    # As long as the storage takes no changes, no start of an agent helps.
    return [f"{text}; {_MOVED_HINT if moved(home) else _SPOOL_HINT}"]


def problems(home: Path) -> list[HermesError]:
    """Which files can't be used, by a quick look; `diagnose` reads all of them."""
    found: dict[str, HermesError] = {}
    with closing(_opened(home)) as notes:
        looks: list[Callable[[], object]] = []
        try:
            looks += [book.read for book in notes.all_notebooks()]
            if notes.history.exists:
                looks.append(partial(notes.history.changes, limit=1))
        except HermesError as error:
            found[str(error)] = error
        looks.append(partial(_look_at_archive, home))
        for look in looks:
            try:
                look()
            except HermesError as error:
                found.setdefault(str(error), error)  # a server that is down is one problem
    if not found and (elsewhere := moved(home)) is not None:
        found[str(elsewhere)] = elsewhere
    return list(found.values())


def _opened(home: Path) -> Notes:
    try:
        memory = load_config(home, plugins=False).memory
    except HermesError:  # other checks report it
        memory = {}
    return Notes.open(home, memory)


def _look_at_archive(home: Path) -> None:
    with closing(locate(home).open()) as archive:
        archive.stats()


def _notes(home: Path, *, fix: bool) -> Iterator[Row]:
    notes = _opened(home)
    try:
        notebooks = notes.all_notebooks()
    except HermesError as error:
        notes.close()
        yield "notes", "problem", error.what, error.hint
        return
    try:
        for notebook in notebooks:
            name = notebook.name
            try:
                # With the code that an agent runs: a separate check could pass while the agent
                # fails.
                page = notebook.read()
                left_out = notebook.findings(page.entries)
            except HermesError as error:
                yield name, "problem", getattr(error, "what", str(error)), error.hint
                continue
            if left_out:
                yield from _left_out(name, list(left_out.values()))
            else:
                yield name, "ok", amount(len(page.entries), "entry"), ""
            if isinstance(notebook.text, NotesFile):
                yield from _mode(notebook.text.path, fix=fix)
        if notes.history.exists:
            try:
                notes.check()
                yield "note history", "ok", "no damage", ""
            except HermesError as error:
                yield "note history", "problem", error.what, error.hint
    finally:
        notes.close()


def _left_out(name: str, findings: list[HiddenText]) -> Iterator[Row]:
    """What is left out of the prompt: orders to the model, and secrets."""
    secrets = sorted({each.detail for each in findings if each.kind == SECRET})
    count = sum(each.kind == SECRET for each in findings)
    if orders := len(findings) - count:
        detail = f"not in the prompt, blocked by the guard: {amount(orders, 'entry')}"
        yield name, "warning", detail, "run: hermes-plugins memory show"
    if count:
        what = f"{amount(count, 'entry')} with secrets ({', '.join(secrets)})"
        detail = f"not in the prompt: {what}"
        hint = "store them with: hermes-plugins secrets set; then run: hermes-plugins memory edit"
        yield name, "warning", detail, hint


def _mode(path: Path, *, fix: bool) -> Iterator[Row]:
    # Windows has no such bits; files below the profile are private there.
    if os.name != "posix" or not path.exists():
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & _OTHERS:
        return
    if fix:
        path.chmod(0o600)
        yield path.name, "ok", "others could read it; fixed: it is private now", ""
    else:
        yield path.name, "warning", f"others can read it (mode {mode:04o})", f"chmod 600 {path}"


def _archive(home: Path, *, fix: bool) -> Iterator[Row]:
    try:
        where = locate(home)
    except ConfigError as error:  # another check reports what is wrong with config.yaml
        detail = "not checked while config.yaml can't be read"
        yield "conversations", "warning", detail, error.hint
        return
    except HermesError as error:
        yield "conversations", "problem", error.without_hint, error.hint
        return
    if not where.exists:
        name = where.path.name if where.path is not None else where.shown
        yield "conversations", "ok", f"there is no {name} yet", ""
        return
    with closing(where.open()) as archive:
        try:
            yield from _examined(archive, fix=fix)
            if where.theirs is not None and (missing := not_imported(where.theirs, archive)):
                detail = f"not imported from hermes-agent: {amount(missing, 'conversation')}"
                yield "conversations", "warning", detail, "run: hermes-plugins sessions import"
        except HermesError as error:
            yield "conversations", "problem", error.without_hint, error.hint


def _examined(archive: Archive, *, fix: bool) -> Iterator[Row]:
    problems = archive.check(newest=NEWEST)
    if not problems:
        messages = archive.stats().messages
        tested = "all searchable"
        if messages > NEWEST:
            more = "to test all: hermes-plugins sessions check"
            tested = f"the newest {NEWEST:,} searchable ({more})"
        yield "conversations", "ok", f"{amount(messages, 'message')}, {tested}", ""
        return
    # Only what loses nothing is fixed without asking. A salvage may lose messages, so a person runs
    # it.
    if fix and all(problem.index_only for problem in problems):
        done = archive.repair()
        copy = f"; a copy is {done['copy']}" if done["copy"] else ""
        yield "conversations", "ok", f"fixed: the index was rebuilt{copy}", ""
        return
    for problem in problems:
        yield "conversations", "problem", problem.what, "run: hermes-plugins sessions repair"
