"""After a fork the child has lanes of its own."""

from __future__ import annotations

import os

import pytest
from support.scripts import run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

FORKED = """
    from support.providers import Recorder

    {answer}

    provider = Recorder(tools=[{{"name": "ext_tool"}}], prefetch=answer, system_prompt_block=answer,
                        handle_tool_call=answer, sync_turn=answer)
    manager = MemoryManager(deadlines=Deadlines(*[10.0] * 8))
    manager.add_provider(provider)
    manager.initialize_all("s1")

    def turn():
        manager.on_turn_start(1, "m")
        answers = [manager.build_system_prompt(), manager.prefetch_all("q"),
                   manager.handle_tool_call("ext_tool", {{}})]
        written = len(provider.of("sync_turn"))
        manager.sync_all("u", "a")
        flushed = manager.flush_pending(20)
        return [*answers, flushed, len(provider.of("sync_turn")) - written]

    {before}
    child = os.fork()
    if child == 0:
        try:
            print(*turn(), flush=True)
            manager.shutdown_all()
            print("ended", flush=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    print(*turn())
    manager.shutdown_all()
"""

PLAIN = "answer = lambda *args, **kwargs: '1'"
ASYNCHRONOUS = """
    async def answer(*args, **kwargs):
        return '1'
"""


@pytest.mark.parametrize("before", ["pass", "turn()"], ids=["fresh", "used"])
def test_a_forked_child_takes_its_turns_and_so_does_the_parent(before: str) -> None:
    done = run_script(FORKED.format(answer=PLAIN, before=before))
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["1 1 1 True 1", "ended", "1 1 1 True 1"]


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("pass", id="fresh"),
        pytest.param("turn()", id="used"),
    ],
)
def test_a_forked_child_runs_coroutines_on_a_loop_of_its_own(before: str) -> None:
    done = run_script(FORKED.format(answer=ASYNCHRONOUS.strip(), before=before))
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["1 1 1 True 1", "ended", "1 1 1 True 1"]


def test_a_child_forked_beside_a_call_that_hangs_can_go_on() -> None:
    done = run_script(
        """
        import logging
        from support.providers import QUICK, Gate, Recorder

        logging.disable(logging.CRITICAL)
        gate = Gate()
        provider = Recorder(sync_turn=gate, prefetch="recalled")
        manager = MemoryManager(deadlines=QUICK._replace(write=60, prefetch=60, hook=60))
        manager.add_provider(provider)
        manager.initialize_all("s1")
        manager.prefetch_all("q")
        manager.sync_all("u", "a")
        child = os.fork()
        if child == 0:
            provider.answers["sync_turn"] = None
            manager.sync_all("u", "a")
            print(manager.flush_pending(0.5), manager.prefetch_all("q"), flush=True)
            manager.shutdown_all()
            os._exit(0)
        os.waitpid(child, 0)
        gate.open()
        print(manager.flush_pending(60))
        manager.shutdown_all()
        """
    )
    assert done.stderr == ""
    # The session is the parent's, whose call hangs; it delivers the child's turn behind its own.
    assert done.stdout.splitlines() == ["False recalled", "True"]


def test_a_child_that_only_ends_ends_at_once() -> None:
    done = run_script(
        """
        from support.providers import Recorder

        manager = MemoryManager(deadlines=Deadlines(*[300.0] * 8))  # none may be waited for
        manager.add_provider(Recorder())
        manager.initialize_all("s1")
        manager.prefetch_all("q")
        manager.sync_all("u", "a")
        manager.flush_pending(5)
        child = os.fork()
        if child == 0:
            manager.shutdown_all()
            print("ended", flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        manager.shutdown_all()
        """
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")
