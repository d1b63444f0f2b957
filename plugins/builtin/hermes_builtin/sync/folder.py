"""One run of `hermes-plugins sync`: what this home has goes to a shared folder, and the reverse."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hermes_builtin.notes import Notes
from hermes_builtin.portable import hand_over_spool
from hermes_builtin.sessions.location import locate
from hermes_builtin.sync.log import Line, MachineLog, Record, SyncError, machine_logs
from hermes_builtin.sync.notes import (
    NOTE,
    REMOVE,
    FreeSpace,
    NotesResult,
    NotesSync,
    all_removals,
    check_note,
    kept_note,
    note_size,
)
from hermes_builtin.sync.session_lines import KINDS, check_session
from hermes_builtin.sync.sessions import (
    KeptLines,
    Progress,
    SessionsResult,
    SessionsSync,
    all_deletions,
)
from hermes_builtin.sync.state import (
    DivergedError,
    State,
    Tag,
    find_state,
    new_machine_id,
)
from hermes_builtin.sync.values import UNUSABLE
from hermes_core.config import load_config
from hermes_core.errors import CHECK_FOLDER, HermesError
from hermes_core.storage.files import LockTimeoutError, file_lock
from hermes_core.storage.home import ensure_folder

_LOCK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much was sent, or received."""

    notes: int = 0
    removed_notes: int = 0
    sessions: int = 0
    messages: int = 0
    deleted_sessions: int = 0


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a run did, or would do.

    Attributes:
        folder: The shared folder.
        machine: The id of this machine in it.
        machines: The ids of all machines.
        sent: What went to the folder.
        received: What came from it.
        conflicts: Notes that were changed on two machines; both versions are there.
        messages: What else there is to know.
        incomplete: Machines whose logs are not completely there yet.
        problems: Machines whose logs can't be read.
    """

    folder: str
    machine: str
    machines: tuple[str, ...]
    sent: Amounts
    received: Amounts
    conflicts: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def sync_folder(
    home: Path,
    shared: Path,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.time,
) -> SyncReport:
    """Share notes and conversations with other machines through a folder.

    Args:
        home: The Hermes home.
        shared: The folder, which must exist.
        dry_run: Only say what would be done.
        progress: Called with how much is done, and of how much.
        clock: Returns the time.

    Raises:
        SyncError: The folder can't be used; nothing is lost.
        HermesError: The notes or conversations of the home can't be read or written.
    """
    shared = shared.absolute()
    _check_folder(home, shared)
    try:
        with _locked(home, dry_run), _state(home, shared, dry_run) as (state, messages):
            return _SyncRun(home, state, dry_run, progress, clock).run(messages)
    except DivergedError:
        raise SyncError(
            "the log of this machine was changed meanwhile", where=str(shared), hint="run it again"
        ) from None
    except OSError as error:
        where = str(error.filename or shared)
        what = f"can't be used: {error.strerror or error}"
        raise SyncError(what, where=where, hint=CHECK_FOLDER) from error


def _check_folder(home: Path, shared: Path) -> None:
    if not shared.is_dir():
        raise SyncError(
            "no such folder", where=str(shared), hint="create it, or mount its disk, and try again"
        )
    if shared.resolve().is_relative_to(home.resolve()):
        raise SyncError(
            "is inside of the Hermes home", where=str(shared), hint="choose a folder outside of it"
        )
    if home.resolve().is_relative_to(shared.resolve()):
        # Whatever transfers the folder would also transfer state.db, and two agents would write it.
        raise SyncError(
            "has the Hermes home in it",
            where=str(shared),
            hint="choose a folder for nothing else, for example a new one in it",
        )


@contextmanager
def _locked(home: Path, dry_run: bool) -> Iterator[None]:
    if dry_run:
        yield
        return
    with ExitStack() as held:
        try:
            path = ensure_folder(home / "sync") / "lock"
            held.enter_context(file_lock(path, _LOCK_SECONDS))
        except LockTimeoutError as error:
            raise SyncError(
                f"another sync of this home runs ({error.holder})", hint="try again later"
            ) from error
        yield


@contextmanager
def _state(home: Path, shared: Path, dry_run: bool) -> Iterator[tuple[State, list[str]]]:
    """The state of a folder; with a dry run, of a new folder one that is not kept."""
    path = find_state(home, shared)
    messages: list[str] = []
    with ExitStack() as stack:
        machine = new_machine_id()
        if path is None and dry_run:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-sync-"))
            path = Path(temporary, f"{machine}.db")
        state = State(path or home / "sync" / f"{machine}.db", shared)
        stack.callback(state.close)
        if not state.machine:
            state.begin(state.path.stem, machine.rpartition("-")[0])
        elif not dry_run:
            state = _checked(state, stack, messages)
        if not dry_run:
            state.set(path=shared)
        yield state, messages


def _checked(state: State, stack: ExitStack, messages: list[str]) -> State:
    """The state, or one with a new id if our log is not as we left it.

    That is so if the home was copied to another machine or restored from a backup, or if the
    service that transfers the folder damaged, lost or mixed up files. Then what we have written
    stays another machine's, and what is missing there is sent again.
    """
    try:
        state.check_log()
    except DivergedError:
        old, known = state.machine, state.known_part()
        path = state.path.with_name(f"{new_machine_id()}.db")
        messages.append(
            f"{old} in this folder is damaged, or was also written by another home: a copy or a"
            f" restored backup? This home syncs as {path.stem} from now on"
        )
        state.become(path.stem, known, _removals)
        state.close()
        state.path.rename(path)
        state = State(path, state.shared)
        stack.callback(state.close)
    return state


def _removals(state: State) -> Iterator[Record]:
    yield from all_removals(state)
    yield from all_deletions(state)


def _check_line(line: Line, log: MachineLog) -> None:
    """Raise unless what is to be done by a line is clear: the other machines' are read."""
    try:
        Tag.of(log.machine, line)
        if line.kind in (NOTE, REMOVE):
            check_note(line)
        elif line.kind in KINDS:
            check_session(line)
    except UNUSABLE as error:
        raise _unusable(log, f"line {line.seq} ({line.kind})") from error


