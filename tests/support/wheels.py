"""Wheels and source archives, made by hand, and a venv in which they can be installed."""

from __future__ import annotations

import atexit
import io
import os
import shutil
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from textwrap import dedent
from typing import Any
from venv import EnvBuilder

from packaging.requirements import Requirement

from support.commands import Machine, Result
from support.forked_commands import run_forked_command
from support.sites import MEMORY, provider_source

#: A build that leaves a trace, and gives the wheel that came along.
_BACKEND = """
import os, pathlib, shutil, time
pathlib.Path({trace!r}).write_text(str(os.getpid()))
time.sleep({sleep})

def build_wheel(folder, config_settings=None, metadata_directory=None):
    shutil.copy(pathlib.Path(__file__).with_name({wheel!r}), folder)
    return {wheel!r}
"""


def entry_points(groups: dict[str, dict[str, str]]) -> str:
    """The text of an entry_points.txt."""
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    return "\n".join(lines) + "\n"


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    groups: dict[str, dict[str, str]] | None = None,
    files: dict[str, str] | None = None,
    requires: Iterable[str] = (),
    headers: str = "",
) -> Path:
    """A wheel of pure Python in a folder."""
    stem = f"{name.replace('-', '_')}-{version}"
    content = {path: dedent(text) for path, text in (files or {}).items()}
    needed = "".join(f"Requires-Dist: {each}\n" for each in requires)
    content[f"{stem}.dist-info/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        f"Summary: Memory by {name}\n{needed}{headers}\nText.\n"
    )
    content[f"{stem}.dist-info/WHEEL"] = (
        "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    if groups:
        content[f"{stem}.dist-info/entry_points.txt"] = entry_points(groups)
    record = f"{stem}.dist-info/RECORD"
    content[record] = "".join(f"{path},,\n" for path in (*content, record))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for each, text in content.items():
            wheel.writestr(each, text)
    return path


def make_provider_wheel(
    folder: Path, name: str, version: str = "1.0", source: str = "", *, requires: Iterable[str] = ()
) -> Path:
    """A wheel ``memory-NAME`` with one provider."""
    module = f"memory_{name}"
    return make_wheel(
        folder,
        f"memory-{name}",
        version,
        groups={MEMORY: {name: f"{module}:register"}},
        files={f"{module}/__init__.py": source or provider_source(name)},
        requires=requires,
    )


def make_sdist(
    folder: Path, name: str, trace: Path, version: str = "1.0", sleep: float = 0
) -> Path:
    """A source archive ``memory-NAME`` whose build writes the file ``trace``."""
    stem = f"memory_{name}-{version}"
    wheel = make_provider_wheel(trace.parent / "not-offered", name, version)
    content = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: memory-{name}\nVersion: {version}\n".encode(),
        "pyproject.toml": b'[build-system]\nrequires = []\nbuild-backend = "backend"\n'
        b'backend-path = ["."]\n',
        "backend.py": _BACKEND.format(trace=str(trace), wheel=wheel.name, sleep=sleep).encode(),
        wheel.name: wheel.read_bytes(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for each, data in content.items():
            entry = tarfile.TarInfo(f"{stem}/{each}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


@cache
def requirements() -> Path:
    """A folder with ourselves, pip and what both need: pip reads everything that is installed."""
    folder = Path(tempfile.mkdtemp(prefix="hermes-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    wanted = ["hermes-plugins", "pip", "editables", "rich", "python-dotenv", "PyStemmer"]
    known: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in known:
            continue
        known.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:  # an extra that this environment does without
            continue
        for top in {Path(each).parts[0] for each in found.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(found.locate_file(top))))
        needed = [Requirement(each) for each in found.requires or ()]
        wanted += [each.name for each in needed if not each.marker or each.marker.evaluate()]
    return folder


class Venv(Machine):
    """A venv of its own that sees what this one has installed; pip asks one folder for packages.

    A `.pth` file stands for an installation of ourselves, which would take half a minute. With
    ``forked``, `run` needs no interpreter for our command; pip always gets one.
    """

    def __init__(self, folder: Path, beside: Path | None = None, *, forked: bool = False) -> None:
        self.forked = forked and os.name == "posix"
        self.folder = folder / "venv"
        EnvBuilder(symlinks=os.name == "posix").create(self.folder)
        self.python = self.folder / ("Scripts" if os.name == "nt" else "bin") / "python"
        super().__init__(folder, self.python)
        self.packages = self._purelib()
        ours = requirements() if self.forked else Path(sysconfig.get_path("purelib"))
        seen = [*([beside] if beside else []), ours]
        # Unlike a plain line, this reads the .pth files there, such as an editable install's.
        (self.packages / "seen.pth").write_text(
            "".join(f"import site; site.addsitedir({str(each)!r})\n" for each in seen)
        )
        self.links = folder / "links"
        self.links.mkdir()
        self.environment |= {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.links),
            "PIP_CONFIG_FILE": os.devnull,
        }
        del self.environment["PYTHONPATH"]

    def _purelib(self) -> Path:
        base = {"base": str(self.folder), "platbase": str(self.folder)}
        return Path(sysconfig.get_path("purelib", "venv", base))

    def run(self, *arguments: str, **options: Any) -> Result:
        """Run the command with its output piped."""
        if not self.forked or options.keys() - {"env"}:
            return super().run(*arguments, **options)
        env = {**self.environment, **options.get("env", {})}
        code, out, err = run_forked_command(arguments, env, venv=self.folder)
        return Result(code, out.decode(), err.decode())

    def put(self, wheel: Path) -> None:
        """Install a wheel without pip, which takes seconds of CPU."""
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.packages)

    def command(self, *arguments: str) -> list[str]:
        """The command through its module: nothing is installed here."""
        return [str(self.python), "-P", "-m", "hermes_core", *arguments]

    def installed(self) -> set[str]:
        """The projects in its own site-packages."""
        return {each.name.partition("-")[0] for each in self.packages.glob("*.dist-info")}
