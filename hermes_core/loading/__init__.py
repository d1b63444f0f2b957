"""From an installed plugin to a provider, with a deadline and a cause for every failure."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hermes_core.config import read_selection
from hermes_core.discovery import ProviderInfo, find_provider, pin_problem, same_owner, scan
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
from hermes_core.loading._context import PluginContext
from hermes_core.loading._importing import import_directory, import_value
from hermes_core.loading._shapes import Progress, provider_from
from hermes_core.loading._streams import guarded_streams, quiet_stdout
from hermes_core.names import BUILTIN, name_problem, normalise
from hermes_core.provider import MemoryProvider

__all__ = ["PluginContext", "import_value", "load_observer", "load_provider"]


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
    if info.source == BUILTIN:  # ours: it needs no guard
        return _provider(info, Progress())
    provider: MemoryProvider = _guarded(info, deadline, _provider)
    return provider


def load_observer(info: ProviderInfo, deadline: float = LOAD_SECONDS) -> Any:
    """Import an observer: what its entry point names, as it is."""
    return _guarded(info, deadline, _value)


def _guarded(
    info: ProviderInfo, deadline: float, steps: Callable[[ProviderInfo, Progress], Any]
) -> Any:
    """Run the steps of loading on a thread that may be left behind."""
    progress = Progress()
    lane = Lane(f"load-{info.name}")

    def run() -> Any:
        with quiet_stdout():
            return steps(info, progress)

    try:
        with guarded_streams():
            return lane.call(run, deadline)
    except ProviderLoadError:
        raise
    except DeadlineExceeded as error:
        raise _failure(info, progress, f"no end after {deadline:g} s") from error
    except Exception as error:  # noqa: BLE001 - the plugin boundary: told with its cause
        cause = error.__cause__ if isinstance(error, ProviderCallError) else None
        raise _failure(info, progress, describe(cause or error), _hint(error)) from (cause or error)
    finally:
        lane.close()


def _value(info: ProviderInfo, progress: Progress) -> Any:
    if not info.loadable:
        raise _failure(info, progress, info.problem)
    progress.step = "import"
    if info.directory is not None:
        return import_directory(info.directory, info.location)
    return import_value(info.entry_point)


def _provider(info: ProviderInfo, progress: Progress) -> MemoryProvider:
    attribute = info.entry_point.partition("[")[0].rpartition(":")[2].rpartition(".")[2].strip()
    provider = provider_from(_value(info, progress), info.name, progress, attribute)
    progress.step = "check"
    problem = name_problem(provider.name, ours=info.source == BUILTIN)
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
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"the module {error.name} is not installed beside it"
    return ""
