"""Mutants of the family isolation."""

import os

from hermes_memory_acme import AcmeProvider


class HP701(AcmeProvider):
    def initialize(self, session_id, **kwargs):
        super().initialize(session_id, **{**kwargs, "user_id": ""})


class HP702(AcmeProvider):
    def initialize(self, session_id, **kwargs):
        super().initialize(session_id, **{**kwargs, "hermes_home": os.environ["HERMES_HOME"]})


class HP703(AcmeProvider):
    ALSO = {"HP706"}  # turns of another session go with it

    def shutdown(self):
        if self._store is not None:  # the last one who ends wins
            with self._store._db as database:
                database.execute("DELETE FROM memories WHERE session != ?", (self._session,))
        super().shutdown()


class HP704(AcmeProvider):
    def initialize(self, session_id, **kwargs):
        super().initialize(session_id, **{**kwargs, "agent_context": "primary"})


class HP705(AcmeProvider):
    def on_session_switch(self, new_session_id, **kwargs):
        pass


class HP706(AcmeProvider):
    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        super().sync_turn(user_content, assistant_content)


class HP707(AcmeProvider):
    _ready = ""

    def queue_prefetch(self, query, *, session_id=""):
        self._ready = super().prefetch(query, session_id=session_id)

    def prefetch(self, query, *, session_id=""):
        ready, self._ready = self._ready, ""
        return ready or super().prefetch(query, session_id=session_id)
