"""HERMES_HOME: where it is, and how its folders are created."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hermes_core.errors import HomeError


def resolve_home(home: str | os.PathLike[str] | None = None) -> Path:
    """Return the home folder: the argument, else ``HERMES_HOME``, else the platform's default.

    It need not exist yet. If it exists, it must be a folder.
    """
    given = os.fspath(home or "") or os.environ.get("HERMES_HOME", "")
    try:
        path = Path(given).expanduser() if given else default_home()
        given = given or str(path)
        # Absolute at once: a later `chdir` of the host must not move the home.
        path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        if error.filename is None:  # the working folder is gone
            todo = "change to a folder that exists, or set HERMES_HOME"
            raise HomeError(f"can't be found: {error.strerror}", where=given, hint=todo) from error
        return path
    except RuntimeError as error:
        raise HomeError(str(error), where=given, hint="set HERMES_HOME to a folder") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        todo = "check its permissions, or point HERMES_HOME or --home to another folder"
        raise HomeError(f"can't be read: {reason}", where=given, hint=todo) from error
    if not stat.S_ISDIR(mode):
        raise HomeError(
            "the Hermes home is not a folder",
            where=str(path),
            hint="point HERMES_HOME or --home to a folder",
        )
    return path


def default_home() -> Path:
    """The home folder if neither an argument nor ``HERMES_HOME`` names one."""
    local = os.environ.get("LOCALAPPDATA", "")
    if os.name == "nt" and local:
        return Path(local) / "hermes"
    return Path.home() / ".hermes"


def let_owner_use(path: str | os.PathLike[str], mode: int = 0o600) -> None:
    """Set the mode of a new file or folder if a plugin's umask keeps us from using it."""
    # Not always: some file systems refuse every change of a mode.
    if not os.access(path, os.R_OK | os.W_OK):
        os.chmod(path, mode)  # noqa: PTH101 - the path may be a name


def ensure_folder(folder: Path) -> Path:
    """Return a folder; create it if needed, for its owner alone."""
    try:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            let_owner_use(folder, 0o700)
    except OSError as error:
        raise HomeError(
            f"can't be created: {error.strerror or error}",
            where=str(folder),
            hint="choose another folder with HERMES_HOME or --home",
        ) from error
    return folder
