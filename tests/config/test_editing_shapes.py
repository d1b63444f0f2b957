"""The ways in which people write config.yaml, and what a change makes of each."""

from __future__ import annotations

import pytest
from support.configs import (
    FIELD,
    PROVIDER,
    ConfigFile,
    by_yaml_11,
    by_yaml_12,
    in_order,
    with_change,
)

from hermes_core.config.editor import DELETE

pytestmark = pytest.mark.usefixtures("loader")

OWNER = {"owner": "hermes-memory-mem0", "version": "1.0"}
OWNER_TEXT = '{owner: hermes-memory-mem0, version: "1.0"}'


def check(config: ConfigFile, text: str, changes, expected: str) -> None:
    config.write(text)
    assert config.change(changes) == expected
    for parse in (by_yaml_11, by_yaml_12):
        wanted = parse(text)
        for keys, value in changes.items():
            wanted = with_change(wanted, keys, value)
        assert in_order(parse(expected) or {}) == in_order(wanted)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Nothing there yet.
        ("", "memory:\n  provider: honcho\n"),
        ("# a comment\n", "# a comment\nmemory:\n  provider: honcho\n"),
        ("# no newline", "# no newline\nmemory:\n  provider: honcho\n"),
        ("# c\r\n", "# c\r\nmemory:\r\n  provider: honcho\r\n"),
        ("---\n", "---\nmemory:\n  provider: honcho\n"),
        ("--- # start\n", "--- # start\nmemory:\n  provider: honcho\n"),
        ("{}\n", "{memory: {provider: honcho}}\n"),
        # No memory section.
        ("model: x\n", "model: x\nmemory:\n  provider: honcho\n"),
        ("model: x", "model: x\nmemory:\n  provider: honcho"),
        ("model: x  # c\n\n# end\n", "model: x  # c\nmemory:\n  provider: honcho\n\n# end\n"),
        ("a: 1\n...\n", "a: 1\nmemory:\n  provider: honcho\n...\n"),
        ("list:\n- a\n- b\n", "list:\n- a\n- b\nmemory:\n  provider: honcho\n"),
        ("a: |\n  text\n\n# c\n", "a: |\n  text\nmemory:\n  provider: honcho\n\n# c\n"),
        ("a: 'x\n\n  y'\n", "a: 'x\n\n  y'\nmemory:\n  provider: honcho\n"),
        # A section without anything in it.
        ("memory:\n", "memory:\n  provider: honcho\n"),
        ("memory:", "memory:\n  provider: honcho"),
        ("memory:  # mine\nb: 1\n", "memory:  # mine\n  provider: honcho\nb: 1\n"),
        (
            "memory:\n  # provider: x\n\nb: 1\n",
            "memory:\n  provider: honcho\n  # provider: x\n\nb: 1\n",
        ),
        ("memory: {}\n", "memory: {provider: honcho}\n"),
        ("memory: {}  # c\nb: 1\n", "memory: {provider: honcho}  # c\nb: 1\n"),
        ("memory: ~\n", "memory: {provider: honcho}\n"),
        ("memory: null # c\n", "memory: {provider: honcho} # c\n"),
        # A section without a provider.
        ("memory:\n  pin: warn\n", "memory:\n  pin: warn\n  provider: honcho\n"),
        ("memory:\n    pin: warn\nb: 1\n", "memory:\n    pin: warn\n    provider: honcho\nb: 1\n"),
        ("memory:\n  pin: warn", "memory:\n  pin: warn\n  provider: honcho"),
        (
            "memory:\n  pin: warn  # c\n  # tail\n\n# about b\nb: 1\n",
            "memory:\n  pin: warn  # c\n  provider: honcho\n  # tail\n\n# about b\nb: 1\n",
        ),
        (
            "memory:\n  mem0:\n    url: x\n    tags:\n      - a\n\nb: 1\n",
            "memory:\n  mem0:\n    url: x\n    tags:\n      - a\n  provider: honcho\n\nb: 1\n",
        ),
        ("memory:\n  pin:\nb: 1\n", "memory:\n  pin:\n  provider: honcho\nb: 1\n"),
        ("memory: {pin: warn}\n", "memory: {pin: warn, provider: honcho}\n"),
        # A provider to replace.
        ("memory:\n  provider: mem0\n", "memory:\n  provider: honcho\n"),
        ("memory:\n  provider: mem0", "memory:\n  provider: honcho"),
        ("memory:\n  provider: mem0  # c\n", "memory:\n  provider: honcho  # c\n"),
        ("memory:\n    provider:   mem0\n", "memory:\n    provider:   honcho\n"),
        ("memory:\r\n  provider: mem0 # c\r\n", "memory:\r\n  provider: honcho # c\r\n"),
        ("'memory':\n  \"provider\": 'mem0'\n", "'memory':\n  \"provider\": honcho\n"),
        ("memory:\n  provider:\n  pin: warn\n", "memory:\n  provider: honcho\n  pin: warn\n"),
        ("memory:\n  provider: # c\n", "memory:\n  provider: honcho # c\n"),
        ("memory:\n  provider: ''\n", "memory:\n  provider: honcho\n"),
        ("memory:\n  provider: ~\n", "memory:\n  provider: honcho\n"),
        ("memory:\n  provider: [a, b]\n", "memory:\n  provider: honcho\n"),
        ("memory:\n  provider: >-\n    mem0\n  a: 1\n", "memory:\n  provider: honcho\n  a: 1\n"),
        ("memory:\n  provider:\n    mem0\n  a: 1\n", "memory:\n  provider: honcho\n  a: 1\n"),
        ("---\nmemory:\n  provider: x\n...\n", "---\nmemory:\n  provider: honcho\n...\n"),
        ("memory: {provider: mem0, a: 1}\n", "memory: {provider: honcho, a: 1}\n"),
        ("memory: {a: 1, provider: mem0,}\n", "memory: {a: 1, provider: honcho,}\n"),
        ('{"memory": {"provider": "x"}}', '{"memory": {"provider": honcho}}'),
        ("  memory:\n    provider: x\n  b: 1\n", "  memory:\n    provider: honcho\n  b: 1\n"),
        ("? memory\n: provider: x\n", "? memory\n: provider: honcho\n"),
    ],
)
def test_setting_the_provider(config, text, expected):
    check(config, text, {PROVIDER: "honcho"}, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "memory:\n  provider: mem0\n",
            f"memory:\n  provider: mem0\n  acme:\n    mem0: {OWNER_TEXT}\n",
        ),
        ("memory:\n  acme:\n", f"memory:\n  acme:\n    mem0: {OWNER_TEXT}\n"),
        ("memory:\n  acme:  # c\n", f"memory:\n  acme:  # c\n    mem0: {OWNER_TEXT}\n"),
        ("memory:\n  acme: {}\n", f"memory:\n  acme: {{mem0: {OWNER_TEXT}}}\n"),
        ("memory: {}\n", f"memory: {{acme: {{mem0: {OWNER_TEXT}}}}}\n"),
        (
            "memory:\n  acme:\n    mem0:\n      owner: x\n  # tail\n",
            f"memory:\n  acme:\n    mem0: {OWNER_TEXT}\n  # tail\n",
        ),
        (
            "memory:\n    acme:\n        a: {owner: x}\n    z: 1\n",
            f"memory:\n    acme:\n        a: {{owner: x}}\n        mem0: {OWNER_TEXT}\n    z: 1\n",
        ),
    ],
)
def test_setting_a_field(config, text, expected):
    check(config, text, {FIELD: OWNER}, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory:\n  acme:\n    mem0: {owner: x} # c\n", "memory:\n  acme:\n    {} # c\n"),
        ("memory:\n  acme: {mem0: {owner: x}} # c\n", "memory:\n  acme: {} # c\n"),
        ("memory: {acme: {mem0: 1, a: 2}}\n", "memory: {acme: {a: 2}}\n"),
        ("memory: {acme: {a: 2, mem0: 1}}\n", "memory: {acme: {a: 2}}\n"),
        (
            "memory:\n  acme:\n    a: 1\n    mem0: 2\n    b: 3\n",
            "memory:\n  acme:\n    a: 1\n    b: 3\n",
        ),
        (
            "memory:\n  acme:\n    # about\n    mem0:\n      owner: x\n\n    # b\n    b: 3\n",
            "memory:\n  acme:\n    # about\n\n    # b\n    b: 3\n",
        ),
        ("memory:\r\n  acme:\r\n    a: 1\r\n    mem0: 2\r\n", "memory:\r\n  acme:\r\n    a: 1\r\n"),
        ("memory:\n  acme:\n    other: 1\n", "memory:\n  acme:\n    other: 1\n"),
        ("memory:\n  acme:\n", "memory:\n  acme:\n"),
        ("model: x\n", "model: x\n"),
        ("# nothing\n", "# nothing\n"),
    ],
)
def test_removing_a_field(config, text, expected):
    check(config, text, {FIELD: DELETE}, expected)


