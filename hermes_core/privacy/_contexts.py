"""Finds secrets by what precedes them: a name, a header, a URL, the first line of a key.

Each search starts with a plain substring search for a word; a pattern is tried only where the word
occurs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from hermes_core.privacy.formats import Finding, is_password, is_placeholder, is_random

#: A name that says "secret" contains one of these.
_NAMES: Final = ("pass", "pwd", "secret", "token", "key")
# How far back a name is read. Names of settings are shorter, and the limit makes the cost of
# each look constant.
_BEFORE: Final = 48
#: A key is a secret if one of these precedes it; most keys are not secrets.
_KEYS: Final = (
    *("api", "app", "access", "secret", "private", "account", "auth", "encryption", "signing"),
    *("master", "service", "admin", "client", "license", "shared"),
)
#: After one of these, neither a key nor a token is a secret.
_HARMLESS: Final = (
    *("public", "cache", "primary", "foreign", "sort", "partition", "idempotency", "object"),
    *("page", "cursor", "csrf", "next", "continuation", "sync", "com", "by"),
)
_DATABASES: Final = (
    *("postgres", "postgresql", "mysql", "mariadb", "mongodb", "redis", "rediss", "amqp", "amqps"),
    *("mssql", "oracle", "clickhouse", "cockroachdb", "cassandra", "neo4j", "bolt", "snowflake"),
)
#: The kind of a secret by a part of its name, where that says more than "a token".
_VENDORS: Final = (
    ("aws", "aws-secret-key"),
    ("datadog", "datadog-key"),
    ("dd_", "datadog-key"),
    ("dd-", "datadog-key"),
    ("twilio", "twilio-token"),
    ("heroku", "heroku-key"),
    ("cloudflare", "cloudflare-token"),
    ("cf_", "cloudflare-token"),
    ("accountkey", "azure-key"),
    ("sharedaccesskey", "azure-key"),
    ("azure", "azure-key"),
    ("mailgun", "mailgun-key"),
    ("okta", "okta-token"),
    ("algolia", "algolia-key"),
    ("cohere", "cohere-key"),
    ("mistral", "mistral-key"),
)


class _Patterns(NamedTuple):
    """The patterns that are tried where such a word occurs."""

    name: re.Pattern[str]
    assigned: re.Pattern[str]
    spaced: re.Pattern[str]
    login: re.Pattern[str]
    header: re.Pattern[str]
    bearer: re.Pattern[str]
    url: re.Pattern[str]
    scheme: re.Pattern[str]
    signature: re.Pattern[str]
    pem: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    # All repetitions are possessive (`++`, `{6,}+`) or bounded: no text, however crafted, makes a
    # match take more than linear time.
    suffix = r"(?:[_-]?(?:access[_-]?key|key|value|token|secret|base64|b64|\d{1,2}))?"
    quote = r"(?:\\{0,3}[\"'`])?"
    value = r"((?<=[\"'`])[^\s\"'`\\<>\x00]{6,}+|[^\s\"'`\\,;&<>\x00)}\]]{6,}+)"
    joint = r"[\s\\\"',>|]"
    return _Patterns(
        name=re.compile(
            rf"(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|key){suffix}",
            re.IGNORECASE,
        ),
        assigned=re.compile(
            rf"{quote}\]?[ \t]{{0,8}}(?:=>|:=|={{1,2}}|:|[ ]is:?[ ])"
            rf"\s{{0,4}}(?:\\{{0,3}}[\"'`]|[bruf][\"'])?(?:(?:basic|bearer|token) )?{value}",
            re.IGNORECASE,
        ),
        spaced=re.compile(rf"\s{{1,4}}{quote}{value}"),
        login=re.compile(r"(?:\blogin\s{1,8}\S{1,80}\s{1,8}|(?:\s|\A)--?(?:\w{1,20}-)?)\Z"),
        header=re.compile(
            rf"authorization{quote}\s{{0,4}}[:=]\s{{0,4}}{quote}"
            r"(?:basic|token|bot|apikey|digest)\s{1,4}([A-Za-z0-9._~+/=:-]{12,}+)",
            re.IGNORECASE,
        ),
        bearer=re.compile(r"bearer(?:\s|%20|\+){1,4}([A-Za-z0-9._~+/=-]{12,}+)", re.IGNORECASE),
        url=re.compile(r"://[^\s/@:\"'<>\x00]{0,100}:([^\s/?#\"'`<>\x00]{3,200})@"),
        scheme=re.compile(r"([A-Za-z0-9]{1,20})(?:\+[A-Za-z0-9]{1,20})?\Z"),
        signature=re.compile(r"sig(?:nature)?=([A-Za-z0-9%+/=_-]{40,}+)", re.IGNORECASE),
        pem=re.compile(
            r"-----BEGIN (?:([A-Z0-9]{1,20}) )?(?:[A-Z0-9]{1,20} )?PRIVATE KEY(?: BLOCK)?-----"
            rf"{joint}*+(?:n?[A-Z][A-Za-z-]{{2,20}}: [^\n\\\x00]{{0,100}}+{joint}++)*+"
            rf"(?:[A-Za-z0-9+/=]{{16,}}+{joint}*+)++"
            rf"(?:(?:[A-Za-z0-9+/=]{{1,15}}+{joint}*+){{0,3}}+-----END [A-Z0-9 ]{{1,60}}-----"
            r"|[A-Za-z0-9+/]{1,15}(?:={1,2}|(?=\s*\x00|\Z)))?"
        ),
    )


def in_context(text: str) -> Iterator[Finding]:
    """Yield every secret in a text that is known by what precedes it."""
    if "-----BEGIN " in text:
        yield from private_keys(text)
    if "@" in text and "://" in text:
        yield from _url_passwords(text)
    lower = text.lower()
    # Lower case once for all words. The patterns are matched against `text`, so places must agree.
    if len(lower) != len(text):  # a few capital letters become two: places would differ
        lower = "".join(letter.lower() if letter.isascii() else letter for letter in text)
    if "?" in text and "=" in text:  # a query: much rarer than the three letters
        yield from _values_of(_patterns().signature, "signed-url", text, lower, "sig")
    if "bearer" in lower:
        yield from _values_of(_patterns().bearer, "bearer-token", text, lower, "bearer")
    if "authorization" in lower:
        yield from _values_of(_patterns().header, "authorization", text, lower, "authorization")
    for word in _NAMES:
        if word in lower:
            yield from _assigned(text, lower, word)


def _values_of(
    pattern: re.Pattern[str], kind: str, text: str, lower: str, word: str
) -> Iterator[Finding]:
    end = 0
    while (at := lower.find(word, end)) >= 0:
        match = pattern.match(text, at)
        end = match.end() if match else at + len(word)
        if match and not is_placeholder(match[1]):
            yield match[1], kind


def named_secret(name: str, word: str, value: str) -> Finding | None:
    """A value of a mapping whose name contains a `secret_word`, if it can be a secret."""
    return _judged(name.lower(), word, value) if value else None


@lru_cache(maxsize=256)  # the names in a message are always the same
def secret_word(name: str) -> str:
    """The part of a name that says that its value is a secret; "" if there is none."""
    lower = name.lower()
    for word in _NAMES:
        for at in _places(lower, word):
            match = _patterns().name.match(name, at)
            if match and match.end() == len(name) and _means_a_secret(name, at, word):
                return match[0]
    return ""


def _places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


def _assigned(text: str, lower: str, word: str) -> Iterator[Finding]:
    """Yield the values of `password = ...`, `"api_key": "..."`, `--token ...`, or of a .netrc."""
    end = 0
    while (at := lower.find(word, end)) >= 0:
        end = at + len(word)
        if lower.startswith("s", end):  # many tokens: a number of them, not one
            continue
        name = _patterns().name.match(text, at)
        if name is None or text[name.end() : name.end() + 1].isalnum():
            continue
        if not _means_a_secret(text, at, word):
            continue
        if match := _value(text, at, name.end()):
            end = match.end()
            found = _judged(lower[max(0, at - _BEFORE) : name.end()], name[0], match[1])
            if found:
                yield found


def _value(text: str, at: int, end: int) -> re.Match[str] | None:
    """Match the value that is assigned to the name from `at` to `end`."""
    patterns = _patterns()
    if match := patterns.assigned.match(text, end):
        return match
    before = text[max(0, at - _BEFORE * 2) : at]
    if "login" in before or before.endswith("-"):
        return patterns.login.search(before) and patterns.spaced.match(text, end)
    return None


def _means_a_secret(text: str, at: int, word: str) -> bool:
    """Return whether the part of a name before `at` allows the whole to mean a secret."""
    before = text[max(0, at - _BEFORE) : at]
    stem = before.rstrip("_-")
    if stem.lower().endswith(_HARMLESS):
        return False
    if word != "key" or before.rstrip("_- ").lower().endswith(_KEYS):
        return True
    # "key" alone says little ("keyboard key", "primary_key"): it counts after one of `_KEYS`, or in
    # a constant of capital letters.
    return stem != before and stem[-2:].isupper()  # OPENAI_KEY


def _judged(name: str, word: str, value: str) -> Finding | None:
    value = value.rstrip(".:!?")
    if word.lower().startswith(("pass", "pwd")):
        return (value, "password") if value and is_password(value) else None
    if not value or not is_random(value):
        return None
    own = name.rsplit(maxsplit=1)[-1]
    kinds = (kind for vendor, kind in _VENDORS if vendor in own)
    return value, next(kinds, "api-key" if "key" in word.lower() else "token")


def _url_passwords(text: str) -> Iterator[Finding]:
    for at in _places(text, "://"):
        match = _patterns().url.match(text, at)
        if match and not match[1].startswith(("$", "{", "%", "*", "[")) and _is_own(match):
            scheme = _patterns().scheme.search(text, max(0, at - 32), at)
            database = scheme is not None and scheme[1].lower().endswith(_DATABASES)
            kind = "database-password" if database else "url-password"
            yield match[1], kind
            if (plain := unquote(match[1])) != match[1]:
                yield plain, kind


def _is_own(url: re.Match[str]) -> bool:
    """Return whether somebody chose this password: not the user's name, nor a usual word."""
    password = url[1].lower()
    usual = {"pass", "password", "passwd", "pwd", "secret", "postgres", "root", "admin", "guest"}
    user = url[0][3 : -len(url[1]) - 2].lower()
    return password != user and password not in usual and not password.startswith("your")


def private_keys(text: str) -> Iterator[Finding]:
    """Yield the private keys in a text."""
    end = 0
    while (at := text.find("-----BEGIN ", end)) >= 0:
        match = _patterns().pem.match(text, at)
        end = match.end() if match else at + 1
        if match:
            kind = {"OPENSSH": "ssh-private-key", "PGP": "pgp-private-key"}
            yield match[0].rstrip("\\ \t\r\n\"',>|"), kind.get(match[1], "private-key")
