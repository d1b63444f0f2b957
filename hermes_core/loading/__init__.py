"""From an installed plugin to a provider, with a deadline and a cause for every failure."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from hermes_core.compat import begin_with_theirs, clash_of, is_written_for_hermes_agent, offer
from hermes_core.config import read_selection
from hermes_core.discovery import (
    ProviderInfo,
    find_provider,
    pin_problem,
    registering_module,
    same_owner,
    scan,
)
from hermes_core.dispatch._deadlines import LOAD_SECONDS
from hermes_core.dispatch._lane import Lane
from hermes_core.errors import (
    DeadlineExceeded,
    ProviderCallError,
    ProviderConflictError,
    ProviderLoadError,
    describe,
)
from hermes_core.home import resolve_home
from hermes_core.loading._context import PluginContext, counted
from hermes_core.loading._importing import import_directory, import_value
from hermes_core.loading._shapes import Progress, offers_provider, provider_from
from hermes_core.names import BUILTIN, name_problem, normalise
from hermes_core.provider import MemoryProvider
from hermes_core.scope import Instance, remember, watched
from hermes_core.streams import guarded_process, quiet_stdout

__all__ = [
    "Loaded",
    "PluginContext",
    "counted",
    "import_value",
    "load",
    "load_observer",
    "load_provider",
]


class Loaded(NamedTuple):
    """A plugin's provider and the name that it gives itself, what else the plugin registers,
    and what was wrong in passing.
    """  # noqa: D205

    provider: MemoryProvider
    name: str = ""
    registered: Mapping[str, int] = {}
    warnings: tuple[str, ...] = ()


def load_provider(
    name_or_info: str | ProviderInfo,
    home: str | os.PathLike[str] | None = None,
    *,
    deadline: float = LOAD_SECONDS,
) -> MemoryProvider:
    """Import a plugin and give its provider.

    Args:
        name_or_info: ``name``, ``name@owner`` or what `discover` gave.
        home: HERMES_HOME; by default the environment's.
        deadline: Seconds until a plugin that hangs while it loads is given up.

    Raises:
        ProviderLoadError: Names the plugin, its distribution, the step and the cause, and
            has the plugin's own exception as ``__cause__``.
        UnknownProviderError: No such plugin is installed.
        ProviderConflictError: Two owners claim the name.
    """
    if isinstance(name_or_info, ProviderInfo):
        info = name_or_info
        if info.state == "conflict":
            raise ProviderConflictError(info.problem, where=f"plugin {info.name}")
    else:
        folder = resolve_home(home)
        selection = read_selection(folder)
        info = find_provider(name_or_info, scan(folder, selection, everything=True))
        if info.key == normalise(selection.name) and not same_owner(info, selection.pin):
            raise ProviderConflictError(pin_problem(info, selection), where=f"plugin {info.name}")
    return load(info, None if home is None else resolve_home(home), deadline=deadline).provider


def load(info: ProviderInfo, home: Path | None, *, deadline: float = LOAD_SECONDS) -> Loaded:
    """Like `load_provider`, with all that was learnt on the way."""
    if info.source == BUILTIN:  # ours: it needs no guard
        return Loaded(_provider(info, Progress()))
    return _Loading(info, home, deadline).provider()


def load_observer(info: ProviderInfo, deadline: float = LOAD_SECONDS) -> Any:
    """Import an observer: what its entry point names, as it is."""
    return _Loading(info, None, deadline).run(_value)


class _Loading:
    """The steps of loading, on a thread that may be left behind."""

    def __init__(self, info: ProviderInfo, home: Path | None, deadline: float) -> None:
        self._info = info
        self._deadline = deadline
        self._progress = Progress()
        self._instance = Instance(info.name, home)
        self._warnings: list[str] = []

    def provider(self) -> Loaded:
        """The provider, for whom everything that it imports is there."""
        if is_written_for_hermes_agent(self._info):
            offer()
        found: MemoryProvider = self.run(_provider)
        remember(found, self._instance)
        progress = self._progress
        return Loaded(found, progress.name, dict(progress.registered), tuple(self._warnings))

    def run(self, steps: Callable[[ProviderInfo, Progress], Any]) -> Any:
        lane = Lane(f"load-{self._info.name}")

        def run() -> Any:
            begin_with_theirs(self._instance)
            with quiet_stdout():
                return steps(self._info, self._progress)

        try:
            with watched(), guarded_process(f"plugin {self._info.name}", self._warnings):
                return lane.call(run, self._deadline)
        except ProviderLoadError:
            self._instance.end_processes()
            raise
        except Exception as error:  # noqa: BLE001 - the plugin boundary: told with its cause
            raise self._told(error) from (_cause(error) or error)
        finally:
            lane.close()

    def _told(self, error: Exception) -> ProviderLoadError:
        """What went wrong, for a person; what the plugin has started meanwhile ends."""
        reached = Progress()
        reached.step = self._progress.step  # before it goes on, when what it waits for has ended
        left = self._instance.end_processes()
        ended = f"; ended what it had started: {', '.join(left)}" if left else ""
        if isinstance(error, DeadlineExceeded):
            what = f"no end after {self._deadline:g} s"
        else:
            what = clash_of(error) or describe(_cause(error) or error)
        return _failure(self._info, reached, what + ended, _hint(error))


def _cause(error: Exception) -> BaseException | None:
    """What a plugin really raised: an exit travels in an error of ours."""
    return error.__cause__ if isinstance(error, ProviderCallError) else None


def _value(info: ProviderInfo, progress: Progress) -> Any:
    if not info.loadable:
        raise _failure(info, progress, info.problem)
    progress.step = "import"
    if info.directory is not None:
        return _offering(import_directory(info.directory, info.location), info.directory)
    return import_value(info.entry_point)


def _offering(package: ModuleType, folder: Path) -> ModuleType:
    """A directory plugin, or the one module in it that has what the package itself has not."""
    stem = "" if offers_provider(package) else registering_module(folder)
    return importlib.import_module(f"{package.__name__}.{stem}") if stem else package


def _provider(info: ProviderInfo, progress: Progress) -> MemoryProvider:
    attribute = info.entry_point.partition("[")[0].rpartition(":")[2].rpartition(".")[2].strip()
    provider = provider_from(_value(info, progress), info.name, progress, attribute)
    progress.step = "check"
    progress.name = provider.name
    problem = name_problem(progress.name, ours=info.source == BUILTIN)
    if problem:
        raise _failure(info, progress, problem)
    return provider


def _failure(
    info: ProviderInfo, progress: Progress, what: str, hint: str = ""
) -> ProviderLoadError:
    return ProviderLoadError(
        what, plugin=info.name, distribution=info.distribution, step=progress.step, hint=hint
    )


def _hint(error: Exception) -> str:
    if clash_of(error):
        return "rename that module, or run the agent from another folder"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"the module {error.name} is not installed beside it"
    return ""
