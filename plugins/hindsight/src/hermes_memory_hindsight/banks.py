"""Which bank: one for each profile and user, unless a person says otherwise."""

from __future__ import annotations

from typing import Final

from hermes_core import ConfigError
from hermes_core.backends import Alphabet, Start, expanded_id
from hermes_memory_hindsight.settings import Settings

_BYTES: Final = 192  # the server's limit, in UTF-8
_WIDEST: Final = 4
#: What hermes-agent's plugin calls its bank if nobody says anything, and an id for everybody else.
_OURS: Final = "hermes-{profile}-{user}"


def bank_of(settings: Settings, start: Start, session_id: str) -> str:
    """The bank for a session.

    Raises:
        ConfigError: The name that was set can't be one.
    """
    template = settings.bank_id_template or ("" if settings.bank_id else _OURS)
    values = {
        "profile": start.profile,
        "workspace": start.workspace,
        "platform": start.platform,
        "user": start.user_id,
        "session": session_id,
    }
    if not settings.bank_id_template:
        values["profile"] = "" if start.profile == "default" else start.profile
    plain = template.isascii() and all(map(str.isascii, values.values()))
    alphabet = Alphabet(r"\w-", _BYTES if plain else _BYTES // _WIDEST)
    expanded = expanded_id(template, values, alphabet)
    if template.format_map(values).strip("-_"):
        return expanded
    return _checked(settings.bank_id or "hermes")


def _checked(name: str) -> str:
    if "/" in name or len(name.encode("utf-8", "surrogatepass")) > _BYTES:
        raise ConfigError(
            f"bank_id {name!r} can't be the name of a bank",
            where="hindsight",
            hint=f"it has no slash, and at most {_BYTES} bytes",
        )
    return name
