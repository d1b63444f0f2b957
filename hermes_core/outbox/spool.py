"""Writes that the server of the outbox can't take now: they wait in a file of the home.

Each is one line of ``spool/writes.jsonl``, which all processes of the home share. As long as one
waits, the next ones go behind it, so that the order stays. Whoever can reach the server hands them
over: the worker of an agent, or a command. A process that is killed loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time  # bound before a plugin can replace it
from typing import Final

from hermes_core.errors import DatabaseError
from hermes_core.outbox.records import StreamKey, WriteContent
from hermes_core.outbox.store import DEFAULT_MAX_MB, OutboxFull, OutboxStore
from hermes_core.storage.files import LockTimeoutError, file_lock, replace_file, sync_folder
from hermes_core.storage.home import ensure_folder
from hermes_core.storage.lines import append_line, ends_with_line, fields_of, line_of, lines_of
from hermes_core.storage.logger import logger

Matches = Callable[[str], bool]
IsTheirs = Callable[[StreamKey], bool]

_FOLDER: Final = "spool"
_FILE: Final = "writes.jsonl"
_DAMAGED: Final = "damaged.jsonl"
# Appending takes milliseconds; a turn does not wait for longer.
_LOCK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class SpooledWrite:
    """A write that waits.

    Attributes:
        provider: With the next three, the key of its stream.
        owner: See `StreamKey`.
        session: See `StreamKey`.
        keywords: See `StreamKey`.
        event_id: Its event id.
        hook: Its hook.
        payload: Its content.
        at: When it was written.
        why: Why the server did not take it.
    """

    provider: str
    owner: str
    session: str
    keywords: str
    event_id: str
    hook: str
    payload: str
    at: float
    why: str

    @property
    def key(self) -> StreamKey:
        """The stream that it belongs to."""
        return StreamKey(self.provider, self.owner, self.session, self.keywords)


class OutboxSpool:
    """The writes of a home that wait for the server of its outbox.

    Args:
        home: Whose.
        max_bytes: How large the file may grow.
        durable: Whether a write survives a power cut, too.
    """

    def __init__(
        self, home: Path, *, max_bytes: int = DEFAULT_MAX_MB * 1_000_000, durable: bool = False
    ) -> None:
        self._folder = home / _FOLDER
        self._path = self._folder / _FILE
        self._max_bytes = max_bytes
        self._durable = durable
        #: Why the server did not take the last one that it was asked to take.
        self._reason = "writes before it wait"

    @property
    def exists(self) -> bool:
        """Whether something waits."""
        return self._path.exists()

    # -- writing --------------------------------------------------------------------------

    def add(self, key: StreamKey, content: WriteContent, why: str = "") -> None:
        """Store a write behind all others.

        Args:
            key: The stream that it belongs to.
            content: What to store.
            why: Why the server did not take it; by default, as for the one before it.

        Raises:
            OutboxFull: There is no room.
            HermesError: It can't be written.
        """
        try:
            ensure_folder(self._folder)
            with self._locked():
                self._add(key, content, why)
        except OSError as error:
            where = str(self._path)
            raise DatabaseError(f"the write can't be stored: {error}", where=where) from error

    def _add(self, key: StreamKey, content: WriteContent, why: str) -> None:
        before = self._cut()
        self._reason = why or self._reason
        line = line_of(asdict(SpooledWrite(*key, *content, time(), self._reason)))
        if before + len(line) > self._max_bytes:
            raise OutboxFull(
                f"the spool of the outbox is full ({self._max_bytes / 1e6:g} MB): this write is"
                " not queued",
                where=str(self._path),
                hint="when the server works again, run: hermes-plugins outbox backfill --since 1d",
            )
        append_line(self._path, line, durable=self._durable)
        if not before and self._durable:
            sync_folder(self._folder)

    def _cut(self) -> int:
        """Remove a line without an end, whose writer was killed; return the size of the rest."""
        if not self._path.exists():
            return 0
        size = self._path.stat().st_size
        if size and not ends_with_line(self._path):
            whole = self._path.read_bytes().rpartition(b"\n")
            replace_file(self._path, whole[0] + whole[1])
            size = self._path.stat().st_size
        return size

    # -- handing over ---------------------------------------------------------------------

    def hand_over(self, store: OutboxStore) -> None:
        """Put what waits into the outbox, in order.

        The outbox stores the event id of the last one in the same transaction. So what was put
        there, and not removed here because the process was killed, is not put there again.

        Raises:
            HermesError: The rest waits on: the outbox can't be used, or the file can't be changed.
        """
        if not self.exists:
            return
        try:
            # One at a time, of all processes: two would put a write there twice.
            with file_lock(self._folder / "outbox.lock", 0):
                while self.exists:
                    self._hand_over(store)
        except LockTimeoutError:
            return
        except OSError as error:
            raise DatabaseError(f"can't be read: {error}", where=str(self._path)) from error

    def _hand_over(self, store: OutboxStore) -> None:
        with self._locked():
            lines = lines_of(self._path.read_bytes())
        writes = [_write_of(line) for line in lines]
        known = store.handed_over(["" if each is None else each.event_id for each in writes])
        done, last = sum(map(len, lines[:known])), ""
        if known and (write := writes[known - 1]) is not None:
            last = write.event_id
        try:
            for line, write in zip(lines[known:], writes[known:], strict=True):
                if write is not None:
                    self._put(store, write, last)
                    last = write.event_id
                elif line.endswith(b"\n"):
                    self._set_aside(line)
                done += len(line)
        finally:
            self._drop(done)
        if last:
            store.forget_spooled(last)

    @staticmethod
    def _put(store: OutboxStore, write: SpooledWrite, before: str) -> None:
        content = WriteContent(write.event_id, write.hook, write.payload)
        try:
            store.put(write.key, 0, content, claim=False, spooled_after=before, created=write.at)
        except OutboxFull as error:  # it is stored without its content: `backfill` finds the turn
            logger.error("memory: %s", error)

    def _set_aside(self, line: bytes) -> None:
        path = self._folder / _DAMAGED
        logger.error("memory: a damaged line of the spool is moved to %s", path)
        with self._locked():
            # A process that was killed may have done it before.
            if not path.exists() or line not in path.read_bytes():
                append_line(path, line, durable=True)

    def _drop(self, size: int) -> None:
        """Remove the beginning of the file, which was handed over."""
        with self._locked():
            rest = self._path.read_bytes()[size:]
            if not rest:
                self._path.unlink()
            elif size:
                replace_file(self._path, rest)

    def forget(
        self,
        matches: Callable[[str], bool],
        is_theirs: Callable[[StreamKey], bool],
        *,
        delete: bool,
    ) -> int:
        """Find writes that have a text, or are of a session or person, and delete them.

        Returns:
            How many there are.

        Raises:
            HermesError: They are being handed over.
            OSError: The file can't be read or changed.
        """
        if not self.exists:
            return 0
        with file_lock(self._folder / "outbox.lock", _LOCK_SECONDS), self._locked():
            lines = lines_of(self._path.read_bytes()) if self.exists else []
            kept = [each for each in lines if not _is_meant(each, matches, is_theirs)]
            if delete and not kept:
                self._path.unlink(missing_ok=True)
            elif delete and kept != lines:
                replace_file(self._path, b"".join(kept))
        return len(lines) - len(kept)

    # -- reading --------------------------------------------------------------------------

    def writes(self) -> list[SpooledWrite]:
        """What waits, in order."""
        with suppress(OSError):
            return [*filter(None, map(_write_of, lines_of(self._path.read_bytes())))]
        return []

    def count(self, keys: Iterable[StreamKey]) -> int:
        """How many writes of some streams wait."""
        wanted = {*keys} if self.exists else set()
        return sum(each.key in wanted for each in self.writes()) if wanted else 0

    def waiting(self) -> tuple[int, str]:
        """How many writes wait, also damaged ones, and why."""
        lines: list[bytes] = []
        with suppress(OSError):
            lines = [each for each in lines_of(self._path.read_bytes()) if each.endswith(b"\n")]
        if not lines:
            return 0, ""
        first = _write_of(lines[0])
        return len(lines), first.why if first is not None else "the first of them is damaged"

    def text(self) -> str:
        """A warning for people; "" if nothing waits."""
        count, why = self.waiting()
        if not count:
            return ""
        many = "1 write waits" if count == 1 else f"{count:,} writes wait"
        return f"{many} for the outbox in the spool, because {why}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Nobody else reads or writes a file of the spool meanwhile."""
        with file_lock(self._folder / "lock", _LOCK_SECONDS):
            yield


def _is_meant(line: bytes, matches: Matches, is_theirs: IsTheirs) -> bool:
    write = _write_of(line)
    return matches(line.decode("utf-8", "replace")) or (write is not None and is_theirs(write.key))


def _write_of(line: bytes) -> SpooledWrite | None:
    """The write of a line; None if it is not what was written."""
    try:
        fields = fields_of(line)
        return None if fields is None else SpooledWrite(**fields)
    except TypeError:  # written by a newer version
        return None
