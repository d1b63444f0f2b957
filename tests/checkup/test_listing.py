"""`export` has what the external provider can list, and says what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import Machine
from support.isolated import add_plugin
from support.talks import past

from hermes_core import FakeProvider, MemoryItem, MemoryPage
from hermes_core.dispatch import SingleProvider

FAST = True

#: Two pages for each person; the order of the backend is not the same each time.
LISTS = """
def list_memories(self, cursor):
    import random
    from hermes_core import MemoryItem, MemoryPage
    who = self.facts.get("user_id") or "terminal"
    items = [
        MemoryItem(f"{who}-{n}", f"fact {n} of {who}", 1000.0 + n, {"tags": ["a"], "n": n})
        for n in range(6)
    ]
    random.Random(str(self.facts)).shuffle(items)
    page = items[:3] if not cursor else items[3:]
    return MemoryPage(tuple(page), "" if cursor else "more")
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine", in_process=True)


def failing(then: str) -> str:
    return f"""
def list_memories(self, cursor):
    from hermes_core import MemoryItem, MemoryPage
    if not cursor:
        return MemoryPage((MemoryItem("a", "a fact"),), "more")
    {then}
"""


def records(file: Path, kind: str) -> list[dict[str, Any]]:
    found = map(json.loads, file.read_text("utf-8").splitlines())
    return [each for each in found if each["type"] == kind]


@pytest.mark.parametrize("isolated", [False, True])
def test_memories_of_everybody_are_exported_by_person_and_id(
    isolated: bool, machine: Machine, tmp_path: Path
) -> None:
    add_plugin(machine.home, LISTS, isolated=isolated)
    past(machine.home, "s1", [("hello", "ok")], platform="telegram", user_id="100")
    made = machine.json("export", str(tmp_path / "a.jsonl"))
    assert made["memories"] == 12
    assert made["provider"] == {
        "provider": "acme", "can_list": True, "memories": 12, "problems": [],
    }  # fmt: skip
    found = records(tmp_path / "a.jsonl", "memory")
    assert [each["id"] for each in found] == [
        *(f"terminal-{n}" for n in range(6)), *(f"100-{n}" for n in range(6)),
    ]  # fmt: skip
    assert found[6] == {
        "type": "memory", "provider": "acme", "platform": "telegram", "user_id": "100",
        "id": "100-0", "created": 1000.0, "text": "fact 0 of 100",
        "metadata": {"tags": ["a"], "n": 0},
    }  # fmt: skip
    machine.run("export", str(tmp_path / "b.jsonl")).done()
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_an_import_counts_them_and_leaves_them_in_the_file(
    machine: Machine, tmp_path: Path
) -> None:
    add_plugin(machine.home, LISTS, isolated=False)
    past(machine.home, "s1", [("hello", "ok")])
    file = tmp_path / "a.jsonl"
    machine.run("export", str(file)).done()
    other = Machine(tmp_path / "other", in_process=True)
    done = other.run("import", str(file))
    assert "Not imported: 6 memories of a provider" in done.err
    machine.run("export", "--no-provider", str(tmp_path / "b.jsonl")).done()
    other.run("export", str(tmp_path / "c.jsonl")).done()
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "c.jsonl").read_bytes()
    assert not records(tmp_path / "b.jsonl", "provider")


def test_a_plugin_that_can_not_list_is_no_failure(machine: Machine, tmp_path: Path) -> None:
    add_plugin(machine.home, isolated=False)
    done = machine.run("export", str(tmp_path / "a.jsonl"))
    assert done.code == 0
    assert "the plugin can't list them" in done.err
    (record,) = records(tmp_path / "a.jsonl", "provider")
    assert record == {"type": "provider", "name": "acme", "can_list": False, "memories": 0}


@pytest.mark.parametrize(
    ("then", "problem"),
    [
        ("raise ConnectionError('the server is down')", "the server is down"),
        ("return MemoryPage((), 'more')", "returned a cursor a second time"),
        ("return 5", "expected MemoryPage"),
        ("return MemoryPage((MemoryItem('b', 'x'),) * 1001)", "more than 1,000 memories"),
        ("return MemoryPage((), '', 'only the newest are listed')", "only the newest are listed"),
        ("import os; os._exit(0)", "ended the process"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_in_the_file_and_by_the_exit_code(
    then: str, problem: str, machine: Machine, tmp_path: Path
) -> None:
    add_plugin(machine.home, failing(then), isolated=False)
    past(machine.home, "s1", [("hello", "ok")])
    done = machine.run("export", str(tmp_path / "a.jsonl"))
    assert done.code == 1
    assert "memories are missing" in done.err
    assert problem in done.err
    assert len(records(tmp_path / "a.jsonl", "message")) == 2
    (record,) = records(tmp_path / "a.jsonl", "provider")
    assert problem in record["problems"][0]
    # What came before is there.
    assert [each["text"] for each in records(tmp_path / "a.jsonl", "memory")] == ["a fact"]


def test_a_plugin_that_does_not_load_costs_its_memories_only(
    machine: Machine, tmp_path: Path
) -> None:
    machine.add_directory("acme", "raise RuntimeError('broken')")
    machine.write_config("memory: {provider: acme}\n")
    past(machine.home, "s1", [("hello", "ok")])
    assert "broken" in machine.run("export", str(tmp_path / "a.jsonl")).err
    assert len(records(tmp_path / "a.jsonl", "message")) == 2


def test_what_several_people_share_is_written_once(machine: Machine, tmp_path: Path) -> None:
    add_plugin(machine.home, failing("return MemoryPage()"), isolated=False)
    for user in ("100", "200"):
        past(machine.home, f"s{user}", [("hello", "ok")], platform="telegram", user_id=user)
    assert machine.json("export", str(tmp_path / "a.jsonl"))["memories"] == 1


class _Odd:
    def __str__(self) -> str:
        return "odd"


def test_values_of_a_backend_become_plain_ones() -> None:
    known = {"at": _Odd(), "score": float("nan"), "ok": True, "list": [1, _Odd()], 5: "five"}
    page = MemoryPage((MemoryItem("a", "x", float("inf"), known), MemoryItem("b", "y")), "next")
    with SingleProvider(FakeProvider(list_memories=page), "fake") as single:
        found = single.call("list_memories", cursor="").value
    assert found.items[0] == MemoryItem(
        "a", "x", 0.0, {"at": "odd", "score": "NaN", "ok": True, "list": [1, "odd"], "5": "five"}
    )
    assert found.items[1] == MemoryItem("b", "y")
    assert found.cursor == "next"


def test_ten_thousand_memories_are_sorted(machine: Machine, tmp_path: Path) -> None:
    body = """
    def list_memories(self, cursor):
        from hermes_core import MemoryItem, MemoryPage
        start = int(cursor or 0)
        page = (MemoryItem(f"{9999 - n:05}", "fact") for n in range(start, start + 1000))
        return MemoryPage(tuple(page), str(start + 1000) if start < 9000 else "")
    """
    add_plugin(machine.home, body, isolated=False)
    assert machine.json("export", str(tmp_path / "a.jsonl"))["memories"] == 10_000
    ids = [each["id"] for each in records(tmp_path / "a.jsonl", "memory")]
    assert ids == sorted(ids)
    assert len(set(ids)) == 10_000
