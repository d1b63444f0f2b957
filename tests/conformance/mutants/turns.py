"""Mutants of the family turns."""

import time

from hermes_memory_acme import AcmeProvider


class HP601(AcmeProvider):
    LIMITS = {"sync": 0.1}

    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        if session_id == "session-timed":
            time.sleep(0.2)
        super().sync_turn(user_content, assistant_content, session_id=session_id)


class HP602(AcmeProvider):
    def sync_turn(self, user_content, assistant_content, *, session_id=""):
        super().sync_turn(user_content, assistant_content, session_id=session_id)


class HP603(AcmeProvider):
    def prefetch(self, query, *, session_id=""):
        if query.count('"') % 2:
            raise ValueError("unterminated string")
        return super().prefetch(query, session_id=session_id)


class HP604(AcmeProvider):
    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        if len(assistant_content) > 500_000:
            raise ValueError("too large to embed")
        super().sync_turn(user_content, assistant_content, session_id=session_id)


class HP605(AcmeProvider):
    def prefetch(self, query, *, session_id=""):
        return super().prefetch(query, session_id=session_id) or None


class HP606(AcmeProvider):
    LIMITS = {"prefetch": 0.3}

    def prefetch(self, query, *, session_id=""):
        if query == "parrot":
            time.sleep(0.5)
        return super().prefetch(query, session_id=session_id)


class HP607(AcmeProvider):
    def prefetch(self, query, *, session_id=""):
        return super().prefetch(query, session_id=session_id) or "What was said before:"


class HP608(AcmeProvider):
    def _search(self, query, limit):
        return [] if self._store is None else self._store.search(query, self._owner, limit)


class HP609(AcmeProvider):
    def prefetch(self, query, *, session_id=""):
        return ""


class HP610(AcmeProvider):
    def prefetch(self, query):
        return super().prefetch(query)


class HP611(AcmeProvider):
    def on_pre_compress(self, messages):
        pass


class HP612(AcmeProvider):
    def recall_status(self):
        return "2 memories"


class HP613(AcmeProvider):
    def on_pre_compress(self, messages):
        messages.clear()
        return ""
