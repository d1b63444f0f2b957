"""Mutants of the family availability."""

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from hermes_memory_acme import AcmeProvider


class HP201(AcmeProvider):
    def is_available(self):
        return "yes"


class HP202(AcmeProvider):
    def is_available(self):
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", 9), timeout=0.1)
        return True


class HP203(AcmeProvider):
    def is_available(self):
        os.close(os.open(Path(os.environ["HERMES_HOME"]) / "seen", os.O_CREAT | os.O_WRONLY, 0o600))
        return True


class HP204(AcmeProvider):
    def is_available(self):
        subprocess.run([sys.executable, "-S", "-c", ""], check=True)
        return True


class HP205(AcmeProvider):
    LIMITS = {"available": 0.05}

    def is_available(self):
        time.sleep(0.1)
        return True


class HP206(AcmeProvider):
    def initialize(self, session_id, **kwargs):
        raise ConnectionError("the backend is away")


class HP207(AcmeProvider):
    ENV = {"ACME_KEY": "x"}

    def is_available(self):
        return "ACME_KEY" in os.environ
