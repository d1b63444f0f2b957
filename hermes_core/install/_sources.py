"""What a person wrote after `install`: a package, a folder or a git repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from hermes_core.errors import HermesError


class InstallError(HermesError):
    """A plugin can't be installed, removed or bridged."""


class NoSuchPackage(InstallError):  # noqa: N818 - reads as what was found
    """The package index has no project of that name."""


class NeedsBuild(InstallError):  # noqa: N818 - reads as what was found
    """A project has no wheel: installing it runs its build."""

    def __init__(self, project: str) -> None:
        super().__init__(
            f"{project} has no wheel, and building it runs its code on this machine",
            hint="nothing was installed; to allow it, add --build",
        )
        self.project = project


_ARCHIVES: Final = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar", ".zip")
_WHEEL: Final = ".whl"
# git@host:path. `(?!//)` excludes "name@scheme://", which is a URL.
_SCP: Final = re.compile(r"[\w.-]+@[\w.-]+:(?!//)\S+")
_GIT_SCHEMES: Final = frozenset(("git", "ssh", "http", "https", "file"))


class Package(NamedTuple):
    """What pip installs: a requirement, or an archive or a project by its place.

    ``direct``: it is named by its path or URL. ``builds``: installing it runs its build, which
    is code.
    """

    spec: str
    direct: bool = False
    builds: bool = False

    @property
    def project(self) -> str:
        """The project's name, if the specification is a requirement; else ""."""
        from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - slow

        try:
            return Requirement(self.spec).name
        except InvalidRequirement:
            return ""

    @property
    def shown(self) -> str:
        """The specification without a password or token that somebody wrote into a URL."""
        return _without_credentials(self.spec)


class Folder(NamedTuple):
    """A directory plugin on this machine."""

    path: Path


class Repository(NamedTuple):
    """A git repository with a directory plugin in it."""

    url: str
    revision: str = ""
    subdirectory: str = ""

    @property
    def shown(self) -> str:
        """The URL without a password or token that somebody wrote into it."""
        return _without_credentials(self.url)

    @property
    def name(self) -> str:
        """The name to use if the plugin does not declare one."""
        last = self.subdirectory or self.url.rstrip("/").removesuffix(".git")
        return re.split(r"[/:\\]", last.rstrip("/"))[-1]


def _without_credentials(text: str) -> str:
    """A text without the credentials of the URLs in it."""
    # ssh needs its user ("git"), which is not a secret. In http, a token may be the user.
    text = re.sub(r"(ssh://[^/:@\s]*):[^/\s]*@", r"\1@", text)
    return re.sub(r"(https?://)[^/\s]*@", r"\1", text)


def read_source(text: str) -> Package | Folder | Repository:
    """What ``text`` names.

    Raises:
        InstallError: It names nothing that can be installed.
    """
    spec = text.strip()
    # A leading "-" would be an option of pip or git; control characters could forge the terminal
    # output of the question.
    if not spec or not spec.isprintable() or spec.startswith("-"):
        raise InstallError(f"{text!r} names nothing that can be installed", hint=_EXAMPLES)
    # The order: a git URL, then an existing path, then pip's own forms.
    repository = _repository(spec)
    if repository is not None:
        return repository
    path = Path(spec).expanduser()
    if (
        spec.startswith(("~", ".", "/"))
        or "\\" in spec
        or path.exists()
        or (spec.lower().endswith(_WHEEL) and "://" not in spec)
    ):
        return _local(path, spec)
    # "name @ https://...": a requirement with a URL.
    place = spec.rpartition("@")[2].strip() if re.match(r"[^/:]+@\s*\S+:", spec) else spec
    if "://" in place:
        wheel = urlsplit(place).path.lower().endswith(_WHEEL)
        return Package(spec, direct=True, builds=not wheel)
    return Package(spec)


_EXAMPLES: Final = (
    "name a package from the index, a wheel, a folder with a plugin.yaml, or a git URL"
)


def _local(path: Path, spec: str) -> Package | Folder:
    if path.is_dir():
        if (path / "plugin.yaml").is_file():
            return Folder(path.absolute())
        if (path / "pyproject.toml").is_file() or (path / "setup.py").is_file():
            return Package(str(path.absolute()), direct=True, builds=True)
        what = "has neither a plugin.yaml nor a pyproject.toml"
        raise InstallError(what, where=str(path), hint=_EXAMPLES)
    if not path.exists():
        raise InstallError("no such file or folder", where=spec, hint=_EXAMPLES)
    name = path.name.lower()
    if not name.endswith((_WHEEL, *_ARCHIVES)):
        what = "is neither a wheel nor a source archive"
        raise InstallError(what, where=str(path), hint=_EXAMPLES)
    return Package(str(path.absolute()), direct=True, builds=not name.endswith(_WHEEL))


def _repository(spec: str) -> Repository | None:
    """A git URL, in git's spelling or in pip's: git+URL@REVISION#subdirectory=FOLDER."""
    if _SCP.fullmatch(spec):
        url, _, subdirectory = spec.partition("#subdirectory=")
        return Repository(url, "", _inner(subdirectory, spec))
    explicit = spec.startswith("git+")
    parts = urlsplit(spec.removeprefix("git+"))
    if parts.scheme not in _GIT_SCHEMES or not (parts.netloc or parts.scheme == "file"):
        return None
    # https://.../name.whl is a file; every other http URL without "git+" is taken for a
    # repository.
    if not explicit and parts.path.lower().endswith((_WHEEL, *_ARCHIVES)):
        return None
    path, at, revision = parts.path.rpartition("@")
    if not at:
        path, revision = parts.path, ""
    # git would read it as an option.
    if revision.startswith("-"):
        raise InstallError(
            f"{revision!r} is not a revision",
            where=_without_credentials(spec),
            hint="name a branch, a tag or a commit after the @",
        )
    key, _, subdirectory = parts.fragment.partition("=")
    if parts.fragment and key != "subdirectory":
        raise InstallError(
            f"unknown fragment: #{parts.fragment}",
            where=_without_credentials(spec),
            hint="only #subdirectory=FOLDER is supported",
        )
    url = urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
    return Repository(url, revision, _inner(subdirectory, spec))


def _inner(subdirectory: str, spec: str) -> str:
    parts = subdirectory.replace("\\", "/").split("/")
    # ":" for drive letters on Windows.
    if ".." in parts or subdirectory.startswith("/") or ":" in subdirectory:
        raise InstallError(
            "the subdirectory must be inside the repository",
            where=_without_credentials(spec),
            hint="use #subdirectory=FOLDER without .. and without a leading /",
        )
    return "/".join(part for part in parts if part not in ("", "."))
