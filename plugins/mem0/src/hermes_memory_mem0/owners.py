"""Whose memories they are, as Mem0 is told."""

from __future__ import annotations

from typing import Final

from hermes_core.backends import Alphabet, Start, expanded_id, made_id
from hermes_memory_mem0.memories import Owner
from hermes_memory_mem0.settings import Settings

#: Mem0 takes anything without white space. ``*`` would mean everybody.
_IDS: Final = Alphabet(r"\w.@:+#=-", 128)
_NOBODY: Final = "hermes-user"
_DEFAULT_PROFILE: Final = "default"


def owner_of(settings: Settings, start: Start) -> Owner:
    """Who owns what is said in a session.

    A name that is set up counts for everybody, as with hermes-agent. Without one it is the
    gateway's user, or ``hermes-user`` at a terminal; and a profile other than the default one has
    users of its own.
    """
    agent = made_id(settings.agent_id, _IDS)
    user = start.user_id or _NOBODY
    if settings.user_id:
        values = {"user": user, "profile": start.profile, "platform": start.platform}
        has_fields = "{" in settings.user_id
        named = settings.user_id
        own = expanded_id(named, values, _IDS) if has_fields else made_id(named, _IDS)
        return Owner(own, agent)
    if start.profile in ("", _DEFAULT_PROFILE):
        return Owner(made_id(user, _IDS), agent)
    # With the separator it never fits as it stands, so it has a hash: no user can be called so.
    return Owner(made_id(f"{user}\n{start.profile}", _IDS), agent)
