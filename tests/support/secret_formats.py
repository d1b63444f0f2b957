"""Ways to write a secret, as plugins, libraries and services do."""

from __future__ import annotations

import base64
import binascii
import html
import json
import quopri
import shlex
import textwrap
from collections.abc import Callable
from urllib.parse import quote, quote_plus, urlencode

#: With signs that most ways of writing change.
SECRET = "Sup3r/S3cret+K3y=\"4711'<&>~0815-ZYX"

FORMATS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "in a url": lambda s: f"https://acme.example/?key={s}&x=1",
    "url-encoded": lambda s: quote(s, safe=""),
    "url-encoded path": quote,
    "url-encoded form": lambda s: urlencode({"key": s}),
    "url-encoded with plus": quote_plus,
    "url-encoded in small letters": lambda s: quote(s, safe="").lower(),
    "url-encoded twice": lambda s: quote(quote(s, safe=""), safe=""),
    "every byte url-encoded": lambda s: "".join(f"%{each:02X}" for each in s.encode()),
    "json": json.dumps,
    "json in json": lambda s: json.dumps(json.dumps({"key": s})),
    "json escapes": lambda s: "".join(f"\\u{ord(each):04x}" for each in s),
    "json escapes in capitals": lambda s: "".join(f"\\u{ord(each):04X}" for each in s),
    "repr": repr,
    "repr of a mapping": lambda s: repr({"headers": {"X-Key": s}}),
    "repr of bytes": lambda s: repr(s.encode()),
    "repr of a bytearray": lambda s: repr(bytearray(s.encode())),
    "list of bytes": lambda s: str(list(s.encode())),
    "list of characters": lambda s: str(list(s)),
    "list of hexadecimal bytes": lambda s: ", ".join(map(hex, s.encode())),
    "python escapes": lambda s: "".join(f"\\x{each:02x}" for each in s.encode()),
    "octal escapes": lambda s: "".join(f"\\{each:03o}" for each in s.encode()),
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 for urls": lambda s: base64.urlsafe_b64encode(s.encode()).decode().rstrip("="),
    "basic authentication": lambda s: base64.b64encode(f"user:{s}".encode()).decode(),
    "in base64, one byte on": lambda s: base64.b64encode(f"x{s}yz".encode()).decode(),
    "in base64, two bytes on": lambda s: base64.b64encode(f"xx{s}y".encode()).decode(),
    "mapping in base64": lambda s: base64.b64encode(f"{{'t': {s}}}".encode()).decode(),
    "base64 on several lines": lambda s: "\n".join(
        textwrap.wrap(base64.b64encode(f"user:{s}".encode()).decode(), 8)
    ),
    "base64 twice": lambda s: base64.b64encode(base64.b64encode(s.encode())).decode(),
    "base64 of UTF-16": lambda s: base64.b64encode(s.encode("utf-16-le")).decode(),
    "base32": lambda s: base64.b32encode(s.encode()).decode(),
    "base85": lambda s: base64.b85encode(s.encode()).decode(),
    "ascii85": lambda s: base64.a85encode(s.encode()).decode(),
    "uuencoded": lambda s: binascii.b2a_uu(s.encode()).decode(),
    "hexadecimal": lambda s: s.encode().hex(),
    "hexadecimal in capitals": lambda s: s.encode().hex().upper(),
    "hexadecimal with colons": lambda s: s.encode().hex(":"),
    "hexadecimal dump": lambda s: s.encode().hex(" ", 2),
    "html": html.escape,
    "xml": lambda s: html.escape(s, quote=False).replace("'", "&apos;"),
    "decimal entities": lambda s: "".join(f"&#{ord(each)};" for each in s),
    "hexadecimal entities": lambda s: "".join(f"&#x{ord(each):x};" for each in s),
    "quoted-printable": lambda s: quopri.encodestring(s.encode(), quotetabs=True).decode(),
    "every byte quoted-printable": lambda s: "".join(f"={each:02X}" for each in s.encode()),
    "for a shell": shlex.quote,
    "in capitals": str.upper,
    "in small letters": str.lower,
    "reversed": lambda s: s[::-1],
    "on several lines": lambda s: "\n".join(textwrap.wrap(s, 5)),
    "on several escaped lines": lambda s: json.dumps("\n".join(textwrap.wrap(s, 7))),
    "in chunks": lambda s: str([s[:7], s[7:15], s[15:]]),
    "concatenated": lambda s: f'"{s[:9]}" + "{s[9:20]}" + "{s[20:]}"',
    "with dashes": "-".join,
    "with blanks": " ".join,
    "with zero-width characters": "\u200b".join,
    "after a word": lambda s: f"key{s}end",
}


def betrays(text: str, form: str) -> bool:
    """Whether a text shows more than a third of a secret that is written in that form."""
    written = FORMATS[form](SECRET)
    # What precedes and follows the secret in longer base64 may stay.
    start = len(written) // 3
    part = written[start : start + max(len(written) // 3, 8)]
    return part in text or json.dumps(part)[1:-1] in text
