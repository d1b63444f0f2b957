"""Masks secrets in what people read: the error of a plugin may contain them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from hermes_core.errors import HermesError, change_remembered_text
from hermes_core.privacy._redactor import ways_of_writing


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return a text with every secret replaced, also where it is written in a URL or in base64."""
    # The longest first: a short secret may be a part of a long one, whose rest would stay readable.
    for secret in sorted(secrets, key=len, reverse=True):
        for written in ways_of_writing(secret):
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
        change_remembered_text(current, partial(masked, secrets=secrets))
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
    return not isinstance(error, BaseExceptionGroup) and masked(text, secrets) == text


def _masked_value(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        return masked(value, secrets)
    if type(value) is tuple:
        return tuple(_masked_value(each, secrets) for each in value)
    return value
