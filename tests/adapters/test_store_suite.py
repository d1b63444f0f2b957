"""The suite for stores of LangGraph: three stores pass it, and each broken one fails its test."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesError
from hermes_core.testing import store_suite

pytestmark = pytest.mark.xdist_group("langgraph")

with warnings.catch_warnings():  # what the framework deprecates within itself is not ours
    warnings.simplefilter("ignore")
    from langgraph.store.memory import InMemoryStore
    from langgraph.store.sqlite import SqliteStore

    from hermes_adapters.langgraph import HermesStore

NOW = [1_800_000_000.0]


def advance(minutes: float) -> None:
    NOW[0] += minutes * 60


def ours(folder: Path) -> HermesStore:
    return HermesStore(folder, clock=lambda: NOW[0])


@contextmanager
def of_sqlite(folder: Path) -> Iterator[SqliteStore]:
    with SqliteStore.from_conn_string(str(folder / "store.db")) as store:
        store.setup()
        yield store


TestHermesStore = store_suite(HermesStore)
TestItemsThatExpire = store_suite(ours, advance=advance, skip={"times_are_aware_and_true": "moved"})
TestInMemoryStore = store_suite(
    lambda _: InMemoryStore(),
    skip={
        "items_survive_their_store": "it is in memory",
        "a_query_finds_the_best_first": "it ranks only with embeddings",
        "changes_of_a_value_stay_outside": "it returns the stored object",
        "times_are_aware_and_true": "a replaced item is created again",
        "an_empty_namespace_is_not_listed": "it remembers every namespace",
        "an_operator_ignores_items_without_the_field": "it raises TypeError",
        "a_refused_batch_stores_nothing": "it takes any object",
    },
)
TestSqliteStore = store_suite(
    of_sqlite,
    skip={
        "a_query_finds_the_best_first": "it ranks only with embeddings",
        "every_method_can_be_awaited": "AsyncSqliteStore is for that",
        "times_are_aware_and_true": "its times have no time zone",
    },
)


# -- broken stores: each fails the test that is about it ----------------------------------------


class Merges(HermesStore):
    def put(self, namespace: Any, key: str, value: Any, *args: Any, **more: Any) -> None:
        before = self.get(namespace, key)
        super().put(namespace, key, {**(before.value if before else {}), **value}, *args, **more)


class KeepsDeleted(HermesStore):
    def delete(self, namespace: Any, key: str) -> None:
        pass


class TextPrefix(HermesStore):
    """Takes ("a",) for a prefix of ("ab",)."""

    def search(self, namespace_prefix: Any, /, **more: Any) -> Any:
        wanted = ".".join(namespace_prefix)
        found = super().search((), **{**more, "limit": 1000})
        return [each for each in found if ".".join(each.namespace).startswith(wanted)]


class FiltersAfterwards(HermesStore):
    """Cuts the page first, then filters it."""

    def search(self, namespace_prefix: Any, /, **more: Any) -> Any:
        wanted = more.pop("filter", None) or {}
        found = super().search(namespace_prefix, **more)
        plain = {k: v for k, v in wanted.items() if not isinstance(v, dict)}
        return [each for each in found if plain.items() <= each.value.items()]


class IgnoresQueries(HermesStore):
    def search(self, namespace_prefix: Any, /, **more: Any) -> Any:
        return super().search(namespace_prefix, **{**more, "query": None})


class OnlyHits(HermesStore):
    """Leaks what a query finds in other namespaces."""

    def search(self, namespace_prefix: Any, /, **more: Any) -> Any:
        return super().search(() if more.get("query") else namespace_prefix, **more)


class IgnoresSuffix(HermesStore):
    def list_namespaces(self, **more: Any) -> Any:
        return super().list_namespaces(**{**more, "suffix": None})


class OneByOne(HermesStore):
    """Runs the operations of a batch one after the other."""

    def batch(self, ops: Any) -> Any:
        return [HermesStore.batch(self, [each])[0] for each in ops]


class Blocking(HermesStore):
    async def abatch(self, ops: Any) -> Any:
        raise NotImplementedError


class Forgets(InMemoryStore):
    def __init__(self, _folder: Path) -> None:
        super().__init__()


class NeverExpires(HermesStore):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, clock=lambda: 1_800_000_000.0)


class AcceptsAnyNamespace(HermesStore):
    def put(self, namespace: Any, key: str, value: Any, *args: Any, **more: Any) -> None:
        labels = tuple(str(each).replace(".", "-") or "x" for each in namespace) or ("x",)
        super().put(labels if labels != ("langgraph",) else ("x",), key, value, *args, **more)


MUTANTS = [
    (Merges, {"a_second_put_replaces_the_first"}),
    (KeepsDeleted, {"a_deleted_item_is_gone", "an_empty_namespace_is_not_listed"}),
    (TextPrefix, {"search_is_within_its_prefix", "namespaces_are_separate"}),
    (FiltersAfterwards, {"pages_have_every_item_once", "filters_compare_values"}),
    (IgnoresQueries, {"a_query_finds_the_best_first"}),
    (OnlyHits, {"a_query_stays_within_prefix_and_filter"}),
    (IgnoresSuffix, {"namespaces_are_listed_by_their_parts"}),
    (OneByOne, {"a_batch_answers_in_order", "a_refused_batch_stores_nothing"}),
    (Blocking, {"every_method_can_be_awaited"}),
    (Forgets, {"items_survive_their_store", "changes_of_a_value_stay_outside"}),
    (NeverExpires, {"expired_items_are_gone"}),
    (AcceptsAnyNamespace, {"a_wrong_namespace_is_refused"}),
]


@pytest.mark.parametrize(("broken", "about"), MUTANTS)
def test_a_broken_store_fails_the_test_that_is_about_it(
    tmp_path: Path, broken: Callable[[Path], Any], about: set[str]
) -> None:
    suite = store_suite(broken, advance=lambda _: None)()
    for number, name in enumerate(about):
        folder = tmp_path / str(number)
        folder.mkdir()
        test = getattr(suite, f"test_{name}")
        with pytest.raises((AssertionError, NotImplementedError, pytest.fail.Exception)):
            test(folder)


def test_an_unknown_name_to_skip_is_an_error() -> None:
    with pytest.raises(HermesError, match="no such test: nothing"):
        store_suite(HermesStore, skip={"nothing": "why"})
