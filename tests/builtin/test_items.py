"""Items of programs: durable, of one person, searched by words, and forgotten on request."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from hermes_builtin.forget import forget
from hermes_builtin.items import Items, ItemWrite, path_of
from hermes_core import DatabaseError, ForgetRequest

pytestmark = pytest.mark.files_only("items are in a file of the home, whatever memory.storage says")
CARS = ("cars",)


def items(home: Path, user: str = "ann", platform: str = "shop") -> Items:
    return Items(home, platform=platform, user_id=user)


def put(store: Items, key: str, text: str, *place: str) -> None:
    store.change([ItemWrite(place or CARS, key, {"text": text}, text)])


def test_reading_creates_no_file(tmp_path: Path) -> None:
    store = items(tmp_path)
    assert store.get(CARS, "a") is None
    assert store.search(()) == []
    assert store.namespaces() == []
    assert not path_of(tmp_path).exists()


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("We deploy with make release", "deploying releases"),
        ("Die Rechnungen sind im Ordner", "Rechnung"),
        ("東京タワーに行きました", "東京"),
        ("Café au lait", "cafe"),
    ],
)
def test_words_are_found_in_other_forms(tmp_path: Path, text: str, query: str) -> None:
    store = items(tmp_path)
    put(store, "other", "Something quite different")
    put(store, "this", text)
    found = store.search(CARS, query=query)
    assert [each.key for each in found if each.score is not None] == ["this"]
    assert len(found) == 2  # nothing that is there is left out
    store.close()


def test_two_processes_and_threads_write_one_file(tmp_path: Path) -> None:
    stores = [items(tmp_path), items(tmp_path)]

    def write(number: int) -> None:
        for at in range(20):
            put(stores[number], f"{number}-{at}", "text")

    threads = [threading.Thread(target=write, args=(each,)) for each in (0, 1)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(stores[0].search(CARS, limit=100)) == 40
    for store in stores:
        store.close()


def test_a_damaged_file_is_an_error_and_stays(tmp_path: Path) -> None:
    path_of(tmp_path).write_bytes(b"this is not a database, but somebody's text" * 100)
    before = path_of(tmp_path).read_bytes()
    with pytest.raises(DatabaseError, match=r"items\.db"):
        put(items(tmp_path), "a", "text")
    assert path_of(tmp_path).read_bytes() == before


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(path_of(tmp_path)) as other:
        other.execute("CREATE TABLE mine (a)")
    other.close()
    with pytest.raises(DatabaseError):
        put(items(tmp_path), "a", "text")


def ask(home: Path, *, delete: bool = False, **wanted: str) -> int:
    report = forget(ForgetRequest(str(home), **wanted, delete=delete))
    assert report.unreachable == ()
    return sum(each.count for each in report.items if each.place == "items")


def test_a_text_is_forgotten_everywhere(tmp_path: Path) -> None:
    for user in ("ann", "ben"):
        store = items(tmp_path, user)
        put(store, "a", "The Crimson car")
        put(store, "b", "The old car")
        store.close()
    assert ask(tmp_path, text="crimson") == 2
    assert ask(tmp_path, text="crimson", delete=True) == 2
    assert b"rimson" not in path_of(tmp_path).read_bytes()
    left = items(tmp_path)
    assert [each.key for each in left.search(CARS, query="crimson car")] == ["b"]
    left.close()


def test_a_person_is_forgotten_alone(tmp_path: Path) -> None:
    for user, platform in (("ann", "shop"), ("ben", "shop"), ("ann", "bank")):
        store = items(tmp_path, user, platform)
        put(store, "a", "text")
        store.close()
    assert ask(tmp_path, user_id="ann", platform="shop", delete=True) == 1
    assert ask(tmp_path, user_id="ann", delete=True) == 1
    assert ask(tmp_path, user_id="ben") == 1


def test_nothing_is_created_by_forgetting(tmp_path: Path) -> None:
    assert ask(tmp_path, text="anything", delete=True) == 0
    assert not path_of(tmp_path).exists()
