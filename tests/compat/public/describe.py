"""What a plugin says about itself, as JSON. Runs in the plugin's environment: describe.py NAME.

Its metadata and plugin.yaml, and the fields that it declares, for which it has to be loaded.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from hermes_core import discover
from hermes_core.config.document import LOADER, YamlProblem, parse
from hermes_core.config.fields import read_fields
from hermes_core.discovery import ProviderInfo, content_hash
from hermes_core.loading import load_provider

LOAD_SECONDS = 60


def main(name: str) -> None:
    """Print the description of one provider."""
    info = next(each for each in discover(everything=True) if each.name == name)
    manifest = _manifest(info)
    described = {
        "description": info.description or _summary(info) or str(manifest.get("description") or ""),
        "requires_env": _names(manifest.get("requires_env")),
        "packages": [each for each in _names(manifest.get("pip_dependencies")) if _missing(each)],
        "fields": [],
        # A grade is about these files, and about no others of this name and version.
        "hash": content_hash(info),
    }
    # Whatever it does when it is loaded: `check` reports that.
    with suppress(Exception):
        described["fields"] = _fields(info)
    print(json.dumps(described))


def _manifest(info: ProviderInfo) -> dict[str, Any]:
    """Return the content of its plugin.yaml; {} without one."""
    files = [Path(info.directory, "plugin.yaml")] if info.directory else []
    with suppress(importlib.metadata.PackageNotFoundError):
        found = importlib.metadata.files(info.distribution) or []
        files += [Path(str(each.locate())) for each in found if each.name == "plugin.yaml"]
    for file in files:
        with suppress(OSError, UnicodeDecodeError, YamlProblem):
            _, data = parse(file.read_text("utf-8-sig"), LOADER)
            if isinstance(data, dict):
                return data
    return {}


def _summary(info: ProviderInfo) -> str:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.metadata(info.distribution)["Summary"] or ""
    return ""


def _names(rows: Any) -> list[dict[str, Any]]:
    """Return strings, or mappings with a name, in one form."""
    found = [each if isinstance(each, dict) else {"name": each} for each in rows or ()]
    return [
        {"name": str(each["name"]), "required": bool(each.get("required", True))}
        for each in found
        if isinstance(each.get("name"), str)
    ]


def _missing(requirement: dict[str, Any]) -> bool:
    """Whether a package that plugin.yaml names was not installed with the plugin."""
    name = requirement["name"]
    for sign in "[<>=!~; ":
        name = name.partition(sign)[0]
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return True
    return False


def _fields(info: ProviderInfo) -> list[dict[str, Any]]:
    provider = load_provider(info, deadline=LOAD_SECONDS)
    fields = read_fields(provider.get_config_schema() or (), info.name)
    return [
        {
            "key": each.key,
            "variable": each.variable,
            "secret": each.secret,
            # A field that only some choice of another one asks for is not needed by everybody.
            "required": each.required and each.default is None and not each.when,
        }
        for each in fields
    ]


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.flush()
