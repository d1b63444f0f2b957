"""A module that starts a thread when it is imported."""

import threading

from hermes_memory_acme import AcmeProvider

threading.Thread(target=threading.Event().wait, name="worker", daemon=True).start()


class HP109(AcmeProvider):
    pass
