"""What kind of file system a path is on, where the system tells."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = frozenset(
    (
        "9p",
        "afs",
        "ceph",
        "cifs",
        "fuse.sshfs",
        "glusterfs",
        "lustre",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
    )
)


def network_file_system(path: Path, mounts: Path = _MOUNTS) -> str:
    """The kind of network file system that a path is on; "" if it is on none that is known."""
    if os.name == "nt":
        return "a network share" if path.absolute().drive.startswith("\\\\") else ""
    try:
        table = mounts.read_text("utf-8", "replace")
    except OSError:
        return ""
    if not any(f" - {kind} " in table for kind in _NETWORK):
        return ""
    place = os.path.realpath(path)
    best, kind = "", ""
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), before.split()[4])
        inside = place == point or place.startswith(f"{point.rstrip('/')}/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind if kind in _NETWORK else ""
