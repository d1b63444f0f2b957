"""HERMES_HOME: where it is, and how files in it are written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hermes_core.errors import HomeError


def resolve_home(home: str | os.PathLike[str] | None = None) -> Path:
    """The home folder: the argument, else ``HERMES_HOME``, else the platform's default.

    It need not exist yet; what exists must be a folder.
    """
    given = os.fspath(home) if home is not None else os.environ.get("HERMES_HOME", "")
    path = Path(given).expanduser() if given else _default_home()
    path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, ValueError) as error:
        raise HomeError(f"can't be read: {error}", where=str(path)) from error
    if not stat.S_ISDIR(mode):
        raise HomeError(
            "the Hermes home is not a folder",
            where=str(path),
            hint="point HERMES_HOME or --home to a folder",
        )
    return path


def _default_home() -> Path:
    local = os.environ.get("LOCALAPPDATA", "")
    if os.name == "nt" and local:
        return Path(local) / "hermes"
    return Path.home() / ".hermes"


def ensure_folder(folder: Path) -> Path:
    """The folder, made if need be, for its owner alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise HomeError(
            f"can't be created: {error.strerror or error}",
            where=str(folder),
            hint="choose another folder with HERMES_HOME or --home",
        ) from error
    return folder


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that it has the old content or the new, never a mix.

    Keeps the mode of an existing file (0600 for a new one) and a symbolic link as a link.
    """
    import tempfile  # noqa: PLC0415 - listing writes nothing

    target = Path(os.path.realpath(path))
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)  # noqa: PTH101 - a path by name, beside the calls around it
        os.replace(name, target)  # noqa: PTH105
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` durable, where the platform can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
