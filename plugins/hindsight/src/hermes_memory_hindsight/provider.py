"""`HindsightProvider`: what a host calls, and the tools of the model."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from hermes_core import ForgetItem, ForgetReport, ForgetRequest, HermesError, MemoryPage
from hermes_core.service import (
    BackendError,
    Cause,
    CompletedTurn,
    Delegation,
    Note,
    RecallResult,
    ServiceProvider,
    SessionStart,
    Tool,
    failure,
    forget_person,
    save_own_file,
)
from hermes_memory_hindsight.documents import Document, DocumentWriter, bank_of, person_of
from hermes_memory_hindsight.service import HindsightService, explained
from hermes_memory_hindsight.settings import CLOUD, HindsightSettings, fields, in_files, own_file

# -- The tools for the model, under the names and with the arguments that hermes-agent has ------

_QUERY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "description": "What you want to know."}
    },
    "required": ["query"],
}

RETAIN: Final[dict[str, Any]] = {
    "name": "hindsight_retain",
    "description": (
        "Remember something for later sessions. Facts, people and dates in it are worked out and "
        "can be found by any of them."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "content": {"type": "string", "minLength": 1, "description": "What to remember."},
            "context": {
                "type": "string",
                "description": "What it is, in a few words, such as 'a decision on the project'.",
            },
            "tags": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Tags for it, besides those that are set for everything.",
            },
        },
        "required": ["content"],
    },
}

RECALL: Final[dict[str, Any]] = {
    "name": "hindsight_recall",
    "description": (
        "Look up what is remembered from earlier sessions, best match first. It finds by meaning, "
        "by words, and by the people and things that memories share."
    ),
    "parameters": _QUERY,
}

REFLECT: Final[dict[str, Any]] = {
    "name": "hindsight_reflect",
    "description": (
        "Have one answer worked out from everything that is remembered. Slower than "
        "hindsight_recall; for questions that no single memory answers."
    ),
    "parameters": _QUERY,
}

# -- `HindsightProvider`: what a host calls -----------------------------------------------------

_NOTHING: Final = "No relevant memories found."
_OLDEST: Final = (1, 0)
_HEADING: Final = "# Hindsight Memory\nWhat is remembered from before, for this message:"
_PROBE_TEXT: Final = "Ada keeps bees, and her favourite colour is teal."


class _Session:
    """What `connect` makes: all that a call needs."""

    def __init__(self, start: SessionStart) -> None:
        self.start = start
        self.settings = HindsightSettings.read(start)
        self._person = person_of(start)
        self.bank(start.session_id)  # an invalid name raises now, not in the first turn
        self.scribe = DocumentWriter(self.settings, start, self._person)
        # Last: what can fail without a connection has been checked, so there is nothing to close.
        self.service = HindsightService(self.settings)
        self._ready: set[str] = set()

    def bank(self, session_id: str) -> str:
        return bank_of(self.settings, self.start, self._person, session_id)

    def retain(self, session_id: str, document: Document, *, queued: bool) -> None:
        """Store a document in the bank of a session, which has its missions then."""
        bank = self.bank(session_id)
        if bank not in self._ready and (
            self.settings.bank_mission or self.settings.bank_retain_mission
        ):
            self.service.set_missions(bank)
        # After `set_missions` has succeeded; if it raises, the next attempt of the write sets them.
        self._ready.add(bank)
        self.service.retain(bank, document, queued=queued)


class HindsightProvider(ServiceProvider):
    """Hindsight, in the cloud or self-hosted."""

    label = "Hindsight"
    glyph = "🔭"

    def __init__(self) -> None:
        super().__init__()
        self._made: _Session | None = None

    @property
    def name(self) -> str:
        """The name of the plugin."""
        return "hindsight"

    # -- setup --------------------------------------------------------------------------------

    def is_available(self) -> bool:
        """Whether the SDK is installed; a host checks the settings."""
        return find_spec("hindsight_client") is not None

    def unavailable_reason(self) -> str:
        """What to do without the SDK."""
        return "" if self.is_available() else "run: pip install 'hindsight-client>=1.1,<2'"

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Mode, address and key are asked, the rest can be set."""
        return fields()

    def own_settings(self, hermes_home: str) -> list[tuple[str, dict[str, Any]]]:
        """What hermes-agent's files say, for a host that reads settings."""
        return in_files(Path(hermes_home))

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Store the settings where hermes-agent's plugin does."""
        save_own_file(own_file(Path(hermes_home)), values)

    def get_status_config(self, provider_config: dict[str, Any]) -> dict[str, str]:
        """What `status` shows besides the settings: one that is not followed."""
        # Turns that are collected in memory are lost with the process. The outbox stores each at
        # once.
        held_back = int(provider_config.get("retain_every_n_turns") or 1)
        explanation = f"1, not {held_back}: a turn is stored at once"
        return {"retain_every_n_turns": explanation} if held_back > 1 else {}

    # -- a session ----------------------------------------------------------------------------

    @property
    def _session(self) -> _Session:
        if self._made is None:
            raise HermesError("initialize has not been called", where=self.name)
        return self._made

    def connect(self, start: SessionStart) -> None:
        """Read the settings and build the client."""
        self._made = _Session(start)

    def disconnect(self) -> None:
        """Close the client and end its loop."""
        session, self._made = self._made, None
        if session is not None:
            session.service.close()

    def switch(self, old: str, new: str, *, parent: str, reset: bool, rewound: bool) -> None:  # noqa: ARG002
        """Record whose child the new session is. All turns of the old one have been sent."""
        self._session.scribe.parents[new] = parent

    def explain(self, error: Exception) -> BackendError:
        """What an exception of the SDK means."""
        return explained(error, self._made.settings.api_url if self._made else "")

    def system_prompt_block(self) -> str:
        """What the model should know of this memory."""
        if self._made is None:
            return ""
        mode = self._made.settings.memory_mode
        lines = ["# Hindsight Memory", f"Bank: {self._made.bank(self.start.session_id)}."]
        if mode != "tools":
            lines.append("What is remembered for a message comes along with it.")
        if mode != "context":
            lines.append(
                "hindsight_recall looks something up, hindsight_reflect works an answer out, "
                "hindsight_retain remembers."
            )
        return "\n".join(lines)

    # -- recall -------------------------------------------------------------------------------

    def recall(self, query: str, session_id: str) -> RecallResult:
        """What is remembered for a message."""
        session = self._session
        settings = session.settings
        if settings.memory_mode == "tools" or not settings.auto_recall:
            return RecallResult()
        # The server embeds the query: the beginning of a long message says what it is about.
        bank, asked = session.bank(session_id), query[: settings.recall_max_input_chars]
        if settings.recall_prefetch_method == "reflect":
            found = session.service.reflect(bank, asked)
            text, count = found.text, found.count
        else:
            memories = session.service.recall(bank, asked)
            text, count = "\n".join(f"- {each}" for each in memories), len(memories)
        if not count:
            return RecallResult()
        return RecallResult(f"{settings.recall_prompt_preamble or _HEADING}\n\n{text}", count)

    # -- writes -------------------------------------------------------------------------------

    def write_turn(self, turn: CompletedTurn) -> None:
        """Store a turn. The same turn again replaces itself."""
        session = self._session
        _keep(session, turn.session_id, session.scribe.turn(turn))

    def write_delegation(self, delegation: Delegation) -> None:
        """Store what a subagent found out."""
        session = self._session
        _keep(session, delegation.session_id, session.scribe.delegation(delegation))

    def write_note(self, note: Note) -> None:
        """Follow a note: the new text first, so that there is never none."""
        session = self._session  # once: a queued write may outlive it, and is for nobody else
        if not session.settings.auto_retain:
            return
        kept = ""
        if note.action != "remove":
            document = session.scribe.note(note)
            kept = document.id
            # Not queued: the old note is removed right after it, and one of both must be there at
            # any time.
            session.retain(note.session_id, document, queued=False)
        if note.old_text:
            _forget_note(session, note, kept)

    # -- what a person wants to be forgotten ----------------------------------------------------

    def forget(self, request: ForgetRequest) -> ForgetReport:
        """Delete documents by their text or their session, or the bank of a user."""
        with self.explaining():
            session = self._session
            bank = session.bank(request.session_id or self.session_id)
            service = session.service
            if request.user_id:
                return _forget_user(session, bank, request)
            tag = f"session:{request.session_id}" if request.session_id else ""
            found = service.all_documents(bank, tag)
            if request.text:
                found = [each for each in found if request.matches(service.text(bank, each))]
            if request.delete:
                for each in found:
                    service.forget(bank, each)
            # Observations are drawn from several documents, and no id by which to delete them.
            recalled = service.recall(bank, request.text) if request.text else []
            left = [each for each in recalled if request.matches(each)]
            about = [] if found else left  # until the documents are gone, they are what is recalled
            items = (ForgetItem("documents", len(found)), ForgetItem("observations", len(about)))
            return ForgetReport(items)

    def list_memories(self, cursor: str) -> MemoryPage:
        """List the facts and observations of the bank."""
        with self.explaining():
            session = self._session
            start = int(cursor or 0)
            items = session.service.memories(session.bank(self.session_id), start)
            # By what arrived: a server may allow less than was asked for.
            return MemoryPage(tuple(items), str(start + len(items)) if items else "")

    # -- tools --------------------------------------------------------------------------------

    def tools(self) -> Sequence[Tool]:
        """Three tools; none in the memory mode "context"."""
        if self._made is not None and self._made.settings.memory_mode == "context":
            return ()
        return (
            Tool(RETAIN, self._retain_tool, writes=True),
            Tool(RECALL, self._recall_tool),
            Tool(REFLECT, self._reflect_tool),
        )

    def _retain_tool(self, args: dict[str, Any]) -> dict[str, Any]:
        session = self._session
        tags = [each.strip() for each in args.get("tags", ()) if each.strip()]
        document = session.scribe.fact(
            args["content"], args.get("context", ""), tags, self.session_id
        )
        session.retain(self.session_id, document, queued=False)
        return {"result": "Memory stored successfully."}

    def _recall_tool(self, args: dict[str, Any]) -> dict[str, Any]:
        found = self._session.service.recall(self._session.bank(self.session_id), args["query"])
        lines = [f"{number}. {text}" for number, text in enumerate(found, 1)]
        return {"result": "\n".join(lines) or _NOTHING}

    def _reflect_tool(self, args: dict[str, Any]) -> dict[str, Any]:
        found = self._session.service.reflect(self._session.bank(self.session_id), args["query"])
        return {"result": found.text or _NOTHING}

    # -- proof --------------------------------------------------------------------------------

    def try_out(self, *, write: bool) -> str:
        """Ask for the version and, with the key, for memories; if allowed, in a bank for that."""
        session = self._session
        if session.settings.mode == CLOUD and not session.settings.api_key:
            raise failure(
                Cause.WRONG_KEY, service=self.name, detail="no key for Hindsight Cloud is set"
            )
        version = session.service.version()
        if _numbers(version) < _OLDEST:
            raise failure(
                Cause.TOO_OLD,
                service=self.name,
                where=session.settings.api_url,
                detail=f"it is Hindsight {version}",
                hint="upgrade the server to 1.0 or newer",
            )
        bank = session.bank(self.session_id)
        # The version is public; only a question shows whether the key is accepted.
        session.service.recall(bank, "is anybody there")
        if write:
            self._write_and_recall()
        done = ", stored and recalled" if write else ""
        return f"Hindsight {version} at {session.settings.api_url}, bank {bank}{done}"

    def _write_and_recall(self) -> None:
        session = self._session
        # A bank for the test alone: dropping it removes everything, and nothing of the user's.
        bank = f"hermes-probe-{uuid.uuid4().hex[:12]}"
        try:
            session.service.retain(bank, session.scribe.fact(_PROBE_TEXT, "", (), self.session_id))
            if not session.service.recall(bank, "What is Ada's favourite colour?"):
                raise failure(
                    Cause.BROKEN,
                    service=self.name,
                    where=session.settings.api_url,
                    detail="it stored a memory and does not find it",
                    hint="look at the server's log: its model or its embeddings may not answer",
                )
        finally:
            session.service.drop(bank)


