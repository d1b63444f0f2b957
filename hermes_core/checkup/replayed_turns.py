"""How far replays are, and what they have handed to each provider.

switch.json has an entry for each replay, switch.db the event ids of what was handed over, each with
a hash of its content. A batch is noted as begun before it goes to the outbox, and as done
afterwards. So a run after a crash knows which turns may have arrived.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.checkup.journal import Journal
from hermes_core.config.names import normalise
from hermes_core.errors import HermesError
from hermes_core.outbox.records import ProviderKey
from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import Schema

JOURNAL: Final = "switch.json"
REPLAYS: Final = Journal(
    JOURNAL,
    "an interrupted replay",
    "remove the file, and run `hermes-plugins switch NAME --replay` again",
)

DATABASE: Final = "switch.db"
_CREATE: Final = (
    "CREATE TABLE handed (provider TEXT NOT NULL, event TEXT NOT NULL, began REAL NOT NULL,"
    " done INTEGER NOT NULL, PRIMARY KEY (provider, event)) WITHOUT ROWID"
)
#: A hash of question and answer. It is "" for notes, and for what the first format had.
_ADD_CONTENT: Final = """
ALTER TABLE handed ADD COLUMN content TEXT NOT NULL DEFAULT '';
CREATE INDEX handed_content ON handed (provider, content);
"""
_SCHEMA: Final = Schema(
    "the list of replayed turns",
    application_id=0x48505357,  # "HPSW"
    migrations=(_CREATE, _ADD_CONTENT),
)
_HINT: Final = "move it away; the next replay hands over everything again"


# -- the journal ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replay:
    """How far the replay to one provider is. What it was handed is in `ReplayedTurns`.

    Attributes:
        provider: The provider's name.
        owner: Its owner.
        began: When it began; it has to go on with the list of what it handed over.
        asked: From when on turns are wanted.
        since: From when on this pass takes turns.
        until: Up to when.
        looks_up: Whether the provider may have turns already, so that it has to look.
        has_notes: Whether the notes are done.
        turns: How many turns were handed over.
        notes: How many notes.
        characters: How many characters they have.
        finished: When it had everything; 0.0 if it has not.
    """

    provider: str
    owner: str
    began: float = 0.0
    asked: float = 0.0
    since: float = 0.0
    until: float = 0.0
    looks_up: bool = False
    has_notes: bool = False
    turns: int = 0
    notes: int = 0
    characters: int = 0
    finished: float = 0.0

    @property
    def key(self) -> str:
        """Its name in the journal."""
        return f"{normalise(self.provider)}@{self.owner}"

    @property
    def target(self) -> ProviderKey:
        """The provider, as the outbox has it."""
        return ProviderKey(self.provider, self.owner)


def replays(home: Path) -> dict[str, Replay]:
    """What the journal says, by provider and owner.

    Raises:
        HermesError: It can't be read.
    """
    return REPLAYS.read(home, _parsed) or {}


def _parsed(data: dict[str, Any]) -> dict[str, Replay]:
    known = Replay.__dataclass_fields__  # a version of before has more
    found = []
    for each in data["replays"]:
        row = {key: value for key, value in each.items() if key in known}
        # It did not note which turns it had handed over: the provider has to look.
        found.append(Replay(**(row if "began" in row else {**row, "looks_up": True})))
    return {each.key: each for each in found}


def save_replay(home: Path, done: Replay) -> Replay:
    """Store how far a replay is; returns it."""
    known = {**replays(home), done.key: done}
    REPLAYS.write(home, {"replays": [asdict(each) for each in known.values()]})
    return done


def interrupted(home: Path) -> list[str]:
    """The providers whose replay did not reach its end."""
    try:
        return [each.provider for each in replays(home).values() if not each.finished]
    except HermesError:
        return ["NAME"]  # running it says what is wrong


# -- the list of events ---------------------------------------------------------------------------


class KnownTurn(NamedTuple):
    """What is known of a turn of the archive.

    Attributes:
        event: Its event id.
        content: A hash of its content.
        is_done: Whether it was handed over.
        has_content: Whether the list has its content; the first format had none.
    """

    event: str
    content: str
    is_done: bool = False
    has_content: bool = True


class ReplayedTurns:
    """What one provider was handed in one home.

    Args:
        home: The home.
        provider: Its name in the journal.
        began: When its replay began; what earlier ones handed over does not count.
    """

    def __init__(self, home: Path, provider: str, began: float) -> None:
        self._file = SqliteFile(home / DATABASE, _SCHEMA, durable=True, damage_hint=_HINT)
        self._exists = (home / DATABASE).exists()
        self._provider = provider
        self._began = began

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def done(self, events: Sequence[str]) -> set[str]:
        """Return which of these turns were handed over."""
        return self._known(events, done=1)

    def find(self, turns: Sequence[tuple[str, str]]) -> list[KnownTurn]:
        """Return what is known of the turns of a session, in their order.

        A turn is known by its content, wherever it is in its session now. A turn with an event id
        that other content had gets a new one: the provider would take it for what it has.

        Args:
            turns: The event id of each by its time and position, and its content.
        """
        if not self._exists:
            return [KnownTurn(event, content) for event, content in turns]

        def work(database: sqlite3.Connection) -> list[KnownTurn]:
            before: Counter[str] = Counter()
            found = []
            for event, content in turns:
                found.append(self._find(database, event, content, before[content]))
                before[content] += 1
            return found

        return self._file.read(work)

    def _find(self, database: sqlite3.Connection, event: str, content: str, nth: int) -> KnownTurn:
        """Return what is known of the nth turn with this content."""
        # Ids of an earlier replay, too: a provider that still has its turns looks them up.
        same = database.execute(
            "SELECT event, done AND began = ? FROM handed WHERE provider = ? AND content = ? "
            "ORDER BY 2 DESC, event",
            (self._began, self._provider, content),
        ).fetchall()
        if nth < len(same):
            return KnownTurn(same[nth][0], content, is_done=bool(same[nth][1]))
        row = database.execute(
            "SELECT content, done AND began = ? FROM handed WHERE provider = ? AND event = ?",
            (self._began, self._provider, event),
        ).fetchone()
        if row is None:
            return KnownTurn(event, content)
        if not row[0]:
            return KnownTurn(event, content, is_done=bool(row[1]), has_content=False)
        taken = {each for each, _ in same}
        ids = (_content_id(content, number) for number in count(nth))
        return KnownTurn(next(each for each in ids if each not in taken), content)

    def begun(self, events: Sequence[str]) -> set[str]:
        """Return which of these turns may have been handed over when a run was interrupted."""
        return self._known(events, done=0)

    def interrupted(self) -> set[str]:
        """Return everything that may have been handed over when a run was interrupted."""
        return {event for (event,) in self._rows("SELECT event", done=0)}

    def count(self) -> int:
        """Return how many turns and notes were handed over."""
        return sum(count for (count,) in self._rows("SELECT count(*)", done=1))

    def _rows(self, what: str, *, done: int) -> list[tuple[Any]]:
        if not self._exists:
            return []
        find = f"{what} FROM handed WHERE provider = ? AND began = ? AND done = ?"
        values = (self._provider, self._began, done)
        return self._file.read(lambda database: database.execute(find, values).fetchall())

    def _known(self, events: Sequence[str], *, done: int) -> set[str]:
        if not self._exists:  # a dry run creates nothing
            return set()
        find = "SELECT 1 FROM handed WHERE provider = ? AND event = ? AND began = ? AND done = ?"

        def work(database: sqlite3.Connection) -> set[str]:
            each = ((event, (self._provider, event, self._began, done)) for event in events)
            return {event for event, values in each if database.execute(find, values).fetchone()}

        return self._file.read(work)

    def begin(self, contents: Mapping[str, str]) -> None:
        """Note that these events, each with its content, are about to be handed over."""
        self._change(
            "INSERT OR REPLACE INTO handed (provider, event, began, done, content) "
            "VALUES (?, ?, ?, 0, ?)",
            [(self._provider, event, self._began, each) for event, each in contents.items()],
        )

    def finish(self, events: Iterable[str]) -> None:
        """Note that these were handed over: they are delivered, or wait in the outbox."""
        self._change(
            "INSERT INTO handed (provider, event, began, done) VALUES (?, ?, ?, 1) "
            "ON CONFLICT (provider, event) DO UPDATE SET began = excluded.began, done = 1",
            [(self._provider, each, self._began) for each in events],
        )

    def add_contents(self, turns: Iterable[KnownTurn]) -> None:
        """Note the content of turns that the list has without it."""
        self._change(
            "UPDATE handed SET content = ? WHERE provider = ? AND event = ?",
            [(each.content, self._provider, each.event) for each in turns if not each.has_content],
        )

    def _change(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            self._file.change(lambda database: database.executemany(statement, rows) and None)
            self._exists = True


def content_of(turn: str, question: str, answer: str) -> str:
    """Return a hash of what was said in a turn, for `ReplayedTurns`.

    Args:
        turn: The event id of the first turn of its session and time.
        question: What the user said.
        answer: What the agent answered.
    """
    text = f"{turn}\0{question}\0{answer}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _content_id(content: str, nth: int) -> str:
    """The event id of the nth turn with a content."""
    return blake2b(f"{content}\0{nth}".encode(), digest_size=16).hexdigest()
