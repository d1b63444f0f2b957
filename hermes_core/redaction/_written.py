"""How a secret may stand in a text: as it is, in a URL, in quotes, in base64."""

from __future__ import annotations

import base64
import json
from typing import Final
from urllib.parse import quote, quote_plus

#: What is shorter is no secret, and stands in many a text by chance.
SHORTEST: Final = 6
_SHORTEST_IN_BASE64: Final = 12


def ways_of_writing(secret: str) -> tuple[str, ...]:
    """Every way in which a secret may be written, longest first; none for what is too short."""
    if len(secret) < SHORTEST:
        return ()
    quoted = {quote(secret, safe="", errors="replace"), quote(secret, errors="replace")}
    quoted.add(quote_plus(secret, errors="replace"))
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    twice = {json.dumps(once)[1:-1] for once in escaped}
    # With one kind of quote in it, and with both: then the single ones are escaped.
    shown = {repr(secret)[1:-1], repr(f'{secret}"')[1:-2]}
    ways = {secret} | shown | escaped | twice | quoted
    ways |= {_small_escapes(each) for each in quoted}
    if len(secret) >= _SHORTEST_IN_BASE64:
        plain = secret.encode("utf-8", "replace")
        ways |= {
            encode(plain).decode("ascii").rstrip("=")
            for encode in (base64.b64encode, base64.urlsafe_b64encode)
        }
    return tuple(sorted(ways, key=lambda way: (-len(way), way)))


def _small_escapes(quoted: str) -> str:
    """`%2f` for `%2F`: both are valid."""
    first, *others = quoted.split("%")
    return "%".join([first, *(each[:2].lower() + each[2:] for each in others)])
