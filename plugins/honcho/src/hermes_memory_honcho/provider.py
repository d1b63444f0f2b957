"""`HonchoProvider`: what a host calls, and what an error of the SDK means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hermes_core import (
    ForgetReport,
    ForgetRequest,
    HermesError,
    MemoryPage,
    ProviderUnavailableError,
)
from hermes_core.service import (
    BackendError,
    Cause,
    CompletedTurn,
    Delegation,
    Note,
    RecallResult,
    ServiceProvider,
    SessionEnd,
    SessionStart,
    Tool,
    cause_of_status,
    failure,
    read_own_file,
    resolve_home,
    save_own_file,
)
from hermes_memory_honcho.settings import (
    FIELDS,
    HonchoSettings,
    config_file,
    host_of,
    read_settings,
)
from hermes_memory_honcho.tools import Tools

if TYPE_CHECKING:
    from hermes_memory_honcho.recall import Recaller
    from hermes_memory_honcho.service import HonchoService
    from hermes_memory_honcho.writes import Writer

# -- What an error of Honcho's SDK means --------------------------------------------------------

#: What is refused permanently; a conflict, say, may be over at the next attempt.
_ABOUT_THE_CONTENT: Final = frozenset({413, 422})


def explained(error: Exception, name: str, address: str, retry_after: float = 0.0) -> BackendError:
    """An error for a person. The SDK's are recognised by their attributes, not by their class."""
    # `Wire.send` raises it inside the SDK's request, which wraps everything in its own exception.
    if isinstance(error.__cause__, BackendError):  # ours, which the SDK has wrapped
        return error.__cause__
    detail = str(error)
    if isinstance(error, ImportError):
        return failure(
            Cause.MISSING,
            service=name,
            detail=f"the SDK can't be imported: {detail}",
            hint="run: pip install 'honcho-ai>=2.7,<3'",
        )
    cause = _cause(error)
    if cause is Cause.REFUSED:
        # pydantic's answer quotes the whole input, which may be a user's turn; only places and
        # reasons stay.
        detail = _detail_of(getattr(error, "body", None)) or detail
    elif cause is Cause.UNREACHABLE:
        detail = str(error.__cause__ or "") if hasattr(error, "code") else detail
    elif cause is not Cause.BROKEN:
        detail = ""
    return failure(
        cause,
        service=name,
        where=address,
        detail=detail,
        retry_after=retry_after,
        final=getattr(error, "status", None) in _ABOUT_THE_CONTENT,
    )


def _cause(error: Exception) -> Cause:
    if type(error).__module__.startswith("httpx"):  # where the SDK does not stand between
        return Cause.SLOW if "Timeout" in type(error).__name__ else Cause.UNREACHABLE
    status, code = getattr(error, "status", None), getattr(error, "code", None)
    if status is None:  # an answer that the SDK can't read
        return Cause.TOO_OLD if type(error).__module__.startswith("pydantic") else Cause.BROKEN
    # Before the status: the SDK gives such errors the status 0.
    if code == "timeout":
        return Cause.SLOW
    if code == "connection_error":
        return Cause.UNREACHABLE
    return cause_of_status(status)


def _detail_of(body: Any) -> str:
    """What a server says of a request that it refuses, without repeating the request."""
    details = body.get("detail") if isinstance(body, dict) else None
    if not isinstance(details, list):
        return ""
    parts = [
        f"{'.'.join(map(str, each.get('loc', ())))}: {each.get('msg', '')}"
        for each in details
        if isinstance(each, dict)
    ]
    return "; ".join(parts)


# -- `HonchoProvider`: what a host calls --------------------------------------------------------

_STATUS_SECONDS: Final = 2.0
_HEADING: Final = "# Honcho Memory\n"
_INJECTED: Final = "What is known about the user is added to their messages by itself."
_TOOLS: Final = (
    "honcho_profile returns the main facts, honcho_search what was said, honcho_context what is "
    "known about this session, honcho_reasoning an answer that takes thought (choose its "
    "reasoning_level); honcho_conclude stores a fact about the user."
)
_PROMPTS: Final = {
    "hybrid": f"{_HEADING}{_INJECTED} There are tools besides: {_TOOLS}",
    "context": f"{_HEADING}{_INJECTED} There are no tools for it.",
    "tools": f"{_HEADING}Nothing is added to messages: ask with the tools. {_TOOLS}",
}


