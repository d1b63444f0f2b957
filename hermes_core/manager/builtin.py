"""The built-in provider of a manager: its calls, and what it has beyond the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_core.dispatch import HookCalls, LossCounter, ProviderAdapter, as_builtin
from hermes_core.errors import HermesError
from hermes_core.hookspecs import Messages
from hermes_core.manager.notes import NoteWrites
from hermes_core.provider import BuiltinMethods, MemoryProvider
from hermes_core.storage.time_limit import ARCHIVE_SECONDS, time_limit


class BuiltinCalls:
    """Calls the built-in on the caller's thread, and counts what it could not store.

    Args:
        hooks: The manager's hooks.
        notes: Receives the notes that the built-in writes.
    """

    def __init__(self, hooks: HookCalls, notes: NoteWrites) -> None:
        #: None until the built-in is added.
        self.adapter: ProviderAdapter | None = None
        #: What only our own built-in has; another provider in its place may lack it.
        self.methods: BuiltinMethods | None = None
        self._hooks = hooks
        self._notes = notes
        self._unstored = {"sync_turn": LossCounter("turn"), "handle_tool_call": LossCounter("note")}

    def use(self, adapter: ProviderAdapter, provider: MemoryProvider) -> None:
        """Call this provider from now on."""
        self.adapter = adapter
        self.methods = methods = as_builtin(provider)
        if methods is not None:
            methods.mirror_to(self._notes.from_builtin)
            methods.report_to(self._on_unstored_note, self._on_spooled_turn)

    def call(self, hook: str, arguments: Mapping[str, Any]) -> None:
        """Call a hook, within the time that a turn may wait for the archive."""
        if self.adapter is not None:
            with time_limit(ARCHIVE_SECONDS):
                outcome = self._hooks.only(self.adapter, hook)(**arguments)
            if hook == "sync_turn" and outcome.error is not None:
                self._unstored[hook].add(self.adapter.error_text(outcome.error))

    @property
    def warnings(self) -> list[str]:
        """What waits in the spool, and what was not stored."""
        waiting = "" if self.methods is None else self.methods.waiting()
        return [*filter(None, (waiting, *(each.text for each in self._unstored.values())))]

    def _on_unstored_note(self, error: HermesError) -> None:
        if self.adapter is not None:
            self.adapter.record_failure("handle_tool_call", error)
            self._unstored["handle_tool_call"].add(self.adapter.error_text(error))

    def _on_spooled_turn(self, error: HermesError) -> None:
        if self.adapter is not None:
            self.adapter.record_spooled("sync_turn", error)

    # -- beyond the contract: nothing, if another provider is in its place ----------------

    def prepare(self) -> None:
        """Open its files before a plugin starts."""
        if self.methods is not None:
            self.methods.prepare()

    def read_external(self, content: Any, origin: str, session_id: str) -> None:
        """Report a text that the user did not write."""
        if self.methods is not None:
            self.methods.read_external(content, origin, session_id)

    def note_origins(self) -> list[tuple[str, str]]:
        """The notes of the prompt, each with where it comes from."""
        return [] if self.methods is None else self.methods.note_origins()

    def pending_nudge(self) -> str:
        """A reminder to take notes; "" most of the time."""
        return "" if self.methods is None else self.methods.pending_nudge()

    def session_messages(self, session_id: str) -> Messages:
        """Every message of an earlier session; [] if there is none."""
        return [] if self.methods is None else self.methods.session_messages(session_id)

    def review_prompt(self, messages: Messages) -> str:
        """What to send to a model in the background after a nudge."""
        return "" if self.methods is None else self.methods.review_prompt(messages)
