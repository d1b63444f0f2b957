"""Turns: storing and recalling what was said, in time."""

from __future__ import annotations

from copy import deepcopy
from inspect import Parameter, signature
from typing import Any, Final

from hermes_core.conformance._context import CheckContext, conversation
from hermes_core.conformance._driver import Answer, Driver
from hermes_core.conformance.model import MUST, SHOULD, CheckFailure, check
from hermes_core.dispatch import method_of

# Other scripts, joined emoji, right-to-left text and its controls, a combining accent, NUL, a line
# separator, and what SQL, FTS5 and format strings treat specially.
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
    """Fail unless a method accepts a keyword."""
    method = method_of(driver.provider, hook)
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
        raise CheckFailure(f"the signature is {hook}{signature(method)}", where=driver.where(hook))


@check(
    "HP601",
    SHOULD,
    "`sync_turn` returns immediately",
    fix="Put the turn into a queue and deliver it on a thread, or store it locally.",
)
def sync_is_fast(context: CheckContext) -> None:
    """Some hosts call it on the thread of the turn, so the next message waits for it."""
    driver = context.started("session-timed")
    limit = context.options.limits.sync
    turn = ("sync_turn", "Where?", "There.")
    # The first call may open a connection that the later ones use.
    answers = [
        driver.sound("sync_turn", driver.ask(*turn, session_id="session-timed")) for _ in range(3)
    ]
    # The fastest of two: a pause of a busy machine must not fail the check.
    fastest = min(each.seconds for each in answers[1:])
    if fastest > limit:
        raise CheckFailure(
            f"it took {fastest:.2f} s",
            expected=f"a return within {limit:g} s",
            where=driver.where("sync_turn"),
        )


@check(
    "HP602",
    MUST,
    "`sync_turn` accepts `messages`",
    fix="Declare it as the contract does: `sync_turn(self, user_content, assistant_content, *, "
    "session_id='', messages=None)`.",
)
def sync_takes_messages(context: CheckContext) -> None:
    """`messages` is the turn with its tool calls. Hosts pass it by keyword. With the signature of
    the older contract the call raises a TypeError, and the turn is lost. This is the most frequent
    problem in published plugins.
    """
    accepts(context.driver(), "sync_turn", "messages")


@check(
    "HP603",
    MUST,
    "`sync_turn` and `prefetch` accept any text",
    fix="Open files with encoding='utf-8', bind SQL values with ?, and quote FTS5 queries.",
)
def any_text(context: CheckContext) -> None:
    """Users write in all scripts, paste SQL, quotes and control characters, and send empty
    messages.
    """
    driver = context.started()
    for text in (_UNICODE, "", '"unbalanced AND (', "%s {0} \\"):
        driver.sound("sync_turn", _sync(driver, text, text), f" of {text[:12]!r}")
        driver.sound("prefetch", _prefetch(driver, text), f" of {text[:12]!r}")


@check(
    "HP604",
    MUST,
    "`sync_turn` accepts a turn of 1 MB",
    fix="Truncate what you embed or send. Store the rest, or say in the text that it was "
    "truncated.",
)
def large_turns(context: CheckContext) -> None:
    """Turns can contain a log file or a whole program."""
    driver = context.started()
    driver.sound("sync_turn", _sync(driver, _MEGABYTE, _MEGABYTE), " of 1 MB")
    driver.sound("prefetch", _prefetch(driver, _MEGABYTE), " of 1 MB")


@check(
    "HP605",
    MUST,
    "`prefetch` returns a str",
    fix="Return '' if there is nothing to recall, and a str in all other cases.",
)
def recall_is_text(context: CheckContext) -> None:
    """The host inserts recalled text into the message as is. It drops None, lists and dicts."""
    driver = context.started()
    for moment in ("before the first turn", "after a turn"):
        answer = driver.sound("prefetch", _prefetch(driver))
        if not isinstance(answer.value, str):
            where = driver.where("prefetch")
            raise CheckFailure(f"it returned {answer.value!r:.80} {moment}", where=where)
        _sync(driver, "My parrot is called Polly.", "Noted.")


@check(
    "HP606",
    MUST,
    "`prefetch` returns in time",
    fix="Use a timeout below 4 s, start the recall in `queue_prefetch`, and return '' if it is "
    "late.",
)
def recall_is_in_time(context: CheckContext) -> None:
    """Recall has 4 seconds between a message and its answer. After that, the host continues without
    it.
    """
    driver = context.started()
    _sync(driver, "My parrot is called Polly.", "Noted.")
    limit = context.options.limits.prefetch
    # More than the limit, so that a late answer can be told from none, but not the full deadline.
    answer = driver.ask_within(
        max(limit * 1.5, limit + 0.5), "prefetch", "parrot", session_id="session-1"
    )
    if answer.seconds > limit:
        raise CheckFailure(
            f"no answer within {answer.seconds:.1f} s",
            expected=f"an answer within {limit:g} s",
            where=driver.where("prefetch"),
        )


@check(
    "HP607",
    MUST,
    "`prefetch` returns '' if there is nothing to recall",
    fix="Return '' before you add a heading.",
)
def nothing_is_empty(context: CheckContext) -> None:
    """A heading without content costs tokens in every turn and suggests to the model that memories
    exist.
    """
    # A user that no live backend knows yet.
    driver = context.started(user_id=f"{context.person}-new")
    value = driver.sound("prefetch", _prefetch(driver)).value
    if isinstance(value, str) and value.strip():
        raise CheckFailure(
            f"it returned {value[:80]!r} in an empty home", where=driver.where("prefetch")
        )


