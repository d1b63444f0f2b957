"""The notes in the system prompt: taken once, the same bytes for a whole session."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.notes import POISON, append, notes_text, saved, write_notes
from support.storages import Storage

from hermes_core import MemoryManager

pytestmark = pytest.mark.usefixtures("both_storages")

LINE = "═" * 46
MEMORY = "MEMORY (your personal notes)"
USER = "USER PROFILE (who the user is)"


def blocks(prompt: str) -> dict[str, str]:
    """The text below each header, by the header's line."""
    _, *parts = prompt.split(f"{LINE}\n")
    headers = [part.removesuffix("\n") for part in parts[::2]]
    return dict(zip(headers, (part.removesuffix("\n\n") for part in parts[1::2]), strict=True))


def test_the_block_has_the_form_of_the_contract(home: Path, agent) -> None:
    write_notes(home, "likes tea\n\n§\n\nof two\r\nlines\n")
    write_notes(home, "x" * 1200, "user")
    prompt = agent().prompt
    memory = f"{LINE}\n{MEMORY} [1% — 24/2,200 chars]\n{LINE}\nlikes tea\n§\nof two\nlines"
    user = f"{LINE}\n{USER} [87% — 1,200/1,375 chars]\n{LINE}\n{'x' * 1200}"
    assert prompt.endswith(f"\n\n{memory}\n\n{user}")


def test_the_header_shows_what_the_tool_shows(home: Path, agent) -> None:
    saved(agent("s1").add("x" * 264))
    session = agent("s2")
    usage = session.memory(action="read")["usage"]
    assert usage == "12% — 264/2,200 chars"
    assert list(blocks(session.prompt)) == [f"{MEMORY} [{usage}]"]


def test_an_empty_notebook_has_no_block(agent, home: Path) -> None:
    session = agent()
    assert LINE not in session.prompt
    write_notes(home, " \n§\n")
    assert LINE not in agent("s2").prompt


def test_the_prompt_tells_what_is_worth_saving_and_when_to_search(agent) -> None:
    prompt = agent().prompt
    for word in ("memory tool", "preferences", "corrections", "environment", "week", "search"):
        assert word in prompt


def test_the_tools_description_tells_it_too(agent) -> None:
    schema = agent().manager.get_all_tool_schemas()[0]
    description = schema["description"]
    for word in ("preferences", "corrections", "environment", "progress", "week", "searched"):
        assert word in description
    parameters = schema["parameters"]
    assert schema["name"] == "memory"
    assert parameters["required"] == ["target"]
    assert parameters["properties"]["target"]["enum"] == ["memory", "user"]
    assert set(parameters["properties"]["action"]["enum"]) == {"add", "replace", "remove", "read"}
    operation = parameters["properties"]["operations"]["items"]["properties"]
    assert set(operation) == {"action", "content", "new_text", "old_text"}
    assert set(operation["action"]["enum"]) == {"add", "replace", "remove"}


# -- frozen -----------------------------------------------------------------------------------


@pytest.fixture
def session(home: Path, agent):
    """A session that began with one note."""
    write_notes(home, "at the beginning")
    return agent("s1")


def test_it_stays_the_same_whatever_is_written_meanwhile(session, home: Path, agent) -> None:
    frozen = session.prompt.encode()
    saved(session.add("by the tool"))
    saved(session.add("about the user", "user"))
    assert session.entries() == ["at the beginning", "by the tool"]
    assert session.prompt.encode() == frozen
    append(home, "by a shell\n")
    saved(agent("other").remove("at the beginning"))
    session.turn(2)
    session.manager.sync_all("question", "answer")
    session.manager.on_pre_compress([])
    assert session.prompt.encode() == frozen


def test_the_next_session_has_what_this_one_wrote(session, agent) -> None:
    saved(session.add("by the tool"))
    (text,) = blocks(agent("s2").prompt).values()
    assert text == "at the beginning\n§\nby the tool"


def test_a_switch_to_another_session_keeps_it(session) -> None:
    frozen = session.prompt
    saved(session.add("by the tool"))
    session.manager.on_session_switch("s2", parent_session_id="s1")
    session.manager.on_session_switch("s3", rewound=True)
    session.manager.on_session_switch("s4", reason="resume")
    assert session.prompt == frozen


