"""Grades: bronze, silver and gold, computed from the results of a run of the kit.

Imported by `list`, so it must stay cheap: what only a run needs is imported there.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hermes_core import __version__
from hermes_core.discovery import ProviderInfo, tried_hash
from hermes_core.storage.files import read_regular, replace_file

if TYPE_CHECKING:
    from hermes_core.conformance.model import Report, Result


class Grade(StrEnum):
    """What a run has shown about a plugin. docs/grades.md says what each means."""

    GOLD = "gold"
    SILVER = "silver"
    BRONZE = "bronze"
    #: A check of bronze failed.
    NONE = "none"
    #: Too little could be checked.
    NOT_GRADED = "not graded"


#: From low to high.
TIERS: Final = (Grade.BRONZE, Grade.SILVER, Grade.GOLD)

# The checks that every conversation of one person needs, and those that protect the agent's
# process and the person's secrets. Every other *must* is silver: several users and sessions, bad
# input, a failing backend. Every *should* is gold, so a new check can't take bronze or silver away.
_BRONZE: Final = frozenset((
    "HP102", "HP105", "HP108",
    "HP201", "HP202", "HP206",
    "HP301", "HP304", "HP307", "HP308", "HP310", "HP311", "HP313",
    "HP401", "HP403", "HP404", "HP405",
    "HP501", "HP502", "HP504", "HP505",
    "HP603", "HP605", "HP606",
))  # fmt: skip

# What must have run, not only not failed. Without a session nothing but metadata was checked.
# Without recall nobody knows whether it remembers, or for whom.
_PROOF: Final = {
    Grade.BRONZE: ("HP605",),
    Grade.SILVER: ("HP701", "HP702", "HP703"),
    Grade.GOLD: ("HP609",),
}

#: Of shields.io, which draws the badge.
_COLOURS: Final = {
    Grade.GOLD: "d4af37",
    Grade.SILVER: "a8a9ad",
    Grade.BRONZE: "a97142",
    Grade.NONE: "c0392b",
    Grade.NOT_GRADED: "lightgrey",
}


class GradeReport(NamedTuple):
    """A grade, and what the next higher one needs.

    ``failed`` are the checks of that grade that failed or were left out by ``--skip``, ``not_run``
    those that it needs to have run.
    """

    grade: Grade
    next: Grade | None = None
    failed: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return it as one line."""
        if self.next is None:
            return str(self.grade)
        parts = [f"fix {', '.join(self.failed)}"] if self.failed else []
        parts += [f"run {', '.join(self.not_run)}"] if self.not_run else []
        return f"{self.grade} (for {self.next}: {'; '.join(parts)})"


def tier_of(check: str, level: str) -> Grade:
    """Return the grade that a check belongs to."""
    if check in _BRONZE:
        return Grade.BRONZE
    return Grade.SILVER if level == "must" else Grade.GOLD


def grade_of(report: Report) -> Grade:
    """Return the grade that a run of the kit has shown."""
    return grading_of(report).grade


def grading_of(report: Report) -> GradeReport:
    """Return the grade that a run has shown, and what the next one needs.

    A check that failed, that ``--skip`` left out or that did not finish counts as failed. A check
    that does not apply to the plugin does not prevent a grade, unless the grade rests on it.
    """
    reached: Grade | None = None
    results = {each.id: each for each in report.results}
    for tier in TIERS:
        own = [each for each in report.results if tier_of(each.id, each.level) is tier]
        failed = tuple(each.id for each in own if _counts_as_failed(each))
        not_run = tuple(each for each in _PROOF[tier] if not _has_run(results.get(each)))
        if failed or not_run:
            # A fault of bronze is a fact, however little else could be checked.
            below = Grade.NONE if any(results[each].state == "failed" for each in failed) else None
            grade = reached or below or Grade.NOT_GRADED
            return GradeReport(grade, tier, failed, not_run)
        reached = tier
    return GradeReport(Grade.GOLD)


def _counts_as_failed(result: Result) -> bool:
    return result.state == "failed" or result.waived or result.unfinished


def _has_run(result: Result | None) -> bool:
    return result is not None and result.state != "skipped"


def badge(grade: Grade) -> str:
    """Return the address of a badge, to show in a README."""
    return (
        f"https://img.shields.io/badge/hermes--plugins-{grade.replace(' ', '%20')}-"
        f"{_COLOURS[grade]}"
    )


# -- what `check` found, for `list`, `info` and `search` ------------------------------------------

_MAX_BYTES: Final = 1_000_000


class KnownGrade(NamedTuple):
    """The grade of an installed plugin, from a run on exactly these files.

    ``checked`` is the day of the run (ISO), ``failed`` the ids of the checks that failed.
    """

    grade: Grade
    checked: str
    failed: tuple[str, ...] = ()
    skipped: int = 0
    live: bool = False


def known_grade(home: Path, info: ProviderInfo) -> KnownGrade | None:
    """Return the grade that `check` recorded for an installed plugin.

    None if it was not checked in this version, with these files, by this version of the kit.
    """
    row = _read(home).get(_key(info))
    if not isinstance(row, dict) or not _is_about(row, info):
        return None
    try:
        return KnownGrade(
            Grade(row["grade"]),
            str(row["checked"]),
            tuple(map(str, row["failed"])),
            int(row["skipped"]),
            bool(row["live"]),
        )
    except (KeyError, TypeError, ValueError):  # written by another version
        return None


def record_grade(home: Path, info: ProviderInfo, report: Report, day: str) -> None:
    """Record what a whole run has shown. Does nothing if there is no home, or it can't be written.

    The result is on the screen in any case: a home on a read-only disk does not make it fail.
    """
    if not home.is_dir():
        return
    row = {
        "version": info.version,
        "kit": report.kit,
        "hash": tried_hash(info),
        "grade": str(grade_of(report)),
        "checked": day,
        "failed": [each.id for each in report.results if each.state == "failed"],
        "skipped": report.count("skipped"),
        "live": report.live,
    }
    with suppress(OSError):
        _file(home).parent.mkdir(mode=0o700, exist_ok=True)
        _write(home, {**_read(home), _key(info): row})


def _is_about(row: dict[str, Any], info: ProviderInfo) -> bool:
    # The hash last: it reads every file of the plugin.
    same = row.get("version") == info.version and row.get("kit") == __version__
    return same and bool(row.get("hash")) and row.get("hash") == tried_hash(info)


def _key(info: ProviderInfo) -> str:
    return f"{info.key}@{info.owner}"


def _file(home: Path) -> Path:
    return home / "logs" / "checks.json"


def _read(home: Path) -> dict[str, Any]:
    import json  # noqa: PLC0415 - most homes have no such file

    # A file that can't be read or understood is the same as none: the next run replaces it.
    try:
        data = json.loads(read_regular(_file(home), _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    known = data.get("checked") if isinstance(data, dict) else None
    return known if isinstance(known, dict) else {}


def _write(home: Path, rows: dict[str, Any]) -> None:
    import json  # noqa: PLC0415

    text = json.dumps({"schema": 1, "checked": rows}, indent=1, sort_keys=True)
    replace_file(_file(home), f"{text}\n".encode())
