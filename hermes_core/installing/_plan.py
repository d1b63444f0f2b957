"""What an installation would change, and what the programs that do it have in common."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from hermes_core.discovery import installed_versions
from hermes_core.installing._running import Tell
from hermes_core.installing._sources import Package
from hermes_core.names import normalise

#: Our own distribution.
OURSELVES: Final = "hermes-plugins"


class Change(NamedTuple):
    """A distribution that would be installed; ``replaces`` is the version that goes."""

    name: str
    version: str
    replaces: str = ""
    direct: bool = False


class Plan(NamedTuple):
    """All that would be installed for a package, and the projects that may be built for it."""

    package: Package
    changes: tuple[Change, ...]
    built: tuple[str, ...] = ()

    def requirements(self) -> list[str]:
        """Exactly these distributions, for a command line."""
        return [
            self.package.spec if each.direct else f"{each.name}=={each.version}"
            for each in self.changes
        ]

    def only_wheels(self) -> list[str]:
        """Options that allow no build but those that a person allowed."""
        return only_wheels(self.built)


class Installer(Protocol):
    """pip or uv, for the environment that runs us. Each method may raise `InstallError`."""

    def plan(self, package: Package, built: Iterable[str], tell: Tell) -> Plan:
        """What would be installed; raises `NeedsBuild` rather than build anything else.

        ``tell`` hears of what takes time, here and below.
        """

    def fetch(self, plan: Plan, folder: Path, tell: Tell) -> Path:
        """Get it all into a folder; gives the one that can be searched for providers."""

    def install(self, plan: Plan, folder: Path) -> None:
        """Install what was fetched."""

    def remove(self, distribution: str) -> None:
        """Uninstall a distribution."""

    def troubles(self) -> list[str]:
        """Installed distributions that don't go together, a line for each."""


def only_wheels(built: Iterable[str]) -> list[str]:
    """Options that both pip and uv know: wheels alone, but for the projects given."""
    allowed = [option for each in built for option in ("--no-binary", each)]
    return ["--only-binary", ":all:", *allowed]


@contextmanager
def unbroken() -> Iterator[list[str]]:
    """Options under which nothing is installed that would break ourselves: pip looks only at
    what it installs, not at what the others need.
    """  # noqa: D205
    try:
        ours = distribution(OURSELVES)
    except PackageNotFoundError:  # run from its sources
        yield []
        return
    lines = [each for each in ours.requires or () if "extra ==" not in each]
    with tempfile.TemporaryDirectory(prefix="hermes-plan-") as folder:
        file = Path(folder, "constraints.txt")
        file.write_text("\n".join([*lines, f"{OURSELVES}=={ours.version}", ""]), "utf-8")
        yield ["--constraint", str(file)]


def changes(found: Iterable[tuple[str, str, bool]]) -> tuple[Change, ...]:
    """Names, versions and whether they are direct, with what they replace."""
    now = installed_versions()
    return tuple(
        Change(normalise(name), version, now.get(normalise(name), ""), direct)
        for name, version, direct in found
    )
