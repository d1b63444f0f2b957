"""From an installed plugin to a provider, with a deadline and a cause for every failure."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hermes_core.config import Selection
from hermes_core.discovery import ProviderInfo, find_provider, scan
from hermes_core.dispatch._deadlines import LOAD_SECONDS
from hermes_core.dispatch._lane import Lane
from hermes_core.errors import DeadlineExceeded, ProviderLoadError
from hermes_core.home import resolve_home
from hermes_core.loading._context import PluginContext
from hermes_core.loading._importing import import_directory, import_value
from hermes_core.loading._shapes import Progress, provider_from
from hermes_core.loading._streams import guarded_streams
from hermes_core.names import BUILTIN, normalise
from hermes_core.provider import MemoryProvider

__all__ = ["PluginContext", "load_observer", "load_provider"]


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
    else:
        found = scan(resolve_home(home), Selection(), everything=True)
        info = find_provider(name_or_info, found)
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
    try:
        with guarded_streams():
            return lane.call(lambda: steps(info, progress), deadline)
    except ProviderLoadError:
        raise
    except DeadlineExceeded as error:
        raise _failure(info, progress, f"no end after {deadline:g} s") from error
    except Exception as error:
        raise _failure(info, progress, _text(error), _hint(error)) from error
    finally:
        lane.close()


def _value(info: ProviderInfo, progress: Progress) -> Any:
    if not info.loadable:
        raise ProviderLoadError(
            info.problem, plugin=info.name, distribution=info.distribution, step="find"
        )
    progress.step = "import"
    if info.directory is not None:
        return import_directory(info.directory, info.location)
    return import_value(info.entry_point)


def _provider(info: ProviderInfo, progress: Progress) -> MemoryProvider:
    provider = provider_from(_value(info, progress), info.name, progress)
    progress.step = "check"
    name = provider.name
    if not isinstance(name, str) or not name.strip():
        raise TypeError(f"its name is {name!r}, not a string")
    if normalise(name) == BUILTIN and info.source != BUILTIN:
        raise ValueError(f"its name is {name!r}, which is reserved")
    return provider


def _failure(
    info: ProviderInfo, progress: Progress, what: str, hint: str = ""
) -> ProviderLoadError:
    return ProviderLoadError(
        what, plugin=info.name, distribution=info.distribution, step=progress.step, hint=hint
    )


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def _hint(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"the module {error.name} is not installed beside it"
    return ""
