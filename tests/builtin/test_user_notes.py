"""``memory.user_notes: per-user``: everybody has their own USER.md, and nobody sees another's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands import Machine
from support.notes import POISON
from support.providers import Recorder
from support.talks import past

from hermes_builtin import BuiltinProvider
from hermes_builtin.notes import Notes, NotesSettings, Person
from hermes_core import MemoryManager
from hermes_core.config import load_config
from hermes_core.errors import ConfigError

pytestmark = pytest.mark.usefixtures("both_storages")

ADA = {"platform": "telegram", "user_id": "1001"}
BOB = {"platform": "discord", "user_id": "1001"}
NOBODY = {"platform": "telegram"}


class Agent:
    """An agent that talks with somebody."""

    def __init__(self, home: Path, external: Recorder | None = None, **facts: Any) -> None:
        self.manager = MemoryManager.from_config(home)
        if external is not None:
            assert self.manager.add_provider(external)
        self.manager.initialize_all(facts.pop("session", "s1"), **facts)

    @property
    def prompt(self) -> str:
        return self.manager.build_system_prompt()

    def memory(self, target: str, action: str, *, call: Any = (), **arguments: Any) -> Any:
        arguments = {"target": target, "action": action, **arguments}
        return json.loads(self.manager.handle_tool_call("memory", arguments, **dict(call)))

    def add(self, text: str, target: str = "user", **options: Any) -> Any:
        return self.memory(target, "add", content=text, **options)

    def entries(self, target: str = "user") -> list[str]:
        found: list[str] = self.memory(target, "read")["entries"]
        return found


Start = Callable[..., Agent]


@pytest.fixture
def home(machine: Machine) -> Path:
    return machine.home


@pytest.fixture
def per_user(home: Path) -> Path:
    configure(home)
    return home


@pytest.fixture
def agent(home: Path) -> Iterator[Start]:
    started: list[Agent] = []

    def start(**facts: Any) -> Agent:
        started.append(Agent(home, **facts))
        return started[-1]

    yield start
    for each in started:
        each.manager.shutdown_all()


def configure(home: Path, **more: Any) -> None:
    memory = {"user_notes": "per-user", **more}
    (home / "config.yaml").write_text(json.dumps({"memory": memory}), "utf-8")


@pytest.mark.files_only
def test_by_default_all_share_the_file_of_hermes_agent(home: Path, agent: Start) -> None:
    assert agent(**ADA).add("Likes tea.")["success"]
    assert (home / "memories" / "USER.md").read_text("utf-8") == "Likes tea."
    assert "Likes tea." in agent(**BOB).prompt
    assert not (home / "memories" / "users").exists()


def test_everybody_has_their_own_profile_and_all_share_the_notes(
    per_user: Path, agent: Start
) -> None:
    (per_user / "memories").mkdir()
    (per_user / "memories" / "USER.md").write_text("The owner likes gin.", "utf-8")
    assert agent(**ADA).add("Ada likes tea.")["success"]
    assert agent(**BOB).add("Bob likes rum.")["success"]
    assert agent(**ADA).add("The server is stage-1.", "memory")["success"]
    texts = {"gin": {}, "tea": ADA, "rum": BOB}
    for text, facts in texts.items():
        prompt = agent(**facts).prompt
        assert "stage-1" in prompt
        assert [each for each in texts if f"likes {each}" in prompt] == [text]
        assert [f"likes {text}" in each for each in agent(**facts).entries()] == [True]
    assert (per_user / "memories" / "USER.md").read_text("utf-8") == "The owner likes gin."


def test_who_has_no_id_elsewhere_has_no_profile(per_user: Path, agent: Start) -> None:
    agent().add("The owner likes gin.")
    for facts in (NOBODY, {**NOBODY, "user_id": ""}, {**NOBODY, "chat_id": "c1"}):
        anonymous = agent(**facts)
        assert "gin" not in anonymous.prompt
        assert anonymous.add("I am the owner.")["success"] is False
        assert anonymous.add("A fact.", "memory")["success"] is True
    assert agent().entries() == ["The owner likes gin."]


@pytest.mark.parametrize("platform", ["tui", "desktop", "acp"])
def test_every_interface_on_the_machine_has_the_profile_of_its_owner(
    per_user: Path, agent: Start, platform: str
) -> None:
    agent().add("The owner likes gin.")
    assert "gin" in agent(platform=platform).prompt
    assert agent(platform=platform).add("The owner likes tea.")["success"] is True
    assert agent().entries() == ["The owner likes gin.", "The owner likes tea."]
    assert "gin" not in agent(platform=platform, user_id="1001").prompt


def test_a_change_of_user_changes_the_profile(per_user: Path, agent: Start) -> None:
    agent(**ADA).add("Ada likes tea.")
    session = agent(**ADA)
    session.manager.on_session_switch("s2", user_id="2002")
    assert "likes tea" not in session.prompt
    session.add("Eve likes milk.")
    session.manager.on_session_switch("s3", user_id="1001")
    assert "likes tea" in session.prompt
    assert "likes milk" not in session.prompt


def test_a_call_for_somebody_else_changes_their_profile(per_user: Path, agent: Start) -> None:
    session = agent(**ADA)
    session.add("Eve likes milk.", call={"user_id": "2002"})
    session.add("Bob likes rum.", call=BOB)
    session.add("Who?", call={"user_id": ""})
    assert session.entries() == []
    assert agent(platform="telegram", user_id="2002").entries() == ["Eve likes milk."]
    assert agent(**BOB).entries() == ["Bob likes rum."]


def test_caps_guard_and_history_are_those_of_every_notebook(
    per_user: Path, agent: Start, machine: Machine
) -> None:
    session = agent(**ADA)
    assert session.add("x" * 1376)["success"] is False
    refused = session.add(POISON)
    assert "memory allow" in refused["error"]
    session.add("Likes tea.")
    session.memory("user", "replace", old_text="tea", content="Likes coffee.")
    agent(**BOB).add("Likes rum.")
    (first, second) = machine.json("memory", "history", "--user", "1001", *TELEGRAM)["changes"]
    assert (first["added"], second["added"]) == (["Likes coffee."], ["Likes tea."])
    machine.run("memory", "undo", str(first["id"])).done()
    assert agent(**ADA).entries() == ["Likes tea."]
    assert agent(**BOB).entries() == ["Likes rum."]
    name = refused["error"].rsplit(" ", 1)[1]
    machine.run("memory", "allow", name).done()
    assert agent(**ADA).add(POISON)["success"]


TELEGRAM = ("--platform", "telegram")


def test_the_commands_work_for_a_user(per_user: Path, agent: Start, machine: Machine) -> None:
    user = ("--target", "user", "--user", "1001")
    machine.run("memory", "add", "Likes tea.", *user, *TELEGRAM).done()
    machine.run("memory", "add", "The owner likes gin.", "--target", "user").done()
    assert agent(**ADA).entries() == ["Likes tea."]
    machine.run("memory", "replace", "tea", "Likes milk.", *user).done()  # one platform is known
    shown = machine.json("memory", "show", "--user", "1001")["notebooks"]["user"]
    assert [each["text"] for each in shown["entries"]] == ["Likes milk."]
    agent(**BOB).add("Likes rum.")
    assert "--platform" in machine.run("memory", "show", "--user", "1001").failed()
    machine.run("memory", "remove", "milk", *user, *TELEGRAM).done()
    assert agent(**ADA).entries() == []
    assert agent(**BOB).entries() == ["Likes rum."]
    assert agent().entries() == ["The owner likes gin."]


def test_a_command_for_a_user_says_if_all_share_one_file(home: Path, machine: Machine) -> None:
    line = machine.run("memory", "show", "--user", "1001").failed()
    assert "share one USER.md" in line


def test_what_waits_for_approval_is_for_the_user_who_said_it(
    home: Path, agent: Start, machine: Machine
) -> None:
    configure(home, write_approval=True)
    for facts, text in ((ADA, "Ada likes tea."), (BOB, "Bob likes rum.")):
        assert agent(**facts).add(text)["staged"]
    waiting = machine.json("memory", "pending")["pending"]
    assert len({each["target"] for each in waiting}) == 2
    assert all(each["target"].startswith("user/") for each in waiting)
    machine.run("memory", "approve", "all").done()
    assert agent(**ADA).entries() == ["Ada likes tea."]
    assert agent(**BOB).entries() == ["Bob likes rum."]
    assert agent().entries() == []


def test_the_external_provider_hears_of_it_as_the_user(per_user: Path, agent: Start) -> None:
    external = Recorder()
    session = agent(external=external, **ADA)
    session.add("Likes tea.")
    assert session.manager.flush_pending(10)
    (write,) = [call for call in external.calls if call.hook == "on_memory_write"]
    assert write.args[:3] == ("add", "user", "Likes tea.")


@pytest.mark.files_only
def test_a_config_that_cannot_be_read_shows_nobody_the_profile_of_another(
    home: Path, agent: Start
) -> None:
    agent().add("The owner likes gin.")
    (home / "config.yaml").write_text("memory: [", "utf-8")
    assert "gin" not in agent(**ADA).prompt
    assert "gin" in agent().prompt


@pytest.mark.parametrize("value", ["everybody", "yes", "[]", "per user"])
def test_another_value_is_a_problem(home: Path, value: str) -> None:
    (home / "config.yaml").write_text(f"memory:\n  user_notes: {value}\n", "utf-8")
    with pytest.raises(ConfigError, match="expected one of shared, per-user"):
        load_config(home)


def test_status_and_doctor_warn_when_a_second_user_comes(home: Path, machine: Machine) -> None:
    past(home, "s", [("hello", "hi")])
    past(home, "a", [("hello", "hi")], **ADA)
    assert "share one USER.md" not in json.dumps(machine.json("status"))
    past(home, "b", [("hello", "hi")], **BOB)
    (warning,) = [each for each in machine.json("status")["warnings"] if "USER.md" in each]
    assert warning.startswith("2 users share one USER.md")
    assert "config set memory.user_notes per-user" in warning
    assert "2 users share one USER.md" in machine.run("doctor").out
    machine.run("config", "set", "memory.user_notes", "per-user").done()
    assert "share one USER.md" not in json.dumps(machine.json("status"))
    assert "share one USER.md" not in machine.run("doctor").out


def test_doctor_looks_at_the_profile_of_everybody(
    per_user: Path, agent: Start, machine: Machine
) -> None:
    agent(**ADA).add("Likes tea.")
    (file,) = per_user.glob("memories/users/*/USER.md")
    file.write_bytes(b"\xff\xfe not text")
    assert "is not UTF-8 text" in machine.run("doctor").out


# -- the names of folders ----------------------------------------------------------------------


IDS = st.text(st.sampled_from("aA1 .@/\\:\0\né\u0301e\ud800\ufffd"), max_size=40)
PEOPLE = st.builds(Person, st.sampled_from(["cli", "telegram", "Telegram", "con", "a\0b"]), IDS)


@given(PEOPLE, PEOPLE)
def test_every_person_has_a_folder_of_their_own_on_every_file_system(
    one: Person, other: Person
) -> None:
    assert (one.folder.casefold() == other.folder.casefold()) == (one == other)
    for person in (one, other):
        assert set(person.folder) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert 32 <= len(person.folder) <= 65


@given(person=PEOPLE)
def test_a_folder_tells_whose_it_is(
    person: Person, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    notes = Notes(home, NotesSettings(user_notes="per-user"), person)
    if person.user_id:
        provider = BuiltinProvider()
        provider.initialize(
            "s",
            hermes_home=str(home),
            platform=person.platform,
            user_id=person.user_id,
            provider_config={"user_notes": "per-user"},
        )
        arguments = {"target": "user", "action": "add", "content": "Likes tea."}
        assert json.loads(provider.handle_tool_call("memory", arguments))["success"]
        provider.shutdown()
        assert notes.people() == [person]
        assert notes.notebooks["user"].read().entries == ["Likes tea."]
    notes.close()
