"""What is known about a provider without importing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.config import PluginFacts
from hermes_core.config.names import normalise
from hermes_core.storage.files import read_regular, replace_file

# The first two are hermes-agent's, so that a plugin declares itself once for both hosts.
MEMORY_GROUP: Final = "hermes_agent.memory_providers"
PLUGIN_GROUP: Final = "hermes_agent.plugins"
OBSERVER_GROUP: Final = "hermes_plugins.observers"
COMMAND_GROUP: Final = "hermes_plugins.commands"

NO_PROVIDER: Final = "registers no memory provider"

#: The distributions that we ship: their providers win over a third party's of the same name.
OURS: Final = frozenset({"hermes-plugins"})

#: The plugins that this project publishes: the package by the name of its provider. Only for
#: hints, if nothing of that name is installed.
PUBLISHED: Final = {
    "honcho": "hermes-memory-honcho",
    "mem0": "hermes-memory-mem0",
    "hindsight": "hermes-memory-hindsight",
}


class ProviderInfo(NamedTuple):
    """One provider as it was found. ``state`` is one of active, installed, conflict,
    broken, changed, no-provider; ``problem`` says why it is not simply installed.

    ``directory`` is where a directory plugin lies, ``location`` the folder on the import
    path in which the distribution was found. What is broken may be ``loadable``: a provider
    with an invalid plugin.yaml can still be loaded. ``entry_point`` is what to load;
    where the package declares none it was found in its text. ``commit`` is the one that a
    directory plugin was installed from; ``bridge`` names the distribution that a directory
    made by `bridge` stands for; ``facts`` is what was recorded when it was enabled;
    ``content_hash`` is set on the selected provider, if it is pinned to one.
    """  # noqa: D205 - one sentence would say less

    name: str
    source: str  # builtin, directory, project, entry-point; module: of a package without one
    distribution: str = ""
    version: str = ""
    entry_point: str = ""
    description: str = ""
    active: bool = False
    state: str = "installed"
    problem: str = ""
    directory: Path | None = None
    location: Path | None = None
    files: tuple[str, ...] = ()
    loadable: bool = True
    commit: str = ""
    bridge: str = ""
    facts: PluginFacts = PluginFacts()
    content_hash: str = ""

    @property
    def key(self) -> str:
        """The name in the form in which names compare."""
        return normalise(self.name)

    @property
    def owner(self) -> str:
        """Who it belongs to, as written after the @ of ``name@owner``.

        Two projects are two owners: what was enabled in one is not enabled in another.
        """
        if self.source == "project":
            # The path is part of it; a distribution's name is unique in an environment, a
            # directory's is unique in the home.
            return f"project:{self.directory}"
        return self.distribution or "directory"

    @property
    def label(self) -> str:
        """The owner, in words that distinguish two directories."""
        if self.source == "project":
            return f"the project's {self.directory}"
        return self.distribution or f"the directory {self.directory.name if self.directory else ''}"

    def is_called(self, name: str) -> bool:
        """Whether it is listed, or calls itself, by that name."""
        return normalise(name) in (self.key, normalise(self.facts.provider or self.name))

    def owned_by(self, owner: str) -> bool:
        """Whether ``owner`` is its owner, however that is spelt."""
        return normalise(owner) == normalise(self.owner)


#: Begins with a dot, so that the content hash leaves it out.
RECORD: Final = ".hermes-plugins.json"
_MAX_RECORD_BYTES: Final = 100_000


class Record(NamedTuple):
    """Where a directory plugin came from, and with which content.

    ``source`` is a URL or a folder, ``commit`` the one that was taken from it, ``revision``
    and ``subdirectory`` what a person asked for. ``bridge`` is the distribution that the
    directory makes visible to hermes-agent.
    """

    source: str = ""
    commit: str = ""
    bridge: str = ""
    hash: str = ""
    revision: str = ""
    subdirectory: str = ""


def read_record(folder: Path) -> Record | None:
    """The record of a directory plugin; None if a person put it there."""
    try:
        content = read_regular(folder / RECORD, _MAX_RECORD_BYTES)
    except OSError:
        return None
    import json  # noqa: PLC0415 - few directories have a record

    try:
        data: Any = json.loads(content)
    except (ValueError, RecursionError):
        # A record that can't be read counts as none: the directory then belongs to the person.
        return None
    if not isinstance(data, dict):
        return None
    texts = {key: data.get(key) for key in Record._fields}
    return Record(**{key: value for key, value in texts.items() if isinstance(value, str)})


def write_record(folder: Path, record: Record) -> None:
    """Record where a directory plugin came from."""
    import json  # noqa: PLC0415

    text = json.dumps({"schema": 1, **record._asdict()}, indent=2) + "\n"
    replace_file(folder / RECORD, text.encode("ascii"))
