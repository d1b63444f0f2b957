"""What is in a wheel, read before it is installed: what leads outside, and what is risky.

A plugin's code runs when a person enables it. Some files of a wheel take effect as soon as they
are installed: a ``.pth`` file runs in every Python of the environment, and a module or a program
can take the place of another one. A person has to accept those with `--allow-risky`.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import sysconfig
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath
from typing import Final

from hermes_core.discovery import find_distribution, may_have_provider, module_names
from hermes_core.install._sources import InstallError

_METADATA: Final = frozenset(("METADATA", "RECORD", "entry_points.txt"))
_MAX_TEXT: Final = 1_000_000
_MAX_TEXTS: Final = 200_000_000
_MAX_ENTRIES: Final = 200_000
_LARGE: Final = 500_000_000
_RATIO: Final = 20  # wheels of code or models are compressed to a third, a bomb to a thousandth
_REPORT: Final = "use another version, or report it to its author"
_AT_START: Final = frozenset(("sitecustomize", "usercustomize"))


def check_wheel(path: Path) -> None:
    """Raise unless unpacking a wheel stays inside its folder and in proportion.

    Raises:
        InstallError: It has files that lead outside, or unpacks to far more than its size.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError) as error:
        todo = "download or build it again"
        raise InstallError("the file is not a valid wheel", where=path.name, hint=todo) from error
    names = [each.filename for each in entries]
    problem = next((found for each in entries if (found := _entry_problem(each))), "")
    size = sum(each.file_size for each in entries)
    if len(entries) > _MAX_ENTRIES:
        problem = problem or f"contains {len(entries):,} files"
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        problem = problem or f"contains {twice[0]!r} twice"
    if size > _LARGE and size > _RATIO * path.stat().st_size:
        problem = problem or f"unpacks to {size:,} bytes, more than {_RATIO} times its size"
    if problem:
        raise InstallError(problem, where=path.name, hint=_REPORT)


def _entry_problem(entry: zipfile.ZipInfo) -> str:
    name = entry.orig_filename
    parts = re.split(r"[/\\]", name)
    if ".." in parts or not parts[0] or ":" in parts[0] or "\0" in name:
        return f"contains {name!r}, which leads outside of it"
    mode = entry.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return f"contains {name!r}, which is a link or a special file"
    return ""


def unpack_texts(wheel: Path, site: Path) -> None:
    """Unpack what discovery reads of a wheel: metadata, sources, plugin.yaml.

    Skips a wheel without entry points for agents or a plugin.yaml, unless its modules look as
    if they had a provider that it does not declare.
    """
    with zipfile.ZipFile(wheel) as archive:
        entries = [each for each in archive.infolist() if each.file_size <= _MAX_TEXT]
        declares = any(_is_of_interest(archive, each) for each in entries)
        if not declares and not _may_have_provider(archive, entries):
            return
        texts = [
            each
            for each in entries
            if _is_metadata(each) or each.filename.endswith((".py", "/plugin.yaml"))
        ]
        if sum(each.file_size for each in texts) > _MAX_TEXTS:
            raise InstallError("has too many sources to be read", where=wheel.name, hint=_REPORT)
        for each in texts:
            archive.extract(each, site)  # never outside of the folder


def _is_metadata(entry: zipfile.ZipInfo) -> bool:
    path = PurePosixPath(entry.filename)
    return path.name in _METADATA and path.parent.suffix == ".dist-info"


def _may_have_provider(archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo]) -> bool:
    modules = [each.filename for each in entries if each.filename.endswith(".py")]
    metadata = [each for each in entries if _is_metadata(each) and "METADATA" in each.filename]
    return may_have_provider(modules, lambda: b"\n".join(map(archive.read, metadata)))


