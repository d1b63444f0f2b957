"""Who owns a name, whether it is still what was enabled, and which provider a name means.

Two owners of one name are a conflict that a person decides (``name@owner``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from hermes_core.config import Pin, Selection
from hermes_core.config.names import name_problem, nearest, normalise, split_choice
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
    if pin.hash and pin.hash != (info.content_hash or content_hash(info)):
        return f"its files differ from those that were enabled; {again}"
    return ""


def same_owner(info: ProviderInfo, pin: Pin | None) -> bool:
    """Whether the pin, if there is one, names this provider's owner."""
    return pin is None or not pin.owner or normalise(pin.owner) == normalise(info.owner)


def content_hash(info: ProviderInfo) -> str:
    """A hash over the package's files: their names and contents, nothing else.

    Of a distribution, the files in RECORD without metadata, scripts and bytecode (an
    editable install has none); of a directory plugin, all in the directory.
    """
    from hashlib import sha256  # noqa: PLC0415 - only for the provider that is pinned

    whole = sha256()
    for name, path in _content(info):
        try:
            digest = sha256(path.read_bytes()).hexdigest()
        except OSError:
            digest = "missing"
        whole.update(f"{name}\0{digest}\n".encode("utf-8", "surrogatepass"))
    return f"sha256:{whole.hexdigest()}"


def _content(info: ProviderInfo) -> Iterator[tuple[str, Path]]:
    if info.directory is not None and not info.distribution:
        for parent, folders, names in os.walk(info.directory):
            folders[:] = sorted(each for each in folders if not each.startswith("."))  # .git
            for name in sorted(names):
                path = Path(parent, name)
                relative = path.relative_to(info.directory).as_posix()
                if not name.startswith(".") and _counts(relative):
                    yield relative, path
    elif info.location is not None:
        for name in sorted(info.files):
            if _counts(name):
                yield name, info.location / name


def _counts(name: str) -> bool:
    path = PurePosixPath(name)
    outside = ".." in path.parts or Path(name).is_absolute()  # scripts lie there
    if path.suffix == ".pyc" or outside or not path.parts:
        return False
    return not path.parts[0].endswith((".dist-info", ".data"))


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
    # A package's own installer made the copy: what lies in the home is what a person chose.
    same = [each for each in same if each.source != "module" or not copies]
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
    """Whether a directory only imports from the package."""
    if directory.directory is None:
        return False
    tree = syntax(directory.directory / "__init__.py")
    if tree is None or defines_class(tree):
        return False
    top = package.entry_point.partition(":")[0].partition(".")[0].strip()
    return any(name.partition(".")[0] == top for name, _ in imports(tree))


def _without_rivals(same: list[ProviderInfo], selection: Selection) -> list[ProviderInfo]:
    """Mark those that may not have the name, each with all owners named."""
    same = _without_project_claims(same, selection)
    usable = [each for each in same if _is_usable(each)]
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
        # The only hash that a scan needs; `pin_problem` uses it again later.
        info = info._replace(content_hash=content_hash(info))
    changed = pin_problem(info, selection)
    if changed:
        active = not selection.strict and same_owner(info, selection.pin)
        return info._replace(state="changed", problem=changed, active=active)
    return info._replace(state="active", active=True)


def find_provider(choice: str, providers: Iterable[ProviderInfo]) -> ProviderInfo:
    """The provider called ``name`` or ``name@owner``.

    Raises:
        UnknownProviderError: None has that name; says which come near.
        ProviderConflictError: Several have it; names their owners.
        ProviderLoadError: It is listed, but broken or no memory provider.
    """
    name, owner = split_choice(choice)
    listed = list(providers)
    same = [each for each in listed if each.key == normalise(name)]
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
            found[0].problem, plugin=name, distribution=found[0].distribution, step="find"
        )
    if len(usable) == 1 and (owner or usable[0].state != "conflict"):
        if usable[0].key == "builtin" and usable[0].source != "builtin":
            raise ProviderConflictError(usable[0].problem, where=f"plugin {name}")
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
    hint = ignored_project_plugin(name) or _suggestion(name, usable)
    return UnknownProviderError(f"no memory provider {name!r} is installed", hint=hint)


def _suggestion(name: str, installed: list[str]) -> str:
    """What somebody may have meant: an installed provider, or a plugin that we publish."""
    if close := nearest(name, installed):
        return f"did you mean {' or '.join(close)}?"
    if published := nearest(name, PUBLISHED):
        return f"run: hermes-plugins install {PUBLISHED[published[0]]}"
    return (
        "run `hermes-plugins list` to see what is installed; `hermes-plugins install` takes a "
        "package, a folder or a git URL"
    )
