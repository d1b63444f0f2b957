"""Any sequence of calls, edits by others and undos: nothing is lost that nobody removed."""

from __future__ import annotations

import os
import shutil
import tempfile
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.notes import (
    Agent,
    append,
    delete_notes,
    notes_file,
    notes_text,
    recorded,
    refused,
    saved,
    write_notes,
)
from support.storages import Storage

from hermes_builtin.notes import Author
from hermes_builtin.notes.entries import parse, render

pytestmark = [pytest.mark.scaled, pytest.mark.usefixtures("both_storages")]

STRESS = bool(os.environ.get("HERMES_STRESS"))
LIMIT = 400
BODIES = st.text(st.sampled_from("ab é§\\\n"), max_size=8)


def escaped(entry: str) -> str:
    """An entry as it is in the file: in our own words, what the contract says."""
    return "\n".join(
        f"{line[: len(line) - len(line.lstrip())]}\\{line.lstrip()}"
        if line.strip().lstrip("\\") == "§"
        else line
        for line in entry.split("\n")
    )


def file_of(entries: list[str]) -> str:
    return "\n§\n".join(map(escaped, entries))


class NotesMachine(RuleBasedStateMachine):
    """Keeps a list of what has to be there, and compares.

    ``seen`` are the entries (and the text) when we last looked with the lock, ``changes``
    what the history should have (the entries before and after), and ``tail`` is what a
    shell has appended to the text that we have seen.
    """

    def __init__(self) -> None:
        super().__init__()
        Storage.current.begin_example()
        self.home = Path(tempfile.mkdtemp(prefix="hermes-notes-"))
        self.entries: list[str] = []
        self.seen: list[str] = []
        self.seen_text = ""
        self.changes: list[tuple[list[str], list[str]]] = []
        self.tail = ""
        self.touched = False
        self.count = 0

    @initialize()
    def begin(self) -> None:
        self.session = self.opened()
        self.add("")

    def opened(self) -> Agent:
        return Agent(self.home, memory_char_limit=LIMIT)

    def teardown(self) -> None:
        self.session.close()
        shutil.rmtree(self.home)

    def new(self, body: str) -> str:
        """An entry unlike any other, of which none is the beginning of another."""
        self.count += 1
        return f"<{self.count:03} {body} {self.count:03}>"

    def length(self, entries: list[str]) -> int:
        return len(file_of(entries))

    # -- what happens to the model ----------------------------------------------------------

    def notice(self) -> None:
        """We look at the file: all that others did is one change in the history."""
        self.entries, self.tail = self.all_there(), ""
        if self.text() != self.seen_text:
            self.changes.append((self.seen, list(self.entries)))
        self.looked()

    def refused(self, answer: dict[str, Any], before: dict[str, Any]) -> None:
        """A call changed nothing. In a database, what it had noticed is taken back as well."""
        refused(answer)
        if Storage.current.url:
            self.__dict__.update(before)

    def before(self) -> dict[str, Any]:
        """What is known before a call."""
        names = ("entries", "seen", "seen_text", "changes", "tail", "touched")
        return {name: copy(getattr(self, name)) for name in names}

    def made(self, entries: list[str]) -> None:
        """We made a change."""
        if entries != self.entries:
            self.changes.append((self.entries, list(entries)))
            self.entries = list(entries)
        self.looked()

    def looked(self) -> None:
        self.seen, self.seen_text, self.touched = list(self.entries), self.text(), False

    def text(self) -> str:
        return notes_text(self.home) if self.exists() else ""

    def exists(self) -> bool:
        """Whether there is a notebook."""
        return bool(Storage.current.url) or notes_file(self.home).exists()

    def overwritten(self, entries: list[str]) -> None:
        """Somebody else wrote the file anew."""
        self.entries, self.tail, self.touched = entries, "", True

    def all_there(self) -> list[str]:
        return [*self.entries, self.tail.strip()] if self.tail else self.entries

    # -- calls of the tool ------------------------------------------------------------------

    @rule(body=BODIES)
    def add(self, body: str) -> None:
        entry, before = self.new(body), self.before()
        self.notice()
        answer = self.session.add(entry)
        now = self.length(self.entries)
        if self.length([*self.entries, entry]) > max(LIMIT, now):
            self.refused(answer, before)
        else:
            saved(answer)
            self.made([*self.entries, entry])

    @precondition(lambda self: self.entries and self.is_plain())
    @rule(data=st.data())
    def add_again(self, data: st.DataObject) -> None:
        self.notice()
        saved(self.session.add(data.draw(st.sampled_from(self.entries))))

    @precondition(lambda self: self.all_there())
    @rule(data=st.data(), body=BODIES)
    def replace(self, data: st.DataObject, body: str) -> None:
        before = self.before()
        self.notice()
        old, new = data.draw(st.sampled_from(self.entries)), self.new(body)
        changed = [new if entry == old else entry for entry in self.entries]
        answer = self.session.replace(old, new)
        if self.length(changed) > max(LIMIT, self.length(self.entries)):
            self.refused(answer, before)
        else:
            saved(answer)
            self.made(changed)

    @precondition(lambda self: self.all_there())
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.notice()
        old = data.draw(st.sampled_from(self.entries))
        saved(self.session.remove(old))
        self.made([entry for entry in self.entries if entry != old])

    @precondition(lambda self: self.all_there())
    @rule(data=st.data(), body=BODIES)
    def batch_that_fails(self, data: st.DataObject, body: str) -> None:
        before = self.before()
        self.notice()
        old = data.draw(st.sampled_from(self.entries))
        operations = [
            {"action": "remove", "old_text": old},
            {"action": "add", "content": self.new(body)},
            {"action": "remove", "old_text": "there is no such entry"},
        ]
        self.refused(self.session.batch(*operations), before)

    @rule()
    def new_session(self) -> None:
        self.session.close()
        self.session = self.opened()

    # -- a person ---------------------------------------------------------------------------

    @rule()
    def undo(self) -> None:
        self.notice()
        self.session.notes.undo(None, Author("command"))
        self.made(self.changes[-1][0])

    @precondition(lambda self: self.is_plain())
    @rule(data=st.data())
    def undo_an_older_one(self, data: st.DataObject) -> None:
        rows = recorded(self.home)[::-1]
        number = data.draw(st.integers(0, len(rows) - 1))
        before, after = self.changes[number]
        self.notice()
        back = [entry for entry in before if entry not in after]
        assume(not set(back) & set(self.entries))
        self.session.notes.undo(rows[number]["id"], Author("command"))
        kept = [entry for entry in self.entries if entry not in after or entry in before]
        self.made(before if self.entries == after else kept + back)

    # -- others -----------------------------------------------------------------------------

    @precondition(lambda self: self.exists())
    @precondition(lambda self: self.tail or not self.touched)
    @rule(body=BODIES.map(lambda body: body.replace("\n", "").replace("§", "")))
    def echo(self, body: str) -> None:
        line = f"{self.new(body)}\n"
        append(self.home, line)
        self.tail += line
        self.touched = True

    @rule(data=st.data(), bodies=st.lists(BODIES, max_size=2), end=st.sampled_from(["", "\n"]))
    def edit(self, data: st.DataObject, bodies: list[str], end: str) -> None:
        """Some entries are kept, in any order, and some are new."""
        known = self.all_there()
        kept = data.draw(st.lists(st.sampled_from(known), unique=True)) if known else []
        entries = kept + [self.new(body) for body in bodies]
        write_notes(self.home, file_of(entries) + end)
        self.overwritten(entries)

    @precondition(lambda self: self.is_plain())
    @rule()
    def convert_line_ends(self) -> None:
        write_notes(self.home, self.text().replace("\r\n", "\n").replace("\n", "\r\n"))
        self.overwritten(self.entries)

    def is_plain(self) -> bool:
        """Whether a separator is between all entries, and none was merely appended."""
        return not self.tail and self.text().replace("\r\n", "\n").strip() == file_of(self.entries)

    @rule()
    def delete(self) -> None:
        delete_notes(self.home)
        self.overwritten([])

    # -- always -----------------------------------------------------------------------------

    @invariant()
    def everything_is_there(self) -> None:
        assert self.session.entries() == self.all_there()

    @invariant()
    def rendering_loses_nothing(self) -> None:
        assert parse(render(self.entries)) == self.entries

    @invariant()
    def the_history_ends_with_the_file(self) -> None:
        if not self.touched:
            rows = recorded(self.home)
            assert len(rows) == len(self.changes)
            assert rows[0]["after"] == self.text()


SETTINGS = settings(
    max_examples=200 if STRESS else 10,
    stateful_step_count=20,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def test_nothing_is_lost_in_any_sequence() -> None:
    fewer = settings(SETTINGS, max_examples=12) if Storage.current.url else SETTINGS
    run_state_machine_as_test(NotesMachine, settings=fewer)
