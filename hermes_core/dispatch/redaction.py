"""What is removed from a call before it leaves the machine: secrets in arguments and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from hermes_core.dispatch.call import DELIVERY
from hermes_core.errors import describe
from hermes_core.hookspecs import IDENTITIES, HookRule
from hermes_core.session import FREE_TEXT

#: Services quote what they reject, however long it is.
_LONGEST_ERROR: Final = 1000


class TextRedactor(Protocol):
    """Removes secrets from what leaves the machine; see `hermes_core.privacy.Redactor`."""

    def redact(self, value: Any, /, *, known_only: bool = False) -> Any:
        """Return the value without secrets, as ``.value``."""


def redacted_arguments(
    redactor: TextRedactor | None,
    rule: HookRule,
    args: tuple[Any, ...],
    optional: Mapping[str, Any] | None,
    by_position: Mapping[str, Any] | None,
) -> tuple[tuple[Any, ...], Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """Remove secrets from what leaves the machine. What was queued has none any more."""
    if redactor is None or not rule.masks or DELIVERY.get() is not None:
        return args, optional, by_position
    given = (args, optional, by_position)
    clean = redactor.redact(given, known_only=rule.masks == "known").value
    if clean is not given and optional:
        kept = {name: optional[name] for name in IDENTITIES if name in optional}
        return clean[0], {**clean[1], **kept}, clean[2]
    return clean  # type: ignore[no-any-return]


def redacted_session(
    redactor: TextRedactor | None, keywords: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the keywords of a session, without secrets in those that people write."""
    if redactor is None:
        return keywords
    # Only what people word themselves. An id that looks like a token must arrive as it is.
    written = {name: keywords[name] for name in FREE_TEXT if name in keywords}
    return {**keywords, **redactor.redact(written).value}


def redacted_error(redactor: TextRedactor | None, error: BaseException) -> str:
    """Return an error of the provider's as one line, without secrets, and not too long."""
    text = describe(error)
    if redactor is not None:
        text = str(redactor.redact(text).value)
    return text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}…"
