"""`hermes-plugins memory`, where installations from before it moved to `notes.commands` look."""

from __future__ import annotations

from hermes_builtin.notes.commands import memory

__all__ = ["memory"]
