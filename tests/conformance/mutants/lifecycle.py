"""Mutants of the family lifecycle."""

import atexit
import logging
import os
import subprocess
import sys
import threading
import time

from hermes_memory_acme import AcmeProvider


class HP301(AcmeProvider):
    begun = False

    def initialize(self, session_id, **kwargs):
        self.begun = True
        super().initialize(session_id, **kwargs)

    def shutdown(self):
        if not self.begun:
            raise AttributeError("no connection")
        super().shutdown()


class HP302(AcmeProvider):
    closed = False

    def initialize(self, session_id, **kwargs):
        self.closed = False
        super().initialize(session_id, **kwargs)
        self.closed = False

    def shutdown(self):
        if self.closed:
            raise ValueError("closed already")
        self.closed = self._store is not None
        super().shutdown()


class HP303(AcmeProvider):
    used = False

    def initialize(self, session_id, **kwargs):
        if self.used:
            raise RuntimeError("threads can only be started once")
        self.used = True
        super().initialize(session_id, **kwargs)


class HP304(AcmeProvider):
    def on_session_end(self, messages):
        self._last = messages[-1]


class HP305(AcmeProvider):
    def prefetch(self, query, *, session_id=""):
        if self._store is None:
            raise AttributeError("'NoneType' object has no attribute 'search'")
        return super().prefetch(query, session_id=session_id)


class HP306(AcmeProvider):
    def on_delegation(self, task, result, *, child_session_id=""):
        pass


class HP307(AcmeProvider):
    def initialize(self, session_id, **kwargs):
        print("acme: connected")
        super().initialize(session_id, **kwargs)


class HP308(AcmeProvider):
    def initialize(self, session_id, **kwargs):
        os.environ["ACME_SESSION"] = session_id
        super().initialize(session_id, **kwargs)


class HP309(AcmeProvider):
    def initialize(self, session_id, **kwargs):
        threading.Thread(target=threading.Event().wait, name="flusher", daemon=True).start()
        super().initialize(session_id, **kwargs)


class HP310(AcmeProvider):
    def initialize(self, session_id, **kwargs):
        if session_id == "session-processes":  # one is enough
            subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
        super().initialize(session_id, **kwargs)


class HP311(AcmeProvider):
    def initialize(self, session_id, **kwargs):
        atexit.register(time.sleep, 60)
        super().initialize(session_id, **kwargs)


class HP312(AcmeProvider):
    LIMITS = {"initialize": 0.3}

    def initialize(self, session_id, **kwargs):
        if session_id == "session-timed":
            time.sleep(0.5)
        super().initialize(session_id, **kwargs)


class HP313(AcmeProvider):
    LIMITS = {"shutdown": 0.3}
    slow = False

    def initialize(self, session_id, **kwargs):
        super().initialize(session_id, **kwargs)
        self.slow = session_id == "session-timed"

    def shutdown(self):
        if self.slow:
            time.sleep(0.5)
        super().shutdown()


class HP314(AcmeProvider):
    def initialize(self, session_id, **kwargs):
        logging.basicConfig(level=logging.DEBUG, handlers=[logging.NullHandler()], force=True)
        super().initialize(session_id, **kwargs)
