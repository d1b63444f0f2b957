"""Isolation: users, homes and sessions stay separate."""

from __future__ import annotations

import secrets

from hermes_core.conformance._context import CheckContext
from hermes_core.conformance._driver import Driver
from hermes_core.conformance._watch import holding
from hermes_core.conformance.model import MUST, SHOULD, CheckFailure, CheckSkip, check


@check(
    "HP701",
    MUST,
    "Users do not see each other's memories",
    fix="Store the `user_id` of `initialize` with every memory, and filter every recall by it.",
)
def users_do_not_mix(context: CheckContext) -> None:
    """A gateway serves many users from one home. What one of them said in private must not be
    recalled for another.
    """
    context.recalling()
    first, second = context.pair()
    context.start(first, "session-1", user_id=f"{context.person}-a")
    context.start(second, "session-2", user_id=f"{context.person}-b")
    marker = context.remember(first, "session-1")
    # First that it is recalled for its owner: otherwise "not recalled for another" proves nothing.
    if not context.finds(first, marker, "session-1"):
        raise CheckSkip("a turn is not recalled for the user who said it")
    if marker in context.recall(second, "session-2"):
        raise CheckFailure(
            "a turn of one user was recalled for another", where=second.where("prefetch")
        )


@check(
    "HP702",
    MUST,
    "Two homes in one process stay separate",
    fix="Keep the `hermes_home` of `initialize` in the object. Don't use a module-level "
    "connection or HERMES_HOME from the environment.",
)
def homes_do_not_mix(context: CheckContext) -> None:
    """Profiles are homes, and one process may serve several. Modules and environment variables are
    shared by all of them.
    """
    context.recalling()
    first, second = context.pair()
    context.start(first, "session-1")
    other = str(context.new_home())
    context.start(second, "session-2", hermes_home=other, agent_identity="other")
    marker = context.remember(first, "session-1")
    # A failure and not a skip: `recalling` has shown that a single home works.
    if not context.finds(first, marker, "session-1"):
        raise CheckFailure(
            "a turn was lost when another home was opened", where=first.where("initialize")
        )
    if marker in context.recall(second, "session-2"):
        raise CheckFailure(
            "a turn of one home was recalled in another", where=second.where("initialize")
        )


@check(
    "HP703",
    MUST,
    "Two sessions at once lose nothing",
    fix="Keep state in the object, and let the database do the locking: WAL and a busy timeout.",
)
def sessions_do_not_disturb(context: CheckContext) -> None:
    """A user may have two windows, or a chat on a phone and one on a desktop: two sessions in one
    home.
    """
    context.recalling()
    first, second = context.pair()
    context.start(first, "session-1")
    context.start(second, "session-2")
    ours = context.remember(first, "session-1", "parrot")
    theirs = context.remember(second, "session-2", "tortoise")
    # One session ends while the other continues: it must not close what they share.
    first.sound("shutdown", first.shut())
    if not context.finds(second, theirs, "session-2", "tortoise"):
        raise CheckFailure(
            "the turn of the second session was lost", where=second.where("sync_turn")
        )
    second.sound("shutdown", second.shut())
    # A new session, so that the turn comes from storage and not from the memory of an object.
    third = context.started("session-3")
    if not context.finds(third, ours, "session-3", "parrot"):
        raise CheckFailure("the turn of the first session was lost", where=first.where("sync_turn"))


@check(
    "HP704",
    SHOULD,
    "Contexts other than `primary` write nothing",
    fix="Store the `agent_context` of `initialize`, and return from writes unless it is 'primary'.",
)
def others_do_not_write(context: CheckContext) -> None:
    """What a cron job or a subagent says is not a memory of the user. Our host does not pass it on;
    other hosts do.
    """
    context.recalling()
    for kind in ("cron", "subagent", "flush"):
        driver = context.started(f"session-{kind}", agent_context=kind)
        marker = context.remember(driver, f"session-{kind}", kind)
        driver.shut()
        main = context.started(f"session-after-{kind}")
        # A turn that must be found: once it is, an earlier turn had time to be stored as well.
        control = context.remember(main, f"session-after-{kind}", "tortoise")
        context.finds(main, control, f"session-after-{kind}", "tortoise")
        found = marker in context.recall(main, f"session-after-{kind}", kind)
        main.shut()
        if found:
            raise CheckFailure(
                f"a turn of the context {kind!r} was stored", where=driver.where("sync_turn")
            )


