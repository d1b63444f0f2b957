"""Turns: what is said goes in, and what helps comes out, in time."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any, Final

from hermes_core.conformance._bench import Bench, conversation
from hermes_core.conformance._driver import Answer, Driver
from hermes_core.conformance._model import MUST, SHOULD, Failed, check

_UNICODE: Final = "Grüße, 世界 👩‍👩‍👧 עולם \u202eabc\u202c e\u0301 \x00 \u2028 ' \" ; -- % \\ { }"
_MEGABYTE: Final = "The parrot sat on the wire. " * 38_000


def _sync(driver: Driver, user: str, assistant: str) -> Answer:
    return driver.ask(
        "sync_turn",
        user,
        assistant,
        session_id="session-1",
        messages=conversation(user, assistant),
    )


def _prefetch(driver: Driver, query: str = "What is my parrot called?") -> Answer:
    return driver.ask("prefetch", query, session_id="session-1")


def accepts(driver: Driver, hook: str, keyword: str) -> None:
    """Fail unless a method can be given a keyword."""
    method = getattr(driver.provider, hook, None)
    if method is None:
        return
    try:
        parameters = signature(method).parameters
    except (TypeError, ValueError):  # written in C
        return
    kinds = {each.kind for each in parameters.values()}
    known = parameters.get(keyword)
    named = known is not None and known.kind is not Parameter.POSITIONAL_ONLY
    if not named and Parameter.VAR_KEYWORD not in kinds:
        raise Failed(f"it is {hook}{signature(method)}", where=driver.where(hook))


@check(
    "HP601",
    SHOULD,
    "`sync_turn` returns at once",
    fix="Put the turn into a queue of your own and deliver it on a thread, or store it locally.",
)
def sync_is_fast(bench: Bench) -> None:
    """Some hosts call it on the turn's own thread: the next message waits for it."""
    driver = bench.started("session-timed")
    limit = bench.options.limits.sync
    turn = ("sync_turn", "Where?", "There.")
    # The first call may open what the later ones use.
    answers = [
        driver.sound("sync_turn", driver.ask(*turn, session_id="session-timed")) for _ in range(3)
    ]
    fastest = min(each.seconds for each in answers[1:])
    if fastest > limit:
        raise Failed(
            f"it took {fastest:.2f} s",
            expected=f"an end within {limit:g} s",
            where=driver.where("sync_turn"),
        )


@check(
    "HP602",
    MUST,
    "`sync_turn` accepts `messages`",
    fix="Declare it as the contract does: `sync_turn(self, user_content, assistant_content, *, "
    "session_id='', messages=None)`.",
)
def sync_takes_messages(bench: Bench) -> None:
    """`messages` is the turn with its tool calls. Hosts pass it by keyword; a signature of the
    older contract breaks with a TypeError, and the turn is lost. The most frequent fault of all.
    """
    accepts(bench.driver(), "sync_turn", "messages")


@check(
    "HP603",
    MUST,
    "`sync_turn` and `prefetch` take any text",
    fix="Open files with encoding='utf-8', bind values with ? in SQL, and quote for FTS5.",
)
def any_text(bench: Bench) -> None:
    """People write in all scripts, paste SQL, quotes and control characters, and send empty
    messages.
    """
    driver = bench.started()
    for text in (_UNICODE, "", '"unbalanced AND (', "%s {0} \\"):
        driver.sound("sync_turn", _sync(driver, text, text), f" of {text[:12]!r}")
        driver.sound("prefetch", _prefetch(driver, text), f" of {text[:12]!r}")


@check(
    "HP604",
    MUST,
    "`sync_turn` takes a turn of a megabyte",
    fix="Cut what you embed or send; store the rest, or say in the text that it was cut.",
)
def large_turns(bench: Bench) -> None:
    """An answer with a log file or a whole program in it is a turn like any other."""
    driver = bench.started()
    driver.sound("sync_turn", _sync(driver, _MEGABYTE, _MEGABYTE), " of a megabyte")
    driver.sound("prefetch", _prefetch(driver, _MEGABYTE), " of a megabyte")


@check(
    "HP605",
    MUST,
    "`prefetch` returns a str",
    fix="Return '' where there is nothing, and a str in all other cases.",
)
def recall_is_text(bench: Bench) -> None:
    """What is recalled goes into the message as it is. None, a list or a dict is dropped."""
    driver = bench.started()
    for moment in ("at first", "after a turn"):
        answer = driver.sound("prefetch", _prefetch(driver))
        if not isinstance(answer.value, str):
            where = driver.where("prefetch")
            raise Failed(f"{moment} it returned {answer.value!r:.80}", where=where)
        _sync(driver, "My parrot is called Polly.", "Noted.")