def _keep(session: _Session, session_id: str, document: Document) -> None:
    if session.settings.auto_retain:
        session.retain(session_id, document, queued=session.settings.retain_async)


def _forget_user(session: _Session, bank: str, request: ForgetRequest) -> ForgetReport:
    """Drop the bank of a user, unless others have it too."""
    settings = session.settings
    template = settings.bank_id_template or ("" if settings.bank_id else "{user}")
    if "{user}" not in template:
        shared = f"bank {bank} belongs to all users: run `hermes-plugins forget TEXT --provider`"
        return ForgetReport(unreachable=(shared,))
    found = session.service.all_documents(bank)
    if request.delete:
        if found:
            session.service.drop(bank)
        forget_person(session.start.home / "hindsight", request.platform, request.user_id)
    return ForgetReport((ForgetItem("documents", len(found)),))


def _forget_note(session: _Session, note: Note, kept: str) -> None:
    bank = session.bank(note.session_id)
    gone = session.scribe.note_id(note.target, note.old_text)
    if gone == kept or session.service.forget(bank, gone):
        return
    # hermes-agent passes a part of the old text; our hosts pass all of it, and settings.
    if not session.start.config:
        found = [each for each in _notes_with(session, note, bank) if each != kept]
        # Two notes with the same part: which one is meant can't be known, so none is removed.
        if len(found) == 1:
            session.service.forget(bank, found[0])


def _notes_with(session: _Session, note: Note, bank: str) -> list[str]:
    """This user's notes that have a text in them."""
    ids = session.service.documents(bank, session.scribe.note_tag(note.target))
    own = [each for each in ids if each.startswith(session.scribe.note_prefix)]
    return [each for each in own if note.old_text in session.service.text(bank, each)]


def _numbers(version: str) -> tuple[int, int]:
    """1.1.0rc1 as (1, 1); what is not a version as (0, 0)."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - for the probe alone

    try:
        parsed = Version(version)
    except InvalidVersion:
        return 0, 0
    return parsed.major, parsed.minor
