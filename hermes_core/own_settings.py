"""Files of a plugin's own that the host would not find, or not understand: it is asked for them.

A plugin that is older than its host may have settings outside the home, or under names that
they no longer have. ``own_settings(hermes_home)`` gives them by today's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from hermes_core.dispatch._lane import Lane
from hermes_core.dispatch._signature import Invocation
from hermes_core.errors import HermesError, ProviderUnavailableError, describe
from hermes_core.provider import MemoryProvider

#: Files, each with what it says by the keys of fields; the first that says something counts.
OwnSettings: TypeAlias = tuple[tuple[str, Mapping[str, Any]], ...]


def own_settings_of(
    provider: MemoryProvider, name: str, home: Path, deadline: float
) -> OwnSettings:
    """What a provider's ``own_settings`` gives, if it has one.

    Raises:
        HermesError: It could not be asked, or says itself what is wrong with a file.
    """
    tell = getattr(provider, "own_settings", None)
    if not callable(tell):
        return ()
    lane = Lane(f"memory-{name}-settings")
    try:
        told = lane.call(lambda: Invocation(tell)(str(home)), deadline)
        return tuple((str(path), dict(values)) for path, values in told)
    except HermesError:
        raise
    except Exception as error:
        raise ProviderUnavailableError(
            f"own_settings failed: {describe(error)}",
            where=f"plugin {name}",
            hint="that is the plugin's fault: tell its author",
        ) from error
    finally:
        lane.close()
