"""Mutants of the family config."""

import json
from pathlib import Path

from hermes_memory_acme import AcmeProvider

from hermes_core import MemoryProvider


class HP401(AcmeProvider):
    def get_config_schema(self):
        bad = {"key": "mode", "description": "How", "choices": ["a", "b"], "default": "c"}
        return [*super().get_config_schema(), bad]


class HP402(AcmeProvider):
    def get_config_schema(self):
        return [*super().get_config_schema(), {"key": "mode"}]


class HP403(AcmeProvider):
    save_config = MemoryProvider.save_config


class HP404(AcmeProvider):
    def save_config(self, values, hermes_home):
        if not Path(hermes_home, "acme", "config.json").exists():
            super().save_config(values, hermes_home)


class HP405(AcmeProvider):
    def get_config_schema(self):
        token = {"key": "token", "description": "The key to the service", "secret": True}
        return [*super().get_config_schema(), token]

    def initialize(self, session_id, **kwargs):
        super().initialize(session_id, **kwargs)
        self.save_config(dict(kwargs["provider_config"]), kwargs["hermes_home"])


class HP406(AcmeProvider):
    def save_config(self, values, hermes_home):
        file = Path(hermes_home) / "acme" / "config.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(values))
        file.chmod(0o644)
