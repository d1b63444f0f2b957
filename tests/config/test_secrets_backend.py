"""secrets.backend: where new secrets go. The rest of the section is hermes-agent's."""

from __future__ import annotations

import pytest

from hermes_core.config import Config, load_config
from hermes_core.errors import ConfigError


@pytest.mark.parametrize("backend", ["auto", "keyring", "dotenv"])
def test_it_is_read(config, backend):
    home = config.write(f"secrets: {{backend: {backend}}}\n")
    assert load_config(home).secrets_backend == backend
    assert load_config(home).warnings == ()


@pytest.mark.parametrize("text", ["", "secrets:\n", "secrets: {}\n", "secrets: {backend: }\n"])
def test_it_is_auto_by_default(config, text):
    assert load_config(config.write(text)).secrets_backend == "auto"
    assert Config(config.home).secrets_backend == "auto"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("secrets: {backend: vault}", "secrets.backend: expected one of auto, keyring, dotenv"),
        ("secrets: {backend: [auto]}", "secrets.backend: expected one of auto, keyring, dotenv"),
        ("secrets: keyring", "secrets: expected a mapping, got a string"),
        ("secrets: {backnd: auto}", "secrets.backnd: unknown key; did you mean backend?"),
        ("secret: {backend: auto}", "secret: unknown key; did you mean secrets?"),
    ],
)
def test_a_wrong_one_is_an_error_with_its_line(config, text, problem):
    with pytest.raises(ConfigError) as caught:
        load_config(config.write(f"# one\n{text}\n"))
    assert str(caught.value).startswith(f"config.yaml:2: {problem}")


def test_the_keys_of_hermes_agent_are_left_alone_without_a_word(config):
    home = config.write("secrets:\n  sources: [bitwarden]\n  bitwarden: {enabled: true}\n")
    assert load_config(home).warnings == ()
