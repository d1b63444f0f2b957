"""A new plugin project, made from one that works.

The folder ``project`` is a complete plugin called acme. To create another one, its names are
replaced, in files and in their paths. It is not a template, so that it can be linted, typed and
tested as it is; the mutants of the checks are based on it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from hermes_core.config.names import name_problem
from hermes_core.errors import CHECK_FOLDER, HermesError
from hermes_core.manager.tools import RESERVED

PROJECT: Final = Path(__file__).parent / "project"

# Valid as a Python module (with _), as a distribution (with -) and as a prefix of tool names. 40:
# a tool's name has at most 64 characters.
_NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_LONGEST: Final = 40
#: Stands for the dot of a hidden file: git and packaging tools would read ours as their own.
_HIDDEN: Final = "dot-"


class PluginNameError(HermesError):
    """A name that a plugin can't have."""


def refuse_name(name: str) -> None:
    """Raise unless a plugin may have that name.

    Raises:
        PluginNameError: Says why not.
    """
    if problem := name_problem(name):
        raise PluginNameError(problem, hint="choose another")
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        raise PluginNameError(
            f"{name!r} can't be a plugin's name",
            hint=f"small letters, digits, - and _; a letter first; at most {_LONGEST}",
        )
    # "session" would make session_search, which is a tool of the built-in.
    if (tool := _replacements(name)["acme_search"]) in RESERVED:
        raise PluginNameError(f"its tool would be {tool}, the built-in's", hint="choose another")


def create_project(name: str, folder: Path) -> list[Path]:
    """Write a plugin project; return the files, in order.

    Raises:
        HermesError: The name can't be used, or the folder exists already.
    """
    refuse_name(name)
    if folder.exists() or folder.is_symlink():
        raise HermesError("already exists", where=str(folder), hint="choose another folder")
    words = _replacements(name)
    written = []
    try:
        # Sorted, so that the list of files is the same on every system.
        for source in sorted(each for each in PROJECT.rglob("*") if _belongs(each)):
            path = _replaced(source.relative_to(PROJECT).as_posix(), words)
            target = folder.joinpath(*(_shown(part) for part in path.split("/")))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_replaced(source.read_text("utf-8"), words), "utf-8", newline="\n")
            written.append(target)
    except OSError as error:
        # The folder did not exist before, so everything in it is ours.
        shutil.rmtree(folder, ignore_errors=True)
        what = f"can't be written: {error.strerror or error}"
        raise HermesError(what, where=str(folder), hint=CHECK_FOLDER) from error
    return written


def _belongs(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def _shown(part: str) -> str:
    return f".{part.removeprefix(_HIDDEN)}" if part.startswith(_HIDDEN) else part


def _replacements(name: str) -> dict[str, str]:
    """The replacement of each word; longer words first, since they contain the shorter ones."""
    words = re.split("[-_]", name)
    title = "".join(word.capitalize() for word in words)
    return {
        "hermes_memory_acme": f"hermes_memory_{name.replace('-', '_')}",
        "hermes-memory-acme": f"hermes-memory-{name.replace('_', '-')}",
        "acme_search": f"{name.replace('-', '_')}_search",
        "Acme": title,
        "acme": name,
    }


def _replaced(text: str, words: dict[str, str]) -> str:
    # One pass with alternatives in order: replacing one word after the other could replace inside
    # an earlier replacement.
    pattern = "|".join(map(re.escape, words))
    return re.sub(pattern, lambda found: words[found[0]], text)
