"""The built-in provider: first in every manager, and not removable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hermes_builtin.notes import (
    REMINDER,
    TARGETS,
    MemoryTool,
    Notes,
    NudgeCounter,
    Origin,
    Person,
    Settings,
    Step,
    Written,
    review_prompt,
    schema,
    snapshot,
    view,
    without_secrets,
)
from hermes_builtin.notes.guard import scan
from hermes_builtin.sessions import (
    SEARCH_SCHEMA,
    Conversations,
    SessionSearch,
    prepare_archive,
)
from hermes_core import ForgetReport, ForgetRequest, HermesError, MemoryProvider

Mirror = Callable[[str, str, str, dict[str, Any]], None]
Report = Callable[[HermesError], None]

_COMPRESSION: Final = "compression"


class BuiltinProvider(MemoryProvider):
    """What an agent remembers without any backend: its notes, and every conversation."""

    def __init__(self) -> None:
        self._notes: Notes | None = None
        self._conversations: Conversations | None = None
        self._tool: MemoryTool | None = None
        self._nudges = NudgeCounter(0)
        self._snapshot = ""
        self._session = ""
        self._platform = ""
        self._home = Path()
        self._mirror: Mirror | None = None
        self._report: Report | None = None

    @property
    def name(self) -> str:
        """The reserved name."""
        return "builtin"

    @property
    def notes(self) -> Notes:
        """The notebooks of the home that it was initialised with."""
        if self._notes is None:
            raise HermesError("the built-in has not been initialised")
        return self._notes

    def is_available(self) -> bool:
        """It needs nothing."""
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Open the notebooks, and take the snapshot for this session."""
        settings = Settings.of(kwargs.get("provider_config") or {})
        # A second `initialize` is a new session in the same process: the files of the old one are
        # closed.
        self.shutdown()
        home = Path(kwargs["hermes_home"])
        self._conversations = Conversations(home, session_id, kwargs)
        self._notes = Notes(home, settings, Person.of(kwargs))
        self._tool = self._notes.tool(self._committed, self._unstored)
        self._home = home
        self._nudges = NudgeCounter(settings.nudge_interval if self._notes.enabled() else 0)
        self._session = session_id
        # The snapshot is taken once. If the system prompt changed during a session, the model
        # provider's prompt cache would miss on every turn.
        self._platform = str(kwargs.get("platform", ""))
        self._snapshot = snapshot(self._notes.enabled())

    def system_prompt_block(self) -> str:
        """The notes as they were when the session began."""
        return self._snapshot

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:  # noqa: ARG002
        """Count the turn."""
        self._nudges.turn(self._session)
        if self._tool is not None:
            self._tool.new_turn()

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,  # noqa: ARG002
        **kwargs: Any,
    ) -> None:
        """Go on in another session; a new or a compressed one gets a new snapshot."""
        self._session = new_session_id
        if self._conversations is not None:
            self._conversations.switch(new_session_id, parent_session_id, reset, kwargs)
        if self._notes is None:
            return
        person = Person.of(kwargs, self._notes.person)
        is_other = person != self._notes.person
        if is_other:
            self._notes.close()
            self._notes = Notes(self._home, self._notes.settings, person)
            self._tool = self._notes.tool(self._committed, self._unstored)
        # After a compression the prompt is built again in any case, so newer notes cost nothing.
        if is_other or reset or kwargs.get("reason") == _COMPRESSION:
            self._snapshot = snapshot(self._notes.enabled())

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """The search, and the memory tool unless both notebooks are switched off."""
        targets = TARGETS if self._notes is None else tuple(self._notes.enabled())
        return [*([schema(targets)] if targets else []), SEARCH_SCHEMA]

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        """Store the turn in the archive."""
        if self._conversations is None:
            raise HermesError("the built-in has not been initialised")
        self._conversations.turn(user_content, assistant_content, session_id, messages)

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """Record when the session ended."""
        # A session in which nothing was said is not in the archive.
        if self._conversations is not None and messages:
            self._conversations.end()

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call of one of the two tools."""
        if self._tool is None or self._conversations is None:
            raise HermesError("the built-in has not been initialised")
        session = str(kwargs.get("session_id") or self._session)
        if tool_name == SEARCH_SCHEMA["name"]:
            return SessionSearch(self._conversations).call(args, session, kwargs)
        person = Person.of(kwargs, self.notes.person)
        if person == self.notes.person:
            return self._tool.call(args, Origin("tool", session))
        theirs = Notes(self._home, self.notes.settings, person)  # the host names somebody else
        try:
            return theirs.tool(self._committed, self._unstored).call(args, Origin("tool", session))
        finally:
            theirs.close()

    def shutdown(self) -> None:
        """Close the history and the archive."""
        if self._notes is not None:
            self._notes.close()
        if self._conversations is not None:
            self._conversations.close()

    # -- what only the built-in has: the manager asks for these by name -------------------

    def mirror_to(self, mirror: Mirror) -> None:
        """Call ``mirror`` for every change that was made: action, target, content, metadata."""
        self._mirror = mirror

    def report_to(self, report: Report) -> None:
        """Call ``report`` if a call of the memory tool fails because of the files of the notes."""
        self._report = report

    def mirror(self, target: str, steps: list[Step], origin: str, session: str = "") -> None:
        """Pass on the steps of a change that was made, without secrets.

        An entry with a secret that is removed has one, and so has one that a person allowed.
        """
        if self._mirror is None:
            return
        # The external provider never gets a secret, whatever the notes contain.
        for step in map(without_secrets, steps):
            metadata = {
                "write_origin": origin,
                "session_id": session or self._session,
                "platform": self._platform,
                "tool_name": "memory",
            }
            if step.old_text:
                # Two names: ours, and the one of hermes-agent's plugins.
                metadata["old_text"] = metadata["previous_content"] = step.old_text
            self._mirror(step.action, target, step.content, metadata)

    def prepare_archive(self, home: Path) -> None:
        """Make the archive and its views, which other providers read from their start on."""
        prepare_archive(home)

    def warnings(self, home: Path) -> list[str]:
        """What `status` should know of the notes of a home."""
        from hermes_builtin.doctor import sharing  # noqa: PLC0415 - no agent needs it

        return sharing(home)

    def problems(self, home: Path) -> list[HermesError]:
        """Which files of a home can't be used, by a quick look."""
        from hermes_builtin.doctor import problems  # noqa: PLC0415 - no agent needs it

        return problems(home)

    def diagnose(self, home: Path, *, fix: bool) -> Iterator[tuple[str, str, str, str]]:
        """What `doctor` should know of the notes and conversations of a home."""
        from hermes_builtin.doctor import diagnose  # noqa: PLC0415 - no agent needs it

        return diagnose(home, fix=fix)

    def objections(self, text: str) -> list[str]:
        """What the guard of the notes has against a text, in a word or two."""
        finding = scan(text)
        return [] if finding is None else [finding.kind]

    def archived_turns(
        self, home: Path, session_id: str, facts: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """The turns of one session: ``at``, ``user_content``, ``assistant_content``, ``messages``.

        ``facts`` are the keywords of `initialize`, which say whose session it is.
        """
        from hermes_builtin.sessions.conversations import archived_turns  # noqa: PLC0415 - as above

        return archived_turns(home, session_id, facts)

    def sessions_since(self, home: Path, since: float) -> Iterator[dict[str, Any]]:
        """What persons said since then: ``session``, ``keywords`` and ``turns`` of each session."""
        from hermes_builtin.sessions.conversations import sessions_since  # noqa: PLC0415 - as above

        return sessions_since(home, since)

    def forget(self, request: ForgetRequest) -> ForgetReport:
        """Find what a person wants to be forgotten in notes and conversations, and delete it."""
        from hermes_builtin.forget import forget  # noqa: PLC0415 - no agent needs it

        return forget(request)

    def sessions_meant(self, request: ForgetRequest) -> dict[str, Any]:
        """Whose memories a request is about."""
        from hermes_builtin.forget import sessions_meant  # noqa: PLC0415 - as above

        return sessions_meant(request)

    def pending_nudge(self) -> str:
        """A reminder to take notes, if it is time for one."""
        return REMINDER if self._nudges.due(self._session) else ""

    def review_prompt(self, messages: list[dict[str, Any]]) -> str:
        """What to ask a model, with the memory tool at hand, to review a conversation."""
        texts = {}
        for target, notebook in self.notes.enabled().items():
            try:
                shown = view(notebook, notebook.read())
                lines = [*(f"- {entry}" for entry in shown.harmless), shown.remark]
                texts[target] = "\n".join(filter(None, lines))
            except HermesError as error:
                texts[target] = f"(can't be read: {error})"
        return review_prompt(messages, texts)

    def _committed(self, target: str, written: Written, origin: Origin) -> None:
        # A write that changed nothing neither resets the reminder nor reaches the external
        # provider.
        if written.steps:
            self._nudges.reset(origin.session)
            self.mirror(target, written.steps, "assistant_tool", origin.session)

    def _unstored(self, error: HermesError) -> None:
        if self._report is not None:
            self._report(error)
