"""`search`, without click and rich, and what else the index of known plugins says about a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.cli.output import (
    on_terminal,
    plain,
    print_json,
    print_table,
    say,
    say_field,
    warn,
)
from hermes_core.config import Selection
from hermes_core.config.names import normalise
from hermes_core.discovery import ProviderInfo, scan, tried_hash
from hermes_core.errors import UnknownProviderError
from hermes_core.install.index import IndexEntry, PluginIndex, read_index, suggestion
from hermes_core.provider import BUILTIN
from hermes_core.storage.home import resolve_home

#: The grade of an installed plugin whose files nobody is known to have checked.
NOT_CHECKED: Final = "not checked"
_HEADER: Final = ("NAME", "PACKAGE", "GRADE", "MEMORIES", "NEEDS", "DESCRIPTION")


class SearchRequest(NamedTuple):
    """What was asked for."""

    words: tuple[str, ...] = ()
    home: str | None = None
    json: bool = False


def parse_search(arguments: list[str]) -> SearchRequest | None:
    """Return the request if the arguments are a simple `search`; click parses everything else."""
    home = None
    rest = list(arguments)
    if rest[:1] == ["--home"] and len(rest) > 1 and rest[1]:
        home, rest = rest[1], rest[2:]
    options = {each for each in rest[1:] if each.startswith("-")}
    # Also --help and every mistake: click has the messages.
    if rest[:1] != ["search"] or not options <= {"--json"}:
        return None
    words = tuple(each for each in rest[1:] if each not in options)
    return SearchRequest(words, home, "--json" in options)


def run_search(request: SearchRequest) -> int:
    """Print the known plugins that contain every word."""
    home = resolve_home(request.home)
    index = read_index(home)
    # An argument may have several words, in quotes.
    words = " ".join(request.words).split()
    found = index.search(words)
    # As `list` does it: packages that declare nothing are not looked for, which takes longer.
    installed: dict[str, list[ProviderInfo]] = {}
    for each in scan(home, Selection()):
        installed.setdefault(normalise(each.distribution), []).append(each)
    rows = [_row(home, index, each, installed) for each in found]
    if request.json:
        print_json(made=index.made, words=words, plugins=rows, near=_near(index, words, found))
    elif rows:
        _print_rows(rows, found)
    else:
        near = " or ".join(_near(index, words, found))
        say(f"No known plugin matches {plain(' '.join(words))!r}." + (
            f" Did you mean {near}?" if near else " See all: hermes-plugins search"
        ))  # fmt: skip
    if index.problem and not request.json:
        warn(f"{index.problem}; using the index of this version")
    return 0


def _row(
    home: Path,
    index: PluginIndex,
    entry: IndexEntry,
    installed: Mapping[str, Sequence[ProviderInfo]],
) -> dict[str, Any]:
    """A known plugin for JSON; for an installed one, the grade of its files counts."""
    package = installed.get(normalise(entry.distribution), ())
    row = entry_as_json(index, entry, package[0].version if package else "")
    # A package may have several providers.
    info = next((each for each in package if each.key == entry.key), None)
    if info is not None:
        row["grade"] = grade_of_installed(home, info, index)
    return row


def _near(index: PluginIndex, words: Sequence[str], found: Sequence[IndexEntry]) -> list[str]:
    return [] if found or not words else index.near("-".join(words))[:2]


def _print_rows(rows: Sequence[dict[str, Any]], found: Sequence[IndexEntry]) -> None:
    cells = [
        (
            entry.name,
            entry.distribution,
            row["grade"],
            entry.memories,
            entry.needed or "-",
            entry.description + (" (installed)" if row["installed"] else ""),
        )
        for entry, row in zip(found, rows, strict=True)
    ]
    print_table(_HEADER, cells, ["active" if row["installed"] else "" for row in rows])
    if on_terminal():
        _say_how_to_install(found)


def _say_how_to_install(found: Sequence[IndexEntry]) -> None:
    if any(each.published for each in found):
        say("To install one: hermes-plugins install NAME. Details: hermes-plugins info NAME")
    if ours := ", ".join(each.name for each in found if not each.published):
        say(f"Not on PyPI: {ours}. In a checkout of hermes-plugins, run: "
            "hermes-plugins install ./plugins/NAME --build")  # fmt: skip


def entry_as_json(index: PluginIndex, entry: IndexEntry, installed: str = "") -> dict[str, Any]:
    """Return a known plugin for JSON; ``installed`` is the version that is installed."""
    return {
        "name": entry.name,
        "distribution": entry.distribution,
        "version": entry.version,
        "installed": installed,
        "grade": entry.grade,
        "memories": entry.memories,
        "needs": [each._asdict() for each in entry.needs],
        "made_for": entry.made_for,
        "tested": entry.tested,
        "checks_failed": list(entry.failed),
        "description": entry.description,
        "problem": entry.problem,
        "install": index.install_command(entry),
    }


def add_hint(error: UnknownProviderError, home: str | None) -> None:
    """Add what to do about a provider that is not installed, if the index has it or one near."""
    if error.name:
        index = read_index(resolve_home(home))
        error.hint = suggestion(index, error.name, error.close) or error.hint


def grade_of_installed(home: Path, info: ProviderInfo, index: PluginIndex) -> str:
    """Return the grade of an installed plugin, from a run on exactly its files.

    Name and version prove nothing: anybody can choose them. "" for the built-in memory.
    """
    from hermes_core.conformance.grades import known_grade  # noqa: PLC0415 - if one is installed

    if known := known_grade(home, info):
        return str(known.grade)
    entry = _entry_of(info, index)
    if entry is not None and _is_about(entry, info):
        return entry.grade
    return "" if info.source == BUILTIN else NOT_CHECKED


def index_grade(info: ProviderInfo, index: PluginIndex) -> str:
    """Return what the index says of an installed plugin that is not what was tried, as a line."""
    entry = _entry_of(info, index)
    return f"{entry.grade}, for the tried version {entry.version}" if entry is not None else ""


def _is_about(entry: IndexEntry, info: ProviderInfo) -> bool:
    """Return whether exactly these files were tried."""
    # The hash last: it reads every file of the plugin.
    same = bool(entry.content_hash) and entry.version == info.version
    return same and entry.content_hash == tried_hash(info)


def _entry_of(info: ProviderInfo, index: PluginIndex) -> IndexEntry | None:
    """Return what the index knows of the plugin that an installed one claims to be."""
    known = index.packaged(info.distribution) if info.distribution else ()
    return next((each for each in known if each.key == info.key and each.tested), None)


def entry_details(entry: IndexEntry) -> dict[str, str]:
    """Return what the index knows of a plugin, as labels and texts for people."""
    places = {
        "local": "on this machine",
        "service": "in a service",
        "both": "on this machine or in a service",
    }
    tried = f" (tried with {entry.version})" if entry.tested and entry.version else ""
    return {
        "description": entry.description,
        "distribution": entry.distribution,
        "grade": f"{entry.grade}{tried}",
        "failed checks": ", ".join(entry.failed),
        "memories": places.get(entry.memories, entry.memories),
        "needs": entry.needed or "nothing",
        "made for": entry.made_for,
        "problem": entry.problem or ("" if entry.tested else "could not be tried"),
    }


def print_known(home: Path, name: str, *, json: bool) -> bool:
    """Print what the index knows of a plugin that is not installed; return whether it does."""
    index = read_index(home)
    found = index.find(name)
    if not found:
        return False
    entry, *others = found
    if json:
        data = entry_as_json(index, entry)
        print_json(provider={**data, "active": False, "state": "not-installed"})
        return True
    say(f"{plain(entry.name)}  not installed")
    details = entry_details(entry)
    details["install"] = index.install_steps(entry).removeprefix("run: ")
    details["also from"] = ", ".join(f"{each.name}@{each.distribution}" for each in others)
    width = max(map(len, details)) + 1 if on_terminal() else 0
    for label, value in details.items():
        if value:
            say_field(label, plain(value), width)
    return True
