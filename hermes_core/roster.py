"""Who takes part in a manager: the built-in, at most one external provider, observers."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hermes_core.dispatch import Deadlines, HookCalls, ProviderAdapter
from hermes_core.errors import HermesError, describe
from hermes_core.names import BUILTIN, name_problem, normalise
from hermes_core.provider import MemoryProvider
from hermes_core.scope import enter
from hermes_core.toolbox import Toolbox

if TYPE_CHECKING:
    from hermes_core.call_log import CallLog
    from hermes_core.redaction import Redactor
    from hermes_core.writes import OutboxSettings, Writes

logger = logging.getLogger("hermes_core")

#: How much recalled text a turn may have, with everything around it.
CONTEXT_MAX_CHARS: Final = 12_000

#: The context of an agent that talks with its user.
PRIMARY: Final = "primary"


class Roster(ABC):
    """The providers of a manager, and what they need; `MemoryManager` calls them."""

    def __init__(
        self,
        *,
        external_prefetch_timeout: float | None = None,
        deadlines: Deadlines | None = None,
        reserved_tools: Iterable[str] = (),
        home: str | os.PathLike[str] | None = None,
        redactor: Redactor | None = None,
        context_max_chars: int = CONTEXT_MAX_CHARS,
        log_calls: bool = False,
    ) -> None:
        self._redactor = redactor
        self._context_max_chars = context_max_chars
        self._deadlines = deadlines or Deadlines()
        if external_prefetch_timeout is not None:
            if not external_prefetch_timeout >= 0:
                raise ValueError(f"external_prefetch_timeout is {external_prefetch_timeout}")
            self._deadlines = self._deadlines._replace(prefetch=external_prefetch_timeout)
        self._home = home
        self._hooks = HookCalls()
        self._builtin: ProviderAdapter | None = None
        self._closing: list[Callable[[], None]] = []
        self._external: ProviderAdapter | None = None
        self._writes: Writes | None = None
        self._log_calls = log_calls
        self._call_log: CallLog | None = None
        self._toolbox = Toolbox(self._hooks, reserved_tools)
        self._session_id = ""
        self._context = PRIMARY
        self._closed = False
        #: What kept the configuration, a provider or an observer from being used.
        self.problems: tuple[HermesError, ...] = ()
        #: Why providers that were added were not taken.
        self.refusals: tuple[str, ...] = ()
        #: The external provider's fields: what is set, where from; no value of a secret.
        self.setting_rows: tuple[dict[str, Any], ...] = ()
        self._warnings: tuple[str, ...] = ()

    # -- providers ------------------------------------------------------------------------

    @property
    def providers(self) -> list[MemoryProvider]:
        """The providers, the built-in first."""
        return [adapter.provider for adapter in self._adapters()]

    def get_provider(self, name: str) -> MemoryProvider | None:
        """The provider of that name."""
        for adapter in self._adapters():
            if normalise(name) in (normalise(adapter.name), normalise(adapter.own_name)):
                return adapter.provider
        return None

    def add_provider(
        self,
        provider: MemoryProvider,
        *,
        name: str = "",
        provider_config: Mapping[str, Any] | None = None,
        outbox: OutboxSettings | None = None,
    ) -> bool:
        """Add the built-in, or one external provider; False if it was refused.

        Args:
            provider: A `MemoryProvider`, or anything that looks like one.
            name: What it is called here, where that is not its own name for itself.
            provider_config: Its settings, which it gets when it is initialised.
            outbox: How its writes are kept until it has taken them.
        """
        try:
            own, reason = provider.name, ""
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - a property
            own, reason = "", f"its name can't be read: {describe(error)}"
        name = name or own
        if not reason and not (isinstance(name, str) and normalise(name) == BUILTIN):
            reason = name_problem(name)
        if reason:
            return self._refuse(f"{type(provider).__name__}: {reason}")
        builtin = normalise(name) == BUILTIN
        present = self._builtin if builtin else self._external
        if present is not None:
            return self._refuse(
                f"{name}: {present.name} is active already; only one external provider can be"
                if not builtin
                else "builtin: the built-in is there already"
            )
        adapter = ProviderAdapter(
            provider,
            name,
            deadlines=self._deadlines,
            inline=builtin,
            config=provider_config,
            home=None if builtin else self._known_home(),
        )
        adapter.own_name = own
        self._hooks.add(adapter)
        if builtin:
            self._builtin = adapter
            self._ask_builtin("mirror_to", self.on_memory_write)
        else:
            self._external = adapter
            self._equip(adapter, outbox)
        self._toolbox.refresh(adapter)
        return True

    def _equip(self, adapter: ProviderAdapter, outbox: OutboxSettings | None) -> None:
        """What an external provider needs besides: no secrets, and an outbox."""
        from hermes_core.redaction import Redactor  # noqa: PLC0415 - not needed without one
        from hermes_core.writes import OutboxSettings, Writes  # noqa: PLC0415

        adapter.masker = self._redactor if self._redactor is not None else Redactor()
        self._writes = Writes(adapter, self._hooks, self._home_folder, outbox or OutboxSettings())
        self.when_closed(enter(adapter.instance.home))

    @abstractmethod
    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
    ) -> None:
        """The built-in tells of every change of its notes here."""

    def add_observer(self, name: str, observer: Any) -> None:
        """Let an observer see, and change, what hooks give. A person's choice alone."""
        self._hooks.observe(name, observer)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is used all the same, but should be looked at."""
        starts = [
            f"provider {each.name}: gets no turns, its initialize failed: "
            f"{each.told(each.start_error)}"
            for each in self._adapters()
            if each.start_error is not None
        ]
        unkept = self._writes.warnings if self._writes is not None else []
        misdeeds = [line for each in self._adapters() for line in each.misdeeds]
        return (*self._warnings, *starts, *misdeeds, *self._toolbox.warnings, *unkept)

    def _refuse(self, reason: str) -> bool:
        logger.warning("memory provider refused: %s", reason)
        self.refusals = (*self.refusals, reason)
        return False

    def _adapters(self) -> list[ProviderAdapter]:
        return [each for each in (self._builtin, self._external) if each is not None]

    # -- what they need -------------------------------------------------------------------

    def _start_log(self) -> None:
        """Note every call from now on."""
        from hermes_core.call_log import CallLog  # noqa: PLC0415 - not for a look only

        self._call_log = CallLog.of(self._home_folder())
        self.when_closed(self._call_log.close)
        for adapter in self._adapters():
            adapter.listener = self._call_log.listener(adapter.name, lambda: self._session_id)

    def _home_folder(self) -> Path:
        if self._home is not None:
            return Path(os.path.abspath(os.path.expanduser(self._home)))  # noqa: PTH100, PTH111
        from hermes_core.home import resolve_home  # noqa: PLC0415

        return resolve_home()

    def _known_home(self) -> Path | None:
        """The home; None if it can't be used, which is said where it is needed."""
        try:
            return self._home_folder()
        except HermesError:
            return None

    def when_closed(self, close: Callable[[], None]) -> None:
        """Call ``close`` at the end of `shutdown_all`."""
        self._closing.append(close)

    def _ask_builtin(self, method: str, *arguments: Any) -> Any:
        """Call what only our own built-in has; another one in its place may lack it."""
        ask = getattr(self._builtin.provider, method, None) if self._builtin else None
        return ask(*arguments) if ask is not None else None
