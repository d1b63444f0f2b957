"""Whether the memory works: the checkup, calls, outbox, and how much there is."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from hermes_builtin.sessions.archive import EVERYBODY, Archive, Period
from hermes_core import DatabaseError, HermesError, HookReport, LoggedCall, hook_health, read_calls
from hermes_core.call_log import DayReport, daily_calls
from hermes_core.checkup.deliveries import active_provider, outbox_report
from hermes_core.checkup.status import HomeStatus, home_status
from hermes_core.config import Config, read_selection
from hermes_core.discovery import ProviderInfo, scan
from hermes_core.outbox import WriteState, admin
from hermes_core.outbox.admin import OutboxBacklog, OutboxEntry
from hermes_inspector.home import Home
from hermes_inspector.jobs import BackgroundJob, Jobs

_DAY: Final = 86_400.0
#: Days in the charts of the overview.
DAYS: Final = 14
#: Conversations that are counted for them; more are "and more".
_COUNTED: Final = 5000
#: A check is repeated when somebody looks at the overview after so many seconds.
_CHECK_SECONDS: Final = 60.0
WRITES: Final = 100
CALLS: Final = 100


# -- the checkup --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """Whether the memory works, in one sentence.

    Attributes:
        state: "works", "warning", "problem" or "checking".
        sentence: For people.
        problems: What does not work.
        warnings: What a person should look at.
        at: When it was checked; None before the first check.
        checking: Whether a check runs now.
    """

    state: str
    sentence: str
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    at: float | None = None
    checking: bool = False


class Checkup:
    """Runs the checkup of `status` in the background, and remembers its result.

    Args:
        home: The home.
        jobs: Where it runs.
        clock: Returns the time.
    """

    def __init__(self, home: Home, jobs: Jobs, clock: Callable[[], float] = time.time) -> None:
        self._home = home
        self._jobs = jobs
        self._clock = clock
        self._last: BackgroundJob | None = None

    def refresh(self, *, now: bool = False) -> None:
        """Start a check, unless there is a new result or one runs."""
        newest = self._jobs.newest("status")
        if newest is not None and newest.running:
            return
        if now or newest is None or self._clock() - newest.started > _CHECK_SECONDS:
            folder = self._home.folder
            self._jobs.start("status", "Checking the memory", lambda: home_status(folder))

    def status(self) -> HomeStatus | None:
        """The newest result; None before the first."""
        self._remember()
        return None if self._last is None else self._last.result

    def _remember(self) -> BackgroundJob | None:
        newest = self._jobs.newest("status")
        if newest is not None and not newest.running:
            self._last = newest
        return newest

    def verdict(self) -> HealthVerdict:
        """Whether the memory works."""
        newest = self._remember()
        checking = newest is not None and newest.running
        if self._last is None:
            return HealthVerdict(
                "checking", "Checking whether the memory works …", checking=checking
            )
        if self._last.problem:
            text = f"The check failed: {self._last.problem}"
            return HealthVerdict("problem", text, at=self._last.started, checking=checking)
        found: HomeStatus = self._last.result
        state = "problem" if found.problems else "warning" if found.warnings else "works"
        problems, warnings = tuple(map(str, found.problems)), tuple(map(str, found.warnings))
        return HealthVerdict(
            state, _sentence(found), problems, warnings, self._last.started, checking
        )


def _sentence(found: HomeStatus) -> str:
    name = found.config.selection.name
    if found.problems:
        count = len(found.problems)
        return "1 thing does not work." if count == 1 else f"{count} things do not work."
    if name:
        return f"The memory works: {name} answers and accepts writes."
    return "The memory works: notes and conversations are stored. No external provider is active."


# -- calls --------------------------------------------------------------------------------------


def daily(home: Home, provider: str = "", days: int = DAYS) -> tuple[DayReport, ...]:
    """A row for each of the last days, also for those without a call."""
    since = _first_day(days)
    try:
        at = time.mktime(since.timetuple())
        found = {each.day: each for each in daily_calls(home.folder, since=at, provider=provider)}
    except DatabaseError:
        found = {}
    names = [(since + timedelta(days=number)).isoformat() for number in range(days)]
    return tuple(found.get(name) or DayReport(name, 0, 0, 0.0) for name in names)


def _first_day(days: int) -> date:
    return date.today() - timedelta(days=days - 1)  # noqa: DTZ011 - the zone of this machine


def hook_rows(home: Home) -> tuple[HookReport, ...]:
    """Statistics of each hook over the last days."""
    try:
        return tuple(hook_health(home.folder, since=time.time() - DAYS * _DAY))
    except DatabaseError:
        return ()


def call_rows(
    home: Home, *, provider: str = "", hook: str = "", failed: bool = False
) -> tuple[LoggedCall, ...]:
    """The newest calls, newest first."""
    found = read_calls(home.folder, limit=CALLS, provider=provider, hook=hook, failed=failed)
    return tuple(call for _, call in reversed(found))


# -- conversations per day ----------------------------------------------------------------------


def sessions_per_day(archive: Archive, days: int = DAYS) -> tuple[tuple[str, int], ...]:
    """How many conversations began on each of the last days."""
    since = _first_day(days)
    counts = {(since + timedelta(days=number)).isoformat(): 0 for number in range(days)}
    period = Period(after=time.mktime(since.timetuple()))
    for session in archive.browse(EVERYBODY, _COUNTED, hidden=True, within=period):
        day = time.strftime("%Y-%m-%d", time.localtime(session.started))
        if day in counts:
            counts[day] += 1
    return tuple(counts.items())


# -- the outbox ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutboxView:
    """What waits for the external provider.

    Attributes:
        backlogs: One for each provider, with whether it is the active one.
        writes: Some of the writes, oldest first.
        more: Whether there are more.
        bytes: How much room they take.
        max_bytes: How much there is.
        place: Where the outbox is.
        damaged: Names of damaged files beside it.
        problem: Why it can't be read; "" if it can.
    """

    backlogs: tuple[tuple[OutboxBacklog, bool], ...] = ()
    writes: tuple[OutboxEntry, ...] = ()
    more: bool = False
    bytes: int = 0
    max_bytes: int = 1
    place: str = ""
    damaged: tuple[str, ...] = ()
    problem: str = ""

    @property
    def waiting(self) -> int:
        """How many writes wait."""
        return sum(each.waiting for each, _ in self.backlogs)

    @property
    def stuck(self) -> int:
        """How many need a person."""
        return sum(each.failed + each.skipped + each.missed for each, _ in self.backlogs)


def outbox_view(home: Home, state: str = "", limit: int = WRITES) -> OutboxView:
    """The outbox; ``state`` is the name of a `WriteState`, or "" for all."""
    wanted = WriteState[state.upper()] if state.upper() in WriteState.__members__ else None
    try:
        config = home.config()
        report = outbox_report(config)
        active = active_provider(config)
        with home.outbox() as store:
            found = admin.entries(store, wanted, limit + 1) if limit else []
    except HermesError as error:
        return OutboxView(problem=str(error))
    backlogs = tuple((each, active.owns(each)) for each in report.backlogs)
    return OutboxView(
        backlogs,
        tuple(found[:limit]),
        len(found) > limit,
        report.bytes,
        report.max_bytes,
        report.place,
        report.damaged,
    )


@dataclass(frozen=True, slots=True)
class WriteView:
    """One write, with its content as JSON."""

    entry: OutboxEntry
    started_with: str
    content: str


def write_view(home: Home, number: int) -> WriteView:
    """One write of the outbox.

    Raises:
        HermesError: There is none with this number.
    """
    with home.outbox() as store:
        entry = admin.entry(store, number)
        content: dict[str, Any] = admin.content(store, number)
    text = json.dumps(content, indent=2, ensure_ascii=False) if content else ""
    return WriteView(entry, entry.key.keywords, text)


# -- providers ----------------------------------------------------------------------------------


def installed(config: Config) -> tuple[ProviderInfo, ...]:
    """The providers that are installed; reads metadata only."""
    found = scan(config.home, read_selection(config.home))
    return tuple(each for each in found if each.state != "no-provider")


# -- live updates -------------------------------------------------------------------------------


def state_of(home: Home, jobs: Jobs) -> dict[str, str]:
    """A short text for each part of the memory that changes when the part does."""
    parts: dict[str, Callable[[], Any]] = {
        "notes": lambda: _notes_state(home),
        "conversations": lambda: home.archive().browse(EVERYBODY, 1, hidden=True),
        "outbox": lambda: _outbox_state(home),
        "calls": lambda: read_calls(home.folder, limit=1),
        "jobs": lambda: jobs.version,
    }
    return {name: _fingerprint(look) for name, look in parts.items()}


def _notes_state(home: Home) -> Any:
    with home.notes() as notes:
        texts = [(book.key, book.text.look()) for book in notes.all_notebooks()]
        newest = notes.history.changes(limit=1) if notes.history.exists else []
        return texts, newest, notes.pending.texts(), [each.id for each in notes.blocked()]


def _outbox_state(home: Home) -> Any:
    # Without the active provider: finding it means to scan what is installed.
    return outbox_report(home.config()).backlogs


def _fingerprint(look: Callable[[], Any]) -> str:
    try:
        found = repr(look())
    except (HermesError, OSError) as error:
        found = str(error)
    return hashlib.sha256(found.encode("utf-8", "replace")).hexdigest()[:16]
