"""Finds secrets in files with settings, where a name says what a value is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from hermes_core.privacy._contexts import secret_word


@cache
def _assigned() -> re.Pattern[str]:
    return re.compile(
        r"(?<![\w.-])([\w.-]{2,80}+)[\"']?[ \t]{0,8}[:=][ \t]{0,8}"
        r"(?:\"([^\"\n]{4,}+)\"|'([^'\n]{4,}+)'|([^\s\"'#,{}\[\]][^\n#,{}\[\]]{3,}+))"
    )


@cache
def _harmless() -> re.Pattern[str]:
    """What a person writes where there is no secret: nothing, a reference, a variable's name."""
    return re.compile(
        r"(?i:true|false|null|none|default)|\W*|[$%<*].*|(?i:env):.*|\[redacted: .*"
        r"|[A-Z][A-Z0-9]*(_[A-Z0-9]+)+"
    )


def setting_secrets(text: str) -> Iterator[tuple[int, int]]:
    """Where the values of settings are whose names say that they are secrets, such as `api_key`.

    Unlike in a sentence, a value need not look random.
    """
    for match in _assigned().finditer(text):
        if secret_word(match[1]):
            number = next(each for each in (2, 3, 4) if match[each] is not None)
            value = match[number].strip()
            if not _harmless().fullmatch(value):
                start = match.start(number)
                yield start, start + len(match[number].rstrip())


def mask_settings(text: str) -> str:
    """The text without the values that `setting_secrets` finds."""
    parts, end = [], 0
    for start, after in setting_secrets(text):
        parts += [text[end:start], "[redacted: secret]"]
        end = after
    return "".join([*parts, text[end:]])