@pytest.mark.parametrize("keywords", [{"reset": True}, {"reason": "compression"}], ids=str)
def test_a_reset_or_a_compression_takes_it_anew(keywords, session) -> None:
    saved(session.add("by the tool"))
    session.manager.on_session_switch("s2", **keywords)
    anew = session.prompt
    assert "at the beginning\n§\nby the tool" in anew
    saved(session.add("later"))
    assert session.prompt == anew


def test_initialising_again_takes_it_anew(session) -> None:
    saved(session.add("by the tool"))
    session.manager.initialize_all("s2")
    assert "by the tool" in session.prompt


def test_two_sessions_at_once_have_a_snapshot_each(session, agent) -> None:
    saved(session.add("by the tool"))
    other = agent("s2")
    assert "by the tool" not in session.prompt
    assert "by the tool" in other.prompt


# -- what is switched off ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "shown", "targets"),
    [
        ({}, {MEMORY, USER}, {"memory", "user"}),
        ({"memory_enabled": False}, {USER}, {"user"}),
        ({"user_profile_enabled": False}, {MEMORY}, {"memory"}),
        ({"memory_enabled": False, "user_profile_enabled": False}, set(), set()),
    ],
    ids=["neither", "memory", "user", "both"],
)
def test_each_notebook_can_be_switched_off(settings, shown, targets, home: Path, agent) -> None:
    write_notes(home, "of the agent")
    write_notes(home, "of the user", "user")
    session = agent(**settings)
    assert {header.split(" [")[0] for header in blocks(session.prompt)} == shown
    for target in ("memory", "user"):
        answer = session.memory(target, action="read")
        assert bool(answer.get("success")) == (target in targets)
    assert session.manager.has_tool("memory") == bool(targets)
    assert bool(session.prompt) == bool(targets)


def test_what_is_switched_off_is_not_written_to(home: Path, agent) -> None:
    write_notes(home, "of the agent")
    session = agent(memory_enabled=False)
    assert "user" in session.add("new")["error"]
    assert notes_text(home) == "of the agent"


def test_the_switches_come_from_the_configuration(home: Path) -> None:
    write_notes(home, "of the agent")
    write_notes(home, "of the user", "user")
    (home / "config.yaml").write_text(
        f"memory:\n  memory_enabled: no\n{Storage.current.config}", "utf-8"
    )
    manager = MemoryManager.from_config(home)
    manager.initialize_all("s1")
    assert "of the user" in manager.build_system_prompt()
    assert "of the agent" not in manager.build_system_prompt()
    manager.shutdown_all()


# -- the guard --------------------------------------------------------------------------------


def test_an_entry_that_the_guard_objects_to_is_left_out_and_the_others_are_there(
    home: Path, agent
) -> None:
    write_notes(home, f"likes tea\n§\n{POISON}\n§\nuses vim")
    session = agent()
    (text,) = blocks(session.prompt).values()
    assert text == "likes tea\n§\nuses vim"
    assert POISON in notes_text(home)


def test_no_marker_in_the_text_switches_the_guard_off(home: Path, agent) -> None:
    for marker in ("[BLOCKED: x] ", "<!-- allowed --> ", "# noqa ", "[SAFE] "):
        write_notes(home, f"likes tea\n§\n{marker}{POISON}")
        assert "previous instructions" not in agent().prompt


def test_nothing_but_objections_is_no_block(home: Path, agent) -> None:
    write_notes(home, POISON)
    assert LINE not in agent().prompt


def test_a_file_far_over_its_cap_is_shown_in_part_and_that_is_said(home, agent, caplog) -> None:
    entries = ["x" * 5000, *(f"entry number {number}" for number in range(50_000))]
    write_notes(home, "\n§\n".join(entries))
    prompt = agent().prompt
    assert "entry number 0\n" in prompt
    assert "xxx" not in prompt
    assert "entries are left out" in prompt
    assert len(prompt) < 4400 + 2000
    assert "far over its cap" in caplog.text


def test_a_file_somewhat_over_its_cap_is_shown_whole(home: Path, agent) -> None:
    write_notes(home, "x" * 4000 + "\n§\nlast one")
    prompt = agent().prompt
    assert "last one" in prompt
    assert "left out" not in prompt
