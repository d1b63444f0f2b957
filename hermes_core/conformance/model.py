"""Checks, options, results and reports, and their text and Markdown output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hermes_core.conformance.grades import GradeReport, badge, grading_of
from hermes_core.errors import one_line

if TYPE_CHECKING:
    from hermes_core.conformance._context import CheckContext


# Hosts rely on every *must*; users notice a missing *should*. A new check starts as *should*, so
# that an upgrade of the kit does not break an author's CI.
MUST: Final = "must"
SHOULD: Final = "should"

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"

#: The start of the reason if the plugin lacks something that its author could configure.
UNAVAILABLE: Final = "it is not available here"
#: The end of the reason if the plugin lacks its backend.
NEEDS_NETWORK: Final = "needs the network; --live checks it with a backend on this machine"


class CheckFailure(Exception):  # noqa: N818 - reads as what happened
    """A check failed.

    ``where`` is a place in the plugin; ``fix`` replaces the check's if it says more.
    """

    def __init__(
        self, happened: str, *, expected: str = "", where: str = "", fix: str = ""
    ) -> None:
        super().__init__(happened)
        self.happened = happened
        self.expected = expected
        self.where = where
        self.fix = fix


class CheckSkip(Exception):  # noqa: N818 - reads as what happened
    """A check could not run."""


@dataclass(frozen=True, slots=True)
class Check:
    """One rule, and the function that checks it.

    ``why`` is the function's docstring. ``alone``: it is about the end of its process.
    """

    id: str
    level: str
    title: str
    fix: str
    family: str
    why: str
    run: Callable[[Any], None] = field(repr=False)  # gets a `CheckContext`
    alone: bool = False

    @property
    def docs(self) -> str:
        """Return the page that explains it."""
        return f"docs/checks/{self.family}.md#{self.id.lower()}"


def check(
    number: str, level: str, title: str, *, fix: str, alone: bool = False
) -> Callable[[Callable[[CheckContext], None]], Check]:
    """Turn a function into a check. Its module is the family, its docstring the reason."""

    def made(function: Callable[[CheckContext], None]) -> Check:
        # The module's last name: it is also the name of the page in docs/checks.
        family = function.__module__.rpartition(".")[2]
        why = inspect.cleandoc(function.__doc__ or "")
        return Check(number, level, title, fix, family, why, function, alone)

    return made


_MAX_FACTOR: Final = 4.0


class Limits(NamedTuple):
    """Time and size limits of the checks."""

    # Those of a host (see `Deadlines`) where it has one. The others are what a person notices; the
    # sizes are what fits into a prompt.
    load: float = 10.0
    import_cpu: float = 1.0
    available: float = 0.5
    initialize: float = 5.0
    shutdown: float = 5.0
    sync: float = 0.5
    prefetch: float = 4.0
    call: float = 10.0  # any call; after that it counts as hanging
    check: float = 90.0  # a whole check; after that its process is ended
    wait: float = 10.0  # until a write is recalled, threads end, the process exits
    recalled: int = 32_000
    prompt: int = 8_000

    def for_load(self, load: float) -> Limits:
        """Return the limits for a machine on which ``load`` programs want each processor.

        All times become longer, up to four times: a plugin is not slow because others are busy.
        """
        factor = min(max(load, 1.0), _MAX_FACTOR)
        times: dict[str, Any] = {name: value * factor for name, value in self._asdict().items()
                 if isinstance(value, float)}  # fmt: skip
        return self._replace(**times)


@dataclass(frozen=True, slots=True)
class Options:
    """The author's settings for the plugin, and which checks to run.

    Args:
        config: Values for its fields, handed to ``initialize`` as ``provider_config``.
        env: Variables that it finds in its environment.
        live: Allow the network of this machine (loopback), for a backend that runs there.
        skip: Checks that don't apply, each with its reason.
        only: The ids to run; empty for all.
        limits: What is measured against.
        deadline: Seconds for all of it.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    live: bool = False
    skip: Mapping[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    deadline: float = 300.0


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check.

    ``reason`` says why it was skipped; ``unfinished`` that the kit had no time left for it;
    ``waived`` that the author left it out.
    """

    id: str
    level: str
    family: str
    title: str
    docs: str
    state: str
    seconds: float = 0.0
    expected: str = ""
    happened: str = ""
    where: str = ""
    fix: str = ""
    reason: str = ""
    unfinished: bool = False
    waived: bool = False

    @classmethod
    def of(cls, check: Check, state: str, **details: Any) -> Result:
        """Build the result of a check."""
        known = cls(check.id, check.level, check.family, check.title, check.docs, state)
        return replace(known, **details)

    @classmethod
    def failure(cls, check: Check, failed: CheckFailure) -> Result:
        """Build a failed result; empty parts come from the check."""
        return cls.of(
            check,
            FAILED,
            expected=failed.expected or check.title,
            happened=failed.happened,
            where=failed.where,
            fix=failed.fix or check.fix,
        )


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all checks of one plugin."""

    name: str
    distribution: str
    version: str
    source: str
    contract: str
    kit: str
    live: bool
    seconds: float
    results: tuple[Result, ...]

    def count(self, state: str, level: str = "") -> int:
        """Return how many checks have a state."""
        return sum(each.state == state and level in ("", each.level) for each in self.results)

    def failures(self, level: str) -> list[Result]:
        """Return what failed at a level; at ``must``, checks of level should don't count."""
        return [
            each
            for each in self.results
            if each.state == FAILED and (level == SHOULD or each.level == MUST)
        ]

    def unfinished(self, level: str) -> list[Result]:
        """Return the checks that count at a level and did not run in time."""
        return [
            each
            for each in self.results
            if each.unfinished and (level == SHOULD or each.level == MUST)
        ]

    def passes(self, level: str) -> bool:
        """Return whether all checks that count at a level ran, and none failed."""
        return not self.failures(level) and not self.unfinished(level)

    def as_json(self, level: str) -> dict[str, Any]:
        """Return the report for JSON output."""
        grading = grading_of(self)
        return {
            "plugin": {
                "name": self.name,
                "distribution": self.distribution,
                "version": self.version,
                "source": self.source,
            },
            "contract": self.contract,
            "kit": self.kit,
            "level": level,
            "live": self.live,
            "ok": self.passes(level),
            "grade": grading.grade,
            "next_grade": _next_grade(grading),
            "badge": badge(grading.grade),
            "seconds": round(self.seconds, 3),
            "passed": self.count(PASSED),
            "failed": len(self.failures(level)),
            "warnings": self.count(FAILED) - len(self.failures(level)),
            "skipped": self.count(SKIPPED),
            "checks": [asdict(each) for each in self.results],
        }


def _next_grade(grading: GradeReport) -> dict[str, Any] | None:
    if grading.next is None:
        return None
    return {"grade": grading.next, "failed": grading.failed, "not_run": grading.not_run}


#: The first word of a line; a failure that does not count at the level is a warning.
WARNING: Final = "warning"


def mark(result: Result, level: str) -> str:
    """Return the result as one word."""
    if result.state == FAILED and result.level != MUST and level == MUST:
        return WARNING
    return result.state


def details(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the details of a failure: a label and a text each."""
    rows = (
        # The title is printed above: only an expectation that says more is repeated.
        ("expected", "" if result.expected == result.title else result.expected),
        ("happened", result.happened),
        ("where", result.where),
        ("to fix", result.fix),
        ("more", result.docs),
    )
    yield from ((label, text) for label, text in rows if text)


def subject(report: Report) -> str:
    """Return what was checked, and the versions."""
    owner = f"{report.distribution} {report.version}" if report.distribution else report.version
    owned = f" ({owner})" if owner else f" ({report.source})"
    live = ", live" if report.live else ""
    return f"{report.name}{owned}, contract {report.contract}, kit {report.kit}{live}"


def verdict(report: Report, level: str) -> str:
    """Return the counts and the overall result."""
    failed = len(report.failures(level))
    warnings = report.count(FAILED) - failed
    counts = [f"{report.count(PASSED)} passed", f"{failed} failed"]
    counts += [f"{warnings} {'warning' if warnings == 1 else 'warnings'}"] if warnings else []
    counts += [f"{report.count(SKIPPED)} skipped"]
    word = "FAILED" if failed else "NOT FINISHED" if report.unfinished(level) else "passed"
    return f"{', '.join(counts)} in {report.seconds:.1f} s: {word} at level {level}"


def summary(report: Report, level: str) -> list[str]:
    """Return what was checked, what was skipped and why, and the overall result."""
    skipped: dict[str, list[str]] = {}
    for each in report.results:
        if each.state == SKIPPED:
            skipped.setdefault(each.reason, []).append(each.id)
    reasons = [f"skipped {', '.join(ids)}: {one_line(reason)}" for reason, ids in skipped.items()]
    grade = f"grade: {grading_of(report).describe()}"
    return [subject(report), *reasons, grade, verdict(report, level)]


def plain(
    report: Report, level: str, paint: Callable[[str, str], str]
) -> Iterator[tuple[str, int]]:
    """Yield lines for a terminal or a log, each with how far to indent what follows its first.

    ``paint`` colours a text by its mark.
    """
    reasons: dict[str, str] = {}
    for result in report.results:
        word = mark(result, level)
        shown = "FAILED" if word == FAILED else "ok" if word == PASSED else word
        # The same reason may apply to thirty checks: it is printed once, then referred to by id.
        first = reasons.setdefault(result.reason, result.id)
        said = result.reason if first == result.id else f"as {first}"
        reason = f": {one_line(said)}" if result.reason else ""
        yield f"{paint(f'{shown:7}', word)} {result.id}  {result.title}{reason}", 15
        for label, text in details(result) if result.state == FAILED else ():
            yield f"{'':15}{label:9} {one_line(text)}", 25
    yield "", 0
    if any(each.startswith(UNAVAILABLE) for each in reasons):
        yield "To run more checks, configure the plugin: --env NAME=VALUE, --config FILE.", 2
    yield f"grade: {grading_of(report).describe()}", 2
    yield subject(report), 2
    yield paint(verdict(report, level), PASSED if report.passes(level) else FAILED), 2


def markdown(report: Report, level: str) -> str:
    """Return the report as Markdown, for a pull request or a README."""
    lines = [f"# Conformance of {_cell(report.name)}", "", f"{subject(report)}  "]
    lines += [f"grade: {grading_of(report).describe()}  "]
    lines += [verdict(report, level), "", "| check | level | | |", "|---|---|---|---|"]
    for each in report.results:
        said = each.reason or each.happened
        row = (each.id, each.level, mark(each, level), f"{each.title}{f': {said}' if said else ''}")
        lines.append(f"| {' | '.join(_cell(cell) for cell in row)} |")
    for each in report.results:
        if each.state == FAILED:
            lines += ["", f"## {each.id} {_cell(each.title)}", ""]
            lines += [f"- **{label}**: {one_line(text)}" for label, text in details(each)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    # A "|" would end the cell of the table.
    return one_line(text).replace("|", "\\|")
