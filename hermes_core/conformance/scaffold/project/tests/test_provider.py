"""What is special about this plugin."""

from pathlib import Path

import pytest
from hermes_memory_acme import AcmeProvider


@pytest.fixture
def provider(tmp_path: Path):
    made = AcmeProvider()
    made.initialize("session-1", hermes_home=str(tmp_path), user_id="ada")
    yield made
    made.shutdown()


def test_a_turn_is_recalled_under_the_heading(provider: AcmeProvider):
    provider.sync_turn("My parrot is called Polly.", "A fine name.")
    recalled = provider.prefetch("What is the parrot called?")
    assert recalled.splitlines()[0] == "What was said before:"
    assert "Polly" in recalled


def test_a_setting_that_was_saved_counts(provider: AcmeProvider, tmp_path: Path):
    provider.save_config({"heading": "Remember:"}, str(tmp_path))
    provider.initialize("session-2", hermes_home=str(tmp_path), user_id="ada")
    provider.sync_turn("My parrot is called Polly.", "A fine name.")
    assert provider.prefetch("parrot").startswith("Remember:")
