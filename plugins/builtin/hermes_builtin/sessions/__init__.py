"""The archive of every conversation, and the search in it."""

from __future__ import annotations

from hermes_builtin.sessions.conversations import Conversations
from hermes_builtin.sessions.request import SCHEMA as SEARCH_SCHEMA
from hermes_builtin.sessions.tool import SessionSearch

__all__ = ["SEARCH_SCHEMA", "Conversations", "SessionSearch"]
