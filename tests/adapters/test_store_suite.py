"""The suite for stores of LangGraph: three stores pass it, and each broken one fails its test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.lazy import Lazy

from hermes_core import HermesError
from hermes_core.testing import store_suite

pytestmark = pytest.mark.xdist_group("langgraph")

stores = Lazy("support.broken_stores")
NOW = [1_800_000_000.0]


def advance(minutes: float) -> None:
    NOW[0] += minutes * 60


def ours(folder: Path) -> Any:
    return stores.HermesStore(folder, clock=lambda: NOW[0])


TestHermesStore = store_suite(lambda folder: stores.HermesStore(home=folder))
TestItemsThatExpire = store_suite(ours, advance=advance, skip={"times_are_aware_and_true": "moved"})
TestInMemoryStore = store_suite(
    lambda _: stores.InMemoryStore(),
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
    lambda folder: stores.of_sqlite(folder=folder),
    skip={
        "a_query_finds_the_best_first": "it ranks only with embeddings",
        "every_method_can_be_awaited": "AsyncSqliteStore is for that",
        "times_are_aware_and_true": "its times have no time zone",
    },
)


# -- broken stores: each fails the test that is about it ----------------------------------------

MUTANTS = [
    ("Merges", {"a_second_put_replaces_the_first"}),
    ("KeepsDeleted", {"a_deleted_item_is_gone", "an_empty_namespace_is_not_listed"}),
    ("TextPrefix", {"search_is_within_its_prefix", "namespaces_are_separate"}),
    ("FiltersAfterwards", {"pages_have_every_item_once", "filters_compare_values"}),
    ("IgnoresQueries", {"a_query_finds_the_best_first"}),
    ("OnlyHits", {"a_query_stays_within_prefix_and_filter"}),
    ("IgnoresSuffix", {"namespaces_are_listed_by_their_parts"}),
    ("OneByOne", {"a_batch_answers_in_order", "a_refused_batch_stores_nothing"}),
    ("Blocking", {"every_method_can_be_awaited"}),
    ("Forgets", {"items_survive_their_store", "changes_of_a_value_stay_outside"}),
    ("NeverExpires", {"expired_items_are_gone"}),
    ("AcceptsAnyNamespace", {"a_wrong_namespace_is_refused"}),
]


@pytest.mark.parametrize(("broken", "about"), MUTANTS)
def test_a_broken_store_fails_the_test_that_is_about_it(
    tmp_path: Path, broken: str, about: set[str]
) -> None:
    suite = store_suite(getattr(stores, broken), advance=lambda _: None)()
    for number, name in enumerate(about):
        folder = tmp_path / str(number)
        folder.mkdir()
        test = getattr(suite, f"test_{name}")
        with pytest.raises((AssertionError, NotImplementedError, pytest.fail.Exception)):
            test(folder)


def test_an_unknown_name_to_skip_is_an_error() -> None:
    with pytest.raises(HermesError, match="no such test: nothing"):
        store_suite(lambda folder: stores.HermesStore(home=folder), skip={"nothing": "why"})
