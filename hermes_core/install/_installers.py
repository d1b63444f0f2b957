"""Installs packages with pip or uv, whichever this environment has.

What a person was shown is what is installed. Nothing here imports a plugin: wheels are unpacked
and read before they are installed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

from hermes_core.config.names import normalise
from hermes_core.discovery import installed_distributions, installed_versions
from hermes_core.install._commands import CommandResult, Progress, install_error, report_steps, run
from hermes_core.install._sources import InstallError, NeedsBuild, Package
from hermes_core.install._wheels import check_wheel, risks, risks_of_wheel, unpack_texts

if TYPE_CHECKING:
    from packaging.version import Version

#: Our own distribution.
OURSELVES: Final = "hermes-plugins"


class PackageChange(NamedTuple):
    """A distribution that would be installed; ``replaces`` is the version that goes."""

    name: str
    version: str
    replaces: str = ""
    direct: bool = False


class Plan(NamedTuple):
    """All that would be installed for a package, and the projects that may be built for it."""

    package: Package
    changes: tuple[PackageChange, ...]
    built: tuple[str, ...] = ()

    def requirements(self) -> list[str]:
        """Exactly these distributions, for a command line."""
        return [
            # A path or URL has no version to ask an index for.
            self.package.spec if each.direct else f"{each.name}=={each.version}"
            for each in self.changes
        ]

    def only_wheels(self) -> list[str]:
        """Options that allow no build but those that a person allowed."""
        return only_wheels(self.built)


class Download(NamedTuple):
    """What was downloaded: the folder to search for providers, and what is risky in it.

    ``wheels`` are the files, if there are any; otherwise everything is in ``site``.
    """

    site: Path
    risks: tuple[str, ...] = ()
    wheels: tuple[Path, ...] = ()


class Installer(Protocol):
    """pip or uv, for the environment that runs us. Each method may raise `InstallError`."""

    def plan(
        self, package: Package, built: Iterable[str], progress: Progress, *, upgrade: bool = False
    ) -> Plan:
        """What would be installed. Raises `NeedsBuild` if something else had to be built.

        ``progress`` is called with each step that takes time, here and below. ``upgrade``: also
        if another version of the package is installed; its dependencies change only if they must.
        """

    def fetch(self, plan: Plan, folder: Path, progress: Progress) -> Download:
        """Download everything into a folder, and look into it."""

    def install(self, plan: Plan, folder: Path) -> None:
        """Install what was fetched."""

    def remove(self, distribution: str) -> None:
        """Uninstall a distribution."""

    def conflicts(self) -> list[str]:
        """Installed distributions with conflicting requirements, a line for each."""


def only_wheels(built: Iterable[str]) -> list[str]:
    """Options of both pip and uv: only wheels, except for the given projects."""
    allowed = [option for each in built for option in ("--no-binary", each)]
    # A build runs code of the package before anybody agreed to install it.
    return ["--only-binary", ":all:", *allowed]


@contextmanager
def keeping_ourselves() -> Iterator[list[str]]:
    """Options that protect our own requirements: pip only looks at what it installs, not at
    what the installed distributions need.
    """  # noqa: D205
    # Otherwise a plugin could replace our click, and the command that removes the plugin breaks.
    try:
        ours = distribution(OURSELVES)
    except PackageNotFoundError:  # run from its sources
        yield []
        return
    lines = [each for each in ours.requires or () if _applies(each)]
    with tempfile.TemporaryDirectory(prefix="hermes-plan-") as folder:
        # Constraints and not requirements: they limit versions, but install nothing.
        file = Path(folder, "constraints.txt")
        file.write_text("\n".join([*lines, f"{OURSELVES}=={ours.version}", ""]), "utf-8")
        yield ["--constraint", str(file)]


def _applies(requirement: str) -> bool:
    """Whether a requirement holds here, without extras."""
    from packaging.requirements import Requirement  # noqa: PLC0415 - slow

    marker = Requirement(requirement).marker
    return marker is None or marker.evaluate({"extra": ""})


def changes(found: Iterable[tuple[str, str, bool]]) -> tuple[PackageChange, ...]:
    """Names, versions and whether they are direct, with what they replace."""
    now = installed_versions()
    return tuple(
        PackageChange(normalise(name), version, now.get(normalise(name), ""), direct)
        for name, version, direct in found
    )


# pip's "Could not find a version that satisfies the requirement NAME[extras]WANTED (from versions:
# KNOWN)"; then what only its log has: an index that failed, and source archives that --only-binary
# skipped.
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
    """Installs with pip: exactly the files that a person was shown."""

    def plan(
        self, package: Package, built: Iterable[str], progress: Progress, *, upgrade: bool = False
    ) -> Plan:
        """What pip would install."""
        allowed = tuple(built)
        with (
            keeping_ourselves() as guard,
            tempfile.TemporaryDirectory(prefix="hermes-plan-") as folder,
        ):
            report, log = Path(folder, "report.json"), Path(folder, "log")
            done = self._pip(
                "install", "--dry-run", "--report", str(report), "--log", str(log),
                *(["--upgrade"] if upgrade else []), *only_wheels(allowed), *guard, package.spec,
                progress=report_steps(progress),
            )  # fmt: skip
            if done.code:
                logged = log.read_text("utf-8", "replace") if log.exists() else ""
                raise _pip_error(package, done.err, logged, allowed)
            found: list[dict[str, Any]] = json.loads(report.read_bytes())["install"]
        would = (
            (
                each["metadata"]["name"],
                each["metadata"]["version"],
                # "requested" marks what was on the command line, not its dependencies.
                package.direct and bool(each["requested"]),
            )
            for each in found
        )
        return Plan(package, changes(would), allowed)

    def fetch(self, plan: Plan, folder: Path, progress: Progress) -> Download:
        """Download or build the wheels, and unpack the texts in them."""
        done = self._pip(
            "wheel", "--no-deps", "--wheel-dir", str(folder / "wheels"),
            *plan.only_wheels(), *plan.requirements(), progress=report_steps(progress),
        )  # fmt: skip
        if done.code:
            raise install_error(done.err, plan.package.shown)
        site = folder / "site"
        found: list[str] = []
        wheels = sorted((folder / "wheels").glob("*.whl"))
        for wheel in wheels:
            check_wheel(wheel)
            try:
                unpack_texts(wheel, site)
                found += risks_of_wheel(wheel)
            except (zipfile.BadZipFile, OSError) as error:
                raise install_error(f"BadZipFile: {error}", wheel.name) from error
        return Download(site, tuple(found), tuple(wheels))

    def install(self, plan: Plan, folder: Path) -> None:
        """Install the wheels, and nothing else."""
        # pip's dry run lists distributions but not their content. So `fetch` downloads the wheels,
        # the user sees what is in them, and exactly these files are installed, even if the index
        # changes in between. The price: answering no costs the download.
        exact = [f"{each.name}=={each.version}" for each in plan.changes]
        # --force-reinstall: also for a local wheel with the version that is installed already.
        done = self._pip(
            "install", "--no-deps", "--force-reinstall", "--no-index",
            "--find-links", str(folder / "wheels"), *only_wheels(()), *exact,
        )  # fmt: skip
        if done.code:
            raise install_error(done.err, plan.package.shown)
        for each in plan.changes:
            if each.direct:
                _record_source(each.name, plan.package)

    def remove(self, distribution: str) -> None:
        """Uninstall."""
        done = self._pip("uninstall", "--yes", distribution)
        if done.code:
            raise install_error(done.err, distribution)

    def conflicts(self) -> list[str]:
        """What `pip check` finds."""
        done = self._pip("check")
        return done.out.splitlines() if done.code else []

    def _pip(self, *arguments: str, progress: Progress | None = None) -> CommandResult:
        # --no-input: a prompt for index credentials would wait for ever, since stdin is closed.
        # -P: a folder called pip in the working folder is not the pip that is meant.
        command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input"]
        return run([*command, *arguments], progress=progress)


def _record_source(project: str, package: Package) -> None:
    """Record where a package came from (PEP 610): pip only sees the wheel in our folder.

    `upgrade` must not look for it in a package index, which may have a stranger's of that name.
    """
    text = package.shown
    place = text.rpartition("@ ")[2].strip() if "://" in text else Path(text).absolute().as_uri()
    kind = "dir_info" if Path(text).is_dir() else "archive_info"
    try:
        info = Path(str(getattr(distribution(project), "_path")))  # noqa: B009 - has no public name
        with (info / "RECORD").open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"{info.name}/direct_url.json,,\n")
        (info / "direct_url.json").write_text(json.dumps({"url": place, kind: {}}), "utf-8")
    except (OSError, PackageNotFoundError):
        return  # it is installed, and that is what was asked for


def _pip_error(package: Package, said: str, logged: str, allowed: tuple[str, ...]) -> InstallError:
    """Why pip would install nothing. Only its log says that it did not reach an index."""
    unreached = "\n".join(_UNREACHED.findall(logged))
    return _pip_source_only(said, logged, allowed) or install_error(
        f"{said}\n{unreached}", package.shown
    )


def _pip_source_only(said: str, logged: str, allowed: tuple[str, ...]) -> NeedsBuild | None:
    """`NeedsBuild` if pip found nothing only because it skipped what needs a build."""
    missing = _NOT_FOUND.search(said)
    # It was allowed to be built and is still missing, so the build is not the reason.
    if missing is None or normalise(missing[1]) in map(normalise, allowed):
        return None
    files = _PASSED_OVER.findall(logged)
    versions = set(_sdist_versions(missing[1], files)) - set(_versions(missing["known"]))
    exactly = re.fullmatch(r"\s*={2,3}\s*(\S+)\s*", missing["wanted"])
    if exactly is not None:
        # Compared as versions: "1.0" and "1.0.0" are the same.
        found = any(each in versions for each in _versions(exactly[1]))
    else:  # if no wheel's version matches, an older source archive does not match either
        found = bool(versions) and missing["known"] == "none"
    return NeedsBuild(missing[1]) if found else None


def _sdist_versions(project: str, files: Iterable[str]) -> Iterator[Version]:
    """The versions of a project among source archives, whose names lack their suffix here."""
    from packaging.utils import InvalidSdistFilename, parse_sdist_filename  # noqa: PLC0415 - slow

    for each in files:
        with suppress(InvalidSdistFilename):
            name, version = parse_sdist_filename(f"{each}.tar.gz")
            if normalise(name) == normalise(project):
                yield version


def _versions(listed: str) -> Iterator[Version]:
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - slow

    for each in listed.split(", "):
        with suppress(InvalidVersion):
            yield Version(each)


#: ``+ name==1.0``, or ``~`` for what is installed again; or ``+ name @ file:///...``
# uv has no report in JSON for `pip install --dry-run`: these lines are all that it prints.
_ADDED: Final = re.compile(
    r"^ [+~] (?P<name>[\w.-]+)(?:==(?P<version>\S+)| @ (?P<place>\S+))", re.MULTILINE
)
_UV_SOURCE_ONLY: Final = re.compile(
    r"Wheels are required for `(?P<name>[\w.-]+)`"
    r"|distributions? for `(?P<direct>[\w.-]+)` is disabled",
)


#: Where programs lie in a folder that uv installed to.
_TARGET_SCRIPTS: Final = ("bin/", "Scripts/", "../bin/", "../../bin/")


class Uv:
    """Installs with uv. Thanks to its cache, exactly what a person was shown."""

    def __init__(self, program: str) -> None:
        self._program = program

    def plan(
        self, package: Package, built: Iterable[str], progress: Progress, *, upgrade: bool = False
    ) -> Plan:
        """What uv would install."""
        allowed = tuple(built)
        newer = ["--upgrade-package", package.project] if upgrade else []
        with keeping_ourselves() as guard:
            done = self._uv(
                "install",
                "--dry-run",
                *newer,
                *only_wheels(allowed),
                *guard,
                package.spec,
                progress=report_steps(progress),
            )
        if done.code:
            need = _uv_source_only(done, allowed)
            if need is not None and package.builds and not allowed:
                # A path or URL: the person allowed the build before its name was known.
                return self.plan(package, [need.project], progress, upgrade=upgrade)
            raise need or install_error(done.err, package.shown)
        would = (
            (each["name"], each["version"] or _version_in(each["place"]), bool(each["place"]))
            for each in _ADDED.finditer(done.err)
        )
        return Plan(package, changes(would), allowed)

    def fetch(self, plan: Plan, folder: Path, progress: Progress) -> Download:
        """Install everything into a separate folder."""
        site = folder / "site"
        self._do(
            plan, "install", "--target", str(site), "--no-deps", progress=report_steps(progress)
        )
        found: list[str] = []
        for each in installed_distributions([str(site)]):
            scripts = [Path(name).name for name in each.files if name.startswith(_TARGET_SCRIPTS)]
            names = [name for name in each.files if not name.startswith(_TARGET_SCRIPTS)]
            found += risks(each.name, names, scripts)
        return Download(site, tuple(found))

    def install(self, plan: Plan, folder: Path) -> None:  # noqa: ARG002 - the cache has it
        """Install exactly that."""
        self._do(plan, "install", "--no-deps", "--reinstall")

    def remove(self, distribution: str) -> None:
        """Uninstall."""
        done = self._uv("uninstall", distribution)
        if done.code:
            raise install_error(done.err, distribution)

    def conflicts(self) -> list[str]:
        """What `uv pip check` finds."""
        done = self._uv("check")
        lines = done.err.splitlines() if done.code else []
        return [each.strip() for each in lines if " requires " in each]

    def _do(self, plan: Plan, *arguments: str, progress: Progress | None = None) -> None:
        done = self._uv(*arguments, *plan.only_wheels(), *plan.requirements(), progress=progress)
        if done.code:
            raise install_error(done.err, plan.package.shown)

    def _uv(self, command: str, *arguments: str, progress: Progress | None = None) -> CommandResult:
        # uv would otherwise choose an environment by VIRTUAL_ENV or the working folder.
        python = ["--python", sys.executable]
        return run([self._program, "pip", command, *python, *arguments], progress=progress)


def _version_in(place: str) -> str:
    """The version in a wheel's name; "" for other files, which do not have one."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415 - slow

    try:
        return str(parse_wheel_filename(unquote(place.rpartition("/")[2]))[1])
    except InvalidWheelFilename:
        return ""


