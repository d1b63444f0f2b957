"""Mutants of the family identity, as far as a class can be one."""

from hermes_memory_acme import AcmeProvider


class HP101(AcmeProvider):
    name = "elsewhere"


class HP102(AcmeProvider):
    @property
    def name(self):
        return "acme" if self._store is None else "acme-started"


class HP103(AcmeProvider):
    recall_status = None
