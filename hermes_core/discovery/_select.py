"""From a name that a person wrote to the one provider that is meant."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from hermes_core.discovery._info import ProviderInfo
from hermes_core.errors import ProviderConflictError, ProviderLoadError, UnknownProviderError
from hermes_core.names import nearest, normalise, split_choice


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
    close = nearest(name, usable)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    return UnknownProviderError(
        f"no memory provider {name!r} is installed",
        hint=f"{meant}If its package is missing, install it with: "
        f"{sys.executable} -m pip install PACKAGE; hermes-plugins list shows what there is",
    )
