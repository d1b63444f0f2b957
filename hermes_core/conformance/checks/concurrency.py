"""Concurrency: several conversations, and several calls in one, at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from hermes_core.conformance._context import CheckContext
from hermes_core.conformance._driver import Driver
from hermes_core.conformance._watch import holding
from hermes_core.conformance.model import MUST, CheckFailure, CheckSkip, check

# 8 x 5 turns use the 40 topics below.
_THREADS: Final = 8
_TURNS: Final = 5
_CALLS: Final = 20
#: One per turn, and no two alike: some plugins search by meaning.
_TOPICS: Final = (
    "parrot", "tortoise", "hamster", "goldfish", "pony", "boat", "bicycle", "house", "street",
    "village", "school", "teacher", "dentist", "neighbour", "brother", "doll", "robot", "novel",
    "song", "band", "recipe", "cake", "garden", "rose", "mountain", "river", "island", "planet",
    "horse", "wife", "company", "project", "server", "printer", "guitar", "violin", "team",
    "coach", "ship", "donkey",
)  # fmt: skip


def _together(context: CheckContext, jobs: list[Callable[[], None]]) -> None:
    """Run jobs at the same time, and raise the first error."""
    # All start at the same moment; otherwise the first may be done before the last one starts.
    gate = threading.Barrier(len(jobs))
    errors: list[CheckFailure | CheckSkip] = []

    def run(job: Callable[[], None]) -> None:
        gate.wait(context.options.limits.call)
        try:
            job()
        except (CheckFailure, CheckSkip) as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for each in threads:
        each.start()
    for each in threads:
        # A deadlock ends only by this limit; three calls' time covers one job on a busy machine.
        each.join(context.options.limits.call * 3)
    if errors:
        raise errors[0]
    if any(each.is_alive() for each in threads):
        raise CheckFailure("concurrent calls did not return: possibly a deadlock")


@check(
    "HP821",
    MUST,
    "Eight conversations at the same time",
    fix="Use one connection per object, WAL and a busy timeout. Protect shared state with a lock.",
)
def many_conversations(context: CheckContext) -> None:
    """A gateway has one provider per conversation, all in one home. Without locking, SQLite fails
    with "database is locked". All turns must be stored.
    """
    drivers = [context.driver() for _ in range(_THREADS)]
    # A plugin that always returns the same object is tested with that object on all threads.
    distinct = list({id(each.provider): each for each in drivers}.values())
    for number, driver in enumerate(distinct):
        context.start(driver, f"session-{number}")
    markers: dict[str, str] = {}

    def talk(number: int, driver: Driver) -> Callable[[], None]:
        def run() -> None:
            for turn in range(_TURNS):
                topic = _TOPICS[number * _TURNS + turn]
                markers[topic] = context.remember(driver, f"session-{number}", topic)
                driver.call("prefetch", f"What is my {topic} called?", session_id="")

        return run

    count = len(distinct) if len(distinct) > 1 else _THREADS
    spread = [distinct[number % len(distinct)] for number in range(count)]
    _together(context, [talk(number, driver) for number, driver in enumerate(spread)])
    if context.recalls():
        _all_there(context, distinct[0], markers)


def _all_there(context: CheckContext, driver: Driver, markers: dict[str, str]) -> None:
    lost = dict(markers)

    def found() -> bool:
        for topic, marker in list(lost.items()):
            if marker in context.recall(driver, "session-0", topic):
                del lost[topic]
        return not lost

    # A turn that is in its files is not lost, only recalled for another question.
    if not context.until(found) and not all(holding(context.home, each) for each in lost.values()):
        happened = f"{len(lost)} of {len(markers)} turns were lost"
        raise CheckFailure(happened, where=driver.where("sync_turn"))


@check(
    "HP822",
    MUST,
    "Recall, writes and hooks of one provider at the same time",
    fix="Use `sqlite3.connect(..., check_same_thread=False)` with a lock, or one connection per "
    "thread.",
)
def three_lanes(context: CheckContext) -> None:
    """A host calls recall, writes and all other hooks on separate threads that do not wait for each
    other. By default, an SQLite connection that was opened in `initialize` can't be used in
    `sync_turn`.
    """
    driver = context.started()
    written = threading.Event()

    def write() -> None:
        try:
            for _ in range(_CALLS):
                context.remember(driver, "session-1")
        finally:
            written.set()

    def recall() -> None:
        while not written.is_set():  # however the threads are scheduled, some meet a write
            driver.call("prefetch", "What is my parrot called?", session_id="session-1")

    def hooks() -> None:
        for number in range(_CALLS):
            driver.call("on_turn_start", number, "What is my parrot called?")
            driver.call("system_prompt_block")

    _together(context, [write, recall, hooks])
