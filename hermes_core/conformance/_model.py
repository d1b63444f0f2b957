"""What travels through the kit: checks, what is asked, and what came of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from hermes_core.conformance._bench import Bench

MUST: Final = "must"
SHOULD: Final = "should"

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"

#: How the reason begins where a plugin lacks something that its author could give.
UNAVAILABLE: Final = "it is not available here"
#: How it ends where a plugin lacks its backend.
NEEDS_NETWORK: Final = "needs the network; --live checks it with a backend on this machine"


class Failed(Exception):  # noqa: N818 - reads as what happened
    """A check has found a fault.

    ``where`` is a place in the plugin; ``fix`` is given where it says more than the check's.
    """

    def __init__(
        self, happened: str, *, expected: str = "", where: str = "", fix: str = ""
    ) -> None:
        super().__init__(happened)
        self.happened = happened
        self.expected = expected
        self.where = where
        self.fix = fix


class Skipped(Exception):  # noqa: N818 - reads as what happened
    """A check could not look at what it is about."""


@dataclass(frozen=True, slots=True)
class Check:
    """One rule, and the function that looks whether a plugin keeps it.

    ``why`` is the function's docstring. ``alone`` is for what is about the end of its process.
    """

    id: str
    level: str
    title: str
    fix: str
    family: str
    why: str
    run: Callable[[Bench], None] = field(repr=False)
    alone: bool = False

    @property
    def docs(self) -> str:
        """Where the documentation explains it."""
        return f"docs/checks/{self.family}.md#{self.id.lower()}"


def check(
    number: str, level: str, title: str, *, fix: str, alone: bool = False
) -> Callable[[Callable[[Bench], None]], Check]:
    """Make a check of a function; its module's name is the family, its docstring the why."""

    def made(function: Callable[[Bench], None]) -> Check:
        family = function.__module__.rpartition(".")[2]
        why = inspect.cleandoc(function.__doc__ or "")
        return Check(number, level, title, fix, family, why, function, alone)

    return made


class Limits(NamedTuple):
    """Seconds and sizes that the checks measure against."""

    load: float = 10.0
    import_cpu: float = 1.0
    available: float = 0.5
    initialize: float = 5.0
    shutdown: float = 5.0
    sync: float = 0.5
    prefetch: float = 4.0
    call: float = 10.0  # any call: after that it hangs
    check: float = 90.0  # a whole check: after that its process is stuck
    settle: float = 10.0  # until a write can be recalled, threads are gone, the process ended
    recalled: int = 32_000
    prompt: int = 8_000


@dataclass(frozen=True, slots=True)
class Options:
    """What an author says about the plugin, and which checks are wanted.

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
    """What came of one check.

    ``reason`` says why it was skipped; ``unfinished`` that the kit had no time for it, so that
    nothing is known.
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

    @classmethod
    def of(cls, check: Check, state: str, **details: Any) -> Result:
        """A check's result."""
        known = cls(check.id, check.level, check.family, check.title, check.docs, state)
        return replace(known, **details)

    @classmethod
    def failure(cls, check: Check, failed: Failed) -> Result:
        """The result of a check that found a fault; what it does not say, the check does."""
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
    """What the kit saw of one plugin."""

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
        """How many checks have a state."""
        return sum(each.state == state and level in ("", each.level) for each in self.results)

    def failures(self, level: str) -> list[Result]:
        """What counts as failed at a level: at ``must``, what should be done does not."""
        return [
            each
            for each in self.results
            if each.state == FAILED and (level == SHOULD or each.level == MUST)
        ]

    def unfinished(self, level: str) -> list[Result]:
        """What counts at a level, and was not looked at for want of time."""
        return [
            each
            for each in self.results
            if each.unfinished and (level == SHOULD or each.level == MUST)
        ]

    def passes(self, level: str) -> bool:
        """Whether all that counts was looked at, and nothing of it has failed."""
        return not self.failures(level) and not self.unfinished(level)

    def told(self, level: str) -> dict[str, Any]:
        """The report as JSON has it."""
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
            "seconds": round(self.seconds, 3),
            "passed": self.count(PASSED),
            "failed": len(self.failures(level)),
            "warnings": self.count(FAILED) - len(self.failures(level)),
            "skipped": self.count(SKIPPED),
            "checks": [asdict(each) for each in self.results],
        }
