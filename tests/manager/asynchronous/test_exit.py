"""Exits and forks of a process with an AsyncMemoryManager."""

from __future__ import annotations

import os

import pytest
from support.scripts import run_script

CALLS = {
    "initialize": "manager.initialize_all('s1')",
    "prefetch": "manager.recall_block('q')",
    "shutdown": "manager.shutdown_all()",
}


@pytest.mark.parametrize("hook", CALLS)
def test_the_interpreter_ends_at_once_though_a_call_hangs(hook: str, home: object) -> None:
    done = run_script(
        f"""
        import asyncio, logging
        from hermes_core import AsyncMemoryManager
        from hermes_core.testing import FakeProvider

        logging.disable(logging.CRITICAL)

        async def talk():
            provider = FakeProvider()
            manager = AsyncMemoryManager(deadlines=Deadlines(*[60] * 8))
            await manager.add_provider(provider)
            provider.hang({hook!r})
            asyncio.create_task({CALLS[hook]})
            await asyncio.to_thread(provider.wait_for, {hook!r})

        asyncio.run(talk())
        print("end")
        """,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_goes_on_with_a_thread_of_its_own(home: object) -> None:
    done = run_script(
        """
        import asyncio
        from hermes_core import AsyncMemoryManager
        from hermes_core.testing import FakeProvider

        manager = AsyncMemoryManager()
        provider = FakeProvider(prefetch="- tea")
        asyncio.run(manager.add_provider(provider))
        asyncio.run(manager.initialize_all("s1"))
        print(asyncio.run(manager.prefetch_all("q")), flush=True)
        child = os.fork()
        if child == 0:
            print(asyncio.run(manager.prefetch_all("q")), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(asyncio.run(manager.prefetch_all("q")), flush=True)
        asyncio.run(manager.shutdown_all())
        """
    )
    assert (done.stdout.splitlines(), done.stderr) == (["- tea"] * 3, "")
