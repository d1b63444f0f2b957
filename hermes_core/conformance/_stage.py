"""What all checks of one process share: the plugin, once loaded, and what is known of it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import getfile
from pathlib import Path
from typing import Final

from hermes_core.conformance._driver import Driver, Places
from hermes_core.conformance._model import Options
from hermes_core.conformance._running import Running
from hermes_core.conformance._watch import Event, Watch
from hermes_core.discovery import ProviderInfo
from hermes_core.provider import MemoryProvider
from hermes_core.schema import Field, read_fields

#: The file of the scratch folder to which everything goes that the process prints.
OUTPUT: Final = "output"


@dataclass(frozen=True, slots=True)
class Loading:
    """What happened when the plugin was loaded for the first time."""

    cpu: float
    events: tuple[Event, ...]
    threads: tuple[str, ...]
    printed: str
    changes: tuple[str, ...]


@dataclass(slots=True)
class Stage:
    """What all checks of one process share."""

    info: ProviderInfo
    options: Options
    scratch: Path
    watch: Watch
    loading: Loading
    first: MemoryProvider
    places: Places
    #: Why a session can't be started here, or nothing recalled; "" if it can, None if unknown.
    no_start: str | None = None
    no_recall: str | None = None
    homes: int = 0
    #: What ran when nothing had been started yet.
    before: Running = field(default_factory=Running.now)
    fields: tuple[Field, ...] = ()

    @property
    def user(self) -> Path:
        """The home folder of the user that the plugin sees."""
        return self.scratch / "user"

    @property
    def output(self) -> Path:
        """Where everything goes that the process prints."""
        return self.scratch / OUTPUT


def root_of(info: ProviderInfo, provider: MemoryProvider) -> Path:
    """The folder of the plugin's own code."""
    if info.directory is not None:
        return info.directory.resolve()
    module = type(provider).__module__
    try:
        file = Path(getfile(type(provider))).resolve()
    except (TypeError, OSError):
        return Path(os.devnull)
    depth = module.count(".") + (file.name == "__init__.py")
    return file if depth == 0 else file.parents[depth - 1]


def fields_of(info: ProviderInfo, driver: Driver) -> tuple[Field, ...]:
    """The plugin's fields; none if they can't be read, which is a check's business."""
    answer = driver.ask("get_config_schema")
    with suppress(Exception):
        return read_fields(answer.value or (), info.name)
    return ()
