"""uv, for environments without pip."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hermes_core.installing._complaints import complaint
from hermes_core.installing._errors import NeedsBuild
from hermes_core.installing._plan import Plan, changes, only_wheels, unbroken
from hermes_core.installing._running import Ended, Tell, run, step_teller
from hermes_core.installing._sources import Package
from hermes_core.names import normalise

#: ``+ name==1.0``, or ``~`` for what is installed again; or ``+ name @ file:///...``
_ADDED: Final = re.compile(
    r"^ [+~] (?P<name>[\w.-]+)(?:==(?P<version>\S+)| @ (?P<place>\S+))", re.MULTILINE
)
_SOURCE_ONLY: Final = re.compile(
    r"Wheels are required for `(?P<name>[\w.-]+)`"
    r"|distributions? for `(?P<direct>[\w.-]+)` is disabled",
)


class Uv:
    """Installs with uv. Its cache sees to it that what was shown is what is installed."""

    def __init__(self, program: str) -> None:
        self._program = program

    def plan(self, package: Package, built: Iterable[str], tell: Tell) -> Plan:
        """What uv says that it would install."""
        allowed = tuple(built)
        with unbroken() as guard:
            ended = self._uv(
                "install",
                "--dry-run",
                *only_wheels(allowed),
                *guard,
                package.spec,
                tell=step_teller(tell),
            )
        if ended.code:
            need = _source_only(ended, allowed)
            if need is not None and package.builds and not allowed:
                # What was named by its place, and agreed to, before its name was known.
                return self.plan(package, [need.project], tell)
            raise need or complaint(ended.err, package.spec)
        would = (
            (each["name"], each["version"] or _version_in(each["place"]), bool(each["place"]))
            for each in _ADDED.finditer(ended.err)
        )
        return Plan(package, changes(would), allowed)

    def fetch(self, plan: Plan, folder: Path, tell: Tell) -> Path:
        """Everything unpacked in a folder of its own."""
        site = folder / "site"
        self._do(plan, "install", "--target", str(site), "--no-deps", tell=step_teller(tell))
        return site

    def install(self, plan: Plan, folder: Path) -> None:  # noqa: ARG002 - the cache has it
        """Install exactly that."""
        self._do(plan, "install", "--no-deps", "--reinstall")

    def remove(self, distribution: str) -> None:
        """Uninstall."""
        ended = self._uv("uninstall", distribution)
        if ended.code:
            raise complaint(ended.err, distribution)

    def troubles(self) -> list[str]:
        """What `uv pip check` finds."""
        ended = self._uv("check")
        lines = ended.err.splitlines() if ended.code else []
        return [each.strip() for each in lines if " requires " in each]

    def _do(self, plan: Plan, *arguments: str, tell: Tell | None = None) -> None:
        ended = self._uv(*arguments, *plan.only_wheels(), *plan.requirements(), tell=tell)
        if ended.code:
            raise complaint(ended.err, plan.package.spec)

    def _uv(self, command: str, *arguments: str, tell: Tell | None = None) -> Ended:
        python = ["--python", sys.executable]
        return run([self._program, "pip", command, *python, *arguments], tell=tell)


def _version_in(place: str) -> str:
    """The version in a wheel's name; "" for other files, which don't say."""
    file = place.rpartition("/")[2]
    return file.split("-")[1] if file.endswith(".whl") else ""


def _source_only(ended: Ended, allowed: tuple[str, ...]) -> NeedsBuild | None:
    found = _SOURCE_ONLY.search(" ".join(ended.err.split()))
    if found is None:
        return None
    name = found["name"] or found["direct"]
    return None if normalise(name) in map(normalise, allowed) else NeedsBuild(name)
