"""Who owns a name: one provider, or a conflict that a person has to settle."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_core.config import Selection
from hermes_core.discovery._info import OURS, ProviderInfo
from hermes_core.discovery._pins import pin_problem, same_owner
from hermes_core.discovery._sources import defines_class, imports, requirements, syntax
from hermes_core.names import BUILTIN, name_problem, normalise


def settle(found: Iterable[ProviderInfo], selection: Selection) -> list[ProviderInfo]:
    """Give each provider its state, the built-in first, then by name."""
    by_key: dict[str, list[ProviderInfo]] = {}
    for info in _without_bridges(map(_checked_name, found)):
        if info.key in selection.learnt:
            info = info._replace(learnt=selection.learnt[info.key])  # noqa: PLW2901
        by_key.setdefault(info.key, []).append(info)
    settled = [
        _with_state(info, selection)
        for same in by_key.values()
        for info in _without_rivals(_one_each(same), selection)
    ]
    return sorted(settled, key=lambda each: (each.source != "builtin", each.key, each.owner))


def _checked_name(info: ProviderInfo) -> ProviderInfo:
    if info.key == BUILTIN:  # who may have it is settled below
        return info
    problem = name_problem(info.name)
    return info._replace(state="broken", loadable=False, problem=problem) if problem else info


def _without_bridges(found: Iterable[ProviderInfo]) -> list[ProviderInfo]:
    """Drop a bridge to a package that is there: it is the same provider, whatever its name."""
    listed = list(found)
    owners = {normalise(each.distribution) for each in listed if each.distribution}
    return [_bridge(each) for each in listed if normalise(each.bridge) not in owners]


def _one_each(same: list[ProviderInfo]) -> list[ProviderInfo]:
    """Drop a directory that only wraps an installed package: it is the same provider."""
    packages = [each for each in same if each.entry_point and each.loadable]
    return [
        each
        for each in same
        if each.directory is None or not any(_wraps(each, package) for package in packages)
    ]


def _bridge(info: ProviderInfo) -> ProviderInfo:
    """A bridge whose other side is missing leads nowhere."""
    if not info.bridge:
        return info
    problem = (
        f"is a bridge to {info.bridge}, which is not installed here; "
        f"install it, or run: hermes-plugins bridge {info.name} --remove"
    )
    return info._replace(state="broken", problem=problem, loadable=False)


def _wraps(directory: ProviderInfo, package: ProviderInfo) -> bool:
    """Whether a directory has nothing of its own but what it imports from the package."""
    if directory.directory is None:
        return False
    tree = syntax(directory.directory / "__init__.py")
    if tree is None or defines_class(tree):
        return False
    top = package.entry_point.partition(":")[0].partition(".")[0].strip()
    return any(name.partition(".")[0] == top for name, _ in imports(tree))


def _without_rivals(same: list[ProviderInfo], selection: Selection) -> list[ProviderInfo]:
    """Mark those that may not have the name, each with all owners named."""
    usable = [each for each in same if each.loadable and each.state != "no-provider"]
    if usable and usable[0].key == BUILTIN:
        return [each if each.source == "builtin" else _refused(each) for each in same]
    if len(usable) < 2:  # noqa: PLR2004
        return same
    ours = [each for each in usable if normalise(each.distribution) in OURS]
    chosen = [each for each in usable if _is_chosen(each, selection)]
    winners = ours or chosen or _built_on_the_others(usable)
    owners = ", ".join(sorted(each.label for each in usable))
    problem = f"claimed by {owners}; choose one with memory.provider: {usable[0].name}@OWNER"
    return [
        each
        if each in winners or each not in usable
        else each._replace(state="conflict", problem=problem)
        for each in same
    ]


def _built_on_the_others(usable: list[ProviderInfo]) -> list[ProviderInfo]:
    """The one that declares the name, if the others only carry it and are what it requires."""
    declared = [each for each in usable if each.directory is None]
    if len(declared) != 1:
        return []
    carried = {normalise(each.distribution) for each in usable if each not in declared}
    return declared if "" not in carried and carried <= requirements(declared[0]) else []


def _refused(info: ProviderInfo) -> ProviderInfo:
    problem = f"the name {BUILTIN} is reserved; {info.owner} can't have it"
    return info._replace(state="conflict", problem=problem)


def _is_chosen(info: ProviderInfo, selection: Selection) -> bool:
    return (
        bool(selection.owner)
        and info.key == normalise(selection.name)
        and info.owned_by(selection.owner)
    )


def _with_state(info: ProviderInfo, selection: Selection) -> ProviderInfo:
    if info.source == "builtin":
        return info._replace(state="active", active=True)
    if not info.loadable or info.state == "conflict" or info.key != normalise(selection.name):
        return info
    if selection.owner and not info.owned_by(selection.owner):
        return info
    changed = pin_problem(info, selection)
    if changed:
        active = not selection.strict and same_owner(info, selection.pin)
        return info._replace(state="changed", problem=changed, active=active)
    return info._replace(state="active", active=True)
