"""A bridge: a small directory plugin through which hermes-agent finds an installed provider.

A bridge imports the provider's package and nothing of ours: hermes-agent often has a separate
environment, and adding our site-packages to its path would mix the dependencies of both. Its
plugin.yaml has no ``pip_dependencies``, because hermes-agent would install that name from the
index, which may be another package than the one installed here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from hermes_core.config.names import name_problem, normalise
from hermes_core.discovery import (
    ProviderInfo,
    Record,
    content_hash,
    describe_directory,
    find_distribution,
    read_record,
)
from hermes_core.errors import one_line
from hermes_core.install._directories import plugins_folder, put, remove_folder
from hermes_core.install._sources import InstallError
from hermes_core.provider import BUILTIN, REQUIRED_MEMBERS

# Stricter than names elsewhere: it becomes a folder and part of a Python module's name in
# hermes-agent, and is formatted into the source of the bridge.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_PROJECT: Final = re.compile(r"[A-Za-z0-9._-]+")
# Where hermes-agent's own distribution has its providers.
_BUNDLED: Final = re.compile(r"plugins/memory/([^/]+)/__init__\.py")
_TEMPLATE: Final = Path(__file__).with_name("_bridge_template.py")
# The line of the template that is replaced; it is valid Python, so the template can be tested.
_NO_MEMBERS: Final = "_MEMBERS: tuple[str, ...] = ()"

#: hermes-agent recognises a memory plugin by the words in it.
_PLUGIN: Final = '''"""Makes the provider {name} of the package {package} visible to hermes-agent.

