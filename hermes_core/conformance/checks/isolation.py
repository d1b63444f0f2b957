"""Isolation: whose memory it is."""

from __future__ import annotations

import secrets

from hermes_core.conformance._bench import Bench
from hermes_core.conformance._driver import Driver
from hermes_core.conformance._files import holding
from hermes_core.conformance._model import MUST, SHOULD, Failed, Skipped, check


@check(
    "HP701",
    MUST,
    "Two users do not see each other's memories",
    fix="Store `user_id` of `initialize` with every memory, and ask for it in every recall.",
)
def users_do_not_mix(bench: Bench) -> None:
    """A gateway serves many people from one home. What one of them said in private must not be
    recalled to another.
    """
    bench.recalling()
    first, second = bench.pair()
    bench.start(first, "session-1", user_id=f"{bench.person}-a")
    bench.start(second, "session-2", user_id=f"{bench.person}-b")
    marker = bench.remember(first, "session-1")
    if not bench.finds(first, marker, "session-1"):
        raise Skipped("what one user says does not come back to that user")
    if marker in bench.recall(second, "session-2"):
        raise Failed("what one user said was recalled to another", where=second.where("prefetch"))


@check(
    "HP702",
    MUST,
    "Two homes at once do not mix",
    fix="Use `hermes_home` of `initialize`, in the object: no module-level connection, no "
    "HERMES_HOME from the environment.",
)
def homes_do_not_mix(bench: Bench) -> None:
    """Profiles are homes, and one process may serve several. Modules and environment are shared by
    all of them.
    """
    bench.recalling()
    first, second = bench.pair()
    bench.start(first, "session-1")
    other = str(bench.new_home())
    bench.start(second, "session-2", hermes_home=other, agent_identity="other")
    marker = bench.remember(first, "session-1")
    if not bench.finds(first, marker, "session-1"):
        raise Failed(
            "a turn got lost when another home was opened", where=first.where("initialize")
        )
    if marker in bench.recall(second, "session-2"):
        raise Failed("a turn of one home was recalled in another", where=second.where("initialize"))


@check(
    "HP703",
    MUST,
    "Two sessions at once lose nothing",
    fix="Keep state in the object, and let the database do the locking: WAL, and a busy timeout.",
)
def sessions_do_not_disturb(bench: Bench) -> None:
    """Two windows, or a chat on the phone beside one on the desk: two sessions of one person in one
    home.
    """
    bench.recalling()
    first, second = bench.pair()
    bench.start(first, "session-1")
    bench.start(second, "session-2")
    ours = bench.remember(first, "session-1", "parrot")
    theirs = bench.remember(second, "session-2", "tortoise")
    first.sound("shutdown", first.shut())
    if not bench.finds(second, theirs, "session-2", "tortoise"):
        raise Failed("the second session's turn is gone", where=second.where("sync_turn"))
    second.sound("shutdown", second.shut())
    third = bench.started("session-3")
    if not bench.finds(third, ours, "session-3", "parrot"):
        raise Failed("the first session's turn is gone", where=first.where("sync_turn"))


@check(
    "HP704",
    SHOULD,
    "Contexts other than `primary` write nothing",
    fix="Keep `agent_context` of `initialize`, and return from writes unless it is 'primary'.",
)
def others_do_not_write(bench: Bench) -> None:
    """What a cron job or a subagent says is no memory of the person. Our host does not pass it on;
    others do.
    """
    bench.recalling()
    for context in ("cron", "subagent", "flush"):
        driver = bench.started(f"session-{context}", agent_context=context)
        marker = bench.remember(driver, f"session-{context}", context)
        driver.shut()
        main = bench.started(f"session-after-{context}")
        control = bench.remember(main, f"session-after-{context}", "tortoise")
        bench.finds(main, control, f"session-after-{context}", "tortoise")
        found = marker in bench.recall(main, f"session-after-{context}", context)
        main.shut()
        if found:
            raise Failed(
                f"a turn of the context {context!r} was stored", where=driver.where("sync_turn")
            )


def _stored(bench: Bench, text: str) -> bool:
    return bench.until(lambda: bool(holding(bench.home, text)))


def _keeps_sessions(bench: Bench, driver: Driver, session: str) -> None:
    """Skip unless the plugin keeps session ids where they can be seen."""
    bench.remember(driver, session)
    if not holding(bench.home, session) and not (bench.recalls() and _stored(bench, session)):
        raise Skipped("it keeps no session ids below the home, so there is nothing to see")


@check(
    "HP705",
    MUST,
    "After `on_session_switch` writes go to the new session",
    fix="Store the new id in `on_session_switch`, and use it where a write names no session.",
)
def switch_moves_writes(bench: Bench) -> None:
    """/new, /resume and compression change the session in a running process. Turns that are filed
    under the old one are found in the wrong conversation.
    """
    old, new = (f"session-{secrets.token_hex(6)}" for _ in range(2))
    driver = bench.started(old)
    _keeps_sessions(bench, driver, old)
    driver.call("on_session_switch", new, parent_session_id=old, reset=True, reason="new_session")
    driver.call("sync_turn", "My tortoise is called Tom.", "Noted.", session_id="")
    driver.shut()
    if not holding(bench.home, new):
        raise Failed(
            "the new session's id is nowhere in the files, the old one's is",
            where=driver.where("on_session_switch") or driver.where("sync_turn"),
        )


@check(
    "HP706",
    SHOULD,
    "A turn is filed under the `session_id` that it comes with",
    fix="Prefer the keyword to the id of `initialize`: `session_id or self._session`.",
)
def turns_keep_their_session(bench: Bench) -> None:
    """Writes are delivered later, perhaps after the session was switched. The keyword says where
    they belong.
    """
    own, other = (f"session-{secrets.token_hex(6)}" for _ in range(2))
    driver = bench.started(own)
    _keeps_sessions(bench, driver, own)
    bench.remember(driver, other, "tortoise")
    driver.shut()
    if not holding(bench.home, other):
        raise Failed("the keyword's id is nowhere in the files", where=driver.where("sync_turn"))
