"""Our own plugins as if pip had installed them: on the path of one test, in nobody else's list."""

from __future__ import annotations

import base64
import hashlib
import shutil
import tomllib
from pathlib import Path

from support.wheels import entry_points

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


def install_plugin(name: str, site: Path) -> Path:
    """Put a plugin of ours into a folder on the import path; gives its dist-info folder."""
    project = tomllib.loads((PLUGINS / name / "pyproject.toml").read_text("utf-8"))["project"]
    package = f"hermes_memory_{name}"
    source = PLUGINS / name / "src" / package
    shutil.copytree(source, site / package, ignore=shutil.ignore_patterns("__pycache__"))
    info = site / f"{package}-{project['version']}.dist-info"
    info.mkdir()
    needed = "".join(f"Requires-Dist: {each}\n" for each in project["dependencies"])
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        f"Summary: {project['description']}\nRequires-Python: {project['requires-python']}\n"
        f"{needed}\n",
        "utf-8",
    )
    (info / "entry_points.txt").write_text(entry_points(project["entry-points"]), "utf-8")
    recorded = [f"{info.name}/METADATA,,", f"{info.name}/RECORD,,"]
    for file in sorted((site / package).rglob("*.*")):
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest())
        text = digest.rstrip(b"=").decode()
        recorded.append(f"{file.relative_to(site).as_posix()},sha256={text},{file.stat().st_size}")
    (info / "RECORD").write_text("\n".join(recorded) + "\n", "utf-8")
    return info