def _unusable(log: MachineLog, what: str) -> SyncError:
    return SyncError(
        f"{what} can't be used, so nothing of this machine was read",
        where=str(log.folder),
        hint="sync on that machine with the newest hermes-plugins",
    )


class _SyncRun:
    def __init__(
        self,
        home: Path,
        state: State,
        dry_run: bool,
        progress: Progress | None,
        clock: Callable[[], float],
    ) -> None:
        self._home, self._state, self._dry_run = home, state, dry_run
        self._progress, self._clock = progress, clock
        self._notes, self._sessions = NotesResult(), SessionsResult()
        self._problems: list[str] = []
        self._replaced: set[str] = set()

    def run(self, messages: list[str]) -> SyncReport:
        """Read and write."""
        with (
            closing(locate(self._home).open()) as archive,
            closing(Notes.open(self._home, load_config(self._home).memory)) as opened,
        ):
            if not self._dry_run:
                hand_over_spool(self._home, archive)
            logs = self._readable(FreeSpace(opened))
            notes = NotesSync(opened, self._state, self._notes)
            sessions = SessionsSync(archive, self._state, self._sessions, self._clock)
            self._exchange(notes, sessions, logs)
            notes.report_conflicts()
            messages += [*self._notes.messages, *notes.over_limit()]
        return self._report(logs, messages)

    def _exchange(self, notes: NotesSync, sessions: SessionsSync, logs: list[MachineLog]) -> None:
        dry, state = self._dry_run, self._state
        # A new or interrupted machine reads first, so it does not send what others already have.
        joined = state.get("joined")
        reads_first = bool(state.get("token")) or joined != "yes"
        if joined != "yes" and not dry:
            if not joined:
                sessions.ignore_marks()
                state.set(joined="begun")
            with state.publishing():
                pass
            state.flush()
        sessions.publish_deletions(dry_run=dry)
        if not dry:
            sessions.publish_replaced()
        if not reads_first:
            notes.publish(dry_run=dry)
        state.flush()
        notes.apply(logs, dry_run=dry)
        sessions.apply(logs, self._progress, dry_run=dry)
        if reads_first:
            notes.publish(dry_run=dry)
        sessions.publish(self._progress, dry_run=dry)
        if not dry:
            state.set(joined="yes")
            state.flush()
            self._erase()

    def _erase(self) -> None:
        """Write our own log again without texts that were forgotten or deleted.

        Who stores that they are says so in the same step: an interrupted run must not forget it.
        """
        state = self._state
        if state.get("erase"):
            sessions = KeptLines(state)

            def kept(line: Line) -> Record | None:
                return kept_note(state, line) if line.kind in (NOTE, REMOVE) else sessions.of(line)

            state.rewrite(kept)
            state.set(erase="")

    def _readable(self, space: FreeSpace) -> list[MachineLog]:
        """The logs that can be read; for the others there is a problem."""
        found = []
        for log in machine_logs(self._state.shared):
            try:
                self._check_log(log, space)
            except (HermesError, OSError) as error:
                text = str(error) if isinstance(error, HermesError) else f"{log.folder}: {error}"
                self._problems.append(text)
            else:
                found.append(log)
        self._report_damage(found)
        return found

    def _check_log(self, log: MachineLog, space: FreeSpace) -> None:
        """Raise unless all new lines of a log can be used."""
        read = self._state.read_up_to(log.machine, "notes")
        sizes: dict[Tag, tuple[str, int]] = {}
        try:
            log.read_header()
            for line in log.lines(0 if self._dry_run else self._known(log)):
                _check_line(line, log)
                if line.kind in (NOTE, REMOVE):  # what is gone again needs no room
                    gone = line.record.get("tags" if line.kind == REMOVE else "replaces", ())
                    for tag in gone:
                        sizes.pop(Tag.read(tag), None)
                if line.kind == NOTE and line.seq > read:
                    sizes[Tag.of(log.machine, line)] = note_size(line)
        except UNUSABLE as error:
            raise _unusable(log, "its header") from error
        space.take(log, sizes.values())

    def _report_damage(self, logs: list[MachineLog]) -> None:
        """Say which logs are damaged, unless their machines continue in another one."""
        self._replaced = {each for log in logs for each in log.replaced}
        for log in logs:
            if log.damage and log.machine not in self._replaced:
                self._problems.append(
                    f"{log.folder}: {log.damage} is damaged, and what follows can't be read; sync"
                    " on that machine, which writes it again (if that machine is gone, delete the"
                    " lines from there on)"
                )

    def _known(self, log: MachineLog) -> int:
        return min(self._state.read_up_to(log.machine, each) for each in ("notes", "sessions"))

    def _is_waiting(self, log: MachineLog) -> bool:
        return log.is_incomplete and not log.damage and log.machine not in self._replaced

    def _report(self, logs: list[MachineLog], messages: list[str]) -> SyncReport:
        notes, sessions = self._notes, self._sessions
        others = [each for each in logs if each.machine != self._state.machine]
        return SyncReport(
            str(self._state.shared),
            self._state.machine,
            tuple(sorted({each.machine for each in others} | {self._state.machine})),
            Amounts(
                notes.sent,
                notes.sent_removals,
                sessions.sent_sessions,
                sessions.sent_messages,
                sessions.sent_deletions,
            ),
            Amounts(
                notes.added, notes.removed, sessions.sessions, sessions.messages, sessions.deleted
            ),
            tuple(notes.conflicts),
            tuple(messages),
            tuple(each.machine for each in others if self._is_waiting(each)),
            tuple(self._problems),
        )
