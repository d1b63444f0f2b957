"""One setting, from the first of several places that has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hermes_core import ConfigError
from hermes_memory_honcho.address import CLOUD_ENVIRONMENT

_OLD_NAMES: Final = {"auto": "hybrid", "shared": "unified", "separate": "directional",
                     "cross": "directional"}  # fmt: skip

#: What a host tells where nobody has said anything.
_DEFAULTS: Final = {"environment": CLOUD_ENVIRONMENT}


class Layers:
    """One key, from the first place that has it.

    What the host gives may be what it found in the file's root, or the default of a field: then
    the block counts more.
    """

    def __init__(
        self, block: Mapping[str, Any], root: Mapping[str, Any], given: Mapping[str, Any], path: str
    ) -> None:
        self.block = block
        self.root = root
        self.given = given
        self._path = path

    def get(self, *keys: str) -> Any:
        """What is said under the first of these names."""
        for key in keys:
            told, kept = self.given.get(key), self.root.get(key)
            is_said = told not in (None, "", _DEFAULTS.get(key))
            if is_said and told != kept and str(told) != str(kept):
                return told
        for place in (self.block, self.root):
            for key in keys:
                if place.get(key) is not None:
                    return place[key]
        return None

    def text(self, *keys: str) -> str:
        """A text; "" if there is none."""
        value = self.get(*keys)
        return "" if value is None else str(value).strip()

    def flag(self, *keys: str, default: bool) -> bool:
        """Yes or no."""
        value = self.get(*keys)
        if value is None:
            return default
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        known = words.get(str(value).strip().lower())
        if known is None:
            raise self._wrong(keys[0], value, "true or false")
        return known

    def number(self, *keys: str, default: float) -> float:
        """A number."""
        value = self.get(*keys)
        if value is None or value == "":
            return default
        try:
            return float(value)
        except (TypeError, ValueError):
            raise self._wrong(keys[0], value, "a number") from None

    def one_of(self, key: str, allowed: Sequence[str], default: str) -> str:
        """One of a few words, or what it was called before."""
        value = self.text(key)
        value = _OLD_NAMES.get(value, value)
        if value and value not in allowed:
            raise self._wrong(key, value, f"one of {', '.join(allowed)}")
        return value or default

    def texts(self, key: str) -> dict[str, str]:
        """Names by other names."""
        value = self.get(key) or {}
        if not isinstance(value, Mapping):
            raise self._wrong(key, value, "an object of names")
        return {str(name).strip(): str(each).strip() for name, each in value.items() if each}

    def several(self, key: str, allowed: Sequence[str]) -> tuple[str, ...]:
        """Some of a few words."""
        value = self.get(key) or ()
        if not isinstance(value, list | tuple) or any(each not in allowed for each in value):
            raise self._wrong(key, value, f"a list of {', '.join(allowed)}")
        return tuple(value)

    def _wrong(self, key: str, value: Any, wanted: str) -> ConfigError:
        return ConfigError(f"{key} is {value!r:.60}; it has to be {wanted}", where=self._path)
