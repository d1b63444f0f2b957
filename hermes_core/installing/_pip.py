"""pip, in the interpreter that runs us."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from hermes_core.installing._complaints import complaint
from hermes_core.installing._errors import InstallError, NeedsBuild
from hermes_core.installing._plan import Plan, changes, only_wheels, unbroken
from hermes_core.installing._running import Ended, Tell, run, step_teller
from hermes_core.installing._sources import Package
from hermes_core.installing._wheels import unpack_texts
from hermes_core.names import normalise

_NOT_FOUND: Final = re.compile(
    r"satisfies the requirement ([\w.-]+)(\[[^]]*\])?(?P<wanted>[^(]*)"
    r".*\(from versions: (?P<known>[^)]*)\)"
)
_UNREACHED: Final = re.compile(r"Could not fetch URL .*")
_PASSED_OVER: Final = re.compile(
    r"No sources permitted for \S+: \S*?/(?P<file>[^/\s#]+?)\.(?:tar\.\w+|tgz|zip)(?=[#\s]|$)",
    re.MULTILINE,
)


class Pip:
    """Installs with pip. What was shown to a person is what is installed: the same files."""

    def plan(self, package: Package, built: Iterable[str], tell: Tell) -> Plan:
        """What pip says that it would install."""
        allowed = tuple(built)
        with unbroken() as guard, tempfile.TemporaryDirectory(prefix="hermes-plan-") as folder:
            report, log = Path(folder, "report.json"), Path(folder, "log")
            ended = self._pip(
                "install", "--dry-run", "--report", str(report), "--log", str(log),
                *only_wheels(allowed), *guard, package.spec, tell=step_teller(tell),
            )  # fmt: skip
            if ended.code:
                logged = log.read_text("utf-8", "replace") if log.exists() else ""
                raise _refusal(package, ended.err, logged, allowed)
            found: list[dict[str, Any]] = json.loads(report.read_bytes())["install"]
        would = (
            (
                each["metadata"]["name"],
                each["metadata"]["version"],
                package.direct and bool(each["requested"]),
            )
            for each in found
        )
        return Plan(package, changes(would), allowed)

    def fetch(self, plan: Plan, folder: Path, tell: Tell) -> Path:
        """Wheels, downloaded or built, and the texts in them."""
        ended = self._pip(
            "wheel", "--no-deps", "--wheel-dir", str(folder / "wheels"),
            *plan.only_wheels(), *plan.requirements(), tell=step_teller(tell),
        )  # fmt: skip
        if ended.code:
            raise complaint(ended.err, plan.package.spec)
        site = folder / "site"
        for wheel in sorted((folder / "wheels").glob("*.whl")):
            try:
                unpack_texts(wheel, site)
            except (zipfile.BadZipFile, OSError) as error:
                raise complaint(f"BadZipFile: {error}", wheel.name) from error
        return site

    def install(self, plan: Plan, folder: Path) -> None:
        """Install the wheels, and nothing else."""
        exact = [f"{each.name}=={each.version}" for each in plan.changes]
        ended = self._pip(
            "install", "--no-deps", "--force-reinstall", "--no-index",
            "--find-links", str(folder / "wheels"), *only_wheels(()), *exact,
        )  # fmt: skip
        if ended.code:
            raise complaint(ended.err, plan.package.spec)

    def remove(self, distribution: str) -> None:
        """Uninstall."""
        ended = self._pip("uninstall", "--yes", distribution)
        if ended.code:
            raise complaint(ended.err, distribution)

    def troubles(self) -> list[str]:
        """What `pip check` finds."""
        ended = self._pip("check")
        return ended.out.splitlines() if ended.code else []

    def _pip(self, *arguments: str, tell: Tell | None = None) -> Ended:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        return run([*command, *arguments], tell=tell)


def _refusal(package: Package, said: str, logged: str, allowed: tuple[str, ...]) -> InstallError:
    """Why pip would install nothing. That it did not reach an index is in its log alone."""
    unreached = "\n".join(_UNREACHED.findall(logged))
    return _source_only(said, logged, allowed) or complaint(f"{said}\n{unreached}", package.spec)


def _source_only(said: str, logged: str, allowed: tuple[str, ...]) -> NeedsBuild | None:
    """Whether pip found nothing only because it passed over what would have to be built."""
    missing = _NOT_FOUND.search(said)
    if missing is None or normalise(missing[1]) in map(normalise, allowed):
        return None
    prefix = f"{normalise(missing[1])}-"
    files = _PASSED_OVER.findall(logged)
    versions = {each[len(prefix) :] for each in files if normalise(each).startswith(prefix)} - {
        *missing["known"].split(", ")
    }
    exactly = re.fullmatch(r"\s*={2,3}\s*(\S+)\s*", missing["wanted"])
    if exactly is not None:
        found = exactly[1] in versions
    else:  # of the versions that are wheels none would do: then nor would an older one
        found = bool(versions) and missing["known"] == "none"
    return NeedsBuild(missing[1]) if found else None