def _uv_source_only(done: CommandResult, allowed: tuple[str, ...]) -> NeedsBuild | None:
    # uv may wrap its messages, so line breaks are removed first.
    found = _UV_SOURCE_ONLY.search(" ".join(done.err.split()))
    if found is None:
        return None
    name = found["name"] or found["direct"]
    return None if normalise(name) in map(normalise, allowed) else NeedsBuild(name)


def installer(verb: str, spec: str) -> Installer:
    """pip, or uv where there is none.

    Args:
        verb: What is to be done: install, upgrade or uninstall.
        spec: With what.

    Raises:
        InstallError: Another program manages the environment; the hint has its command.
    """
    prefix = Path(sys.prefix)
    # pipx and uv recreate a tool's environment from their records on the next upgrade, so what pip
    # added would disappear.
    if (prefix / "pipx_metadata.json").is_file():
        raise _theirs("pipx", _pipx_command(prefix, verb, spec))
    if (prefix / "uv-receipt.toml").is_file():
        raise _theirs("uv", _uv_command(prefix, verb, spec))
    _refuse_system_python(spec)
    _refuse_read_only(spec)
    if find_spec("pip") is not None:
        return Pip()
    if program := shutil.which("uv"):
        return Uv(program)
    raise InstallError(
        "this Python has no pip, and uv is not installed",
        where=spec,
        hint=f"run: {shlex.quote(sys.executable)} -m ensurepip",
    )


