"""What is known about a provider without importing it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from hermes_core.config import Learnt
from hermes_core.names import normalise

MEMORY_GROUP: Final = "hermes_agent.memory_providers"
PLUGIN_GROUP: Final = "hermes_agent.plugins"
OBSERVER_GROUP: Final = "hermes_plugins.observers"
COMMAND_GROUP: Final = "hermes_plugins.commands"

NO_PROVIDER: Final = "registers no memory provider"

#: The distributions that we ship: their providers win over a third party's of the same name.
OURS: Final = frozenset({"hermes-plugins"})


class ProviderInfo(NamedTuple):
    """One provider as it was found. ``state`` is one of active, installed, conflict,
    broken, changed, no-provider; ``problem`` says why it is not simply installed.

    ``directory`` is where a directory plugin lies, ``location`` the folder on the import
    path in which the distribution was found. What is broken may be ``loadable`` all the
    same: an invalid plugin.yaml is a nuisance, no obstacle. ``commit`` is the one that a
    directory plugin was installed from; ``bridge`` names the distribution that a directory
    made by `bridge` stands for; ``learnt`` is what was noted when it was enabled.
    """  # noqa: D205 - one sentence would say less

    name: str
    source: str  # builtin, directory or entry-point
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
    learnt: Learnt = Learnt()

    @property
    def key(self) -> str:
        """The name in the form in which names compare."""
        return normalise(self.name)

    @property
    def owner(self) -> str:
        """Who it belongs to, as written behind the @ of ``name@owner``."""
        return self.distribution or "directory"

    @property
    def label(self) -> str:
        """The owner, in words that tell two directories apart."""
        return self.distribution or f"the directory {self.directory.name if self.directory else ''}"

    def is_called(self, name: str) -> bool:
        """Whether it is listed, or calls itself, by that name."""
        return normalise(name) in (self.key, normalise(self.learnt.provider or self.name))

    def owned_by(self, owner: str) -> bool:
        """Whether ``owner`` is its owner, however that is spelt."""
        return normalise(owner) == normalise(self.owner)
