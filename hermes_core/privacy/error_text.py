"""Masks secrets in what people read: the error of a plugin may contain them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any

from hermes_core.errors import HermesError, change_remembered_text
from hermes_core.privacy._known import KnownSecrets

#: The secrets that this process has read for a plugin: its environment has them as well.
_IN_USE: set[str] = set()


def mask_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text with every secret replaced, in whatever way it is written."""
    return _masked_by(_known(frozenset(secrets)), text)


def remember_secrets(secrets: Iterable[str]) -> None:
    """Have `without_secrets` mask these from now on."""
    _IN_USE.update(secrets)


def without_secrets(text: str) -> str:
    """Return a text without the secrets that this process has read."""
    return mask_secrets(text, _IN_USE) if _IN_USE else text


@lru_cache(8)
def _known(secrets: frozenset[str]) -> KnownSecrets:
    return KnownSecrets(secrets)


def _masked_by(known: KnownSecrets, text: str) -> str:
    # The longest first: a short one may be a part of a long one, whose rest would stay readable.
    for written in sorted(known.found_in(text), key=len, reverse=True):
        text = text.replace(written, "***")
    return text


def mask_error(error: BaseException, secrets: Iterable[str]) -> None:
    """Mask secrets in an error and in what caused it."""
    secrets = [*secrets]
    seen: set[int] = set()
    current: BaseException | None = error
    # Python prints the whole chain, so every exception in it is masked. A chain may be a cycle.
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        current.args = _masked_value(current.args, secrets)
        if hasattr(current, "__notes__"):
            current.__notes__ = _masked_value(list(current.__notes__), secrets)
        change_remembered_text(current, partial(mask_secrets, secrets=secrets))
        if isinstance(current, HermesError):
            for name, value in list(vars(current).items()):
                setattr(current, name, _masked_value(value, secrets))
        cause = current.__cause__ or current.__context__
        if cause is not None and not _is_clean(cause, secrets):
            # It stores its text somewhere else than in `args` (a group, a class with its own
            # `__str__`), so it can't be masked. Losing the cause is better than printing the
            # secret.
            current.__cause__, current.__context__ = None, None
            return
        current = cause


def _is_clean(error: BaseException, secrets: list[str]) -> bool:
    """Whether an error can be masked; one that stores its text elsewhere can't."""
    try:
        error.args = _masked_value(error.args, secrets)
        text = "\n".join((str(error), *getattr(error, "__notes__", ())))
    except Exception:  # noqa: BLE001 - the plugin's own class
        return False
    return not isinstance(error, BaseExceptionGroup) and mask_secrets(text, secrets) == text


def _masked_value(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        return mask_secrets(value, secrets)
    if type(value) in (tuple, list):
        return type(value)(_masked_value(each, secrets) for each in value)
    return value
