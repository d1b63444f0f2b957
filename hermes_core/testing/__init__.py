"""A memory provider to test a host with: it records, and misbehaves when told to.

::

    provider = FakeProvider(prefetch="- Drinks green tea.")
    manager = MemoryManager(home=tmp_path)
    manager.add_provider(provider)
    ...                                             # run your agent's turn
    assert provider.turns[0].user == "Tea or coffee?"

    provider.go_down()                              # every call raises ConnectionError
    ...                                             # the turn goes on; what it wrote waits
    provider.come_up()
    assert manager.flush_pending(5)
    assert len(provider.turns) == 2
"""

from __future__ import annotations

from hermes_core.testing._provider import FakeProvider
from hermes_core.testing._script import Call, Turn

__all__ = ["Call", "FakeProvider", "Turn"]
