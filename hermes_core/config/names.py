"""How names of providers compare, and what somebody may have meant."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from hermes_core.errors import describe
from hermes_core.provider import BUILTIN, MemoryProvider

#: Our own keys under ``memory`` in config.yaml. They can't be a provider's name, since its
#: settings would stand in the same place.
# Must have the keys of the schema in config_file, which imports this module.
MEMORY_KEYS: Final = (
    "provider",
    "pin",
    "pins",
    "observers",
    "prefetch_budget",
    "deadlines",
    "redact",
    "context_max_chars",
    "durability",
    "outbox",
    "memory_enabled",
    "user_profile_enabled",
    "memory_char_limit",
    "user_char_limit",
    "write_approval",
    "nudge_interval",
    "user_notes",
    "storage",
    "storage_namespace",
    "external_notes",
)

_SEPARATORS: Final = re.compile(r"[-_.]+")


def normalise(name: str) -> str:
    """The form in which names compare: PEP 503, case and NFKC folded."""
    # Not packaging's canonicalize_name: importing packaging.utils would add 15 ms to the
    # 80 of `list`, which compares the name of every distribution. It also leaves non-ASCII names
    # of providers unfolded. A test compares both for the names that a distribution can have.
    # Twice, as Unicode defines caseless matching: folding may produce characters that NFKC changes
    # again.
    folded = unicodedata.normalize("NFKC", name).casefold()
    return _SEPARATORS.sub("-", unicodedata.normalize("NFKC", folded))


def names_of(provider: MemoryProvider, name: str = "") -> tuple[str, str, str]:
    """A provider's own name, the one to use (``name`` if there is one), and what is wrong with it.

    Args:
        provider: A provider, or anything that looks like one.
        name: Its name in config.yaml; "" for its own.
    """
    try:
        own = provider.name
    # `name` is often a property that reads a file; the first code of a plugin that runs here.
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - a property
        return "", name, f"its name can't be read: {describe(error)}"
    name = name or own
    if isinstance(name, str) and normalise(name) == BUILTIN:
        return own, BUILTIN, ""  # one spelling, which everything else compares with
    return own, name, name_problem(name)


def name_problem(name: object, *, ours: bool = False) -> str:
    """Why something can't be a provider's name, or ""."""
    if not isinstance(name, str):
        try:
            shown = repr(name)
        except Exception:  # noqa: BLE001 - a plugin's object; its type has to do
            shown = f"a {type(name).__name__}"
        return f"its name is {shown}, not a string"
    if not name.strip():
        return f"its name is empty: {name!r}"
    # "@" separates the owner; an unprintable character could make two names look the same.
    if not name.isprintable() or "@" in name:
        return f"{name!r} can't be a provider's name"
    key = normalise(name)
    if (key == BUILTIN and not ours) or key in map(normalise, MEMORY_KEYS):
        return f"the name {name} is reserved"
    return ""


def split_choice(choice: str) -> tuple[str, str]:
    """``name@owner`` as (name, owner); the owner is "" where none is given."""
    name, _, owner = choice.partition("@")
    return name.strip(), owner.strip()


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names that look most like ``name``, best first."""
    from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

    by_normal = {normalise(each): each for each in known}
    # 0.6 is difflib's default. A wrong suggestion only costs a glance, unlike in `_unknown_keys`.
    return [by_normal[match] for match in get_close_matches(normalise(name), by_normal, cutoff=0.6)]
