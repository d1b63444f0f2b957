"""HERMES_HOME: where it is, and how files in it are written."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hermes_core.errors import HomeError


def resolve_home(home: str | os.PathLike[str] | None = None) -> Path:
    """The home folder: the argument, else ``HERMES_HOME``, else the platform's default.

    It need not exist yet; what exists must be a folder.
    """
    given = os.fspath(home or "") or os.environ.get("HERMES_HOME", "")
    try:
        path = Path(given).expanduser() if given else default_home()
        given = given or str(path)
        path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        if error.filename is None:  # the working folder is gone
            raise HomeError(f"can't be found: {error.strerror}", where=given) from error
        return path
    except RuntimeError as error:
        raise HomeError(str(error), where=given, hint="set HERMES_HOME to a folder") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HomeError(f"can't be read: {reason}", where=given) from error
    if not stat.S_ISDIR(mode):
        raise HomeError(
            "the Hermes home is not a folder",
            where=str(path),
            hint="point HERMES_HOME or --home to a folder",
        )
    return path


def default_home() -> Path:
    """Where the home is if nobody says otherwise."""
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


class Aside(NamedTuple):
    """A new version of a file, on the disk beside it and not yet in its place."""

    path: str
    target: str
    inode: int

    def discard(self) -> None:
        """Remove it, if it is still there."""
        with suppress(OSError):
            os.unlink(self.path)  # noqa: PTH108


def replace_file(path: Path, content: bytes, *, mode: int | None = None) -> bool:
    """Write a file so that it has the old content or the new, never a mix.

    A symbolic link stays a link.

    Args:
        path: The file.
        content: What it shall hold.
        mode: Its mode; by default that of the existing file, 0600 for a new one.

    Returns:
        Whether the new content is safe from a power cut too.
    """
    aside = write_aside(path, content, mode=mode)
    try:
        return put_in_place(aside)
    except BaseException:
        aside.discard()
        raise


def write_aside(path: Path, content: bytes, *, mode: int | None = None) -> Aside:
    """The first half of `replace_file`: all but the rename."""
    target = os.path.realpath(path) if os.path.islink(path) else os.fspath(path)  # noqa: PTH114
    if mode is None:
        mode = _mode_of(target)
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")  # noqa: PTH118
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(temporary, flags, 0o600)
    try:
        inode = _filled(handle, content)
        if mode != 0o600:  # noqa: PLR2004
            os.chmod(temporary, mode)  # noqa: PTH101 - a path by name, beside the calls around it
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    return Aside(temporary, target, inode)


def _mode_of(target: str) -> int:
    try:
        return stat.S_IMODE(os.stat(target).st_mode)  # noqa: PTH116
    except FileNotFoundError:
        return 0o600


def _filled(handle: int, content: bytes) -> int:
    """Write and sync a new file; gives its inode."""
    try:
        written = os.write(handle, content)
        while written < len(content):
            written += os.write(handle, content[written:])
        os.fsync(handle)
        return os.fstat(handle).st_ino
    finally:
        os.close(handle)


def put_in_place(aside: Aside) -> bool:
    """The second half: True if the new content is safe from a power cut too.

    Raises:
        OSError: The file is as it was.
    """
    os.replace(aside.path, aside.target)  # noqa: PTH105
    try:
        sync_folder(os.path.dirname(aside.target) or ".")  # noqa: PTH120
    except OSError:
        return False
    return True


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make a rename in ``folder`` durable, where the platform can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
