"""Stores of LangGraph: those that pass our suite, and broken ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from hermes_adapters.langgraph import HermesStore


@contextmanager
def of_sqlite(folder: Path) -> Iterator[SqliteStore]:
    with SqliteStore.from_conn_string(str(folder / "store.db")) as store:
        store.setup()
        yield store


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
