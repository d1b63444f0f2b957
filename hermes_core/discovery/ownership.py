"""Who owns a name, whether it is still what was enabled, and which provider a name means.

Two owners of one name are a conflict that a person decides (``name@owner``).
"""

from __future__ import annotations

from collections.abc import Iterable

from hermes_core.config import Pin, Selection
from hermes_core.config.names import name_problem, nearest, normalise, split_choice
from hermes_core.discovery.contents import Contents, content_hash, read_contents
from hermes_core.discovery.installed import ignored_project_plugin
from hermes_core.discovery.provider_info import OURS, PUBLISHED, ProviderInfo
from hermes_core.discovery.source_text import defines_class, imports, requirements, syntax
from hermes_core.errors import ProviderConflictError, ProviderLoadError, UnknownProviderError
from hermes_core.provider import BUILTIN


def pin_of(info: ProviderInfo) -> Pin:
    """Return the pin for a provider as it is installed now."""
    return Pin(info.owner, info.version, content_hash(info))


def pin_problem(info: ProviderInfo, selection: Selection) -> str:
    """Return what differs from the selection's pin, in one line; "" if nothing or not pinned."""
    pin = selection.pin
    if pin is None or not pin.owner:
        return ""
    again = f"run: hermes-plugins enable {info.name}"
    if not info.owned_by(pin.owner):
        return f"belongs to {info.owner}, but was enabled as {pin.owner}'s; {again}"
    if pin.version and pin.version != info.version:
        return f"is version {info.version or 'unknown'}, but was enabled as {pin.version}; {again}"
    return _content_problem(info, pin.hash, again) if pin.hash else ""


def _content_problem(info: ProviderInfo, pinned: str, again: str) -> str:
    now = Contents(info.content_hash, {}) if info.content_hash else read_contents(info)
    if now.problem:
        return f"it can't be compared with what was enabled: {now.problem}"
    return "" if now.hash == pinned else f"its files differ from those that were enabled; {again}"


def same_owner(info: ProviderInfo, pin: Pin | None) -> bool:
    """Whether the pin, if there is one, names this provider's owner."""
    return pin is None or not pin.owner or normalise(pin.owner) == normalise(info.owner)


def assign_owners(found: Iterable[ProviderInfo], selection: Selection) -> list[ProviderInfo]:
    """Return each provider with its state: the built-in first, then by name."""
    by_key: dict[str, list[ProviderInfo]] = {}
    for info in _without_bridges(map(_checked_name, found)):
        if info.key in selection.facts:
            info = info._replace(facts=selection.facts[info.key])  # noqa: PLW2901
        by_key.setdefault(info.key, []).append(info)
    assigned = [
        _with_state(info, selection)
        for same in by_key.values()
        # First drop what is the same provider in two places; only what is left is a conflict.
        for info in _without_rivals(_one_each(same), selection)
    ]
    return sorted(assigned, key=lambda each: (each.source != "builtin", each.key, each.owner))


def _checked_name(info: ProviderInfo) -> ProviderInfo:
    if info.key == BUILTIN:  # who may have it is decided below
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
    copies = [each for each in same if each.source == "directory" and not each.distribution]
    # The package's own installer made the copy in the home, and a person ran it: the copy counts.
    same = [each for each in same if each.source != "module" or not copies]
    packages = [each for each in same if each.entry_point and each.loadable]
    return [
        each
        for each in same
        if each.directory is None or not any(_wraps(each, package) for package in packages)
    ]


def _bridge(info: ProviderInfo) -> ProviderInfo:
    """Mark a bridge as broken: its package is not installed."""
    if not info.bridge:
        return info
    problem = (
        f"is a bridge to {info.bridge}, which is not installed here; "
        f"install it, or run: hermes-plugins bridge {info.name} --remove"
    )
    return info._replace(state="broken", problem=problem, loadable=False)


def _wraps(directory: ProviderInfo, package: ProviderInfo) -> bool:
    """Whether a directory only imports from the package."""
    if directory.directory is None:
        return False
    tree = syntax(directory.directory / "__init__.py")
    # With a class in it, it is not a mere wrapper, but a changed copy or another provider.
    if tree is None or defines_class(tree):
        return False
    top = package.entry_point.partition(":")[0].partition(".")[0].strip()
    return any(name.partition(".")[0] == top for name, _ in imports(tree))


def _without_rivals(same: list[ProviderInfo], selection: Selection) -> list[ProviderInfo]:
    """Mark those that may not have the name, each with all owners named."""
    same = _without_project_claims(same, selection)
    usable = [each for each in same if _is_usable(each)]
    # Nobody can choose another owner for this name, not even with name@owner.
    if usable and usable[0].key == BUILTIN:
        return [each if each.source == "builtin" else _refused(each) for each in same]
    if len(usable) < 2:  # noqa: PLR2004
        return same
    ours = [each for each in usable if normalise(each.distribution) in OURS]
    chosen = [each for each in usable if _is_chosen(each, selection)]
    # Ours first: installing a package must not replace a provider that we ship. Then what the
    # person wrote; then what follows from the packages' requirements.
    winners = ours or chosen or _built_on_the_others(usable)
    owners = ", ".join(sorted(each.label for each in usable))
    problem = f"claimed by {owners}; choose one with memory.provider: {usable[0].name}@OWNER"
    return [
        each
        if each in winners or each not in usable
        else each._replace(state="conflict", problem=problem)
        for each in same
    ]


