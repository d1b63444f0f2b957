"""Notes and conversations as JSON lines that people can read: docs/portable-format.md.

What the external provider knows is exported as well, as far as it can list it, and so are memories
of providers that came with an import (`imported.py`).

An export of a home that was imported into an empty one is the same, byte by byte. So a line has
nothing that depends on the machine: no row numbers, no time of the export, and one order.

`import_lines` checks every line first and changes nothing if one of them is wrong. Then it only
adds what is not there: it may be repeated, and a killed one is finished by repeating it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import merge
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, Final

from hermes_builtin.imported import ImportedMemories, place_of
from hermes_builtin.notes import Author, Change, Notebook, Notes, Person, entry_id
from hermes_builtin.sessions.archive import (
    EVERYBODY,
    Archive,
    NewMessage,
    Session,
    SessionFacts,
)
from hermes_builtin.sessions.conversations import keywords_of, open_archive
from hermes_builtin.sessions.location import locate
from hermes_builtin.sessions.session_merge import MessageIds, SessionMerge
from hermes_builtin.sessions.spool import Spool
from hermes_core import HermesError
from hermes_core.backup.format import publish, work_folder
from hermes_core.checkup.listing import Listing, list_memories, read_memories
from hermes_core.config import load_config
from hermes_core.errors import CHECK_FOLDER
from hermes_core.session import SessionContext
from hermes_core.storage.files import open_regular

FORMAT: Final = "hermes-memory"
VERSION: Final = 1
IMPORT: Final = "import"

_SHOWN_PROBLEMS: Final = 10
#: A line is read into memory; the longest message that an archive takes is shorter.
_LONGEST_LINE: Final = 64_000_000
#: Memories of providers are stored together up to this size.
_BATCH_BYTES: Final = 1_000_000

Record = Mapping[str, Any]
Progress = Callable[[int, int], None]


class PortableError(HermesError):
    """A file is not an export, or has wrong lines; nothing was imported."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How much was exported, or imported.

    ``known`` is what was there already. ``memories`` are those of external providers.
    """

    notes: int = 0
    changes: int = 0
    pending: int = 0
    sessions: int = 0
    messages: int = 0
    known: int = 0
    memories: int = 0


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What an export has; ``listing`` says what the external provider itself listed."""

    counts: Counts
    listing: Listing


# -- writing ----------------------------------------------------------------------------------


def export_file(
    home: Path, file: Path, progress: Progress | None = None, *, provider: bool = True
) -> ExportSummary:
    """Write the notes and conversations of a home to a new file, and what its provider knows.

    Args:
        home: The home.
        file: The new file.
        progress: Called with the messages that were written, and how many there are.
        provider: Whether to write memories of external providers, and to ask the active one.

    Raises:
        HermesError: The file exists already or can't be written, or a store can't be read.
    """
    if os.path.lexists(file):
        raise HermesError("exists already", where=str(file), hint="choose another name")
    try:
        with work_folder(file, "export") as folder:
            made = folder / "export.jsonl"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            with os.fdopen(os.open(made, flags, 0o600), "wb") as target:
                counts = export_lines(home, target, progress)
                listing, memories = Listing(), 0
                if provider:
                    listed = folder / "memories.jsonl"
                    listing = _listing(home, listed)
                    memories = _write_memories(home, listing, listed, target)
                target.flush()
                os.fsync(target.fileno())
            publish(made, file)
    except OSError as error:
        raise HermesError(
            f"can't be written: {error.strerror or error}", where=str(file), hint=CHECK_FOLDER
        ) from error
    return ExportSummary(replace(counts, memories=memories), listing)


def export_lines(home: Path, target: BinaryIO, progress: Progress | None = None) -> Counts:
    """Write the notes and conversations of a home as lines."""
    counts: Counter[str] = Counter()
    with closing(locate(home).open()) as archive:
        hand_over_spool(home, archive)
        total = archive.stats().messages
        for record in _records(home, archive):
            target.write(_line(record))
            counts[record["type"]] += 1
            if progress is not None and record["type"] == "message":
                progress(counts["message"], total)
    return _counted(counts)


def _listing(home: Path, listed: Path) -> Listing:
    """Have the external provider write what it knows to a file."""
    config = load_config(home)
    if not config.selection.name:
        return Listing()
    return list_memories(config, _people(home), listed)