@check(
    "HP608",
    SHOULD,
    "Recalled text has a limit",
    fix="Truncate each memory, and the whole text, before you return it.",
)
def recall_is_bounded(context: CheckContext) -> None:
    """The host truncates text that is too long. Only the plugin knows which part matters most."""
    driver = context.started()
    _sync(driver, f"My parrot is called Polly. {_MEGABYTE}", "Noted.")
    limit = context.options.limits.recalled
    if context.recalls():  # a plugin with a queue stores the turn a moment later
        context.until(lambda: bool(_prefetch(driver).value))
    value = _prefetch(driver).value
    if isinstance(value, str) and len(value) > limit:
        raise CheckFailure(
            f"{len(value):,} characters after a turn of 1 MB",
            expected=f"at most {limit:,} characters",
            where=driver.where("prefetch"),
        )


@check(
    "HP609",
    SHOULD,
    "A stored turn is recalled",
    fix="Check each step: whether the turn is stored, whether it is searched, and whether the "
    "query matches it.",
)
def turns_come_back(context: CheckContext) -> None:
    """This is the purpose of a memory. The kit asks in the same session, and in the next one with a
    new instance. If recall needs a network, only `--live` can check it.
    """
    driver = context.started()
    context.overridden("prefetch", "it does not implement prefetch")
    marker = context.remember(driver, "session-1")
    found = context.finds(driver, marker, "session-1")
    if not found and context.cut_off():
        context.recalling()  # skips, with the reason
    if not found:
        raise CheckFailure(
            "prefetch does not return it in the same session", where=driver.where("prefetch")
        )
    driver.sound("shutdown", driver.shut())
    # A new object, so that the turn has to come from storage.
    later = context.started("session-2")
    if not context.finds(later, marker, "session-2"):
        raise CheckFailure(
            "prefetch does not return it in the next session", where=driver.where("initialize")
        )


@check(
    "HP610",
    MUST,
    "`prefetch`, `queue_prefetch` and `sync_turn` accept `session_id`",
    fix="Add the keyword `session_id=''` to the method.",
)
def takes_session_id(context: CheckContext) -> None:
    """One provider may serve several sessions. The keyword says which one a call is for."""
    driver = context.driver()
    for hook in ("prefetch", "queue_prefetch", "sync_turn"):
        accepts(driver, hook, "session_id")


@check(
    "HP611",
    MUST,
    "`on_pre_compress` returns a str",
    fix="Return '' if there is nothing to add.",
)
def compression_is_text(context: CheckContext) -> None:
    """Hosts append the result to the prompt for the summary. Some of them fail on None."""
    driver = context.started()
    for messages in ([], conversation("My parrot is called Polly.", "Noted.")):
        value: Any = driver.call("on_pre_compress", messages)
        if not isinstance(value, str):
            where = driver.where("on_pre_compress")
            raise CheckFailure(f"it returned {value!r:.80}", where=where)


@check(
    "HP612",
    SHOULD,
    "`recall_status` returns None or a `RecallStatus`",
    fix="Return `hermes_core.RecallStatus(provider_label, count, glyph)` or None.",
)
def status_is_one(context: CheckContext) -> None:
    """Hosts show it next to the answer: label, count and glyph."""
    driver = context.started()
    _sync(driver, "My parrot is called Polly.", "Noted.")
    _prefetch(driver)
    value = driver.call("recall_status")
    # By attributes: hermes-agent's class of that name is another one than ours.
    parts = ("provider_label", "count", "glyph")
    if value is not None and not all(hasattr(value, part) for part in parts):
        raise CheckFailure(f"it returned {value!r:.80}", where=driver.where("recall_status"))


# A turn as hosts pass it: with a tool call, its answer, and nested values.
_TOOL_TURN: Final[tuple[dict[str, Any], ...]] = (
    {"role": "user", "content": "Where is the key?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "call-1",
                "type": "function",
                "function": {"name": "find", "arguments": '{"what": "key"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call-1", "content": "Under the mat."},
    {"role": "assistant", "content": "Under the mat."},
)


@check(
    "HP613",
    SHOULD,
    "Hooks do not change the messages that they get",
    fix="Copy what you change: `messages = [dict(each) for each in messages]`.",
)
def messages_stay_as_they_are(context: CheckContext) -> None:
    """The list is the conversation itself in some hosts. What a plugin clears, shortens or edits
    there is missing from the next prompt and from what other providers store.
    """
    driver = context.started()
    lists = {hook: deepcopy(list(_TOOL_TURN)) for hook in _GET_MESSAGES}
    for hook, given in lists.items():
        if hook == "sync_turn":
            turn = ("Where is the key?", "Under the mat.")
            driver.ask(hook, *turn, session_id="session-1", messages=given)
        else:
            driver.ask(hook, given)
    driver.shut()  # a plugin with a queue uses them later
    changed = [hook for hook, given in lists.items() if given != list(_TOOL_TURN)]
    if changed:
        hook = changed[0]
        raise CheckFailure(
            f"after {hook}, {_change(lists[hook])}",
            expected=f"the {len(_TOOL_TURN)} messages as they were",
            where=driver.where(hook),
        )


_GET_MESSAGES: Final = ("sync_turn", "on_pre_compress", "on_session_end")


def _change(messages: list[dict[str, Any]]) -> str:
    if len(messages) != len(_TOOL_TURN):
        return f"the list has {len(messages)} messages"
    pairs = zip(messages, _TOOL_TURN, strict=True)
    number = next(at for at, (now, before) in enumerate(pairs, 1) if now != before)
    return f"message {number} of {len(messages)} is different"
