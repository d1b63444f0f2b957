"""`demo`: the life of a memory plugin, in a temporary home."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Final

import click

from hermes_core.cli.checkup import status_command
from hermes_core.cli.output import bold, paint, plain, say
from hermes_core.cli.providers import disable_command, enable_command, list_command
from hermes_core.manager import MemoryManager
from hermes_core.outbox import open_outbox

_SAMPLE = Path(__file__).parent / "sample"

# The fact is in the middle, so that `session_search` can show how the session began and ended.
_MONDAY: Final = (
    ("Good morning. Which branch is the release cut from?", "From main, every second Monday."),
    ("And who has to approve it?", "Two people of the platform team."),
    ("Is there a list of what goes in?", "Yes, the milestone in the tracker."),
    (
        "We deploy the billing service with make release, never by hand.",
        "Noted: make release it is.",
    ),
    ("How long does it take?", "About ten minutes, most of it tests."),
    ("Can it be rolled back?", "With make rollback, for a week."),
    ("Where do I see its logs?", "On the dashboard, under billing."),
    ("Thanks, that is all for today.", "You're welcome. Good luck with the release!"),
)


_SATURDAY: Final = (
    ("The staging server is called stage-1.", "Noted: stage-1."),
    ("It moves tonight, to stage-2.", "Then I use stage-2 from tomorrow on."),
    ("And who gets the alert when staging breaks?", "The platform team, in their channel."),
)


@click.command("demo")
@click.pass_context
def demo_command(ctx: click.Context) -> None:
    """Show what memory does, in a temporary home.

    Reads and changes nothing of yours.
    """
    with tempfile.TemporaryDirectory(prefix="hermes-demo-") as folder:
        # The real commands run below, with this home.
        ctx.obj = folder
        _step("A home with a plugin in it.", f"{folder} is deleted when the demo ends.")
        shutil.copytree(
            _SAMPLE,
            Path(folder) / "plugins" / "sample",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        _step("What is installed. `list` imports no plugin.", "$ hermes-plugins list")
        ctx.invoke(list_command)
        _step(
            "Enable it. It is tested in a separate process first.",
            "$ hermes-plugins enable sample",
        )
        # With its owner: a package on this machine may have a provider called sample.
        ctx.invoke(enable_command, name="sample@directory")
        _step("A first session.", "After each turn, the provider gets what was said.")
        _first_session(folder)
        _step("A second session, later.", "The agent recalls before it calls the model.")
        _second_session(folder)
        _step(
            "The backend fails during a session.",
            "Its folder is gone, as a server may be unreachable.",
        )
        _outage(folder)
        _step("The backend is back, and the agent restarts.", "The conversation continues.")
        _recovery(folder)
        _step("Does it work? `status` loads it as an agent would.", "$ hermes-plugins status")
        ctx.invoke(status_command)
        _step("Disable it. The built-in memory stays.", "$ hermes-plugins disable")
        ctx.invoke(disable_command)
        say()
        say("Done. Next: hermes-plugins --help")


def _step(title: str, detail: str) -> None:
    say()
    say(bold(title))
    say(f"  {detail}")


def _first_session(home: str) -> None:
    manager = MemoryManager.from_config(home)
    manager.initialize_all("monday", platform="cli")
    note = {"target": "user", "action": "add", "content": "Deploys with make release."}
    for number, (message, answer) in enumerate(_MONDAY, 1):
        manager.on_turn_start(number, message)
        manager.prefetch_all(message)
        if "make release" in message:
            manager.handle_tool_call("memory", note)
            say(f"  user:   {message}")
            say(f"  agent:  {answer}")
        manager.sync_all(message, answer)
        manager.queue_prefetch_all(message)
    # The system prompt is fixed at the start of a session, so that model APIs can cache it.
    frozen = note["content"] not in manager.build_system_prompt()
    manager.shutdown_all()
    say(f"  ... and {len(_MONDAY) - 1} more turns")
    say(f"  saved to USER.md:  {note['content']}")
    say(f"  this session's system prompt is unchanged:  {'yes' if frozen else 'no'}")


def _second_session(home: str) -> None:
    manager = MemoryManager.from_config(home)
    manager.initialize_all("friday", platform="cli")
    question = "How do we deploy billing?"
    manager.on_turn_start(1, question)
    recalled = manager.prefetch_all(question)
    noted = "Deploys with make release." in manager.build_system_prompt()
    count = manager.handle_tool_call("sample_count", {})
    found = json.loads(manager.handle_tool_call("session_search", {"query": question}))
    manager.shutdown_all()
    say(f"  user:      {question}")
    say(f"  recalled:  {recalled or 'nothing'}")
    say(f"  the note is in the system prompt:  {'yes' if noted else 'no'}")
    say(f"  tool sample_count:  {count}")
    for result in found["results"]:
        say(f"  tool session_search:  {result['session_id']}: {result['snippet']}")
        for place, messages in (("began", "bookend_start"), ("ended", "bookend_end")):
            say(f"    it {place}:  {' / '.join(each['content'] for each in result[messages])}")


def _outage(home: str) -> None:
    manager = MemoryManager.from_config(home)
    manager.initialize_all("saturday", platform="cli")
    for number, (message, answer) in enumerate(_SATURDAY, 1):
        manager.on_turn_start(number, message)
        manager.recall_block(message)
        manager.sync_all(message, answer)
        manager.queue_prefetch_all(message)
        say(f"  user:   {message}")
        say(f"  agent:  {answer}")
        if number == 1:
            # The first turn has to be stored before the backend breaks.
            manager.flush_pending()
            # Breaks the folder, not the plugin: a switch in the plugin would only test the switch.
            _backend(home).rename(_backend(home, "away"))
            say(paint("  ... the backend fails now; the agent does not wait for it", "broken"))
    manager.shutdown_all()
    say(f"  sync_turn failed:  {plain(manager.health()['sample']['sync_turn'].last_error)}")
    say("  waiting in outbox.db:  " + paint(f"{_waiting(home)} turns", "changed"))


def _recovery(home: str) -> None:
    _backend(home, "away").rename(_backend(home))
    manager = MemoryManager.from_config(home)
    # The same session: its writes wait in the outbox under this id.
    manager.initialize_all("saturday", platform="cli")
    delivered = manager.flush_pending()
    question = "Is anything planned for tonight?"
    recalled = manager.prefetch_all(question)
    count = manager.handle_tool_call("sample_count", {})
    manager.shutdown_all()
    say("  delivered:  " + (paint("all", "active") if delivered else paint("not all", "broken")))
    say(f"  waiting in outbox.db:  {_waiting(home)} turns")
    say(f"  tool sample_count:  {count}")
    say(f"  user:      {question}")
    say(f"  recalled:  {recalled or 'nothing'}")


def _backend(home: str, suffix: str = "") -> Path:
    """Return the folder in which the sample stores its turns."""
    return Path(home, "sample").with_suffix(f".{suffix}" if suffix else "")


def _waiting(home: str) -> int:
    """Return how many writes are in the outbox."""
    outbox = open_outbox(Path(home))
    try:
        return sum(stream.writes for stream in outbox.store.waiting_streams())
    finally:
        outbox.release()
