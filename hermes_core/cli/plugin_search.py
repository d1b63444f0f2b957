"""`search`, without click and rich, and what else the index of known plugins says about a name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.cli.output import on_terminal, plain, print_json, print_table, say, say_field
from hermes_core.config.names import normalise
from hermes_core.discovery import ProviderInfo, installed_versions
from hermes_core.install.index import Index, IndexEntry, read_index, suggestion
from hermes_core.storage.home import resolve_home

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
    index = read_index(resolve_home(request.home))
    # An argument may have several words, in quotes.
    words = " ".join(request.words).split()
    found = index.search(words)
    versions = installed_versions()
    if request.json:
        rows = [entry_as_json(index, each, versions) for each in found]
        print_json(made=index.made, words=words, plugins=rows, near=_near(index, words, found))
    elif found:
        _print_rows(found, versions)
    else:
        near = " or ".join(_near(index, words, found))
        say(f"No known plugin matches {plain(' '.join(words))!r}." + (
            f" Did you mean {near}?" if near else " See all: hermes-plugins search"
        ))  # fmt: skip
    if index.problem and not request.json:
        sys.stderr.write(f"warning: {plain(index.problem)}; using the index of this version\n")
    return 0


def _near(index: Index, words: Sequence[str], found: Sequence[IndexEntry]) -> list[str]:
    return [] if found or not words else index.near("-".join(words))[:2]


def _print_rows(found: Sequence[IndexEntry], versions: dict[str, str]) -> None:
    rows = []
    states = []
    for each in found:
        installed = normalise(each.distribution) in versions
        mark = " (installed)" if installed else ""
        needs = each.needed or "-"
        row = (each.name, each.distribution, each.grade, each.memories, needs)
        rows.append((*row, f"{each.description}{mark}"))
        states.append("active" if installed else "")
    print_table(_HEADER, rows, states)
    if on_terminal():
        say("To install one: hermes-plugins install NAME. Details: hermes-plugins info NAME")


def entry_as_json(index: Index, entry: IndexEntry, versions: dict[str, str]) -> dict[str, Any]:
    """Return a known plugin for JSON."""
    return {
        "name": entry.name,
        "distribution": entry.distribution,
        "version": entry.version,
        "installed": versions.get(normalise(entry.distribution), ""),
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


def hint_for(home: str | None, name: str, close: Sequence[str] = ()) -> str:
    """Return what to do about a name that is not installed; "" if the index does not help."""
    return suggestion(read_index(resolve_home(home)), name, close)


def grade_of_installed(home: Path, info: ProviderInfo, index: Index) -> str:  # noqa: ARG001
    """Return the grade of an installed plugin; "" if nobody checked exactly this version."""
    for each in index.packaged(info.distribution) if info.distribution else ():
        if each.key == info.key and each.version == info.version and each.tested:
            return each.grade
    return ""


def entry_details(entry: IndexEntry) -> dict[str, str]:
    """Return what the index knows of a plugin, as labels and texts for people."""
    places = {
        "local": "on this machine",
        "service": "in a service",
        "both": "on this machine or in a service",
    }
    tried = entry.version and f" (tried with {entry.version})"
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
        data = entry_as_json(index, entry, {})
        print_json(provider={**data, "active": False, "state": "not-installed"})
        return True
    say(f"{plain(entry.name)}  not installed")
    details = entry_details(entry)
    details["install"] = index.install_command(entry)
    details["also from"] = ", ".join(f"{each.name}@{each.distribution}" for each in others)
    width = max(map(len, details)) + 1 if on_terminal() else 0
    for label, value in details.items():
        if value:
            say_field(label, plain(value), width)
    return True
