"""Encrypts bytes with a passphrase: scrypt makes the key, AES-256-GCM encrypts and signs.

`cryptography` does both. It is an extra, since only a backup with secrets needs it.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final

from hermes_core.errors import SecretsError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SHORTEST_PASSPHRASE: Final = 8

_VERSION: Final = 1
_WITHOUT: Final = "leave them out: --without-secrets"
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32
# 128 MB of memory and about 0.4 s: what OWASP recommends for scrypt.
_COST: Final = 2**17
_BLOCK_SIZE: Final = 8
# A file may ask for any cost; a larger one would only take this machine's memory.
_MOST_COST: Final = 2**20


def encrypt(content: bytes, passphrase: str, *, cost: int = _COST) -> bytes:
    """Encrypt bytes with a passphrase; everything that `decrypt` needs besides it is included.

    Raises:
        SecretsError: The passphrase is too short, or `cryptography` is not installed.
    """
    if len(passphrase) < SHORTEST_PASSPHRASE:
        what = f"a passphrase needs at least {SHORTEST_PASSPHRASE} characters"
        raise SecretsError(what, hint="use a longer one")
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    header = {
        "version": _VERSION,
        "cost": cost,
        "salt": b64encode(salt).decode(),
        "nonce": b64encode(nonce).decode(),
    }
    # The header is signed with the content: nobody can change one without the other.
    line = json.dumps(header).encode()
    return line + b"\n" + _cipher(passphrase, salt, cost).encrypt(nonce, content, line)


def decrypt(encrypted: bytes, passphrase: str) -> bytes:
    """Return what was encrypted.

    Raises:
        SecretsError: The passphrase is wrong, the bytes are damaged or of a newer version, or
            `cryptography` is not installed.
    """
    line, _, content = encrypted.partition(b"\n")
    try:
        header = json.loads(line)
        version, cost = int(header["version"]), int(header["cost"])
        salt, nonce = b64decode(header["salt"]), b64decode(header["nonce"])
    except (ValueError, KeyError, TypeError) as error:
        raise SecretsError("the encrypted secrets are damaged", hint=_WITHOUT) from error
    if version > _VERSION:
        raise SecretsError(
            "the secrets were encrypted by a newer version", hint="upgrade hermes-plugins"
        )
    if not 1 < cost <= _MOST_COST or cost & (cost - 1):
        raise SecretsError("the encrypted secrets are damaged", hint=_WITHOUT)
    cipher = _cipher(passphrase, salt, cost)
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

    try:
        return cipher.decrypt(nonce, content, line)
    except (InvalidTag, ValueError):
        what = "the passphrase is wrong, or the secrets are damaged"
        raise SecretsError(what, hint=f"try again, or {_WITHOUT}") from None


def _cipher(passphrase: str, salt: bytes, cost: int) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt  # noqa: PLC0415
    except ImportError as error:
        raise SecretsError(
            f"encryption needs a package that can't be imported: {error}",
            hint="run: pip install 'hermes-plugins[backup]'",
        ) from error
    key = Scrypt(salt=salt, length=_KEY_BYTES, n=cost, r=_BLOCK_SIZE, p=1)
    return AESGCM(key.derive(passphrase.encode()))