BOM = "\ufeff"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory:\n", "memory:\n  provider: honcho\n"),
        ("model: x\n", "model: x\nmemory:\n  provider: honcho\n"),
    ],
)
def test_a_file_with_a_byte_order_mark_keeps_it(config, text, expected):
    """Windows' editors put it there."""
    check(config, BOM + text, {PROVIDER: "honcho"}, BOM + expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory:\n  provider: mem0\n", "memory:\n  provider: honcho\n"),
        ("memory: {}\n", "memory: {provider: honcho}\n"),
    ],
)
def test_a_file_with_a_byte_order_mark_can_be_changed(config, loader, request, text, expected):
    check(config, BOM + text, {PROVIDER: "honcho"}, BOM + expected)


def test_what_comes_from_a_merge_is_overridden_in_its_own_section(config):
    text = "base: &b {provider: x}\nmemory:\n  <<: *b\n"
    check(config, text, {PROVIDER: "honcho"}, text + "  provider: honcho\n")


@pytest.mark.parametrize(
    "text", ["memory: {a: 1,}\n", "memory: {\n  a: 1,\n}\n", "memory: {\n  a: 1,  # c\n}\n"]
)
def test_a_trailing_comma_is_no_obstacle(config, text):
    config.write(text)
    after = config.change({PROVIDER: "honcho"})
    assert by_yaml_12(after) == with_change(by_yaml_12(text), PROVIDER, "honcho")


@pytest.mark.parametrize("text", ["---\n...\n", "# c\n--- # start\n# d\n...\n"])
def test_an_empty_document_with_both_its_markers_is_filled(config, text):
    config.write(text)
    after = config.change({PROVIDER: "honcho"})
    assert by_yaml_12(after) == with_change({}, PROVIDER, "honcho")


def test_an_alias_is_replaced_by_the_value(config):
    text = "name: &n mem0\nmemory:\n  provider: *n  # c\n"
    check(config, text, {PROVIDER: "honcho"}, text.replace("*n", "honcho"))


def test_a_flow_section_that_ends_in_an_alias_is_extended(config):
    text = "name: &n x\nmemory: {a: 1, b: *n}\n"
    check(config, text, {PROVIDER: "z"}, text.replace("*n}", "*n, provider: z}"))