def _is_of_interest(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    name = PurePosixPath(entry.filename).name
    if name == "entry_points.txt":
        return b"hermes_agent." in archive.read(entry)
    return name == "plugin.yaml"


def risks_of_wheel(wheel: Path) -> list[str]:
    """What is risky in a wheel, a line for each."""
    with zipfile.ZipFile(wheel) as archive:
        entries = [each for each in archive.infolist() if not each.is_dir()]
        declared = [
            archive.read(each).decode("utf-8", "replace")
            for each in entries
            if each.filename.endswith(".dist-info/entry_points.txt") and each.file_size <= _MAX_TEXT
        ]
    project = wheel.name.partition("-")[0]
    names = [installed_name(each.filename) for each in entries]
    scripts = [*_scripts(names), *(each for text in declared for each in declared_scripts(text))]
    return risks(project, [each for each in names if each], scripts)


def installed_name(name: str) -> str:
    """A file's place relative to the site, where its ``.data`` folder leads to."""
    parts = PurePosixPath(name).parts
    if len(parts) < 3 or not parts[0].endswith(".data"):  # noqa: PLR2004 - name.data/scheme/file
        return name
    if parts[1] in ("purelib", "platlib"):
        return "/".join(parts[2:])
    if parts[1] == "scripts":
        return f"{SCRIPTS}{parts[2]}"
    if parts[1] == "data":
        target = Path(sysconfig.get_path("data"), *parts[2:])
        for scheme in ("purelib", "platlib", "scripts"):
            folder = Path(sysconfig.get_path(scheme))
            if target.is_relative_to(folder):
                inner = target.relative_to(folder).as_posix()
                return f"{SCRIPTS}{inner}" if scheme == "scripts" else inner
    return ""


#: Stands for the folder of programs in the names of `installed_name`.
SCRIPTS: Final = "<scripts>/"


def _scripts(names: Iterable[str]) -> Iterator[str]:
    return (each.removeprefix(SCRIPTS) for each in names if each.startswith(SCRIPTS))


def declared_scripts(text: str) -> Iterator[str]:
    """The programs that an entry_points.txt declares."""
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[]").strip()
        elif group in ("console_scripts", "gui_scripts") and "=" in line:
            yield line.partition("=")[0].strip()


def risks(project: str, names: Iterable[str], scripts: Iterable[str]) -> list[str]:
    """What takes effect without being enabled, or takes the place of something else.

    Args:
        project: Whose files they are. What it has installed now may be replaced.
        names: Its files, relative to the site.
        scripts: The names of its programs.
    """
    names = [each for each in names if not each.startswith(SCRIPTS)]
    known = find_distribution(project)
    own = frozenset(() if known is None else known.files)
    found = [
        f"{each} runs whenever Python starts"
        for each in names
        if "/" not in each and each.endswith(".pth")
    ]
    for module in sorted({".".join(each) for each in module_names(names)}):
        top = module.partition(".")[0]
        if top in _AT_START:
            found.append(f"{module} runs whenever Python starts")
        elif top in sys.stdlib_module_names:
            found.append(f"{module} has the name of a module of the standard library")
        elif other := _other_module(module, own):
            found.append(f"{module} takes the place of {other}, or is added to it")
    found += [
        f"the program {each} takes the place of {other}"
        for each in sorted(set(scripts))
        if (other := _other_program(each, own))
    ]
    return [f"{project}: {each}" for each in found]


def _other_module(module: str, own: frozenset[str]) -> str:
    """The installed module of that name, or the package that it is added to; "" if own or none."""
    site = sysconfig.get_path("purelib")
    # What lies in the working folder is not installed.
    path = [site, *(each for each in sys.path if each and Path(each) != Path.cwd())]
    # By hand, from the top: `importlib.util.find_spec` would import the packages above.
    for name in module.split("."):
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            return ""
        if spec.origin is not None:
            return "" if _is_own(Path(spec.origin), own) else spec.origin
        path = list(spec.submodule_search_locations or ())  # a namespace belongs to nobody
    return ""


def _other_program(name: str, own: frozenset[str]) -> str:
    folder = sysconfig.get_path("scripts")
    path = os.pathsep.join((folder, os.environ.get("PATH", os.defpath)))
    found = shutil.which(PurePosixPath(name).name, path=path)
    return "" if found is None or _is_own(Path(found), own) else found


def _is_own(path: Path, own: frozenset[str]) -> bool:
    """Whether a file is one of the project's, as its RECORD lists them."""
    site = sysconfig.get_path("purelib")
    return any(
        os.path.normpath(os.path.join(site, each)) == os.path.normpath(path)  # noqa: PTH118
        for each in own
        if each.endswith(path.name)
    ) or (bool(own) and not module_names(own))  # an editable install lists none
