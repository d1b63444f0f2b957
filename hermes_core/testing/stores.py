"""A conformance suite for stores of LangGraph: what every `BaseStore` promises its agents.

One line in your tests runs all of it::

    from hermes_core.testing import store_suite

    TestMyStore = store_suite(lambda folder: MyStore(folder / "store.db"))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from hermes_core.errors import HermesError

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

#: A value with everything that JSON has.
VALUE: Final = {
    "text": "héllo 世界 🙂 \x00 'quoted' \"twice\"",
    "number": 1.5,
    "count": 2**53,
    "true": True,
    "nothing": None,
    "list": [1, "two", {"three": []}],
    "nested": {"a": {"b": "c"}, "": "empty name"},
}
_DOCS: Final = ("docs",)


@dataclass(frozen=True)
class OpenStore:
    """A store under test.

    Attributes:
        store: The store.
        again: Opens another one on the same folder.
        advance: Moves the store's clock by some minutes; None if that is not possible.
    """

    store: BaseStore
    again: Callable[[], BaseStore]
    advance: Callable[[float], None] | None = None


Check = Callable[[OpenStore], None]


def store_suite(
    make: Callable[[Path], Any],
    *,
    advance: Callable[[float], None] | None = None,
    skip: Mapping[str, str] | None = None,
) -> type:
    """Return a class for pytest with one test per promise of a store.

    Assign it to a name that begins with ``Test``.

    Args:
        make: Returns a store, or a context manager of one, that keeps its data in the folder that
            it gets. A second call with the same folder opens the same data.
        advance: Moves the clock of your stores by some minutes. Without it, nothing is tested
            about items that expire.
        skip: Promises that your store does not make, by the test's name without ``test_``, each
            with the reason, which pytest shows.

    Raises:
        HermesError: ``skip`` has a name that is none of the tests.
    """
    skipped = dict(skip or {})
    if advance is None:
        skipped.setdefault("expired_items_are_gone", "the store's clock can't be moved")
    if unknown := set(skipped) - set(_CHECKS):
        raise HermesError(
            f"no such test: {', '.join(sorted(unknown))}", hint=f"there are: {', '.join(_CHECKS)}"
        )
    tests = {
        f"test_{name}": _test(check, make, advance, skipped.get(name))
        for name, check in _CHECKS.items()
    }
    return type("TestStore", (), {"__doc__": "What a store of LangGraph promises.", **tests})


def _test(
    check: Check,
    make: Callable[[Path], Any],
    advance: Callable[[float], None] | None,
    reason: str | None,
) -> Callable[..., None]:
    def test(self: Any, tmp_path: Path) -> None:  # noqa: ARG001 - pytest passes it
        if reason is not None:
            pytest.skip(reason)
        with opened(make, tmp_path, advance) as each:
            check(each)

    test.__doc__ = check.__doc__
    return test


@contextmanager
def opened(
    make: Callable[[Path], Any], folder: Path, advance: Callable[[float], None] | None = None
) -> Iterator[OpenStore]:
    """Open a store, and close all that was opened."""
    with ExitStack() as stack:

        def again() -> Any:
            made = make(folder)
            if hasattr(made, "__enter__"):
                return stack.enter_context(made)
            if callable(close := getattr(made, "close", None)):
                stack.callback(close)
            return made

        yield OpenStore(again(), again, advance)


# -- items --------------------------------------------------------------------------------------


def an_item_comes_back_as_it_was_put(each: OpenStore) -> None:
    """Values are JSON; what comes back has the same namespace, key and value."""
    store = each.store
    store.put(("users", "ann"), "k", VALUE)
    item = store.get(("users", "ann"), "k")
    assert item is not None, "the item is not there"
    assert (item.namespace, item.key, item.value) == (("users", "ann"), "k", VALUE)


def a_missing_item_is_none(each: OpenStore) -> None:
    """Neither a missing key nor a missing namespace is an error."""
    each.store.put(_DOCS, "a", {"n": 1})
    assert each.store.get(_DOCS, "b") is None
    assert each.store.get(("other",), "a") is None
    assert list(each.store.search(("nothing",))) == []


def a_second_put_replaces_the_first(each: OpenStore) -> None:
    """The whole value is replaced, not merged."""
    each.store.put(_DOCS, "a", {"old": 1})
    each.store.put(_DOCS, "a", {"new": 2})
    assert _values(each.store.search(_DOCS)) == [{"new": 2}]


def a_deleted_item_is_gone(each: OpenStore) -> None:
    """For get and for search; deleting it again is not an error, and others stay."""
    store = each.store
    for key in "ab":
        store.put(_DOCS, key, {"n": key, "text": f"words {key}"})
    store.delete(_DOCS, "a")
    store.delete(_DOCS, "a")
    assert store.get(_DOCS, "a") is None
    assert _keys(store.search(_DOCS)) == {"b"}
    assert "a" not in _keys(store.search(_DOCS, query="words a"))


def namespaces_are_separate(each: OpenStore) -> None:
    """One user's items are not another's, whatever their ids look like."""
    store = each.store
    ids = ("1", "10", "1-0", "A", "a", "%", "_", "*", "é", " 1", "'; --")
    for name in ids:
        store.put(("users", name), "k", {"of": name})
    for name in ids:
        assert _values(store.search(("users", name))) == [{"of": name}], name
        item = store.get(("users", name), "k")
        assert item is not None
        assert item.value == {"of": name}


def changes_of_a_value_stay_outside(each: OpenStore) -> None:
    """What a caller does to its dict afterwards, or to what it got, changes nothing stored."""
    value: dict[str, Any] = {"list": [1]}
    each.store.put(_DOCS, "a", value)
    value["list"].append(2)
    item = each.store.get(_DOCS, "a")
    assert item is not None
    assert item.value == {"list": [1]}, "a change after put arrived in the store"
    item.value["list"].append(3)
    again = each.store.get(_DOCS, "a")
    assert again is not None
    assert again.value == {"list": [1]}, "a change of what get returned arrived in the store"


def times_are_aware_and_true(each: OpenStore) -> None:
    """created_at stays, updated_at follows the last put; both have a time zone."""
    store = each.store
    store.put(_DOCS, "a", {"n": 1})
    first = store.get(_DOCS, "a")
    store.put(_DOCS, "a", {"n": 2})
    second = store.get(_DOCS, "a")
    assert first is not None
    assert second is not None
    assert first.created_at.tzinfo is not None
    assert abs((datetime.now(UTC) - first.created_at).total_seconds()) < 3600
    assert second.created_at == first.created_at, "a replaced item was created again"
    assert second.updated_at >= first.updated_at


# -- search -------------------------------------------------------------------------------------


def search_is_within_its_prefix(each: OpenStore) -> None:
    """A prefix is made of whole labels; the empty one is everything."""
    store = each.store
    for name in (("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("b", "a")):
        store.put(name, "k", {"at": list(name)})
    found = {each.namespace for each in store.search(("a",))}
    assert found == {("a",), ("a", "b"), ("a", "b", "c")}
    assert {each.namespace for each in store.search(("a", "b"))} == {("a", "b"), ("a", "b", "c")}
    assert len(store.search(())) == 5


def filters_compare_values(each: OpenStore) -> None:
    """Equality and the six operators, together as "and"; an item without the field is left out."""
    store = each.store
    for key, score in (("low", 1), ("middle", 2.5), ("high", 4)):
        store.put(_DOCS, key, {"score": score, "kind": "number", "even": key != "middle"})
    store.put(_DOCS, "other", {"kind": "text"})
    expected: dict[str, tuple[dict[str, Any], set[str]]] = {
        "equal": ({"kind": "number"}, {"low", "middle", "high"}),
        "boolean": ({"even": True}, {"low", "high"}),
        "$eq": ({"score": {"$eq": 2.5}}, {"middle"}),
        "$gt": ({"kind": "number", "score": {"$gt": 2.5}}, {"high"}),
        "$gte": ({"kind": "number", "score": {"$gte": 2.5}}, {"middle", "high"}),
        "$lt": ({"kind": "number", "score": {"$lt": 2.5}}, {"low"}),
        "$lte": ({"kind": "number", "score": {"$lte": 2.5}}, {"low", "middle"}),
        "$ne": ({"kind": {"$ne": "number"}}, {"other"}),
        "range": ({"kind": "number", "score": {"$gt": 1, "$lt": 4}}, {"middle"}),
        "none": ({"kind": "nothing"}, set()),
    }
    for name, (wanted, keys) in expected.items():
        assert _keys(store.search(_DOCS, filter=wanted)) == keys, name


def an_operator_ignores_items_without_the_field(each: OpenStore) -> None:
    """They have no order, so they are left out; the search does not fail."""
    each.store.put(_DOCS, "a", {"score": 5})
    each.store.put(_DOCS, "b", {"other": 1})
    assert _keys(each.store.search(_DOCS, filter={"score": {"$gt": 1}})) == {"a"}


def pages_have_every_item_once(each: OpenStore) -> None:
    """Limit and offset cut one order into pages, with filters too; ten is the default."""
    store = each.store
    for number in range(25):
        store.put(_DOCS, f"k{number}", {"n": number, "odd": number % 2 == 1})
    assert len(store.search(_DOCS)) == 10
    pages = [store.search(_DOCS, limit=10, offset=at) for at in (0, 10, 20, 30)]
    assert [len(page) for page in pages] == [10, 10, 5, 0]
    assert len({item.key for page in pages for item in page}) == 25
    odd = [store.search(_DOCS, filter={"odd": True}, limit=5, offset=at) for at in (0, 5, 10)]
    assert [len(page) for page in odd] == [5, 5, 2]
    assert all(item.value["odd"] for page in odd for item in page)


def a_query_finds_the_best_first(each: OpenStore) -> None:
    """Of items about different things, the one that the query is about comes first."""
    store = each.store
    texts = {"tea": "They drink green tea in the morning.", "car": "The old car is in the garage.",
             "sea": "Holidays at the sea with the children."}  # fmt: skip
    for key, text in texts.items():
        store.put(_DOCS, key, {"text": text})
    for key, query in (("tea", "green tea"), ("car", "garage car"), ("sea", "children holidays")):
        found = store.search(_DOCS, query=query)
        assert found, "a search came back empty although there are items"
        assert found[0].key == key, query
        scores = [item.score for item in found if item.score is not None]
        assert scores == sorted(scores, reverse=True), "scores do not follow the order"


def a_query_stays_within_prefix_and_filter(each: OpenStore) -> None:
    """A query ranks; it adds nothing that the namespace or the filter leaves out."""
    store = each.store
    for user in ("ann", "ben"):
        for kind in ("fact", "joke"):
            store.put((user,), kind, {"text": "green tea", "kind": kind, "of": user})
    found = store.search(("ann",), query="green tea", filter={"kind": "fact"})
    assert _values(found) == [{"text": "green tea", "kind": "fact", "of": "ann"}]


def an_odd_query_is_only_text(each: OpenStore) -> None:
    """Quotes, operators of a search language and blanks are no errors."""
    each.store.put(_DOCS, "a", {"text": "plain"})
    for query in ('"', "a AND", "NEAR(", "*", "  ", "'; DROP TABLE", "-x", "🙂", "x" * 5000):
        assert len(each.store.search(_DOCS, query=query)) <= 1, query


# -- namespaces ---------------------------------------------------------------------------------


def namespaces_are_listed_by_their_parts(each: OpenStore) -> None:
    """Prefix, suffix, wildcard, depth and pages."""
    store = each.store
    names = [("a", "x", "v1"), ("a", "y", "v1"), ("a", "y", "v2"), ("b", "x", "v1"), ("ab",)]
    for name in names:
        store.put(name, "k", {"n": 1})
        store.put(name, "k2", {"n": 1})
    assert store.list_namespaces() == sorted(names)
    assert store.list_namespaces(prefix=("a",)) == sorted(names[:3])
    assert store.list_namespaces(suffix=("v1",)) == sorted([*names[:2], names[3]])
    assert store.list_namespaces(prefix=("*", "x")) == [names[0], names[3]]
    assert store.list_namespaces(prefix=("a",), suffix=("v2",)) == [names[2]]
    assert store.list_namespaces(max_depth=2) == [("a", "x"), ("a", "y"), ("ab",), ("b", "x")]
    assert store.list_namespaces(limit=2, offset=1) == sorted(names)[1:3]


def an_empty_namespace_is_not_listed(each: OpenStore) -> None:
    """Neither after the last item was deleted, nor because somebody asked for an item."""
    each.store.put(_DOCS, "a", {"n": 1})
    each.store.delete(_DOCS, "a")
    each.store.get(("asked",), "a")
    assert each.store.list_namespaces() == []


def a_wrong_namespace_is_refused(each: OpenStore) -> None:
    """With LangGraph's own error, and nothing is stored."""
    from langgraph.store.base import InvalidNamespaceError  # noqa: PLC0415 - only here is it needed

    wrong: tuple[Any, ...] = ((), ("",), ("a", ""), ("a.b",), ("langgraph",), ("a", 5))
    for name in wrong:
        with pytest.raises(InvalidNamespaceError):
            each.store.put(name, "k", {"n": 1})
    assert list(each.store.search(())) == []


