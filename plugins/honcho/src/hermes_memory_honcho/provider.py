"""`HonchoProvider`: what a host calls."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hermes_core import HermesError, ProviderUnavailableError
from hermes_core.backends import (
    BackendError,
    Delegation,
    Ending,
    Note,
    Recalled,
    ServiceProvider,
    Start,
    Tool,
    Turn,
    read_own_file,
    save_own_file,
)
from hermes_memory_honcho.failures import explained
from hermes_memory_honcho.fields import FIELDS
from hermes_memory_honcho.settings import Settings, config_file, host_of, read_settings
from hermes_memory_honcho.tools import Tools

if TYPE_CHECKING:  # they import the SDK
    from hermes_memory_honcho.recalling import Recaller
    from hermes_memory_honcho.service import Service
    from hermes_memory_honcho.writing import Writer

_HEADING: Final = "# Honcho Memory\n"
_INJECTED: Final = "What is known about the user is added to their messages by itself."
_TOOLS: Final = (
    "honcho_profile gives the main facts, honcho_search what was said, honcho_context what there "
    "is on this session, honcho_reasoning an answer that takes thought (choose its "
    "reasoning_level); honcho_conclude keeps a fact about the user."
)
_PROMPTS: Final = {
    "hybrid": f"{_HEADING}{_INJECTED} There are tools besides: {_TOOLS}",
    "context": f"{_HEADING}{_INJECTED} There are no tools for it.",
    "tools": f"{_HEADING}Nothing is added to messages: ask with the tools. {_TOOLS}",
}


class HonchoProvider(ServiceProvider):
    """Honcho, in the cloud or on a server of one's own."""

    label = "Honcho"
    glyph = "🏛️"

    def __init__(self) -> None:
        super().__init__()
        self._settings: Settings | None = None
        self._service: Service | None = None
        self._recaller: Recaller | None = None
        self._writer: Writer | None = None

    @property
    def name(self) -> str:
        """What people call it."""
        return "honcho"

    # -- set-up -----------------------------------------------------------------------------------

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
        """Keep settings in honcho.json; a host's block that has one of them gets it too.

        Who goes from a server of their own to the cloud no longer has an address. A home without
        a file of its own begins with what counted so far, which this file hides from now on.
        """
        path = Path(hermes_home) / "honcho.json"
        root = read_own_file(config_file(Path(hermes_home)))
        secret = {each["key"] for each in FIELDS if each.get("secret")}
        kept = {key: value for key, value in values.items() if key not in secret}
        if (root.get("environment"), kept.get("environment")) == ("local", "production"):
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
        }

    def _known_settings(self, given: Mapping[str, Any] | None = None) -> Settings:
        """Those of the session; before it starts, what the environment's home says."""
        if self._settings is None:
            home = Path(os.environ.get("HERMES_HOME") or "~/.hermes").expanduser()
            return self._note_delivery(read_settings(home, given=given))
        return self._settings

    def _note_delivery(self, settings: Settings) -> Settings:
        """A turn that waits for others has not reached Honcho: then nothing is promised."""
        self.confirms_delivery = settings.write_every == 1
        return settings

    # -- a session --------------------------------------------------------------------------------

    def connect(self, start: Start) -> None:
        """Read the settings and import the SDK. Nothing is asked."""
        settings = self._note_delivery(read_settings(start.home, start.profile, start.config))
        if settings.missing:
            raise ProviderUnavailableError(settings.missing, where=self.name)
        from hermes_memory_honcho.naming import Names  # noqa: PLC0415 - with the SDK
        from hermes_memory_honcho.recalling import Recaller  # noqa: PLC0415
        from hermes_memory_honcho.service import Service  # noqa: PLC0415
        from hermes_memory_honcho.writing import Writer  # noqa: PLC0415

        names = Names(settings, start, _folder())
        self._settings = settings
        self._service = Service(settings, names)
        self._recaller = Recaller(self._service, settings)
        self._writer = Writer(self._service, settings, start.home)

    def disconnect(self) -> None:
        """Let go of the connections."""
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

    def recall(self, query: str, session_id: str) -> Recalled:
        """What is known that helps with a message."""
        return self._recaller.recall(query, session_id) if self._recaller else Recalled()

    def warm(self, query: str, session_id: str) -> None:  # noqa: ARG002 - the next one is unknown
        """Fetch what the next message needs, whatever it is."""
        if self._recaller is not None:
            self._recaller.warm(session_id)

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:  # noqa: ARG002 - it has them
        """Honcho's own summary of the session, as far as it is known here."""
        return self._recaller.summary(self.session_id) if self._recaller else ""

    # -- writes -----------------------------------------------------------------------------------

    def write_turn(self, turn: Turn) -> None:
        """Keep a turn as messages of two peers."""
        self._writing.turn(turn)

    def write_note(self, note: Note) -> None:
        """Keep a note as a conclusion."""
        self._writing.note(note)

    def write_delegation(self, delegation: Delegation) -> None:
        """Keep what a subagent found out."""
        self._writing.delegation(delegation)

    def write_ending(self, ending: Ending) -> None:
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
            mode = self._known_settings().recall_mode
        except HermesError:  # told by unavailable_reason
            mode = "hybrid"
        if mode == "context":
            return ()
        return Tools(self._running, self._known_settings, self._session, lambda: self.writes).all()

    def _running(self) -> Service:
        if self._service is None:
            raise HermesError("no session runs", where=self.name)
        return self._service

    def _session(self) -> str:
        return self._running().names.place(self.session_id).session

    def try_out(self, *, write: bool) -> str:
        """Ask for the workspace; with ``write``, send a message and find it."""
        from hermes_memory_honcho.probing import look, write_and_find  # noqa: PLC0415

        seen = look(self._running())
        if not write:
            return seen
        return f"{seen}; {write_and_find(self._running(), self._known_settings())}"

    def explain(self, error: Exception) -> BackendError:
        """What an error of the SDK means."""
        address = self._settings.address if self._settings else ""
        return explained(error, self.name, address)


def _folder() -> Path:
    """Where the agent was started; that folder may be gone."""
    try:
        return Path.cwd()
    except OSError:
        return Path.home()
