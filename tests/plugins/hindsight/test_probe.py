"""The probe proves that it works, and leaves nothing behind."""

from __future__ import annotations

import pytest


def test_looking_writes_nothing(server, started):
    result = started(bank_id="b").probe(write=False)
    assert result == (True, f"Hindsight 1.1.0 at {server.url}, bank b")
    assert server.banks == {}


def test_writing_happens_in_a_bank_of_its_own_that_is_removed(server, started):
    result = started(bank_id="b").probe(write=True)
    assert result == (True, f"Hindsight 1.1.0 at {server.url}, bank b, stored and recalled")
    assert server.banks == {}
    (body,) = server.asked("/memories")
    assert "b" not in {each.path.split("/")[4] for each in server.requests if body is each.body}


def test_what_is_stored_and_not_found_is_told_and_removed(server, started):
    provider = started(bank_id="b")
    recall = server._recall
    server._recall = lambda bank, body: recall(bank, {**body, "query": "nonsense"})
    result = provider.probe(write=True)
    assert not result.ok
    assert "it stored a memory and does not find it" in result.detail
    assert server.banks == {}


def test_a_server_that_is_too_old(server, started):
    server.version = "0.9.3"
    result = started().probe(write=False)
    assert not result.ok
    assert "Hindsight 0.9.3" in result.detail
    assert "upgrade the server" in result.detail


def test_a_wrong_key_is_noticed_without_writing(server, started):
    server.key = "right"
    result = started(server_key="wrong").probe(write=False)
    assert not result.ok
    assert "the key was refused" in result.detail


def test_the_cloud_without_a_key(started):
    result = started(mode="cloud").probe(write=False)
    assert not result.ok
    assert "no key for Hindsight Cloud is set" in result.detail


@pytest.mark.parametrize("version", ["1.0rc1", "v1.0", "1", "1.1.0.dev3", "2.0b1"])
def test_a_server_with_an_unusual_version_is_new_enough(server, started, version):
    server.version = version
    assert started(bank_id="b").probe(write=False).ok


def test_a_server_with_a_version_that_is_none_is_too_old(server, started):
    server.version = "unknown"
    assert "upgrade the server" in started().probe(write=False).detail