# -- batches ------------------------------------------------------------------------------------


def a_batch_answers_in_order(each: OpenStore) -> None:
    """One result per operation; reads see the state before the batch, and the last put counts."""
    from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp  # noqa: PLC0415

    store = each.store
    store.put(_DOCS, "a", {"n": 1})
    results = store.batch([
        PutOp(_DOCS, "b", {"n": 2}), GetOp(_DOCS, "a"), PutOp(_DOCS, "b", {"n": 3}),
        GetOp(_DOCS, "b"), SearchOp(_DOCS), ListNamespacesOp(), PutOp(_DOCS, "a", None),
    ])  # fmt: skip
    found: Any = results
    assert [found[0], found[2], found[3], found[6]] == [None] * 4
    assert found[1].value == {"n": 1}
    assert _keys(found[4]) == {"a"}
    assert found[5] == [_DOCS]
    assert _values(store.search(_DOCS)) == [{"n": 3}]


def a_refused_batch_stores_nothing(each: OpenStore) -> None:
    """A value that can't be stored is an error, and the rest of its batch is not stored."""
    from langgraph.store.base import PutOp  # noqa: PLC0415

    ops = [PutOp(_DOCS, "good", {"n": 1}), PutOp(_DOCS, "bad", {"n": object()})]
    with pytest.raises((TypeError, ValueError)):
        each.store.batch(ops)
    assert list(each.store.search(_DOCS)) == []


