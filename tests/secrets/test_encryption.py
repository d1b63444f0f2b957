"""Bytes under a passphrase: only who has it reads them, and nobody can change them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.errors import SecretsError
from hermes_core.secrets.encryption import decrypt, encrypt

PASSPHRASE = "correct horse"
CHEAP = 2


@given(st.binary(max_size=200), st.text(st.characters(codec="utf-8"), min_size=8, max_size=20))
def test_what_was_encrypted_is_decrypted(content, passphrase):
    encrypted = encrypt(content, passphrase, cost=CHEAP)
    assert decrypt(encrypted, passphrase) == content
    with pytest.raises(SecretsError, match="passphrase is wrong"):
        decrypt(encrypted, f"{passphrase}!")


def test_no_two_are_alike():
    assert encrypt(b"x", PASSPHRASE, cost=CHEAP) != encrypt(b"x", PASSPHRASE, cost=CHEAP)


def test_no_changed_byte_gets_through():
    encrypted = bytearray(encrypt(b"secret", PASSPHRASE, cost=CHEAP))
    for at in range(len(encrypted)):
        encrypted[at] ^= 1
        with pytest.raises(SecretsError):
            decrypt(bytes(encrypted), PASSPHRASE)
        encrypted[at] ^= 1


@pytest.mark.parametrize(
    "changed", [{"cost": 2**40}, {"cost": 3}, {"cost": -2}, {"salt": 1}, {"version": 2}]
)
def test_a_header_that_is_not_ours_is_refused(changed):
    line, _, content = encrypt(b"secret", PASSPHRASE, cost=CHEAP).partition(b"\n")
    header = json.dumps({**json.loads(line), **changed}).encode()
    with pytest.raises(SecretsError, match=r"damaged|newer"):
        decrypt(header + b"\n" + content, PASSPHRASE)


def test_a_short_passphrase_is_refused():
    with pytest.raises(SecretsError, match="at least 8"):
        encrypt(b"", "1234567")
