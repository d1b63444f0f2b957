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


def test_an_export_of_an_import_has_them_byte_by_byte(machine: Machine, tmp_path: Path) -> None:
    add_plugin(machine.home, LISTS, isolated=False)
    past(machine.home, "s1", [("hello", "ok")], platform="telegram", user_id="100")
    file = tmp_path / "a.jsonl"
    machine.run("export", str(file)).done()
    other = Machine(tmp_path / "other", in_process=True)
    done = other.run("import", str(file))
    assert "For the next export: 12 memories of a provider." in done.err
    assert "For the next export" not in other.run("import", str(file)).err
    out = other.run("export", str(tmp_path / "b.jsonl")).done().out
    assert "Memories of providers from earlier imports: 12." in out
    assert (tmp_path / "b.jsonl").read_bytes() == file.read_bytes()
    # The home that they come from has them once.
    assert machine.run("import", str(file)).code == 0
    assert machine.json("export", str(tmp_path / "c.jsonl"))["memories"] == 12
    assert (tmp_path / "c.jsonl").read_bytes() == file.read_bytes()
    other.run("export", "--no-provider", str(tmp_path / "d.jsonl")).done()
    assert not records(tmp_path / "d.jsonl", "provider")
    assert not records(tmp_path / "d.jsonl", "memory")


def test_memories_of_several_providers_are_in_one_order(machine: Machine, tmp_path: Path) -> None:
    add_plugin(machine.home, LISTS, isolated=False)
    past(machine.home, "s1", [("hello", "ok")])
    lines = [
        {"type": "header", "format": "hermes-memory", "version": 1},
        {"type": "provider", "name": "zeta", "can_list": True, "memories": 2, "problems": ["odd"]},
        # Halves of surrogate pairs, zeros and additions of others survive.
        {"type": "memory", "provider": "zeta", "id": "b\0", "text": "half \ud800", "more": 1},
        {"type": "memory", "provider": "zeta", "id": "b", "created": 1.5, "text": "later"},
        # Of the active one: one that it lists as well, and one that it does not list any more.
        {"type": "memory", "provider": "acme", "platform": "cli", "id": "terminal-0", "text": "no"},
        {"type": "memory", "provider": "acme", "platform": "cli", "id": "gone", "text": "kept"},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert machine.run("import", str(tmp_path / "in.jsonl")).code == 0
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    machine.run("export", str(first)).done()
    providers = {each["name"]: each["memories"] for each in records(first, "provider")}
    assert providers == {"acme": 7, "zeta": 2}
    found = [(each["id"], each["text"]) for each in records(first, "memory")]
    assert found == [
        ("gone", "kept"), *((f"terminal-{n}", f"fact {n} of terminal") for n in range(6)),
        ("b", "later"), ("b\0", "half \ud800"),
    ]  # fmt: skip
    other = Machine(tmp_path / "other", in_process=True)
    assert other.run("import", str(first)).code == 0
    other.run("export", str(second)).done()
    assert second.read_bytes() == first.read_bytes()


def test_imported_memories_are_backed_up_and_forgotten(machine: Machine, tmp_path: Path) -> None:
    add_plugin(machine.home, LISTS, isolated=False)
    past(machine.home, "s1", [("hello", "ok")], platform="telegram", user_id="100")
    machine.run("export", str(tmp_path / "a.jsonl")).done()
    other = Machine(tmp_path / "other", in_process=True)
    assert other.run("import", str(tmp_path / "a.jsonl")).code == 0
    other.run("backup", str(tmp_path / "a.zip")).done()
    other.run("forget", "fact 3 of terminal", "--yes").done()
    assert not [each for each in other.home.rglob("*") if each.is_file()
                and b"fact 3 of terminal" in each.read_bytes()]  # fmt: skip
    other.run("forget", "--user", "100", "--platform", "telegram", "--yes").done()
    other.run("export", str(tmp_path / "b.jsonl")).done()
    ids = [each["id"] for each in records(tmp_path / "b.jsonl", "memory")]
    assert ids == [f"terminal-{n}" for n in (0, 1, 2, 4, 5)]
    restored = Machine(tmp_path / "restored", in_process=True)
    new = tmp_path / "new"
    restored.run("restore", str(tmp_path / "a.zip"), "--into", str(new)).done()
    restored.run("--home", str(new), "export", str(tmp_path / "c.jsonl")).done()
    assert (tmp_path / "c.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()


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
