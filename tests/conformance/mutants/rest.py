"""Mutants of the families mirror, storage, concurrency and prompt."""

import os
import sqlite3
import threading
import time
from pathlib import Path

from hermes_memory_acme import AcmeProvider


class HP801(AcmeProvider):
    ALSO = {"HP803"}  # which note is replaced, it can't know

    def on_memory_write(self, action, target, content):
        super().on_memory_write(action, target, content)


class HP802(AcmeProvider):
    def on_memory_write(self, action, target, content, metadata=None):
        if action == "remove":
            content = metadata["old_text"]
        super().on_memory_write(action, target, content, metadata)


class HP803(AcmeProvider):
    def on_memory_write(self, action, target, content, metadata=None):
        if action != "remove":
            super().on_memory_write("add", target, content)


class HP811(AcmeProvider):
    def initialize(self, session_id, **kwargs):
        os.close(os.open(Path.home() / ".acme.log", os.O_CREAT | os.O_WRONLY, 0o600))
        super().initialize(session_id, **kwargs)


class HP812(AcmeProvider):
    def initialize(self, session_id, **kwargs):
        super().initialize(session_id, **kwargs)
        Path(kwargs["hermes_home"], "acme", "memories.db").chmod(0o644)


class HP813(AcmeProvider):
    def backup_paths(self):
        return "~/.acme"


class HP821(AcmeProvider):
    LOCK = threading.Lock()

    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        if not self.LOCK.acquire(blocking=False):
            raise sqlite3.OperationalError("database is locked")
        try:
            time.sleep(0.005)
            super().sync_turn(user_content, assistant_content, session_id=session_id)
        finally:
            self.LOCK.release()


class HP822(AcmeProvider):
    writing = False

    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        self.writing = True
        time.sleep(0.005)
        super().sync_turn(user_content, assistant_content, session_id=session_id)
        self.writing = False

    def prefetch(self, query, *, session_id=""):
        if self.writing:
            raise sqlite3.ProgrammingError("created in another thread")
        return super().prefetch(query, session_id=session_id)


class HP831(AcmeProvider):
    def system_prompt_block(self):
        return f"Memory, as of {time.monotonic_ns()}."


class HP832(AcmeProvider):
    def system_prompt_block(self):
        return "Remember everything. " * 500
