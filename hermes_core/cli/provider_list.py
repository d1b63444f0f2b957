"""`list`, without click and rich: shell prompts run it, so it has to be fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.cli.output import print_json, print_table
from hermes_core.config import Selection, read_selection
from hermes_core.config.names import normalise
from hermes_core.discovery import ProviderInfo, scan
from hermes_core.errors import ConfigError, HermesError, UnknownProviderError
from hermes_core.storage.home import resolve_home

_HEADER: Final = ("NAME", "STATE", "VERSION", "SOURCE", "DESCRIPTION")


class ListRequest(NamedTuple):
    """What was asked for."""

    home: str | None = None
    everything: bool = False
    json: bool = False


def parse_list(arguments: list[str]) -> ListRequest | None:
    """Return the request if the arguments are a simple `list`; click parses everything else."""
    home = None
    rest = list(arguments)
    # The other spellings, such as --home=FOLDER, are left to click, which runs the same code.
    if rest[:1] == ["--home"] and len(rest) > 1 and rest[1]:
        home, rest = rest[1], rest[2:]
    options = set(rest[1:])
    # Also --help and every mistake: click has the messages.
    if rest[:1] != ["list"] or not options <= {"--all", "--json"}:
        return None
    return ListRequest(home, "--all" in options, "--json" in options)


def run_list(request: ListRequest) -> int:
    """List the installed providers."""
    home = resolve_home(request.home)
    error: HermesError | None = None
    try:
        selection = read_selection(home)
    except ConfigError as caught:
        # What is active is not known then, but what is installed is.
        error, selection = caught, Selection()
    found = scan(home, selection, everything=request.everything)
    if not request.everything and _is_missing(selection, found):
        # It may be in a package that declares nothing, which takes longer to find.
        complete = scan(home, selection, everything=True)
        found = complete if not _is_missing(selection, complete) else found
        if _is_missing(selection, found):
            error = UnknownProviderError(
                f"memory.provider is {selection.name}, which is not installed",
                hint="see: hermes-plugins status",
            )
    grades = _grades(home, found) if request.everything else None
    if request.json:
        rows = [as_json(each) for each in found]
        for row, grade in zip(rows, grades or (), strict=False):
            row["grade"] = grade
        print_json(providers=rows)
    else:
        _print_rows(found, grades)
    # Raised last: what is installed is printed in any case, and the exit code is 1.
    if error is not None:
        raise error
    return 0


def _grades(home: Path, found: list[ProviderInfo]) -> list[str]:
    from hermes_core.cli.plugin_search import grade_of_installed  # noqa: PLC0415 - only for --all
    from hermes_core.install.index import read_index  # noqa: PLC0415

    index = read_index(home)
    return [grade_of_installed(home, each, index) for each in found]


def _is_missing(selection: Selection, found: list[ProviderInfo]) -> bool:
    same = [each for each in found if each.key == normalise(selection.name)]
    owned = [each for each in same if not selection.owner or each.owned_by(selection.owner)]
    return bool(selection.name) and not owned


def as_json(info: ProviderInfo) -> dict[str, Any]:
    """Return a provider as the contract defines it for JSON."""
    return {
        "name": info.name,
        "active": info.active,
        "state": info.state,
        "source": info.source,
        "distribution": info.distribution,
        "version": info.version,
        "entry_point": info.entry_point,
        "description": info.description,
        "problem": info.problem,
    }


def version_of(info: ProviderInfo) -> str:
    """Return the version, with the first digits of the commit that a directory came from."""
    # "+changes" is shown as a "+" after seven digits.
    commit, edited, _ = info.commit.partition("+")
    return f"{info.version} {commit[:7]}{edited}".strip()


def _print_rows(found: list[ProviderInfo], grades: list[str] | None) -> None:
    rows = []
    for number, each in enumerate(found):
        graded = [] if grades is None else [grades[number] or "-"]
        place = each.distribution or each.source
        rows.append((each.name, each.state, version_of(each), place, *graded,
                     each.problem or each.description))  # fmt: skip
    header = _HEADER if grades is None else (*_HEADER[:-1], "GRADE", _HEADER[-1])
    print_table(header, rows, [each.state for each in found])
