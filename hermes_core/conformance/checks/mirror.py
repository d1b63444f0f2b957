"""Mirror: the built-in's notes, told to the plugin."""

from __future__ import annotations

import secrets

from hermes_core.conformance._bench import Bench
from hermes_core.conformance._driver import Driver
from hermes_core.conformance._model import MUST, SHOULD, Failed, Skipped, check
from hermes_core.conformance.checks.turns import accepts


@check(
    "HP801",
    MUST,
    "`on_memory_write` accepts `metadata`",
    fix="Declare `def on_memory_write(self, action, target, content, metadata=None)`.",
)
def takes_metadata(bench: Bench) -> None:
    """`metadata` has the session, the origin and, for a replacement, the old text. Without it a
    plugin can't know which note was replaced.
    """
    accepts(bench.driver(), "on_memory_write", "metadata")


@check(
    "HP802",
    MUST,
    "`on_memory_write` takes add, replace and remove for both notebooks",
    fix="Ignore actions and targets that you don't mirror; raise for none of them.",
)
def takes_every_action(bench: Bench) -> None:
    """Notes are changed by the model, by a person in an editor, and by undo: all of it is told,
    with `metadata` and without.
    """
    driver = bench.started()
    for target in ("memory", "user"):
        for action, metadata in (
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
    fix="Keep notes by their text: `metadata['old_text']` says which one goes.",
)
def mirror_follows(bench: Bench) -> None:
    """A person removes a note because it is wrong or private. If a plugin keeps a copy, it has to
    go there too.
    """
    driver = bench.started()
    bench.overridden("on_memory_write", "it does not mirror notes")
    bench.recalling()
    first, second = (f"zq{secrets.token_hex(6)}" for _ in range(2))
    _note(driver, "add", f"The parrot is called {first}.")
    if not bench.finds(driver, first, "session-1"):
        raise Skipped("it does not recall notes")
    _note(driver, "replace", f"The parrot is called {second}.", f"The parrot is called {first}.")
    if not bench.finds(driver, second, "session-1"):
        raise Failed("after a replacement the new text is not recalled", where=_where(driver))
    _gone(bench, driver, first, "after a replacement the old text is still recalled")
    _note(driver, "remove", "", f"The parrot is called {second}.")
    _gone(bench, driver, second, "after a removal the text is still recalled")


def _note(driver: Driver, action: str, content: str, old: str = "") -> None:
    metadata = {"session_id": "session-1", **({"old_text": old} if old else {})}
    driver.call("on_memory_write", action, "memory", content or old, metadata=metadata)


def _gone(bench: Bench, driver: Driver, marker: str, otherwise: str) -> None:
    if not bench.until(lambda: marker not in bench.recall(driver, "session-1")):
        raise Failed(otherwise, where=_where(driver))


def _where(driver: Driver) -> str:
    return driver.where("on_memory_write")
