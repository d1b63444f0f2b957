"""A module that costs too much."""

import time

from hermes_memory_acme import AcmeProvider

end = time.process_time() + 0.4
while time.process_time() < end:
    pass


class HP107(AcmeProvider):
    LIMITS = {"import_cpu": 0.3}
