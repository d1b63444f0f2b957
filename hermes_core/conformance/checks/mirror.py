"""Mirror: changes to the built-in notes, passed on to the plugin."""

from __future__ import annotations

import secrets

from hermes_core.conformance._context import CheckContext
from hermes_core.conformance._driver import Driver
from hermes_core.conformance.checks.turns import accepts
from hermes_core.conformance.model import MUST, SHOULD, CheckFailure, CheckSkip, check


@check(
    "HP801",
    MUST,
    "`on_memory_write` accepts `metadata`",
    fix="Declare `def on_memory_write(self, action, target, content, metadata=None)`.",
)
def takes_metadata(context: CheckContext) -> None:
    """`metadata` contains the session, the origin and, for a replacement, the old text. Without it
    a plugin can't know which note was replaced.
    """
    accepts(context.driver(), "on_memory_write", "metadata")


@check(
    "HP802",
    MUST,
    "`on_memory_write` accepts add, replace and remove for both notebooks",
    fix="Ignore actions and targets that you don't mirror. Don't raise for any of them.",
)
def takes_every_action(context: CheckContext) -> None:
    """The model, a person with an editor, and undo all change notes. Hosts pass every change on,
    with or without `metadata`.
    """
    driver = context.started()
    for target in ("memory", "user"):
        for action, metadata in (
            # What hosts pass: older ones no metadata at all, ours the origin, and the old text of
            # a change.
            ("add", None),
            ("add", {"write_origin": "assistant_tool", "session_id": "session-1"}),
            ("replace", {"old_text": "Likes tea."}),
            ("remove", {"old_text": "Likes coffee."}),
            ("remove", {}),
        ):
            content = "" if action == "remove" else "Likes coffee."
            driver.call("on_memory_write", action, target, content, metadata=metadata)


@check(
    "HP803",
    SHOULD,
    "A note that was replaced or removed is not recalled",
    fix="Store notes by their text: `metadata['old_text']` names the note to remove.",
)
def mirror_follows(context: CheckContext) -> None:
    """Users remove a note because it is wrong or private. A plugin that keeps a copy has to remove
    it too.
    """
    driver = context.started()
    context.overridden("on_memory_write", "it does not mirror notes")
    context.recalling()
    first, second = (f"zq{secrets.token_hex(6)}" for _ in range(2))
    _note(driver, "add", f"The parrot is called {first}.")
    # A plugin may store notes without recalling them in `prefetch`.
    if not context.finds(driver, first, "session-1"):
        raise CheckSkip("it does not recall notes")
    _note(driver, "replace", f"The parrot is called {second}.", f"The parrot is called {first}.")
    if not context.finds(driver, second, "session-1"):
        raise CheckFailure("the new text is not recalled after a replacement", where=_where(driver))
    _gone(context, driver, first, "the old text is still recalled after a replacement")
    _note(driver, "remove", "", f"The parrot is called {second}.")
    _gone(context, driver, second, "the text is still recalled after a removal")


def _note(driver: Driver, action: str, content: str, old: str = "") -> None:
    metadata = {"session_id": "session-1", **({"old_text": old} if old else {})}
    # A removal passes the old text as content too, as hermes-agent does.
    driver.call("on_memory_write", action, "memory", content or old, metadata=metadata)


def _gone(context: CheckContext, driver: Driver, marker: str, otherwise: str) -> None:
    # Waits until it is gone: a removal may run in the background.
    if not context.until(lambda: marker not in context.recall(driver, "session-1")):
        raise CheckFailure(otherwise, where=_where(driver))


def _where(driver: Driver) -> str:
    return driver.where("on_memory_write")