Made by: hermes-plugins bridge. Removed by: hermes-plugins bridge {name} --remove.
Calls ctx.register_memory_provider.
"""

from .offered import hand_over


def register(ctx):
    hand_over({entry_point!r}, {own_name!r}, {package!r}, ctx)
'''

_MANIFEST: Final = """\
# Made by: hermes-plugins bridge
name: {name}
version: {version}
description: {description}
"""


class Bridge(NamedTuple):
    """A bridge that was built. ``agent`` is the version of hermes-agent that is installed
    beside it, if one is.
    """  # noqa: D205

    folder: Path
    agent: str


def build_bridge(home: Path, info: ProviderInfo, alias: str = "") -> Bridge:
    """Write the directory plugin for an installed provider, or replace it.

    Args:
        home: The Hermes home.
        info: The provider.
        alias: The name that hermes-agent uses for it; by default its own.
    """
    entry_point = _entry_point(info)
    name = alias or info.name
    if not _NAME.fullmatch(name):
        what = f"{name!r} can't be the name of a folder"
        raise InstallError(what, hint="choose another name: --as NAME")
    if problem := name_problem(name):
        raise InstallError(problem, where=f"plugin {name}", hint="choose another name: --as NAME")
    agent = find_distribution("hermes-agent")
    # Bundled providers win in hermes-agent, so a bridge of that name would never be loaded.
    if agent is not None and name in _bundled(agent.files):
        raise InstallError(
            f"hermes-agent {agent.version} has a provider of that name, which takes precedence",
            where=f"plugin {name}",
            hint=f"use another name: hermes-plugins bridge {info.name} --as hermes-{info.name}",
        )
    with plugins_folder(home) as plugins:
        target = plugins / name
        _check_free(target, info)
        # The prefix of staged folders: after a crash, `plugins_folder` removes it.
        work = plugins / f".installing-{os.urandom(4).hex()}"
        _write(work, name, info, entry_point)
        record = Record(bridge=info.distribution, hash=content_hash(describe_directory(work)))
        put(work, target, record)
    return Bridge(target, agent.version if agent else "")


def _check_free(target: Path, info: ProviderInfo) -> None:
    """Raise unless the place is free, or has a bridge to the same package."""
    if not os.path.lexists(target):
        return
    record = _bridge_at(target)
    if record is None:
        raise InstallError(
            "is not a bridge made by hermes-plugins", where=str(target), hint="move it away first"
        )
    other = normalise(record.bridge) != normalise(info.distribution)
    # A bridge whose package is gone leads nowhere, so it may be replaced.
    if other and find_distribution(record.bridge) is not None:
        raise InstallError(
            f"is a bridge to {record.bridge}",
            where=str(target),
            hint=f"use another name, or run: hermes-plugins bridge {target.name} --remove",
        )


def remove_bridge(home: Path, name: str) -> Path | None:
    """Remove the bridge of that name; None if there is none.

    Raises:
        InstallError: What is there is not ours, or has been edited since.
    """
    folder = home / "plugins" / name
    if not _NAME.fullmatch(name) or not os.path.lexists(folder):
        return None
    with plugins_folder(home):
        record = _bridge_at(folder)
        if record is None:
            todo = f"if you do not need it, delete it yourself: rm -r {folder}"
            what = "is not a bridge made by hermes-plugins"
            raise InstallError(what, where=str(folder), hint=todo)
        # What somebody edited is their work, and removing it could not be undone.
        if content_hash(describe_directory(folder)) != record.hash:
            raise InstallError(
                "was edited after it was made",
                where=str(folder),
                hint=f"if you do not need it, delete it yourself: rm -r {folder}",
            )
        remove_folder(folder)
    return folder


def _bundled(files: Iterable[str]) -> set[str]:
    """The memory providers that are part of hermes-agent."""
    return {found[1] for each in files if (found := _BUNDLED.fullmatch(each))}


def _bridge_at(folder: Path) -> Record | None:
    # A link may lead to somebody's checkout: it is never treated as ours.
    record = None if folder.is_symlink() else read_record(folder)
    return record if record is not None and record.bridge else None


def _entry_point(info: ProviderInfo) -> str:
    """What the bridge imports."""
    where = f"plugin {info.name}"
    if info.source == BUILTIN:
        raise InstallError(
            "needs no bridge: hermes-agent has its own notes and conversations",
            where=where,
            hint="to see the other plugins, run: hermes-plugins list",
        )
    if not info.distribution:
        raise InstallError(
            "needs no bridge: hermes-agent finds directory plugins itself",
            where=where,
            hint=f"to use it in hermes-agent, run: hermes memory setup {info.name}",
        )
    if not _NAME.fullmatch(info.name) or not _PROJECT.fullmatch(info.distribution):
        what = "its name can't be the name of a folder"
        raise InstallError(what, where=where, hint="report it to its author")
    if info.entry_point:
        # Without extras and blanks: "module:object".
        return "".join(info.entry_point.partition("[")[0].split())
    if info.directory is None or info.location is None:
        hint = f"install it again: hermes-plugins install {info.distribution}"
        raise InstallError("can't be found on the disk", where=where, hint=hint)
    if not info.directory.is_relative_to(info.location):
        raise InstallError(
            f"is outside of the installed packages, in {info.directory}",
            where=where,
            hint=f"run: hermes-plugins install {info.directory}",
        )
    return ".".join(info.directory.relative_to(info.location).parts)


def _write(folder: Path, called: str, info: ProviderInfo, entry_point: str) -> None:
    folder.mkdir(mode=0o700)
    files = {
        "__init__.py": _PLUGIN.format(
            name=called,
            own_name=info.name,
            package=info.distribution,
            entry_point=entry_point,
        ),
        "offered.py": _loader(),
        "plugin.yaml": _MANIFEST.format(
            name=_scalar(called),
            version=_scalar(info.version),
            description=_scalar(info.description or f"Memory by {info.distribution}"),
        ),
    }
    for name, text in files.items():
        # newline="\n": the content hash must be the same on Windows.
        (folder / name).write_text(text, "utf-8", newline="\n")


def _loader() -> str:
    """The file that loads the provider, which can't import the contract from here."""
    return _TEMPLATE.read_text("utf-8").replace(_NO_MEMBERS, f"_MEMBERS = {REQUIRED_MEMBERS!r}")


def _scalar(text: str) -> str:
    """A text for YAML, which accepts JSON's strings."""
    return json.dumps(one_line(text), ensure_ascii=False)
