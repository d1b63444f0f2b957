"""Availability: `is_available` is fast, honest and without side effects."""

from __future__ import annotations

import os

from hermes_core.conformance._context import CheckContext, no_events
from hermes_core.conformance._driver import Answer, Driver, failure_text
from hermes_core.conformance._watch import NETWORK, PROCESS, WRITE, Event, files
from hermes_core.conformance.model import MUST, SHOULD, CheckFailure, CheckSkip, check


def _asked(context: CheckContext) -> tuple[Driver, Answer, list[Event]]:
    driver = context.driver()
    with context.watch.during() as events:
        answer = driver.ask("is_available")
    return driver, answer, events


@check(
    "HP201",
    MUST,
    "`is_available` returns True or False",
    fix="Return a bool. Catch exceptions: a missing package or setting means False.",
)
def answers_with_a_bool(context: CheckContext) -> None:
    """`enable` and every agent start call it first. If it raises or returns anything else, the user
    does not learn what is missing.
    """
    driver, answer, _ = _asked(context)
    driver.sound("is_available", answer)
    if not isinstance(answer.value, bool):
        raise CheckFailure(f"it returned {answer.value!r}", where=driver.where("is_available"))


@check(
    "HP202",
    MUST,
    "`is_available` does not use the network",
    fix="Check only that the settings exist. Connect in `initialize`.",
)
def stays_offline(context: CheckContext) -> None:
    """Hosts call it before they activate the plugin, also on machines without a network, and it
    must be fast. Use `initialize` or `probe` to find out whether a server answers.
    """
    driver, _, events = _asked(context)
    no_events(events, NETWORK, "it used the network", driver.where("is_available"))


@check(
    "HP203",
    MUST,
    "`is_available` writes nothing",
    fix="Create files and databases in `initialize`.",
)
def writes_nothing(context: CheckContext) -> None:
    """Checking whether a plugin can be used must not leave files on the disk of somebody who then
    decides against it.
    """
    user = context.plugin.user
    # The audit hook does not see what a library in C writes; comparing the files does.
    before = {*files(context.home), *files(user)}
    driver, _, events = _asked(context)
    where = driver.where("is_available")
    no_events(events, WRITE, "it opened a file for writing", where)
    new = sorted({*files(context.home), *files(user)} - before)
    if new:
        raise CheckFailure(f"it created {new[0].name}", where=where)


@check(
    "HP204",
    MUST,
    "`is_available` starts no process",
    fix="Find a program with `shutil.which`. Start it in `initialize`.",
)
def starts_no_process(context: CheckContext) -> None:
    """Starting a process takes at least a tenth of a second, and minutes if the program downloads
    something.
    """
    driver, _, events = _asked(context)
    no_events(events, PROCESS, "it started a process", driver.where("is_available"))


@check(
    "HP205",
    SHOULD,
    "`is_available` is fast",
    fix="Check only settings, environment variables and installed packages "
    "(`importlib.util.find_spec`).",
)
def is_quick(context: CheckContext) -> None:
    """Every agent start waits for it."""
    driver, answer, _ = _asked(context)
    # Loading is not included: only the call is timed.
    limit = context.options.limits.available
    if answer.seconds > limit:
        raise CheckFailure(
            f"it took {answer.seconds:.2f} s",
            expected=f"an answer within {limit:g} s",
            where=driver.where("is_available"),
        )


@check(
    "HP206",
    MUST,
    "If `is_available` is True, `initialize` does not raise",
    fix="Return False and explain it in `unavailable_reason`, or start without the backend and "
    "connect when it is reachable.",
)
def is_honest(context: CheckContext) -> None:
    """The host reports a working memory because the plugin said so. If the backend is unreachable
    for a moment, `initialize` should still succeed: the host stores writes and delivers them later.
    `user_id` is None at a terminal; only gateways pass one.
    """
    driver, answer, _ = _asked(context)
    if answer.error is not None:
        raise CheckSkip(f"is_available {failure_text(answer.error)}")
    if not answer.value:
        context.start(driver)  # skips, with the reason
    driver.sound("initialize", context.initialize(driver, "session-1"))
    driver.shut()
    # A second provider: the first one has a user by now.
    other = context.driver()
    nobody = context.initialize(other, "session-2", user_id=None)
    other.sound("initialize", nobody, " without user_id")


@check(
    "HP207",
    SHOULD,
    "`unavailable_reason` explains in one line what is missing",
    fix='Return one line that users can act on, such as "set HONCHO_API_KEY".',
)
def gives_a_reason(context: CheckContext) -> None:
    """Users can't act on a bare "not available". The kit calls it without the settings and
    variables that you passed to the kit.
    """
    # `run` restores the environment after the check.
    for name in context.options.env:
        os.environ.pop(name, None)
    driver, answer, _ = _asked(context)
    reason = driver.call("unavailable_reason")
    where = driver.where("unavailable_reason") or driver.where("is_available")
    if not isinstance(reason, str):
        raise CheckFailure(f"it returned {reason!r}", expected="a str", where=where)
    if answer.value is False and not reason.strip():
        raise CheckFailure("is_available returned False, and the reason is empty", where=where)
    if len(reason.splitlines()) > 1:
        raise CheckFailure(f"it returned {len(reason.splitlines())} lines", where=where)