def _theirs(program: str, command: str) -> InstallError:
    return InstallError(
        f"{program} manages the environment of hermes-plugins",
        hint=f"nothing was changed; run: {command}",
    )


def _pipx_command(prefix: Path, verb: str, spec: str) -> str:
    try:
        data: Any = json.loads((prefix / "pipx_metadata.json").read_bytes())
        app = str(data["main_package"]["package"])
    except (OSError, ValueError, KeyError, TypeError):
        app = OURSELVES
    if verb == "upgrade":
        return shlex.join(["pipx", "upgrade", "--include-injected", app])
    return shlex.join(["pipx", "inject" if verb == "install" else "uninject", app, spec])


def _uv_command(prefix: Path, verb: str, spec: str) -> str:
    """Uv can't add to a tool: the command has to name everything to be installed in it."""
    (name, tool), *others = _receipt(prefix) or [(OURSELVES, OURSELVES)]
    if verb == "upgrade":
        return shlex.join(["uv", "tool", "upgrade", name])
    if verb == "install":
        others.append(("", spec))
    else:
        others = [each for each in others if each[0] != normalise(spec)]
    added = [word for _, text in others for word in ("--with", text)]
    return shlex.join(["uv", "tool", "install", tool, *added])


def _receipt(prefix: Path) -> list[tuple[str, str]]:
    """The requirements of a uv tool environment by name, the tool first."""
    try:
        data: Any = tomllib.loads((prefix / "uv-receipt.toml").read_text("utf-8"))
        return [(normalise(each["name"]), _written(each)) for each in data["tool"]["requirements"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _written(entry: dict[str, Any]) -> str:
    """A requirement of a receipt as a person would write it."""
    if place := entry.get("path") or entry.get("directory") or entry.get("editable"):
        return str(place)
    if address := entry.get("url") or ("git" in entry and f"git+{entry['git']}"):
        return f"{entry['name']} @ {address}"
    extras = f"[{','.join(entry['extras'])}]" if entry.get("extras") else ""
    return f"{entry['name']}{extras}{entry.get('specifier', '')}"


def _refuse_system_python(spec: str) -> None:
    """PEP 668. pip checks it too, but only after a person agreed to the installation."""
    marker = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    allowed = os.environ.get("PIP_BREAK_SYSTEM_PACKAGES", "").lower() in ("1", "true", "yes", "on")
    # In a virtual environment the marker of the base Python does not apply.
    if sys.prefix == sys.base_prefix and marker.is_file() and not allowed:
        raise InstallError(
            "the operating system manages this Python, and does not let pip change it",
            where=spec,
            hint="use a virtual environment, or: pipx install hermes-plugins && "
            + shlex.join(["pipx", "inject", "hermes-plugins", spec]),
        )


def _refuse_read_only(spec: str) -> None:
    """Outside a virtual environment, pip falls back on the user's site."""
    folder = sysconfig.get_path("purelib")
    if sys.prefix != sys.base_prefix and not os.access(folder, os.W_OK):
        raise InstallError(
            f"no permission to write to {folder}",
            where=spec,
            hint="use your own virtual environment",
        )
