"""A provider that hangs keeps no agent from ending."""

from __future__ import annotations

import pytest
from support.scripts import run_script

# One for each way of calling: waited for, queued, on each lane; and the end itself.
HOOKS = ["initialize", "prefetch", "queue_prefetch", "sync_turn", "on_turn_start", "shutdown"]


@pytest.mark.stress
@pytest.mark.parametrize("hook", HOOKS)
def test_the_interpreter_ends_at_once_beside_a_provider_that_hangs(hook: str) -> None:
    done = run_script(
        f"""
        import logging
        from support.providers import DRIVE, QUICK, TOOL, Gate, Recorder

        logging.disable(logging.CRITICAL)
        provider = Recorder(tools=[TOOL])
        manager = MemoryManager(deadlines=QUICK._replace(initialize=0.25))
        manager.add_provider(provider)
        provider.answers[{hook!r}] = Gate()
        DRIVE.get({hook!r}, lambda m: m.shutdown_all())(manager)
        print("end")
        """,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_an_agent_that_forgets_to_shut_down_ends_all_the_same() -> None:
    done = run_script(
        """
        from support.providers import DRIVE, TOOL, Recorder

        manager = MemoryManager()
        manager.add_provider(Recorder(tools=[TOOL]))
        for drive in DRIVE.values():
            drive(manager)
        print("end")
        """,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