def every_method_can_be_awaited(each: OpenStore) -> None:
    """The asynchronous methods do the same."""
    store = each.store

    async def use() -> None:
        await asyncio.gather(*(store.aput(_DOCS, f"k{at}", {"n": at}) for at in range(5)))
        item = await store.aget(_DOCS, "k3")
        assert item is not None
        assert item.value == {"n": 3}
        await store.adelete(_DOCS, "k3")
        assert _keys(await store.asearch(_DOCS)) == {"k0", "k1", "k2", "k4"}
        assert await store.alist_namespaces() == [_DOCS]

    asyncio.run(use())


def threads_lose_nothing(each: OpenStore) -> None:
    """Tools of one step run in parallel, and all of them may write."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda at: each.store.put(_DOCS, f"k{at}", {"n": at}), range(80)))
    assert len(each.store.search(_DOCS, limit=100)) == 80


# -- time ---------------------------------------------------------------------------------------


def items_survive_their_store(each: OpenStore) -> None:
    """Another store on the same data has them, for example in the next process."""
    each.store.put(_DOCS, "a", {"n": 1})
    assert _values(each.again().search(_DOCS)) == [{"n": 1}]


def expired_items_are_gone(each: OpenStore) -> None:
    """After their time to live; a read begins it again, unless it says otherwise."""
    assert each.advance is not None
    store = each.store
    for key in ("read", "seen", "left"):
        store.put(_DOCS, key, {"n": 1}, ttl=10)
    store.put(_DOCS, "stays", {"n": 1})
    each.advance(6)
    assert store.get(_DOCS, "read") is not None
    assert store.get(_DOCS, "seen", refresh_ttl=False) is not None
    each.advance(6)
    assert store.get(_DOCS, "left") is None
    assert store.get(_DOCS, "seen") is None
    assert _keys(store.search(_DOCS)) == {"read", "stays"}


def _keys(items: Any) -> set[str]:
    return {item.key for item in items}


def _values(items: Any) -> list[dict[str, Any]]:
    return [item.value for item in items]


_CHECKS: Final[dict[str, Check]] = {
    each.__name__: each
    for each in (
        an_item_comes_back_as_it_was_put, a_missing_item_is_none, a_second_put_replaces_the_first,
        a_deleted_item_is_gone, namespaces_are_separate, changes_of_a_value_stay_outside,
        times_are_aware_and_true, search_is_within_its_prefix, filters_compare_values,
        an_operator_ignores_items_without_the_field, pages_have_every_item_once,
        a_query_finds_the_best_first, a_query_stays_within_prefix_and_filter,
        an_odd_query_is_only_text, namespaces_are_listed_by_their_parts,
        an_empty_namespace_is_not_listed, a_wrong_namespace_is_refused, a_batch_answers_in_order,
        a_refused_batch_stores_nothing, every_method_can_be_awaited, threads_lose_nothing,
        items_survive_their_store, expired_items_are_gone,
    )
}  # fmt: skip