def _stored(context: CheckContext, text: str) -> bool:
    return context.until(lambda: bool(holding(context.home, text)))


def _keeps_sessions(context: CheckContext, driver: Driver, session: str) -> None:
    """Skip unless the plugin stores session ids where the kit can find them."""
    context.remember(driver, session)
    # Waits only if the plugin recalls here; otherwise its write may never come.
    if not holding(context.home, session) and not (context.recalls() and _stored(context, session)):
        raise CheckSkip("it stores no session ids below the home, so the kit can't check it")


@check(
    "HP705",
    MUST,
    "After `on_session_switch`, writes go to the new session",
    fix="Store the new id in `on_session_switch`, and use it when a write names no session.",
)
def switch_moves_writes(context: CheckContext) -> None:
    """/new, /resume and compression change the session of a running process. Turns stored under the
    old id appear in the wrong conversation.
    """
    old, new = (f"session-{secrets.token_hex(6)}" for _ in range(2))
    driver = context.started(old)
    _keeps_sessions(context, driver, old)
    driver.call("on_session_switch", new, parent_session_id=old, reset=True, reason="new_session")
    # Without a session id: the plugin has to use the one that it switched to.
    driver.call("sync_turn", "My tortoise is called Tom.", "Noted.", session_id="")
    driver.shut()
    if not holding(context.home, new):
        raise CheckFailure(
            "the files contain the old session id and not the new one",
            where=driver.where("on_session_switch") or driver.where("sync_turn"),
        )


@check(
    "HP706",
    SHOULD,
    "A turn is stored under the `session_id` that is passed with it",
    fix="Prefer the keyword to the id of `initialize`: `session_id or self._session`.",
)
def turns_keep_their_session(context: CheckContext) -> None:
    """Hosts deliver writes later, possibly after a session switch. The keyword names the session of
    the turn.
    """
    own, other = (f"session-{secrets.token_hex(6)}" for _ in range(2))
    driver = context.started(own)
    _keeps_sessions(context, driver, own)
    context.remember(driver, other, "tortoise")
    driver.shut()
    if not holding(context.home, other):
        raise CheckFailure(
            "the files do not contain the id of the keyword", where=driver.where("sync_turn")
        )


@check(
    "HP707",
    SHOULD,
    "`prefetch` recalls for the `session_id` that is passed with it",
    fix="Prefer the keyword to the id of `initialize`, and keep what `queue_prefetch` prepares by "
    "session: `self._ready[session_id]`.",
)
def recall_knows_its_session(context: CheckContext) -> None:
    """One provider may serve several sessions at once. A recall that was prepared for one of them
    must not be inserted into another, where nobody asked for it.
    """
    context.recalling()
    driver = context.started("session-1")
    mine = context.remember(driver, "session-2", "parrot")
    theirs = context.remember(driver, "session-3", "tortoise")
    for marker, session, topic in (
        (mine, "session-2", "parrot"),
        (theirs, "session-3", "tortoise"),
    ):
        if not context.finds(driver, marker, session, topic):
            raise CheckFailure(
                f"a turn of {session} is not recalled in {session}; the provider was initialised "
                "with session-1",
                where=driver.where("prefetch"),
            )

    def mixed() -> bool:
        # Single words, so that a small store does not return both turns for either question.
        driver.ask("queue_prefetch", "parrot", session_id="session-2")
        answer = driver.ask("prefetch", "tortoise", session_id="session-3").value
        return isinstance(answer, str) and mine in answer and theirs not in answer

    # Several times: some plugins prepare on a thread, so that the answer of one round is in the
    # next. Bounded by a tenth of the usual time, since good plugins use all of it.
    if driver.has("queue_prefetch") and context.until(mixed, context.options.limits.wait / 10):
        raise CheckFailure(
            "what queue_prefetch prepared for one session was recalled in another",
            where=driver.where("prefetch"),
        )
