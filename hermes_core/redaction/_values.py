"""Walks JSON-like values: which strings are in one, and the same value with other strings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from hermes_core.errors import HermesError

_DEEPEST: Final = 200


class Strings:
    """Every string of a value, keys of mappings too, and the pairs of a name and a string."""

    def __init__(self, value: Any) -> None:
        self.found: list[str] = []
        self.named: list[tuple[str, str]] = []
        self._seen: set[int] = set()
        self._walk(value, frozenset())

    def _walk(self, value: Any, above: frozenset[int]) -> None:
        if isinstance(value, str):
            self.found.append(value)
        elif isinstance(value, dict | list | tuple):
            if id(value) in above:
                raise _unusable("it contains itself")
            if len(above) >= _DEEPEST:
                raise _unusable(f"it is more than {_DEEPEST} levels deep")
            if id(value) not in self._seen:
                self._seen.add(id(value))
                inside = above | {id(value)}
                for part in self._parts(value):
                    if isinstance(part, str):
                        self.found.append(part)
                    else:
                        self._walk(part, inside)

    def _parts(self, value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            for key, part in value.items():
                if isinstance(key, str) and isinstance(part, str):
                    self.named.append((key, part))
                yield key
                yield part
        else:
            yield from value


def _unusable(why: str) -> HermesError:
    return HermesError(
        f"a value can't be searched for secrets: {why}",
        hint="hand over plain JSON, or it stays on this machine",
    )


class Rewriting:
    """Makes the same value with other strings; parts in which none changed stay what they are."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self._change = change
        self._made: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """A value, rewritten. Its parts must stay alive meanwhile: they are known by their ids."""
        if isinstance(value, str):
            return self._change(value)
        if not isinstance(value, dict | list | tuple):
            return value
        if id(value) not in self._made:
            self._made[id(value)] = self._rewritten(value)
        return self._made[id(value)]

    def _rewritten(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._mapping(value)
        parts = [self.of(part) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        if isinstance(value, list):
            return parts
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)

    def _mapping(self, value: dict[Any, Any]) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        changed = False
        for key, part in value.items():
            new_key, new_part = self.of(key), self.of(part)
            changed |= new_key is not key or new_part is not part
            made[_free(new_key, made, value) if new_key is not key else key] = new_part
        return made if changed else value


def _free(key: Any, made: dict[Any, Any], original: dict[Any, Any]) -> Any:
    """Two keys that read the same once they are masked are two keys nevertheless."""
    number, free = 1, key
    while free in made or free in original:
        number += 1
        free = f"{key} ({number})" if isinstance(key, str) else (*key, number)
    return free
