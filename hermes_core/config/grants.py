"""Which variables a plugin gets: its own, and those that a person granted to it.

A plugin names the variables that it wants, in its fields and its plugin.yaml. Without a rule it
could name ``OPENAI_API_KEY``, or another plugin's key, and would find it in its environment and
in ``provider_config``. So a name that is not its own needs a person's consent.

Its own are the secrets that were stored for it (by `setup`, or ``secrets set --provider``), and
what it declares below its name, ``<NAME>_*``. The latter does not hold for a secret that was
stored for another plugin, and not for names of vendors whose keys many programs use: to be
called ``aws`` must not be enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from hermes_core.config import Config, PluginFacts
from hermes_core.config.environment import is_ours
from hermes_core.config.fields import variable_of
from hermes_core.config.names import normalise

if TYPE_CHECKING:
    from hermes_core.discovery import ProviderInfo
    from hermes_core.secrets import Secrets

#: First words of variables that belong to a vendor or a program, and to no plugin of that name.
_VENDORS: Final = frozenset(
    ("ANTHROPIC", "AWS", "AZURE", "CLAUDE", "CLOUDFLARE", "COHERE", "DATABASE", "DB", "DEEPSEEK",
     "DISCORD", "DOCKER", "GCP", "GEMINI", "GH", "GIT", "GITHUB", "GITLAB", "GOOGLE", "GROQ",
     "HERMES", "HF", "HUGGINGFACE", "MISTRAL", "NPM", "OPENAI", "OPENROUTER", "PG", "POSTGRES",
     "PYPI", "PYTHON", "SLACK", "SSH", "STRIPE", "TELEGRAM", "TWILIO", "VOYAGE", "XAI")
)  # fmt: skip


class Grants:
    """The variables that one plugin may have.

    Args:
        config: What config.yaml and the lock file say.
        info: The plugin.
        secrets: What is stored, and for whom.
        listed: What ``memory.<name>.env`` lists: a person wrote that.
    """

    def __init__(
        self, config: Config, info: ProviderInfo, secrets: Secrets, listed: Iterable[str] = ()
    ) -> None:
        self._key = info.key
        # Of the listed name alone: a plugin chooses what it calls itself, and nobody sees that.
        self._prefix = variable_of(info.name, "")
        self._stored_for = {name: each.provider for name, each in secrets.index.read().items()}
        self._in_file = {name for name, value in secrets.env_file.read().items() if value}
        self._listed = frozenset(listed)
        granted = config.selection.grants.get(info.key, ())
        facts = config.selection.facts.get(info.key, PluginFacts())
        #: What a person granted. An entry from before there were grants granted what it recorded.
        self.names = {*facts.env, *self.below_name()} if granted is None else {*granted}

    def allows(self, variable: str) -> bool:
        """Whether the plugin gets this variable if it asks for it."""
        if variable in self.names or variable in self._listed:
            return True
        if owner := self._stored_for.get(variable):
            return normalise(owner) == self._key
        return variable.startswith(self._prefix) and self._prefix.rstrip("_") not in _VENDORS

    def stored(self) -> set[str]:
        """The secrets that it gets although it declares nothing: they were stored for it."""
        return {
            name for name, owner in self._stored_for.items() if normalise(owner) == self._key
        } | self.names

    def readable(self) -> set[str]:
        """The stored secrets that it may read."""
        return {name for name in {*self._in_file, *self._stored_for} if self.allows(name)}

    def below_name(self) -> set[str]:
        """What .env has below its name, and was stored for nobody: it may read it without a word.

        Many plugins for hermes-agent read variables that they do not declare.
        """
        return {
            name
            for name in self._in_file
            if name.startswith(self._prefix) and not self._stored_for.get(name)
        }

    def withheld(self, variables: Iterable[str]) -> list[str]:
        """Those of some variables that have a value, which the plugin does not get."""
        return sorted({each for each in variables if self.is_withheld(each)})

    def is_withheld(self, variable: str) -> bool:
        """Whether a variable has a value that the plugin does not get."""
        return not self.allows(variable) and self._has_value(variable)

    def _has_value(self, variable: str) -> bool:
        stored = variable in self._in_file or variable in self._stored_for
        return stored or (bool(os.environ.get(variable)) and not is_ours(variable))


def carried_grants(config: Config, info: ProviderInfo, secrets: Secrets) -> tuple[str, ...]:
    """What a person granted to this plugin before, unless it has another owner now."""
    pin = config.selection.pins.get(info.key)
    if pin is None or not info.owned_by(pin.owner):
        return ()
    return tuple(sorted(Grants(config, info, secrets).names))


def grant_hint(name: str, variables: Iterable[str]) -> str:
    """How to grant variables to a plugin."""
    return f"run: hermes-plugins enable {name} " + " ".join(f"--grant {each}" for each in variables)
