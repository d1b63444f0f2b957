"""The built-in provider: first in every manager, and not removable."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hermes_builtin.notes import (
    ALLOW,
    ASK,
    REMINDER,
    TARGETS,
    Author,
    Notes,
    NotesSettings,
    NoteStep,
    NotesTool,
    NudgeCounter,
    Operation,
    Person,
    RefusalError,
    WriteResult,
    entry_id,
    origin_after_repeat,
    review_prompt,
    schema,
    snapshot,
    view,
    without_secrets,
)
from hermes_builtin.notes.guard import read_files, scan
from hermes_builtin.sessions import (
    SEARCH_SCHEMA,
    Conversations,
    SessionSearch,
)
from hermes_builtin.sessions.archive import content_text
from hermes_builtin.sessions.session_text import OriginVerdict
from hermes_core import ForgetReport, ForgetRequest, HermesError, MemoryProvider
from hermes_core.dispatch.process_state import stores_turns
from hermes_core.privacy.origin import ASSISTANT, is_external
from hermes_core.storage.logger import SafeLogger

if TYPE_CHECKING:
    from hermes_core.provider import PastNote, PastSession, RequestSessions
    from hermes_core.storage.migration import StoragePart
    from hermes_core.storage.postgres import Database

Mirror = Callable[[str, str, str, dict[str, Any]], None]
Report = Callable[[HermesError], None]

_COMPRESSION: Final = "compression"


#: Who takes a note back whose words turned out to be external.
CHECK: Final = "check"
#: More notes than any turn writes.
_UNVERIFIED: Final = 64
#: Earlier notes that are judged again after one was found to be external.
_VERIFIED: Final = 16

logger = SafeLogger(logging.getLogger("hermes_builtin"), {})


class _NoteToVerify(NamedTuple):
    """A note that was written while a turn went on, and the entries that went with it."""

    notes: Notes
    target: str
    step: NoteStep
    author: Author
    replaced: tuple[str, ...]


@stores_turns("sync_turn", "handle_tool_call", "on_session_end", "on_session_switch")
class BuiltinProvider(MemoryProvider):
    """What an agent remembers without any backend: its notes, and every conversation."""

    def __init__(self) -> None:
        self._notes: Notes | None = None
        self._conversations: Conversations | None = None
        self._tool: NotesTool | None = None
        self._nudges = NudgeCounter(0)
        self._snapshot = ""
        self._session = ""
        self._platform = ""
        self._home = Path()
        self._mirror: Mirror | None = None
        #: Notes whose turn is not over: a host may report what it read only then.
        self._unverified: list[_NoteToVerify] = []
        self._verified: list[_NoteToVerify] = []
        self._has_external = False
        self._report: Report | None = None
        self._prepares = False
        self._spooled: Report | None = None

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
        memory = kwargs.get("provider_config") or {}
        settings = NotesSettings.of(memory)
        # A second `initialize` is a new session in the same process: the files of the old one are
        # closed.
        self.shutdown()
        home = Path(kwargs["hermes_home"])
        self._conversations = Conversations(home, session_id, kwargs, self._on_spooled)
        if self._prepares:
            self._conversations.prepare()
        self._notes = Notes.open(home, memory, Person.of(kwargs))
        self._tool = self._tool_of(self._notes)
        self._unverified, self._verified = [], []
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
        """Count the turn, and hear what the user says."""
        self._nudges.turn(self._session)
        if self._conversations is not None and isinstance(message, str):
            self._conversations.begin_turn(message)
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
            self._notes = self._notes.of(person)
            self._tool = self._tool_of(self._notes)
            self._unverified, self._verified = [], []
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
        said_at: float = 0.0,
    ) -> None:
        """Store the turn in the archive."""
        if self._conversations is None:
            raise HermesError("the built-in has not been initialised")
        try:
            self._conversations.turn(user_content, assistant_content, session_id, messages, said_at)
        finally:
            # Without its messages the turn may have read anything; the session's end may tell.
            self._verify(over=messages is not None)

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """Record when the session ended."""
        # A session in which nothing was said is not in the archive.
        if self._conversations is not None and messages:
            if self._unverified:
                self._conversations.read(messages, self._session)
                self._verify(over=True)
            self._conversations.end()

    def on_delegation(
        self,
        task: str,  # noqa: ARG002
        result: str,
        *,
        child_session_id: str = "",
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Note what a subagent read and returned: none of it is the user's."""
        if self._conversations is not None:
            self._conversations.delegated(content_text(result), str(child_session_id or ""))

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call of one of the two tools."""
        if self._tool is None or self._conversations is None:
            raise HermesError("the built-in has not been initialised")
        session = str(kwargs.get("session_id") or self._session)
        if isinstance(messages := kwargs.get("messages"), list):
            self._conversations.read(messages, session)
        answer = self._answer(tool_name, args, session, kwargs)
        self._conversations.answered(answer)
        return answer

    def _answer(
        self, tool_name: str, args: dict[str, Any], session: str, kwargs: Mapping[str, Any]
    ) -> str:
        if self._tool is None or self._conversations is None:
            raise HermesError("the built-in has not been initialised")
        if tool_name == SEARCH_SCHEMA["name"]:
            return SessionSearch(self._conversations).call(args, session, kwargs)
        person = Person.of(kwargs, self.notes.person)
        if person == self.notes.person:
            return self._tool.call(args, Author("tool", session))
        theirs = self.notes.of(person)  # the host names somebody else
        try:
            return self._tool_of(theirs).call(args, Author("tool", session))
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

    def report_to(self, report: Report, spooled: Report) -> None:
        """Call these if a note can't be stored, and if a turn waits in the spool."""
        self._report = report
        self._spooled = spooled

    def waiting(self) -> str:
        """How many turns wait for the archive, and why; "" if none does."""
        return self._conversations.spool.waiting().text if self._conversations is not None else ""

    def mirror(self, target: str, steps: list[NoteStep], origin: str, session: str = "") -> None:
        """Pass on the steps of a change that was made, without secrets.

        An entry with a secret that is removed has one, and so has one that a person allowed.
        """
        if self._mirror is None:
            return
        # The external provider never gets a secret, whatever the notes contain.
        for step in map(without_secrets, steps):
            metadata = {
                "write_origin": origin,
                "origin": step.origin or ASSISTANT,
                "session_id": session or self._session,
                "platform": self._platform,
                "tool_name": "memory",
            }
            if step.old_text:
                # Two names: ours, and the one of hermes-agent's plugins.
                metadata["old_text"] = metadata["previous_content"] = step.old_text
            self._mirror(step.action, target, step.content, metadata)

    def prepare(self) -> None:
        """Open in `initialize` what is otherwise opened when it is first needed."""
        self._prepares = True
        with suppress(OSError):  # whoever scans gets the error
            read_files()

    def warnings(self, home: Path) -> list[str]:
        """What `status` should know of the notes of a home."""
        from hermes_builtin.doctor import sharing, spooled  # noqa: PLC0415 - no agent needs it

        return [*sharing(home), *spooled(home)]

    def problems(self, home: Path) -> list[HermesError]:
        """Which files of a home can't be used, by a quick look."""
        from hermes_builtin.doctor import problems  # noqa: PLC0415 - no agent needs it

        return problems(home)

    def diagnose(self, home: Path, *, fix: bool) -> Iterator[tuple[str, str, str, str]]:
        """What `doctor` should know of the notes and conversations of a home."""
        from hermes_builtin.doctor import diagnose  # noqa: PLC0415 - no agent needs it

        return diagnose(home, fix=fix)

    def storage_parts(self, home: Path, database: Database | None) -> list[StoragePart]:
        """The notes and conversations of a home, in files or in a database."""
        from hermes_builtin.storage_parts import parts_of  # noqa: PLC0415 - no agent needs it

        return parts_of(home, database)

    def spooled(self, home: Path, *, seconds: float = 0) -> tuple[int, str]:
        """How many turns wait in the spool, and why; hand them over first, for so long."""
        from hermes_builtin.storage_parts import spooled  # noqa: PLC0415 - no agent needs it

        return spooled(home, seconds=seconds)

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

    def sessions_since(self, home: Path, since: float) -> Iterator[PastSession]:
        """The sessions in which a person spoke since then, each with its turns."""
        from hermes_builtin.sessions.conversations import sessions_since  # noqa: PLC0415 - as above

        return sessions_since(home, since)

    def past_sessions(
        self, home: Path, since: float, until: float, oldest: float
    ) -> Iterator[PastSession]:
        """The sessions with turns in a period, in the order in which they began."""
        from hermes_builtin.past import past_sessions  # noqa: PLC0415 - no agent needs it

        return past_sessions(home, since, until, oldest)

    def past_notes(self, home: Path, memory: Mapping[str, Any]) -> Iterator[PastNote]:
        """The notes that are there now, each once, with their times."""
        from hermes_builtin.past import past_notes  # noqa: PLC0415 - as above

        return past_notes(home, memory)

    def forget(self, request: ForgetRequest) -> ForgetReport:
        """Find what a person wants to be forgotten in notes and conversations, and delete it."""
        from hermes_builtin.forget import forget  # noqa: PLC0415 - no agent needs it

        return forget(request)

    def sessions_of_request(self, request: ForgetRequest) -> RequestSessions:
        """Whose memories a request is about."""
        from hermes_builtin.forget import sessions_of_request  # noqa: PLC0415 - as above

        return sessions_of_request(request)

    def pending_nudge(self) -> str:
        """A reminder to take notes, if it is time for one."""
        return REMINDER if self._nudges.due(self._session) else ""

    def session_messages(self, session_id: str) -> list[dict[str, Any]]:
        """All that was said in a session, if the person who talks may see it."""
        if self._conversations is None:
            raise HermesError("the built-in has not been initialised")
        return self._conversations.messages(session_id)

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

    def read_external(self, content: Any, origin: str, session_id: str = "") -> None:
        """The session has read a text that strangers may have written."""
        if self._conversations is not None:
            self._conversations.report(content_text(content), origin, session_id)

    def origin_of(self, text: str) -> str:
        """Where a text comes from that a host notes itself."""
        if self._notes is None:
            return ASSISTANT
        return self._judge(self._notes, text, Author(session=self._session), ()).origin

    def note_origins(self) -> list[tuple[str, str]]:
        """The notes that the model may see, each with where it comes from."""
        found: list[tuple[str, str]] = []
        for notebook in self.notes.enabled().values() if self._notes is not None else ():
            with suppress(HermesError):
                entries = view(notebook, notebook.read()).harmless
                found += notebook.origins(entries).items()
        return found

    # -- where notes come from --------------------------------------------------------------

    def _tool_of(self, notes: Notes) -> NotesTool:
        committed, judge = partial(self._committed, notes), partial(self._judge, notes)
        return notes.tool(committed, self._unstored, judge)

    def _judge(
        self, notes: Notes, text: str, author: Author, replaced: Sequence[str]
    ) -> OriginVerdict:
        """Say where a note comes from, whatever the model claims."""
        if self._conversations is None:
            return OriginVerdict(ASSISTANT)
        known = notes.history.recorded_origins([text, *replaced]) if notes.history.exists else {}
        found = self._conversations.text(author.session).judge(
            text,
            notes=notes.external_texts(),
            replaced=[(each, known.get(each, ASSISTANT)) for each in replaced],
        )
        # A text that was found external once stays so, until the user says it.
        found = found._replace(origin=origin_after_repeat(known.get(text), found.origin))
        self._has_external |= is_external(found.origin)
        return found

    def _verify(self, *, over: bool) -> None:
        """Judge the notes of a turn again, now that all that it read is known.

        Args:
            over: Whether nothing more will be known.
        """
        left, self._unverified = self._unverified, []
        if self._has_external:
            # A text may be split over notes: what passed alone may not after its other half.
            left, self._verified, self._has_external = [*self._verified, *left], [], False
        for each in left:
            try:
                verdict = self._judge(each.notes, each.step.content, each.author, each.replaced)
                if is_external(verdict.origin):
                    self._found_external(each, verdict)
                elif over:
                    self._verified = [*self._verified, each][-_VERIFIED:]
                else:
                    self._unverified.append(each)
            except (HermesError, RefusalError) as error:  # the turn goes on; the note is as it was
                logger.warning("notes: the origin of a note could not be checked: %s", error)
        del self._unverified[:-_UNVERIFIED]

    def _found_external(self, each: _NoteToVerify, verdict: OriginVerdict) -> None:
        """Record it; unless such notes are allowed, take the note back and let it wait."""
        notes, step = each.notes, each.step
        notebook = notes.notebooks[each.target]
        notes.history.record_origins({step.content: verdict.origin}, notebook.key)
        rule = notes.settings.external_notes
        logger.warning("notes: a note was judged again, %s: %.80s", verdict.reason, step.content)
        if rule == ALLOW or step.content not in notebook.read().entries:
            return
        if rule == ASK:
            goes = entry_id(step.old_text) if step.old_text else ""
            wanted = Operation(step.action, step.content, step.old_text, goes, verdict.origin)
            notes.pending.stage(notebook.key, [wanted], each.author, verdict.reason)
        back = Operation("replace" if step.old_text else "remove", step.old_text, step.content)
        written = notebook.change([back], each.author._replace(who=CHECK))
        self.mirror(each.target, written.steps, "origin_check", each.author.session)

    def _committed(self, notes: Notes, target: str, written: WriteResult, author: Author) -> None:
        # A write that changed nothing neither resets the reminder nor reaches the external
        # provider.
        if written.steps:
            self._nudges.reset(author.session)
            made = {step.content for step in written.steps if step.action != "remove"}
            gone = {step.old_text for step in written.steps if step.old_text} - made
            self._unverified += [
                _NoteToVerify(notes, target, step, author, tuple(gone))
                for step in written.steps
                if step.action != "remove" and not is_external(step.origin)
            ]
            self.mirror(target, written.steps, "assistant_tool", author.session)

    def _on_spooled(self, error: HermesError) -> None:
        if self._spooled is not None:
            self._spooled(error)

    def _unstored(self, error: HermesError) -> None:
        if self._report is not None:
            self._report(error)
