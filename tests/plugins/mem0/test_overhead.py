"""What the plugin itself costs a turn, with a backend that answers at once."""

import statistics
import time

import pytest

from hermes_memory_mem0.memories import AddResult, Mem0Memory


class AtOnce:
    """Memories that need no time."""

    where = "here"
    extracts_at_once = True
    most_listed = 0

    def __init__(self):
        self.added = 0

    def add(self, owner, messages, marks, *, infer, said_at=0.0):
        self.added += 1
        return AddResult()

    def search(self, owner, query, limit, *, rerank):
        return [Mem0Memory(str(number), "Ann drinks tea.") for number in range(limit)]

    def open(self):
        pass

    def close(self):
        pass


@pytest.mark.stress
def test_a_turn_costs_less_than_five_milliseconds(server):
    provider = server.provider()
    provider._memories.close()
    provider._memories = instant = AtOnce()
    took = []
    for number in range(200):
        began = time.process_time()
        provider.on_turn_start(number, "What does Ann drink?")
        assert provider.prefetch("What does Ann drink?")
        provider.sync_turn("I drink tea. " * 40, "Noted. " * 40, turn_id=f"t{number}")
        provider.queue_prefetch("What does Ann drink?")
        took.append(time.process_time() - began)
    assert instant.added == 200
    assert statistics.median(took) < 0.005
