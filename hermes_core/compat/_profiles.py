"""``hermes_cli.profiles``: which profile the home is."""

from __future__ import annotations

from hermes_core.compat._constants import get_default_hermes_root, get_hermes_home

__all__ = ["get_active_profile_name"]


def get_active_profile_name() -> str:
    """The profile's name; "default" for the home that has the profiles."""
    from hermes_core.home import default_home  # noqa: PLC0415

    home, root = get_hermes_home().resolve(), get_default_hermes_root().resolve()
    if home == default_home().resolve():
        return "default"
    return home.name if home.parent == root / "profiles" else "custom"