def _is_usable(info: ProviderInfo) -> bool:
    return info.loadable and info.state not in ("no-provider", "conflict")


def _without_project_claims(same: list[ProviderInfo], selection: Selection) -> list[ProviderInfo]:
    """A project's plugin never takes a name from another: that is not a repository's decision."""
    others = [each.label for each in same if each.source != "project" and _is_usable(each)]
    if not others:
        return same
    taken = f"its name is taken by {', '.join(sorted(others))}"
    return [
        each
        if each.source != "project" or _is_chosen(each, selection)
        else each._replace(state="conflict", problem=taken)
        for each in same
    ]


def _built_on_the_others(usable: list[ProviderInfo]) -> list[ProviderInfo]:
    """The one that declares the name, if the others only carry it and are what it requires."""
    # Some projects ship an engine with a directory plugin inside, and a second distribution that
    # declares the provider and requires the first. Between unrelated ones it is a conflict.
    declared = [each for each in usable if each.directory is None and each.source != "module"]
    if len(declared) != 1:
        return []
    carried = {normalise(each.distribution) for each in usable if each not in declared}
    # "" is a plugin in a directory of the home, which no distribution can require.
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
    if selection.pin is not None and selection.pin.hash:
        now = read_contents(info)
        # The only hash that a scan needs; `pin_problem` uses it again later.
        info = info._replace(content_hash="" if now.problem else now.hash)
    changed = pin_problem(info, selection)
    if changed:
        # A new version of the same owner stays active with a warning, unless pins are strict.
        # Another owner is never active: that is the case the pin is there for.
        active = not selection.strict and same_owner(info, selection.pin)
        return info._replace(state="changed", problem=changed, active=active)
    return info._replace(state="active", active=True)


def find_provider(choice: str, providers: Iterable[ProviderInfo]) -> ProviderInfo:
    """The provider called ``name`` or ``name@owner``.

    Raises:
        UnknownProviderError: None has that name; says which come near.
        ProviderConflictError: Several have it; names their owners.
        ProviderLoadError: It is listed, but broken or not a memory provider.
    """
    name, owner = split_choice(choice)
    listed = list(providers)
    same = [each for each in listed if each.key == normalise(name)]
    # The listed name wins; a provider's own name is only a second way to call it.
    same = same or [each for each in listed if each.is_called(name)]
    found = [each for each in same if not owner or each.owned_by(owner)]
    if not found:
        raise _unknown(choice, same, listed)
    usable = [each for each in found if each.loadable]
    # "no-provider" is a guess from the text of the sources. `enable` loads the plugin anyway, in
    # a child process, and reports what really happens.
    sure = [each for each in usable if each.state != "no-provider"]
    usable = sure or usable
    if not usable:
        raise ProviderLoadError(
            found[0].problem,
            plugin=name,
            distribution=found[0].distribution,
            step="find",
            hint=f"see: hermes-plugins info {name}",
        )
    # With name@owner a person has decided the conflict, so its state is not an obstacle.
    if len(usable) == 1 and (owner or usable[0].state != "conflict"):
        if usable[0].key == "builtin" and usable[0].source != "builtin":
            todo = f"uninstall it: hermes-plugins uninstall {usable[0].distribution or name}"
            raise ProviderConflictError(usable[0].problem, where=f"plugin {name}", hint=todo)
        return usable[0]
    owned = [each for each in usable if each.state != "conflict"]
    if len(owned) == 1:
        return owned[0]
    raise ProviderConflictError(
        f"claimed by {', '.join(sorted(each.label for each in usable))}; none of them is loaded",
        where=f"plugin {name}",
        hint=f"choose one: {name}@{usable[0].owner}",
    )


def _unknown(
    choice: str, same: list[ProviderInfo], listed: list[ProviderInfo]
) -> UnknownProviderError:
    name, owner = split_choice(choice)
    if same:
        owners = ", ".join(each.owner for each in same)
        return UnknownProviderError(f"{name} is provided by {owners}, not by {owner}")
    usable = [each.name for each in listed if each.loadable and each.state != "no-provider"]
    what = f"no memory provider {name!r} is installed"
    if hint := ignored_project_plugin(name):
        return UnknownProviderError(what, hint=hint)
    close = tuple(nearest(name, usable))
    return UnknownProviderError(what, hint=_suggestion(name, close), name=choice, close=close)


def _suggestion(name: str, close: tuple[str, ...]) -> str:
    """What somebody may have meant: an installed provider, or a plugin that we publish."""
    if close:
        return f"did you mean {' or '.join(close)}?"
    if published := nearest(name, PUBLISHED):
        return f"to see how to install it, run: hermes-plugins info {published[0]}"
    return (
        "run `hermes-plugins list` to see what is installed, and `hermes-plugins search` for what "
        "can be installed"
    )
