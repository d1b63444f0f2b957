"""Which files of a backup have secrets: a backup without a passphrase must not have any.

A file of credentials is known by its name. A file with settings is searched for everything that
looks like a secret, and for settings whose names say so. Every other text is searched for the
secrets that the home knows, and for private keys.

What was said is not searched: databases, notes, and what is on its way to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from hermes_core.privacy import Redactor
from hermes_core.privacy.settings import mask_settings

#: A file that is larger is searched in parts, and for known secrets and private keys only.
LARGEST: Final = 1_000_000
#: A secret is shorter, however it is written.
_LONGEST_SECRET: Final = 32_000

#: Where the folder of a home may begin in it: hermes-agent keeps the homes of profiles in the root.
HOME_PREFIX: Final = r"(?:profiles/[^/]+/)?"
#: Files of credentials, also those of hermes-agent and of usual tools.
_CREDENTIALS: Final = re.compile(
    r"(.*/)?([^/]*\.env(\.[^/]+)?|\.envrc|[._]netrc|\.pgpass|\.git-credentials|\.npmrc|\.pypirc"
    r"|id_(rsa|dsa|ecdsa|ed25519)(_sk)?|credentials(\.json)?)"
    rf"|{HOME_PREFIX}(auth\.json|\.anthropic_oauth\.json|auth/.*|mcp-tokens/.*)"
    r"|.*\.(pem|key|p12|pfx|ppk|jks|keystore|kdbx)",
    re.IGNORECASE | re.DOTALL,
)
#: The code of a plugin has such files, too, without which it does not run.
_SETTINGS: Final = re.compile(
    rf"(?!{HOME_PREFIX}plugins/).*\.(json|ya?ml|toml|ini|cfg|conf|properties)(~|\.[^/]+)?",
    re.IGNORECASE | re.DOTALL,
)
#: What was said: see the module's docstring.
_CONTENT: Final = re.compile(rf"{HOME_PREFIX}(memories|pending|spool)/.*", re.DOTALL)
#: Without it, the rest of a home is of little use.
_CONFIG: Final = re.compile(rf"{HOME_PREFIX}config\.yaml")
_MASK: Final = "[redacted: secret]"


@dataclass(frozen=True, slots=True)
class SecretSearchResult:
    """What is in a file.

    Attributes:
        has_secrets: Whether it has any.
        copy: The text without them, where that is of use; else None.
    """

    has_secrets: bool = False
    copy: bytes | None = None


class SecretSearch:
    """Searches the files of a backup.

    Args:
        known: The secrets that the home knows.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._redactor = Redactor(known)
        #: Whether something was masked in the last file that was read in parts.
        self.masked_some = False

    @staticmethod
    def is_credential(name: str) -> bool:
        """Whether a file is left out whatever it contains."""
        return _CREDENTIALS.fullmatch(name) is not None

    @staticmethod
    def is_content(name: str) -> bool:
        """Whether a file of the home has what was said."""
        return _CONTENT.fullmatch(name) is not None

    @staticmethod
    def is_config(name: str) -> bool:
        """Whether a file of the home is the configuration of it, or of a profile."""
        return _CONFIG.fullmatch(name) is not None

    def examine(self, name: str, content: bytes, *, keeps: bool = False) -> SecretSearchResult:
        """Search a small file.

        Args:
            name: Its path.
            content: What is in it.
            keeps: Mask secrets in it also if it has settings: the rest is of little use without it.
        """
        if b"\0" in content:  # not a text
            return SecretSearchResult()
        text = _decoded(content)
        if not _SETTINGS.fullmatch(name):
            found = self._redactor.unmistakable(text)
            has_key = any("PRIVATE KEY" in each for each in found)
            masked = _without(text, found)
            return SecretSearchResult(
                bool(found), None if has_key or not found else _encoded(masked)
            )
        masked = mask_settings(self._redactor.redact(text).value)
        return SecretSearchResult(masked != text, _encoded(masked) if keeps else None)

    def masked(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The parts of a large file without known secrets and private keys, some at a time."""
        self.masked_some = False
        text, is_text = "", True
        for number, chunk in enumerate(chunks):
            is_text = is_text and not (number == 0 and b"\0" in chunk)
            if not is_text:
                yield chunk
                continue
            text = _decoded(_encoded(text) + chunk)
            if len(text) > 2 * _LONGEST_SECRET:
                done, text = self._first_part(text)
                yield done
        found = self._redactor.unmistakable(text)
        self.masked_some |= bool(found)
        yield _encoded(_without(text, found))

    def _first_part(self, text: str) -> tuple[bytes, str]:
        """A part of a text without secrets, and the rest, which may begin with one."""
        found = self._redactor.unmistakable(text)
        end = _before_any(text, found, len(text) - _LONGEST_SECRET)
        masked = _without(text[:end], found)
        self.masked_some |= masked != text[:end]
        return _encoded(masked), text[end:]


def _before_any(text: str, found: set[str], end: int) -> int:
    """The last place up to `end` that is not within a secret."""
    for secret in sorted(found, key=len):
        start = text.find(secret, max(0, end - len(secret) + 1))
        if 0 <= start < end:
            return _before_any(text, found, start)
    return end


def _without(text: str, secrets: set[str]) -> str:
    for each in sorted(secrets, key=len, reverse=True):
        text = text.replace(each, _MASK)
    return text


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