class HonchoProvider(ServiceProvider):
    """Honcho, in the cloud or self-hosted."""

    label = "Honcho"
    glyph = "🏛️"
    recall_setting = "firstTurnBaseWait"

    def __init__(self) -> None:
        super().__init__()
        self._settings: HonchoSettings | None = None
        self._service: HonchoService | None = None
        self._recaller: Recaller | None = None
        self._writer: Writer | None = None

    @property
    def name(self) -> str:
        """What people call it."""
        return "honcho"

    # -- setup ------------------------------------------------------------------------------------

    def is_available(self) -> bool:
        """Whether it is set up, and the SDK installed."""
        return not self.unavailable_reason()

    def unavailable_reason(self) -> str:
        """What is missing."""
        try:
            missing = self._known_settings().missing
        except HermesError as error:
            return str(error)
        if not missing and find_spec("honcho") is None:
            return "its SDK is missing: pip install 'honcho-ai>=2.7,<3'"
        return missing

    def get_config_schema(self) -> list[dict[str, Any]]:
        """What can be set."""
        return [dict(each) for each in FIELDS]

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Store settings in honcho.json; a host's block that has one of them gets it too.

        A move from a self-hosted server to the cloud removes the address. In a home without
        the file, it starts with the settings used so far, which it overrides from now on.
        """
        path = Path(hermes_home) / "honcho.json"
        root = read_own_file(config_file(Path(hermes_home)))
        secret = {each["key"] for each in FIELDS if each.get("secret")}
        kept = {key: value for key, value in values.items() if key not in secret}
        if (root.get("environment"), kept.get("environment")) == ("local", "production"):
            # Otherwise the old address would still win over the environment, see `_place`.
            kept["baseUrl"] = None
        hosts, host = dict(root.get("hosts") or {}), host_of("default", root)
        if host in hosts:
            block = {key: kept.get(key, value) for key, value in hosts[host].items()}
            kept["hosts"] = {**hosts, host: block}
        save_own_file(path, {**root, **kept})

    def backup_paths(self) -> list[str]:
        """The settings that all programs with Honcho share, where there are any."""
        shared = Path.home() / ".honcho"
        return [str(shared)] if shared.exists() else []

    def get_status_config(self, provider_config: dict[str, Any]) -> dict[str, str]:
        """What `status` shows."""
        settings = self._known_settings(provider_config)
        every = settings.write_every
        sent = "each at once" if every == 1 else f"{every} together" if every else "at its end"
        return {
            "server": settings.address,
            "workspace in use": settings.workspace,
            "recall": settings.recall_mode,
            "turns": sent if settings.save_messages else "not sent",
            "conclusions": self._progress(settings),
        }

    def _progress(self, settings: HonchoSettings) -> str:
        """How far Honcho is with them, as far as it says so at once."""
        if settings.missing or find_spec("honcho") is None:
            return "not known: it is not set up"
        from hermes_memory_honcho.names import Names  # noqa: PLC0415 - with the SDK
        from hermes_memory_honcho.probe import progress_line  # noqa: PLC0415
        from hermes_memory_honcho.service import HonchoService  # noqa: PLC0415

        home = resolve_home()
        service = HonchoService(settings, Names(settings, SessionStart("", home), home))
        try:
            with service.wire.within(_STATUS_SECONDS):
                queue = service.queue()
        except Exception as error:  # noqa: BLE001 - the SDK's; the probe says what to do
            return f"not known: {explained(error, self.name, settings.address).cause}"
        finally:
            service.close()
        return "none yet" if queue is None else progress_line(queue, home)

    def _known_settings(self, given: Mapping[str, Any] | None = None) -> HonchoSettings:
        """Those of the session; before it starts, what the environment's home says."""
        if self._settings is None:
            return self._note_delivery(read_settings(resolve_home(), given=given))
        return self._settings

    def _note_delivery(self, settings: HonchoSettings) -> HonchoSettings:
        """A turn that waits for others has not reached Honcho: then nothing is promised."""
        # The outbox deletes a confirmed write. A buffered turn is in our own file then, so it is
        # safe, but `status` must not say that Honcho has it.
        self.confirms_delivery = settings.write_every == 1
        return settings

    # -- a session --------------------------------------------------------------------------------

    def connect(self, start: SessionStart) -> None:
        """Read the settings and import the SDK. Nothing is asked."""
        settings = self._note_delivery(read_settings(start.home, start.profile, start.config))
        if settings.missing:
            raise ProviderUnavailableError(settings.missing, where=self.name)
        from hermes_memory_honcho.names import Names  # noqa: PLC0415 - with the SDK
        from hermes_memory_honcho.recall import Recaller  # noqa: PLC0415
        from hermes_memory_honcho.service import HonchoService  # noqa: PLC0415
        from hermes_memory_honcho.writes import Writer  # noqa: PLC0415

        # The folder is read once: an agent may change its working folder during a session.
        names = Names(settings, start, _folder())
        self._settings = settings
        self._service = HonchoService(settings, names)
        self._recaller = Recaller(self._service, settings)
        self._writer = Writer(self._service, settings, start.home)

    def disconnect(self) -> None:
        """Close the connections."""
        service, self._service = self._service, None
        self._recaller = self._writer = self._settings = None
        if service is not None:
            service.close()

    def switch(self, old: str, new: str, *, parent: str, reset: bool, rewound: bool) -> None:  # noqa: ARG002
        """Names follow the session by themselves; what was fetched for the old one is forgotten."""
        if self._recaller is not None:
            self._recaller.forget(old)

    def system_prompt_block(self) -> str:
        """How to use it."""
        return _PROMPTS[self._settings.recall_mode] if self._settings else ""

    # -- recall -----------------------------------------------------------------------------------

    def recall(self, query: str, session_id: str) -> RecallResult:
        """What is known that helps with a message."""
        return self._recaller.recall(query, session_id) if self._recaller else RecallResult()

    def warm(self, query: str, session_id: str) -> None:
        """Fetch what the next message needs, whatever it is."""
        if self._recaller is not None:
            self._recaller.warm(query, session_id)

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:  # noqa: ARG002 - it has them
        """Honcho's own summary of the session, as far as it is known here."""
        return self._recaller.summary(self.session_id) if self._recaller else ""

    # -- writes -----------------------------------------------------------------------------------

    def write_turn(self, turn: CompletedTurn) -> None:
        """Store a turn as messages of two peers."""
        self._writing.turn(turn)

    def write_note(self, note: Note) -> None:
        """Store a note as a conclusion."""
        self._writing.note(note)

    def write_delegation(self, delegation: Delegation) -> None:
        """Store what a subagent found out."""
        self._writing.delegation(delegation)

    def write_ending(self, ending: SessionEnd) -> None:
        """Send what waits."""
        self._writing.end(ending.session_id)

    @property
    def _writing(self) -> Writer:
        if self._writer is None:
            raise HermesError("no session runs", where=self.name)
        return self._writer

    # -- tools and proof --------------------------------------------------------------------------

    def tools(self) -> Sequence[Tool]:
        """The tools, unless everything is added to messages."""
        try:
            # Asked before a session starts, too: a host registers tools early.
            mode = self._known_settings().recall_mode
        except HermesError:  # unavailable_reason reports it
            mode = "hybrid"
        if mode == "context":
            return ()
        ask = (lambda: self.service, self._known_settings, self._session, lambda: self.writes)
        return Tools(*ask).all()

    @property
    def service(self) -> HonchoService:
        """Honcho, as this session asks it.

        Raises:
            HermesError: No session runs.
        """
        if self._service is None:
            raise HermesError("no session runs", where=self.name)
        return self._service

    def _session(self) -> str:
        return self.service.names.place(self.session_id).session

    def try_out(self, *, write: bool) -> str:
        """Ask the database, and make nothing; with ``write``, send a message and find it."""
        from hermes_memory_honcho.probe import look, write_and_find  # noqa: PLC0415

        seen = look(self.service, self.start.home)
        return f"{seen}; {write_and_find(self.service)}" if write else seen

    def forget(self, request: ForgetRequest) -> ForgetReport:
        """Delete conclusions by their text, or sessions; name what Honcho can't delete."""
        from hermes_memory_honcho.forget import PersonDeletion  # noqa: PLC0415 - with the SDK

        with self.explaining():
            settings = self._known_settings()
            return PersonDeletion(self.service, settings, self.start.home).run(request)

    def list_memories(self, cursor: str) -> MemoryPage:
        """List what Honcho concluded of the person and the agent, and their cards."""
        from hermes_memory_honcho.listing import conclusions  # noqa: PLC0415 - with the SDK

        with self.explaining():
            return conclusions(self.service, cursor)

    def explain(self, error: Exception) -> BackendError:
        """What an error of the SDK means."""
        address = self._settings.address if self._settings else ""
        pause = self._service.wire.pause if self._service else 0.0
        return explained(error, self.name, address, pause)


def _folder() -> Path:
    """Where the agent was started; that folder may be gone."""
    try:
        return Path.cwd()
    except OSError:
        return Path.home()
