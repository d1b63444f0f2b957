"""The provider: what a Hermes agent calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

from hermes_core import ForgetReport, ForgetRequest, HermesError, MemoryPage
from hermes_core.service import (
    BackendError,
    CompletedTurn,
    Delegation,
    Note,
    RecallResult,
    ServiceProvider,
    SessionStart,
    Tool,
    forget_person,
    resolve_home,
    save_own_file,
)
from hermes_memory_mem0.calls import SERVICE, explained, within
from hermes_memory_mem0.confirmation import FILE as LIST
from hermes_memory_mem0.confirmation import (
    AcceptedTurns,
    SentTurn,
    extracted,
    note_unconfirmed,
    unconfirmed,
)
from hermes_memory_mem0.memories import (
    Mem0Memory,
    Memories,
    Message,
    Owner,
    cleaned,
    forget,
    mirror,
    owner_of,
    page_of,
    question,
    recalled,
    shortened,
)
from hermes_memory_mem0.probe import try_out
from hermes_memory_mem0.settings import (
    FILE,
    OSS,
    PLATFORM,
    SELF_HOSTED,
    Mem0Settings,
    kept,
    read_settings,
    schema,
)
from hermes_memory_mem0.tools import TOOLS, Toolbox, ToolUse

#: At the end of a session, to see what became of the last turns. Hosts allow it 5.
_LAST_SECONDS: Final = 0.5

#: Of the time for a write, what may go into a look at earlier ones.
_FOLLOW_UP_SHARE: Final = 0.25
_NOT_SEEN: Final = "taken, extraction not seen"

_PROMPT = """\
# Mem0 memory
Facts about the user from earlier conversations are kept in Mem0. What fits a message comes with \
it; for anything else that may depend on the past, call mem0_search before you answer, several \
times with other words if the question has several parts. Store a lasting fact with mem0_add when \
it is said; correct one with mem0_update, remove one with mem0_delete."""


class Mem0Provider(ServiceProvider):
    """Memories in Mem0: on its platform, on a server, or in this process."""

    label: ClassVar[str] = "Mem0"
    recall_setting: ClassVar[str] = "recall_timeout"

    def __init__(self) -> None:
        super().__init__()
        self._settings: Mem0Settings | None = None
        self._memories: Memories | None = None
        self._owner = Owner("", "")
        self._taken = AcceptedTurns()
        self._listed: list[Mem0Memory] = []
        #: A host that asked for the schema checks by itself that required settings are there.
        self._is_checked = False

    # -- who it is, and whether it can work ---------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the entry point."""
        return SERVICE

    def is_available(self) -> bool:
        """Whether mem0ai is installed and set up, as far as can be seen from here."""
        return not self.unavailable_reason()

    def unavailable_reason(self) -> str:
        """What is missing."""
        if find_spec("mem0") is None:
            return "mem0ai is not installed: pip install 'mem0ai>=2.2,<3'"
        # Its settings may come from config.yaml, which is not known here.
        if self._is_checked:
            return ""
        try:
            return read_settings(resolve_home()).missing
        except HermesError as error:
            return str(error)

    # -- settings -----------------------------------------------------------------------------

    def get_config_schema(self) -> list[dict[str, Any]]:
        """What can be set, and what of it `setup` asks."""
        self._is_checked = True
        return schema(has_server=_has_server())

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Store what is not secret in mem0.json, where hermes-agent has it."""
        save_own_file(Path(hermes_home) / FILE, kept(values))

    def get_status_config(self, provider_config: Mapping[str, Any]) -> dict[str, str]:
        """Which mode it really is, and where memories go."""
        settings = read_settings(resolve_home(), provider_config)
        place = settings.engine.path if settings.mode == OSS else settings.address
        shown = {"memories are at": str(place or "your own store")}
        if count := unconfirmed(settings.engine.folder):
            shown["turns not confirmed"] = f"{count}, listed in {settings.engine.folder / LIST}"
        is_said = provider_config.get("mode") == settings.mode
        return shown if is_said else {"mode in use": settings.mode, **shown}

    def backup_paths(self) -> list[str]:
        """The folder of the local store, if it is not below the home."""
        try:
            # A back-up may be asked for before a session starts.
            home = self._start.home if self._start is not None else resolve_home()
            settings = self._settings or read_settings(home)
        except HermesError:
            return []
        path = settings.engine.path
        is_outside = path is not None and not path.is_relative_to(home)
        return [str(path)] if settings.mode == OSS and is_outside else []

    # -- a session ----------------------------------------------------------------------------

    def connect(self, start: SessionStart) -> None:
        """Make the client. Nothing is asked yet."""
        settings = read_settings(start.home, start.config)
        self._owner = owner_of(settings, start)
        self._memories = _memories(settings)
        self._settings = settings

    def disconnect(self) -> None:
        """Close it."""
        memories, self._memories = self._memories, None
        settings, self._settings = self._settings, None
        if memories is None or settings is None:
            return
        try:
            # Before `close`: it needs the connection.
            self._look_at_the_last(memories, settings)
        finally:
            memories.close()

    def _look_at_the_last(self, memories: Memories, settings: Mem0Settings) -> None:
        """Ask once more about what the platform works on; what is not known then is counted."""
        with within(_LAST_SECONDS), suppress(Exception):  # an unreachable service loses nothing
            self._follow_up(memories, settings)
        for each in self._taken.leave():
            note_unconfirmed(settings.engine.folder, each, _NOT_SEEN)

    def _follow_up(self, memories: Memories, settings: Mem0Settings) -> None:
        for each in self._taken.follow_up(memories):
            note_unconfirmed(settings.engine.folder, each, "the platform failed with it")

    def system_prompt_block(self) -> str:
        """How to use the memory."""
        return _PROMPT if self._memories is not None else ""

    # -- recall -------------------------------------------------------------------------------

    def recall(self, query: str, session_id: str) -> RecallResult:  # noqa: ARG002 - a user's, not a session's
        """What fits the message, in the time of a recall."""
        memories, settings = self._ready()
        asked = question(query)
        if not asked:
            return RecallResult()
        with within(settings.recall_timeout):
            rerank = settings.rerank and settings.mode == PLATFORM
            return recalled(
                memories.search(self._owner, asked, settings.recall_limit, rerank=rerank)
            )

    def warm(self, query: str, session_id: str) -> None:  # noqa: ARG002 - the next message is another
        """Have the store or the connection open before the next message."""
        memories, settings = self._ready()
        with within(settings.recall_timeout):
            memories.open()

    # -- writes -------------------------------------------------------------------------------

    def write_turn(self, turn: CompletedTurn) -> None:
        """Let Mem0 extract the facts of a turn."""
        marks = self._marks(turn.session_id)
        self._extract(
            SentTurn(turn.id, self._owner, [], {**marks, "turn_id": turn.id}, turn.said_at),
            turn.attempt,
            turn.user,
            turn.assistant,
        )

    def write_delegation(self, delegation: Delegation) -> None:
        """Let Mem0 extract what a subagent found out."""
        marks = {**self._marks(delegation.session_id), "child_session": delegation.child_session_id}
        task = f"A subagent had the task: {delegation.task}"
        given = SentTurn(delegation.id, self._owner, [], {**marks, "event_id": delegation.id})
        self._extract(given, delegation.attempt, task, delegation.result)

    def write_note(self, note: Note) -> None:
        """Follow a change of the notes."""
        memories, settings = self._ready()
        with within(settings.timeout):
            mirror(memories, self._owner, note, self._marks(note.session_id))

    def _extract(self, given: SentTurn, attempt: int, user: str, assistant: str) -> None:
        """Store what was said, unless an earlier attempt has come through.

        A turn in which nothing was worth a fact leaves no mark. Extracting from it again finds
        nothing again, so it does no harm.
        """
        memories, settings = self._ready()
        messages = [
            *self._message("user", user, settings),
            *self._message("assistant", assistant, settings),
        ]
        if not messages:
            return
        given = given._replace(messages=messages)
        with within(settings.timeout):
            if attempt > 1 and self._is_known(memories, given):
                return
            if memories.extracts_at_once:
                if not extracted(memories, given):
                    note_unconfirmed(settings.engine.folder, given, "Mem0 stored nothing, twice")
                return
            self._hand_over(memories, settings, given)

    def _hand_over(self, memories: Memories, settings: Mem0Settings, given: SentTurn) -> None:
        """Send a turn to the platform, after those with which it failed before."""
        # An unknown result of earlier turns must not hold this one back.
        with within(settings.timeout * _FOLLOW_UP_SHARE), suppress(Exception):
            self._follow_up(memories, settings)
        added = memories.add(
            given.owner, given.messages, given.marks, infer=True, said_at=given.said_at
        )
        for each in self._taken.add(given._replace(event_id=added.event_id)):
            note_unconfirmed(settings.engine.folder, each, _NOT_SEEN)

    @staticmethod
    def _is_known(memories: Memories, given: SentTurn) -> bool:
        # First: what was underway is there a moment later.
        if memories.is_underway(given.owner, given.mark):
            return True
        return bool(memories.marked(given.owner, given.mark, given.text))

    @staticmethod
    def _message(role: str, text: str, settings: Mem0Settings) -> list[Message]:
        # Half for each side of the turn, so that a long answer does not displace the question.
        content = shortened(cleaned(text).strip(), settings.turn_max_chars // 2)
        return [{"role": role, "content": content}] if content else []

    def _marks(self, session_id: str) -> dict[str, str]:
        """What goes with every memory."""
        return {"channel": self.start.platform, "session_id": session_id}

    # -- tools --------------------------------------------------------------------------------

    def tools(self) -> Sequence[Tool]:
        """Search, add, update, delete."""
        return [Tool(each.schema, partial(self._use, each), each.writes) for each in TOOLS]

    def _use(self, use: ToolUse, arguments: dict[str, Any]) -> dict[str, Any]:
        memories, settings = self._ready()
        marks = self._marks(self.session_id)
        toolbox = Toolbox(memories, self._owner, marks, rerank=settings.rerank)
        with within(settings.timeout):
            return use.run(toolbox, arguments)

    # -- proof --------------------------------------------------------------------------------

    def try_out(self, *, write: bool) -> str:
        """Prove that Mem0 answers; with ``write``, that it stores and recalls."""
        memories, settings = self._ready()
        with within(settings.timeout):
            return try_out(memories, write=write)

    def forget(self, request: ForgetRequest) -> ForgetReport:
        """Delete memories by their text, by the session they are from, or all of a user."""
        with self.explaining():
            memories, settings = self._ready()
            is_own = not settings.user_id or "{user}" in settings.user_id
            with within(settings.timeout):
                report = forget(memories, self._owner, request, own=is_own)
            if request.user_id and request.delete and is_own:
                forget_person(self.start.home / "mem0", request.platform, request.user_id)
            return report

    def list_memories(self, cursor: str) -> MemoryPage:
        """List all memories of the user. They are asked for once, with the first page."""
        with self.explaining():
            memories, settings = self._ready()
            if not cursor:
                with within(settings.timeout):
                    self._listed = memories.all(self._owner)
            page = page_of(self._listed, cursor, memories.most_listed)
            if not page.cursor:
                self._listed = []
            return page

    def explain(self, error: Exception) -> BackendError:
        """What an exception of mem0ai, httpx or openai means."""
        where = self._memories.where if self._memories is not None else ""
        return explained(error, where)

    def _ready(self) -> tuple[Memories, Mem0Settings]:
        """The memories, if they are set up.

        Raises:
            HermesError: No session is open, or a setting is missing.
        """
        if self._memories is None or self._settings is None:
            raise HermesError("initialize has not been called", where=SERVICE)
        if self._settings.missing:
            raise HermesError("it is not set up", where=SERVICE, hint=self._settings.missing)
        return self._memories, self._settings


def _has_server() -> bool:
    """Whether hermes-agent's settings name a server, which needs no key of the platform."""
    try:
        return read_settings(resolve_home()).mode == SELF_HOSTED
    except HermesError:
        return False


def _memories(settings: Mem0Settings) -> Memories:
    """The place of a mode. Its modules are imported now: they import httpx and the SDK."""
    if settings.mode == SELF_HOSTED:
        from hermes_memory_mem0.remote import Server  # noqa: PLC0415

        return Server(settings.key, settings.address)
    from hermes_memory_mem0.sdk import load_sdk  # noqa: PLC0415

    sdk = load_sdk(settings.engine.folder / "sdk", telemetry=settings.telemetry)
    if settings.mode == OSS:
        from hermes_memory_mem0.engine import Oss  # noqa: PLC0415

        return Oss(sdk, settings.engine)
    from hermes_memory_mem0.remote import Platform  # noqa: PLC0415

    return Platform(sdk, settings.key, settings.address)