@check(
    "HP606",
    MUST,
    "`prefetch` returns within the budget",
    fix="Use a timeout below 4 s, start the recall in `queue_prefetch`, return '' if it is late.",
)
def recall_is_in_time(bench: Bench) -> None:
    """Between a message and its answer there are 4 seconds for recall. After that the host goes on
    without.
    """
    driver = bench.started()
    _sync(driver, "My parrot is called Polly.", "Noted.")
    limit = bench.options.limits.prefetch
    answer = driver.ask_within(
        max(limit * 1.5, limit + 0.5), "prefetch", "parrot", session_id="session-1"
    )
    if answer.seconds > limit:
        raise Failed(
            f"no answer within {answer.seconds:.1f} s",
            expected=f"an answer within {limit:g} s",
            where=driver.where("prefetch"),
        )


@check(
    "HP607",
    MUST,
    "`prefetch` returns '' if it knows nothing",
    fix="Return '' before you add a heading.",
)
def nothing_is_empty(bench: Bench) -> None:
    """A heading without anything below it costs tokens in every turn, and tells the model that
    there is something.
    """
    driver = bench.started(user_id=f"{bench.person}-new")
    value = driver.sound("prefetch", _prefetch(driver)).value
    if isinstance(value, str) and value.strip():
        raise Failed(f"in an empty home it returned {value[:80]!r}", where=driver.where("prefetch"))


@check(
    "HP608",
    SHOULD,
    "What is recalled is bounded",
    fix="Cut each memory, and the whole, before you return it.",
)
def recall_is_bounded(bench: Bench) -> None:
    """The host caps it anyway, and cuts where it must. What is best kept, only the plugin knows."""
    driver = bench.started()
    _sync(driver, f"My parrot is called Polly. {_MEGABYTE}", "Noted.")
    limit = bench.options.limits.recalled
    if bench.recalls():  # a plugin with a queue knows the turn a moment later
        bench.until(lambda: bool(_prefetch(driver).value))
    value = _prefetch(driver).value
    if isinstance(value, str) and len(value) > limit:
        raise Failed(
            f"{len(value):,} characters after a turn of a megabyte",
            expected=f"at most {limit:,} characters",
            where=driver.where("prefetch"),
        )


@check(
    "HP609",
    SHOULD,
    "What was synced comes back",
    fix="Look where the turn goes: is it stored, is it searched, and does the query find it.",
)
def turns_come_back(bench: Bench) -> None:
    """That is what a memory is for. Asked in the same session and in the next one, by another
    object. Where recall needs a network, only `--live` can tell.
    """
    driver = bench.started()
    bench.overridden("prefetch", "it recalls nothing by prefetch")
    marker = bench.remember(driver, "session-1")
    found = bench.finds(driver, marker, "session-1")
    if not found and bench.cut_off():
        bench.recalling()  # skips, and says why
    if not found:
        raise Failed(
            "prefetch in the same session does not have it", where=driver.where("prefetch")
        )
    driver.sound("shutdown", driver.shut())
    later = bench.started("session-2")
    if not bench.finds(later, marker, "session-2"):
        raise Failed(
            "prefetch in the next session does not have it", where=driver.where("initialize")
        )


@check(
    "HP610",
    MUST,
    "`prefetch`, `queue_prefetch` and `sync_turn` accept `session_id`",
    fix="Add `session_id=''` as a keyword to the method.",
)
def takes_session_id(bench: Bench) -> None:
    """One provider may serve several sessions: which one a call is about, the keyword says."""
    driver = bench.driver()
    for hook in ("prefetch", "queue_prefetch", "sync_turn"):
        accepts(driver, hook, "session_id")


@check(
    "HP611",
    MUST,
    "`on_pre_compress` returns a str",
    fix="Return '' where there is nothing to add.",
)
def compression_is_text(bench: Bench) -> None:
    """What it returns is appended to the prompt of the summary; None breaks the hosts that don't
    expect it.
    """
    driver = bench.started()
    for messages in ([], conversation("My parrot is called Polly.", "Noted.")):
        value: Any = driver.call("on_pre_compress", messages)
        if not isinstance(value, str):
            where = driver.where("on_pre_compress")
            raise Failed(f"it returned {value!r:.80}", where=where)


@check(
    "HP612",
    SHOULD,
    "`recall_status` returns None or a `RecallStatus`",
    fix="Return `hermes_core.RecallStatus(provider_label, count, glyph)`, or None.",
)
def status_is_one(bench: Bench) -> None:
    """Hosts show it beside the answer: label, count and glyph."""
    driver = bench.started()
    _sync(driver, "My parrot is called Polly.", "Noted.")
    _prefetch(driver)
    value = driver.call("recall_status")
    parts = ("provider_label", "count", "glyph")
    if value is not None and not all(hasattr(value, part) for part in parts):
        raise Failed(f"it returned {value!r:.80}", where=driver.where("recall_status"))
