"""Turns that the archive can't take now: they wait in files of the home, and are handed over later.

A turn is one line of JSON in ``spool/turns-0-RANDOM.jsonl``, which all processes of the home share.
While turns wait, the next ones of every process go behind them, so that the order stays. Whoever
hands a line over stores its number in the same transaction as its messages (`Archive.take_over`),
and removes the line afterwards: a process that is killed in between leaves a line that the archive
recognises.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from json import dumps, loads
from pathlib import Path
from time import localtime, monotonic, strftime, time_ns
from time import time as unix_time
from typing import Any, Final, NamedTuple
from uuid import UUID

from hermes_builtin.sessions.archive import FORGOTTEN, Archive, Matches, NewMessage, SessionFacts
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_core.dispatch.worker import Worker
from hermes_core.errors import DatabaseError, HermesError
from hermes_core.storage.files import LockTimeoutError, file_lock, replace_file, sync_folder
from hermes_core.storage.home import ensure_folder
from hermes_core.storage.lines import append_line, fields_of, last_line, line_of, lines_of
from hermes_core.storage.migration import is_frozen
from hermes_core.storage.sqlite_connection import error_code, is_damage

logger = logging.getLogger("hermes_builtin")

#: What the archive calls the turns of a file, followed by the file's random part.
ORIGIN: Final = "spool:"

_FOLDER: Final = "spool"
_PREFIX: Final = "turns-"
# Where older versions have the number of the only process that appends to the file.
_SHARED: Final = f"{_PREFIX}0-"
_DAMAGED: Final = "damaged.jsonl"
_BEHIND: Final = "turns before it wait for the archive"
# Appending takes milliseconds; a turn does not wait for longer.
_LOCK_SECONDS: Final = 5.0
# So long may what others left hold up the first turn, or the end. The rest follows later.
_BRIEFLY: Final = 2.0
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 15.0

#: What is wrong with the message itself: it would be refused again and again.
_REFUSED: Final = frozenset(
    (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH)
)
#: The same as PostgreSQL says it, by SQLSTATE: bad data, a constraint, a limit.
_REFUSED_STATES: Final = ("22", "23", "54")
#: But not this one: a number that is taken is not the turn's fault.
_TAKEN_STATE: Final = "23505"


#: A value that Python can't encode or convert. Any other error says something about the storage.
_REFUSED_TYPES: Final = (ValueError, TypeError, ArithmeticError, RecursionError)


def may_succeed_later(error: BaseException) -> bool:
    """Whether storing failed because of the storage, whichever it is, not because of the turn."""
    if isinstance(error, _REFUSED_TYPES):
        return False
    if is_frozen(error):  # it moves to another storage, which takes the turn then
        return True
    cause: BaseException | None = error
    while cause is not None:
        state = getattr(cause, "sqlstate", None)
        if isinstance(state, str) and state.startswith(_REFUSED_STATES):
            return state == _TAKEN_STATE
        cause = cause.__cause__
    return error_code(error) not in _REFUSED


# -- lines -----------------------------------------------------------------------------------


class SpooledTurn(NamedTuple):
    """A turn that waits; ``number`` is its place, ``why`` the reason.

    ``key`` is what the archive calls it, which may have stored it without being able to say so.
    """

    number: int
    at: float
    why: str
    facts: SessionFacts
    messages: list[NewMessage]
    key: str = ""

    def to_line(self) -> bytes:
        """The line that stands for it."""
        messages = [[*each[:3], _plain(each.extra)] for each in self.messages]
        fields = {
            "number": self.number,
            "at": self.at,
            "why": self.why,
            "facts": self.facts._asdict(),
            "messages": messages,
            **({"key": self.key} if self.key else {}),
        }
        return line_of(fields)


def _plain(extra: Any) -> Any:
    """What else is known of a message, as JSON can have it."""
    try:
        return loads(dumps(dict(extra), default=str, skipkeys=True)) if extra else None
    except (ValueError, RecursionError):  # it contains itself
        return {str(key): str(value) for key, value in extra.items()}


def _turn_of(line: bytes) -> SpooledTurn | None:
    """The turn of a line; None if it is not what was written."""
    fields = fields_of(line)
    if fields is None:
        return None
    try:
        messages = [NewMessage(*each) for each in fields["messages"]]
        facts = SessionFacts(**fields["facts"])
        number, at, why = fields["number"], fields["at"], fields["why"]
        return SpooledTurn(number, at, why, facts, messages, str(fields.get("key", "")))
    except (ValueError, KeyError, TypeError):  # written by a newer version
        return None


# -- the spool of a home ---------------------------------------------------------------------


class SpoolStatus(NamedTuple):
    """How many turns wait, since when, and why the first of them does."""

    turns: int = 0
    since: float = 0.0
    why: str = ""
    damaged: int = 0

    @property
    def text(self) -> str:
        """A warning for people; "" if there is nothing to warn about."""
        parts = []
        if self.turns:
            since = strftime("%Y-%m-%d %H:%M", localtime(self.since))
            many = "1 turn waits" if self.turns == 1 else f"{self.turns:,} turns wait"
            parts.append(f"{many} in the spool since {since}, because {self.why}")
        if self.damaged:
            lines = "1 line is" if self.damaged == 1 else f"{self.damaged:,} lines are"
            parts.append(f"{lines} damaged or refused, and set aside: see {_FOLDER}/{_DAMAGED}")
        return "; ".join(parts)


class Spool:
    """The turns of a home that wait for the archive. All agents of a process share one.

    Args:
        home: Whose turns.
        open_archive: Opens the archive for whoever closes it soon.
        clock: Measures pauses. A test passes its own.
    """

    def __init__(
        self,
        home: Path,
        open_archive: Callable[[], Archive],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._folder = home / _FOLDER
        #: Why the archive took no turn when it was last tried.
        self.reason = _BEHIND
        self._open_archive = open_archive
        self._clock = clock
        self._is_first_turn = True
        # Writing to a damaged archive again could destroy what a repair can still save.
        self._gives_up = False
        self._pause = _FIRST_PAUSE
        self._due = 0.0
        self._worker = Worker("hermes-spool", step=self._retry, linger=0)
        #: How many agents share it, see `shared_spool`.
        self.users = 0

    # -- writing ---------------------------------------------------------------------------

    def is_ahead(self, archive: Callable[[], Archive]) -> bool:
        """Whether turns wait that must be stored before the next one, whoever wrote them."""
        is_first, self._is_first_turn = self._is_first_turn, False
        if not self._may_wait():
            return False
        if is_first:
            self._hand_over_briefly(archive)
        return bool(self._files())

    def _may_wait(self) -> bool:
        """Whether there is a file that may have turns. Each turn asks, so none is read."""
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - a path for each name is slow
        except OSError:
            return False
        return any(name.startswith(_PREFIX) for name in names)

    def _hand_over_briefly(self, archive: Callable[[], Archive]) -> None:
        try:
            error = self.hand_over(archive(), _BRIEFLY)
        except (HermesError, OSError) as found:
            error = found
        if error is not None:
            logger.warning("sessions: the spool can't be handed over: %s", error)
            self._gives_up = is_damage(error)
            self.reason = str(error)

    def add(
        self,
        facts: SessionFacts,
        messages: Sequence[NewMessage],
        *,
        durable: bool,
        key: UUID | None = None,
    ) -> None:
        """Write a turn behind all others of the home.

        Args:
            facts: What is known of its session.
            messages: What was said.
            durable: Whether it survives a power cut, too.
            key: The key under which `Archive.append` was asked to store it.

        Raises:
            OSError: It can't be written.
            HermesError: The folder can't be created, or the lock was not free in time.
        """
        ensure_folder(self._folder)
        with self._locked():
            path, number = self._next()
            known = key.hex if key is not None else ""
            turn = SpooledTurn(number, unix_time(), self.reason, facts, list(messages), known)
            line = turn.to_line()
            is_new = not path.exists()
            append_line(path, line, durable=durable)
            if is_new and durable:
                sync_folder(self._folder)
        logger.warning("sessions: a turn waits in the spool: %s", self.reason)
        if not self._gives_up and not self._worker.alive:
            self._due = self._clock() + self._pause
            self._worker.wake()

    def set_aside(
        self, facts: SessionFacts, messages: Sequence[NewMessage], key: UUID, why: str
    ) -> Path:
        """Store a turn that the archive would refuse again; returns the file with such turns.

        No turn waits behind it, and a person may look at it. Raises what `add` does.
        """
        ensure_folder(self._folder)
        turn = SpooledTurn(0, unix_time(), why, facts, list(messages), key.hex)
        return self._set_aside(turn.to_line(), why)

    def _next(self) -> tuple[Path, int]:
        """The file for the next turn, and the turn's number."""
        files = self._files()
        newest = files[-1] if files else None
        # The archive may know numbers that no line has: of turns that were forgotten, or that came
        # after a backup of this file. The clock is beyond them.
        least = time_ns() // 1000
        if newest is not None and newest.name.startswith(_SHARED):
            turn = _turn_of(last_line(newest))
            if turn is not None:
                return newest, max(turn.number + 1, least)
        # Numbers go on over files: they say which file is older, even if the clock was set back.
        last = max((turn.number for turn in self._turns()), default=0)
        name = f"{_SHARED}{os.urandom(6).hex()}.jsonl"
        return self._folder / name, max(last + 1, least)

    # -- handing over ----------------------------------------------------------------------

    def hand_over(self, archive: Archive, seconds: float = 3600.0) -> HermesError | OSError | None:
        """Store what waits, in order and each turn once; returns why not all of it, if it can't."""
        end = self._clock() + seconds
        if not self._files():
            return None
        try:
            # One at a time, of all processes: who finds a turn not stored yet is its only storer.
            with file_lock(self._folder / "handover.lock", 0):
                for path in self._files():
                    # Others may add to it meanwhile.
                    while path.exists() and self._clock() < end:
                        self._hand_over_file(path, archive, end)
        except LockTimeoutError:
            return None
        except FileNotFoundError:  # the folder: nothing was ever spooled
            return None
        except (HermesError, OSError) as error:
            return error
        except Exception as error:  # noqa: BLE001 - whatever it is, the turns are still there
            return DatabaseError(f"{type(error).__name__}: {error}")
        if not self._files():
            self.reason = _BEHIND
        return None

    def _hand_over_file(self, path: Path, archive: Archive, end: float) -> None:
        origin = ORIGIN + path.stem.rpartition("-")[2]
        stored: dict[str, int] = {}
        done = 0
        try:
            for line in self._read(path):
                if self._clock() >= end:
                    break
                turn = _turn_of(line)
                if turn is not None:
                    name = turn.facts.id
                    if name not in stored:
                        stored[name] = archive.imported(origin, name)
                    if turn.number > stored[name]:
                        self._store(archive, origin, turn, line)
                elif line.endswith(b"\n"):
                    self._set_aside(line, "it is damaged")
                else:
                    # The process was killed while it wrote: no caller knows this as stored.
                    logger.warning("sessions: %s ends within a turn, which is dropped", path)
                done += len(line)
        finally:
            self._drop(path, done)

    def _store(self, archive: Archive, origin: str, turn: SpooledTurn, line: bytes) -> None:
        try:
            key = UUID(turn.key) if turn.key else None
            archive.take_over(origin, turn.number, turn.facts, turn.messages, key)
        except Exception as error:
            if may_succeed_later(error):
                raise
            self._set_aside(line, str(error))

    def _set_aside(self, line: bytes, why: str) -> Path:
        path = self._folder / _DAMAGED
        logger.error("sessions: a turn is set aside in %s: %s", path, why)
        with self._locked():
            # A process that was killed may have done it before.
            if not path.exists() or line not in path.read_bytes():
                append_line(path, line, durable=True)
        return path

    def _drop(self, path: Path, size: int) -> None:
        """Remove the beginning of a file that was handed over."""
        with self._locked():
            rest = path.read_bytes()[size:]
            if not rest:
                path.unlink()
            elif size:
                replace_file(path, rest)

    def _retry(self) -> float | None:
        """Hand over in the background; returns when to try again."""
        if (left := self._due - self._clock()) > 0:
            return left
        try:
            with closing(self._open_archive()) as archive:
                error = self.hand_over(archive)
        except (HermesError, OSError) as found:
            error = found
        self._gives_up = error is not None and is_damage(error)
        if self._gives_up or not self._files():
            self._pause = _FIRST_PAUSE
            return None
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        self._due = self._clock() + self._pause
        return self._pause

    def close(self) -> None:
        """One agent less; the last one stops handing over in the background."""
        self.users -= 1
        if self.users <= 0:
            self._worker.stop(_BRIEFLY)

    # -- reading ---------------------------------------------------------------------------

    def waiting(self) -> SpoolStatus:
        """How much waits."""
        turns = list(self._turns())
        aside = self._folder / _DAMAGED
        damaged = aside.read_bytes().count(b"\n") if aside.exists() else 0
        if not turns:
            return SpoolStatus(damaged=damaged)
        return SpoolStatus(len(turns), turns[0].at, turns[0].why, damaged)

    @contextmanager
    def as_archive(self) -> Iterator[Archive]:
        """What waits, as a separate archive that can be searched."""
        folder = Path(tempfile.mkdtemp(prefix="hermes-"))
        try:
            with closing(SqliteArchive(folder / "spool.db")) as archive:
                for turn in self._turns():
                    archive.append(turn.facts, turn.messages)
                yield archive
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _turns(self) -> Iterator[SpooledTurn]:
        for path in self._files():
            with suppress(FileNotFoundError):
                yield from filter(None, map(_turn_of, lines_of(path.read_bytes())))

    def _files(self) -> list[Path]:
        """The files that wait, the oldest first."""
        found = []
        for path in self._folder.glob(f"{_PREFIX}*.jsonl"):
            with suppress(OSError), path.open("rb") as file:
                turns = filter(None, map(_turn_of, file))  # usually, the first line is read
                found.append((next((turn.number for turn in turns), 0), path))
        return [path for _, path in sorted(found)]

    def _read(self, path: Path) -> list[bytes]:
        with self._locked():
            return lines_of(path.read_bytes())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Nobody else reads or writes a file of the spool meanwhile."""
        with file_lock(self._folder / "lock", _LOCK_SECONDS):
            yield

    # -- forgetting ------------------------------------------------------------------------

    def forget(
        self, matches: Matches, is_meant: Callable[[SessionFacts], bool], *, delete: bool
    ) -> int:
        """Remove texts, and the turns of sessions that are meant; returns how many turns.

        Raises:
            HermesError: Turns are being handed over; or a file can't be changed.
        """
        if not self._folder.is_dir():
            return 0
        count = 0
        with file_lock(self._folder / "handover.lock", _LOCK_SECONDS), self._locked():
            for path in [*self._files(), self._folder / _DAMAGED]:
                if not path.exists():
                    continue
                before = lines_of(path.read_bytes())
                after = [_without(line, matches, is_meant) for line in before]
                count += sum(new != old for new, old in zip(after, before, strict=True))
                if not delete or after == before:
                    continue
                if rest := b"".join(after):
                    replace_file(path, rest)
                else:
                    path.unlink()
        return count


def _without(line: bytes, matches: Matches, is_meant: Callable[[SessionFacts], bool]) -> bytes:
    turn = _turn_of(line)
    if turn is None:
        return b"" if matches(line.decode("utf-8", "replace")) else line
    if is_meant(turn.facts):
        return b""
    if not matches(line.decode("ascii")):
        return line
    messages = []
    for each in turn.messages:
        extra = {
            key: value
            for key, value in (each.extra or {}).items()
            if not matches(dumps({key: value}))
        }
        content = FORGOTTEN if matches(each.content) else each.content
        messages.append(each._replace(content=content or FORGOTTEN, extra=extra or None))
    facts = turn.facts
    if matches(facts.title):
        facts = facts._replace(title="")
    why = "" if matches(turn.why) else turn.why
    return turn._replace(messages=messages, facts=facts, why=why).to_line()


# -- one for each home of a process ------------------------------------------------------------

# Module state: all agents of a process wait for each other's turns in a home.
_SPOOLS: Final[dict[Path, Spool]] = {}


def shared_spool(home: Path, open_archive: Callable[[], Archive]) -> Spool:
    """The spool that all agents of this process share for a home; each closes it once."""
    spool = _SPOOLS.setdefault(home, Spool(home, open_archive))
    spool.users = max(spool.users, 0) + 1
    return spool