def _write_memories(home: Path, listing: Listing, listed: Path, target: BinaryIO) -> int:
    """Write the memories of external providers, by provider, person and id; return how many.

    A memory that the active provider listed is written as it listed it, not as an import had it.
    """
    written = 0
    with closing(ImportedMemories(home)) as imported:
        facts = imported.providers()
        if listing.provider:
            problems = {"problems": list(listing.problems)} if listing.problems else {}
            said = {"name": listing.provider, "can_list": listing.can_list, "memories": 0}
            facts[listing.provider] = {"type": "provider", **said, **problems}
        for provider, known in sorted(facts.items()):
            is_active = provider == listing.provider
            live = {str(each["id"]) for each in read_memories(listed)} if is_active else set()
            count = len(live | imported.ids(provider))
            if known:
                target.write(_line({**known, "memories": count}))
            older = ((at, line) for at, id_, line in imported.lines(provider) if id_ not in live)
            newer = _listed_lines(provider, listed) if live else ()
            target.writelines(line for _, line in merge(older, newer))
            written += count
    return written


def _listed_lines(provider: str, listed: Path) -> Iterator[tuple[bytes, bytes]]:
    for record in read_memories(listed):
        yield place_of(record), _line({"type": "memory", "provider": provider, **record})


def _people(home: Path) -> list[dict[str, str]]:
    """Everybody who has talked with the agent, and whoever sits at the terminal."""
    with closing(locate(home).open()) as archive:
        owners = {each.owner: each for each in archive.sessions(EVERYBODY)}
    found = [keywords_of(each._replace(parent="")) for each in owners.values()]
    people = {SessionContext.from_keywords("", each).identity: each for each in ({}, *found)}
    return [people[each] for each in sorted(people)]


def _counted(counts: Mapping[str, int]) -> Counts:
    names = ("note", "change", "pending", "session", "message", "known", "memory")
    return Counts(*(counts.get(each, 0) for each in names))


def hand_over_spool(home: Path, archive: Archive) -> None:
    """Store the turns that wait in the spool, so that they are part of it."""
    error = Spool(home, partial(open_archive, home)).hand_over(archive)
    if error is not None:
        raise HermesError(
            f"turns wait in the spool and can't be stored: {error}",
            where=str(home / "spool"),
            hint="run: hermes-plugins doctor",
        ) from error


def _line(record: Record) -> bytes:
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, from a file that somebody edited
        text = json.dumps(record, allow_nan=False).encode()
    except ValueError:  # a number that JSON does not have, from a host or from another program
        return _line(json.loads(json.dumps(record), parse_constant=str))
    return text + b"\n"


class _NumberError(ValueError):
    """A number that JSON does not have, or that is too large for one."""


