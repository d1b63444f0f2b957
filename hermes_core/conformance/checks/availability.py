"""Availability: asked often, before anything is started, and believed."""

from __future__ import annotations

import os

from hermes_core.conformance._bench import Bench, no_events
from hermes_core.conformance._driver import Answer, Driver, told
from hermes_core.conformance._files import files
from hermes_core.conformance._model import MUST, SHOULD, Failed, Skipped, check
from hermes_core.conformance._watch import NETWORK, PROCESS, WRITE, Event


def _asked(bench: Bench) -> tuple[Driver, Answer, list[Event]]:
    driver = bench.driver()
    with bench.watch.during() as events:
        answer = driver.ask("is_available")
    return driver, answer, events


@check(
    "HP201",
    MUST,
    "`is_available` returns True or False",
    fix="Return a bool, and catch what can go wrong: a missing package or setting means False.",
)
def answers_with_a_bool(bench: Bench) -> None:
    """`enable` and every agent's start ask it first. An exception, or an answer that is neither
    True nor False, leaves a person without a reason.
    """
    driver, answer, _ = _asked(bench)
    driver.sound("is_available", answer)
    if not isinstance(answer.value, bool):
        raise Failed(f"it returned {answer.value!r}", where=driver.where("is_available"))


@check(
    "HP202",
    MUST,
    "`is_available` does not use the network",
    fix="Look whether the settings are there; connect in `initialize`.",
)
def stays_offline(bench: Bench) -> None:
    """It is asked before activation, on machines without network too, and has to be quick. Whether
    a server answers is `initialize`'s business, or `probe`'s.
    """
    driver, _, events = _asked(bench)
    no_events(events, NETWORK, "it tried the network", driver.where("is_available"))


@check(
    "HP203",
    MUST,
    "`is_available` writes nothing",
    fix="Create files and databases in `initialize`.",
)
def writes_nothing(bench: Bench) -> None:
    """Asking whether a plugin could be used must not leave traces of it on the disk of somebody who
    then decides against it.
    """
    user = bench.stage.user
    before = {*files(bench.home), *files(user)}
    driver, _, events = _asked(bench)
    where = driver.where("is_available")
    no_events(events, WRITE, "it opened for writing", where)
    new = sorted({*files(bench.home), *files(user)} - before)
    if new:
        raise Failed(f"it created {new[0].name}", where=where)


@check(
    "HP204",
    MUST,
    "`is_available` starts no process",
    fix="Look for a program with `shutil.which`; start it in `initialize`.",
)
def starts_no_process(bench: Bench) -> None:
    """A process costs a tenth of a second at best, and minutes if it begins to download."""
    driver, _, events = _asked(bench)
    no_events(events, PROCESS, "it started", driver.where("is_available"))


@check(
    "HP205",
    SHOULD,
    "`is_available` is fast",
    fix="Only look at settings, variables and installed packages (`importlib.util.find_spec`).",
)
def is_quick(bench: Bench) -> None:
    """Every agent's start waits for it."""
    driver, answer, _ = _asked(bench)
    limit = bench.options.limits.available
    if answer.seconds > limit:
        raise Failed(
            f"it took {answer.seconds:.2f} s",
            expected=f"an answer within {limit:g} s",
            where=driver.where("is_available"),
        )


@check(
    "HP206",
    MUST,
    "If `is_available` is True, `initialize` does not raise",
    fix="Say False and give the reason in `unavailable_reason`, or start without the backend and "
    "connect when it is there.",
)
def is_honest(bench: Bench) -> None:
    """The host tells a person that memory works because the plugin said so. If the backend is away
    for a moment, `initialize` should start all the same: writes are kept and delivered later. Only
    a gateway knows a `user_id`: at a terminal there is none.
    """
    driver, answer, _ = _asked(bench)
    if answer.error is not None:
        raise Skipped(f"is_available {told(answer.error)}")
    if not answer.value:
        bench.start(driver)  # skips, with the reason
    driver.sound("initialize", bench.initialize(driver, "session-1"))
    driver.shut()
    other = bench.driver()
    nobody = bench.initialize(other, "session-2", user_id=None)
    other.sound("initialize", nobody, " without user_id")


@check(
    "HP207",
    SHOULD,
    "`unavailable_reason` says in one line what is missing",
    fix='Return a sentence that a person can act on, such as "set HONCHO_API_KEY".',
)
def gives_a_reason(bench: Bench) -> None:
    """A bare "not available" is the question that authors are asked most often. The kit asks
    without the settings and variables that you gave it.
    """
    for name in bench.options.env:
        os.environ.pop(name, None)
    driver, answer, _ = _asked(bench)
    reason = driver.call("unavailable_reason")
    where = driver.where("unavailable_reason") or driver.where("is_available")
    if not isinstance(reason, str):
        raise Failed(f"it returned {reason!r}", expected="a str", where=where)
    if answer.value is False and not reason.strip():
        raise Failed("is_available is False, and there is no reason", where=where)
    if len(reason.splitlines()) > 1:
        raise Failed(f"it has {len(reason.splitlines())} lines", where=where)