def _refuse_constant(text: str) -> Any:
    raise _NumberError(f"{text} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise _NumberError(f"{text:.40} is too large for a number")
    return value


def _records(home: Path, archive: Archive) -> Iterator[dict[str, Any]]:
    yield {"type": "header", "format": FORMAT, "version": VERSION}
    with closing(Notes.open(home, load_config(home).memory)) as notes:
        yield from _note_records(notes)
    # By their start and id, which are the same in every home.
    for session in sorted(archive.sessions(EVERYBODY), key=lambda each: (each.started, each.id)):
        yield {"type": "session", **_facts_of(session)}
        ids = MessageIds()
        for message in archive.messages(session):
            yield {
                "type": "message",
                "session": session.id,
                "id": ids.of(message),
                "role": message.role,
                "at": message.at,
                "content": message.content,
                **({"extra": dict(message.extra)} if message.extra else {}),
            }


def _facts_of(session: Session) -> dict[str, Any]:
    """What is known of a session, without what is empty."""
    facts = {key: getattr(session, key) for key in SessionFacts._fields}
    return {key: each for key, each in facts.items() if key == "id" or each not in ("", None)}


def _note_records(notes: Notes) -> Iterator[dict[str, Any]]:
    people = sorted(notes.people(), key=lambda each: each.folder)
    for person in people:
        yield {"type": "person", "notebook": f"user/{person.folder}", **person._asdict()}
    keys = ["memory", "user", *(f"user/{each.folder}" for each in people)]
    for key in keys:
        yield from _notebook_records(notes, notes.book(key))
    for name, text in sorted(notes.pending.texts().items()):
        record = _pending_record(text)
        if record is not None:
            yield {"type": "pending", "id": name, "record": record}


def _pending_record(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # `memory pending` reports it
        return None


def _notebook_records(notes: Notes, book: Notebook) -> Iterator[dict[str, Any]]:
    if book.text.exists:
        with book.text.locked():
            # What somebody did to the file since is part of the history, too.
            notes.history.catch_up(book.key, *book.text.look())
    changes = notes.history.changes(book.key, limit=-1)[::-1] if notes.history.exists else []
    said: set[str] = set()
    before = ""
    for change in changes:
        entries = [each for each in change.known.entries if each not in said]
        said.update(entries)
        yield _change_record(change, before, notes.history.recorded_origins(entries))
        before = change.after
    entries = book.read().entries
    origins = notes.history.recorded_origins(entries) if changes else {}
    for text in entries:
        origin = {"origin": origins[text]} if text in origins else {}
        yield {"type": "note", "notebook": book.key, "id": entry_id(text), **origin, "text": text}


def _change_record(change: Change, before: str, origins: Mapping[str, str]) -> dict[str, Any]:
    return {
        "type": "change",
        "notebook": change.target,
        "at": change.at,
        "who": change.who,
        "action": change.action,
        **({"session": change.session} if change.session else {}),
        **({"before": change.before} if change.before != before else {}),
        "after": change.after,
        **({"entries": json.loads(change.seen)} if change.seen is not None else {}),
        **({"origins": dict(sorted(origins.items()))} if origins else {}),
    }


# -- checking ---------------------------------------------------------------------------------

_TEXT: Final = (str,)
_NUMBER: Final = (int, float)
#: The fields of each record: what they must be, and which may be missing.
_FIELDS: Final[Mapping[str, Mapping[str, tuple[type, ...]]]] = {
    "header": {"format": _TEXT, "version": (int,)},
    "person": {"notebook": _TEXT, "platform": _TEXT, "user_id": _TEXT},
    "change": {
        "notebook": _TEXT, "at": _NUMBER, "who": _TEXT, "action": _TEXT, "session": _TEXT,
        "before": _TEXT, "after": _TEXT, "entries": (list,), "origins": (dict,),
    },
    "note": {"notebook": _TEXT, "id": _TEXT, "origin": _TEXT, "text": _TEXT},
    "pending": {"id": _TEXT, "record": (dict,)},
    "session": {
        **dict.fromkeys(SessionFacts._fields, _TEXT), "started": _NUMBER, "ended": _NUMBER,
    },
    "message": {
        "session": _TEXT, "id": _TEXT, "role": _TEXT, "at": _NUMBER, "content": _TEXT,
        "extra": (dict,),
    },
    "provider": {"name": _TEXT, "memories": (int,), "problems": (list,)},
    "memory": {
        **dict.fromkeys(("provider", "platform", "user_id", "chat_id", "profile"), _TEXT),
        "id": _TEXT, "created": _NUMBER, "text": _TEXT, "metadata": (dict,),
    },
}  # fmt: skip
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "header": ("format", "version"),
    "person": ("notebook", "platform", "user_id"),
    "change": ("notebook", "at", "who", "action", "after"),
    "note": ("notebook", "text"),
    "pending": ("id", "record"),
    "session": ("id",),
    "message": ("session", "role", "at", "content"),
    "provider": ("name",),
    "memory": ("provider", "id", "text"),
}


def _problem(record: Any) -> str:
    """What is wrong with a record; "" if nothing is."""
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        return "not a record with a type"
    fields = _FIELDS.get(record["type"])
    if fields is None:
        return f"unknown type {record['type']!r}"
    missing = [each for each in _REQUIRED[record["type"]] if each not in record]
    if missing:
        return f"{', '.join(missing)} is missing"
    for name, value in record.items():
        kinds = fields.get(name, (object,))
        is_wrong = not isinstance(value, kinds) or (isinstance(value, bool) and name in fields)
        if name != "type" and is_wrong:
            return f"{name} has a wrong value"
        if kinds is _NUMBER and not _is_time(value):
            return f"{name} has a wrong value"
    return _deep_problem(record)


def _deep_problem(record: Mapping[str, Any]) -> str:
    listed = [*record.get("entries", ())]
    if record["type"] == "change":
        listed += [*record.get("origins", {}).values()]
    if not all(isinstance(each, str) for each in listed):
        return "entries or origins has a wrong value"
    # The archive repairs what is in `extra`, and memories of providers are kept as they are.
    if record["type"] != "memory" and not all(
        _is_storable(value) for name, value in record.items() if name != "extra"
    ):
        return "half of a surrogate pair, which is not text"
    if record["type"] == "person":
        person = Person(record["platform"], record["user_id"])
        if record["notebook"] != f"user/{person.folder}":
            return "the notebook is not that of this person"
    return ""


def _is_time(value: float) -> bool:
    """Whether a storage can take it: no larger integer fits into 64 bits."""
    return abs(value) < 2**63 if isinstance(value, int) else isfinite(value)


def _is_storable(value: Any) -> bool:
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(slots=True)
class _Check:
    """Reads a whole file, and remembers what is wrong with it."""

    problems: list[str] = field(default_factory=list)
    notebooks: set[str] = field(default_factory=lambda: {"memory", "user"})
    session: str | None = None

    def look(self, number: int, record: Any) -> None:
        """Check one record."""
        problem = _problem(record) or self._context_problem(record, number)
        if problem:
            self.problems.append(f"line {number}: {problem}")

    def _context_problem(self, record: Record, number: int) -> str:
        kind = record["type"]
        if (kind == "header") != (number == 1):
            return "the header is the first line, and only that"
        if kind == "person":
            self.notebooks.add(record["notebook"])
        elif kind in ("change", "note") and record["notebook"] not in self.notebooks:
            return f"the notebook {record['notebook']!r} belongs to no person"
        elif kind == "session":
            self.session = record["id"]
        elif kind == "message" and record["session"] != self.session:
            return "a message has to follow its session"
        return ""


def _lines(file: BinaryIO) -> Iterator[tuple[int, Any]]:
    """Each line and what it has; an exception in place of what is not JSON."""
    parse = partial(json.loads, parse_float=_finite, parse_constant=_refuse_constant)
    number = 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        if not line.strip():
            continue
        try:
            yield number, parse(line)
        except (ValueError, RecursionError) as error:
            yield number, error


def _checked(file: BinaryIO, where: str) -> None:
    """Raise unless every line is right."""
    check = _Check()
    is_empty = True
    for number, record in _lines(file):
        is_empty = False
        if number == 1:
            _check_header(record, where)
        if isinstance(record, Exception):
            problem = str(record) if isinstance(record, _NumberError) else "not JSON"
            check.problems.append(f"line {number}: {problem}")
        else:
            check.look(number, record)
        if len(check.problems) >= _SHOWN_PROBLEMS:
            break
    if is_empty:
        raise PortableError("is empty", where=where, hint="export it again")
    if check.problems:
        raise PortableError(
            "; ".join(check.problems), where=where, hint="correct these lines, or export it again"
        )


def _check_header(record: Any, where: str) -> None:
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise PortableError(
            "is not an export of hermes-plugins",
            where=where,
            hint="for conversations of others: hermes-plugins sessions import FILE; for a backup:"
            " hermes-plugins restore FILE",
        )
    if isinstance(record.get("version"), int) and record["version"] > VERSION:
        raise PortableError(
            f"has format {record['version']}, and this version knows {VERSION}",
            where=where,
            hint="upgrade hermes-plugins",
        )


# -- reading ----------------------------------------------------------------------------------


def import_file(home: Path, file: Path, progress: Progress | None = None) -> Counts:
    """Add the notes and conversations of an export to a home; what is there already stays.

    Raises:
        PortableError: The file is not an export, or has wrong lines; nothing was imported.
        HermesError: A store can't be read or written; what was imported before that stays.
    """
    try:
        with open_regular(file) as source:
            _checked(source, str(file))
            source.seek(0)
            return _import(home, source, file.stat().st_size, progress)
    except OSError as error:
        what = f"can't be read: {error.strerror or error}"
        raise HermesError(what, where=str(file), hint="check the path") from error


def _import(home: Path, source: BinaryIO, size: int, progress: Progress | None) -> Counts:
    counts: Counter[str] = Counter()
    notes = _NotesImport(counts)
    with (
        closing(locate(home).open()) as archive,
        closing(ImportedMemories(home)) as imported,
    ):
        memories = _MemoriesImport(imported, counts)
        hand_over_spool(home, archive)
        sessions = _SessionImport(archive, counts)
        for _, record in _lines(source):
            match record["type"]:
                case "session":
                    sessions.begin(record)
                case "message":
                    sessions.add(record)
                case "provider" | "memory":
                    memories.add(record)
                case _:
                    notes.add(record)
            if progress is not None:
                progress(source.tell(), size)
        sessions.finish()
        memories.finish()
    notes.store(home)
    return _counted(counts)


class _MemoriesImport:
    """Stores memories of external providers, some at a time."""

    def __init__(self, memories: ImportedMemories, counts: Counter[str]) -> None:
        self._memories = memories
        self._counts = counts
        self._batch: list[tuple[Record, bytes]] = []
        self._size = 0

    def add(self, record: Record) -> None:
        """A memory, or what is said about a provider."""
        line = _line(record)
        if record["type"] == "provider":
            self._memories.add_provider(record["name"], line)
            return
        self._batch.append((record, line))
        self._size += len(line)
        if self._size > _BATCH_BYTES:
            self.finish()

    def finish(self) -> None:
        """Store those that are left."""
        if self._batch:
            new = self._memories.add(self._batch)
            self._counts["memory"] += new
            self._counts["known"] += len(self._batch) - new
            self._batch, self._size = [], 0


class _NotesImport:
    """Collects everything about the notes, which are few, and stores it at the end."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._notebooks: dict[str, _Contents] = {}
        self._pending: dict[str, Record] = {}
        self._people: list[Person] = []

    def add(self, record: Record) -> None:
        """A record; those of other kinds are ignored."""
        match record["type"]:
            case "person":
                self._people.append(Person(record["platform"], record["user_id"]))
            case "change" | "note":
                self._notebooks.setdefault(record["notebook"], _Contents()).add(record)
            case "pending":
                self._pending[record["id"]] = record["record"]

    def store(self, home: Path) -> None:
        """Store all of it."""
        with closing(Notes.open(home, load_config(home).memory)) as notes:
            for person in self._people:
                notes.introduce(person)
            for key, contents in self._notebooks.items():
                _import_notebook(notes, notes.book(key), contents, self._counts)
            _import_pending(notes, self._pending, self._counts)


class _SessionImport:
    """Stores one session after the other."""

    def __init__(self, archive: Archive, counts: Counter[str]) -> None:
        self._archive = archive
        self._counts = counts
        self._merge: SessionMerge | None = None

    def begin(self, record: Record) -> None:
        """The lines that follow are of this session."""
        self.finish()
        values = {key: record[key] for key in SessionFacts._fields if key in record}
        self._merge = SessionMerge(self._archive, SessionFacts(**values))
        if self._merge.is_new:
            self._merge.store_facts()
            self._counts["session"] += 1

    def add(self, record: Record) -> None:
        """A message of it."""
        message = NewMessage(
            record["role"], record["content"], float(record["at"]), record.get("extra")
        )
        assert self._merge is not None  # noqa: S101 - the lines were checked
        self._merge.add(message)

    def finish(self) -> None:
        """Store what is left of it."""
        if self._merge is not None:
            self._merge.store()
            self._counts["message"] += self._merge.messages
            self._counts["known"] += self._merge.known
            self._merge = None


@dataclass(slots=True)
class _Contents:
    """What a file has of one notebook."""

    changes: list[Change] = field(default_factory=list)
    entries: list[str] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        if record["type"] == "note":
            self.entries.append(record["text"])
            if "origin" in record:
                self.origins[record["text"]] = record["origin"]
            return
        self.origins |= record.get("origins", {})
        entries = record.get("entries")
        self.changes.append(
            Change(
                record["notebook"],
                record["who"],
                record["action"],
                record.get("session", ""),
                record.get("before", self.changes[-1].after if self.changes else ""),
                record["after"],
                None if entries is None else json.dumps(entries, ensure_ascii=False),
                at=float(record["at"]),
            )
        )


def _import_notebook(
    notes: Notes, book: Notebook, contents: _Contents, counts: Counter[str]
) -> None:
    known = notes.history.recorded_origins(contents.origins)
    # A file must not give authority to a text that this home has from somewhere else.
    origins = {text: each for text, each in contents.origins.items() if text not in known}
    is_restored = bool(contents.changes) and book.restore(contents.changes, origins)
    counts["change"] += len(contents.changes) if is_restored else 0
    # Also after that: somebody may have added a note to the file, and no change.
    present = set(book.read().entries)
    new = [each for each in contents.entries if each not in present]
    counts["known"] += 0 if is_restored else len(contents.entries) - len(new)
    counts["note"] += len(contents.entries) if is_restored else len(new)
    if new:
        book.merge(new, Author(IMPORT))
        of_new = {each: origins[each] for each in new if each in origins}
        notes.history.record_origins(of_new, book.key)


def _import_pending(notes: Notes, pending: Mapping[str, Record], counts: Counter[str]) -> None:
    for name, record in pending.items():
        if notes.pending.restore(name, record):
            counts["pending"] += 1
        else:
            counts["known"] += 1
