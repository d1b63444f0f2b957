"""Makes hermes_core/install/plugins.json, the index of plugins, from results.json.

Nothing in the index is written by hand: it is what the packages say about themselves
(`describe.py`) and what the runs have shown.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
INDEX = HERE.parents[2] / "hermes_core" / "install" / "plugins.json"

# By how the names of variables and fields end, which authors choose alike: HOST_FILES_ROOT is no
# server, and MAX_TOKENS, REDACT_SECRETS and API_KEY_ENV are no keys.
_SERVER = re.compile(r"(^|_)(url|uri|host|endpoint|dsn|port|server|address)$", re.IGNORECASE)
_KEY = re.compile(r"(key|token|secret|password|credentials?)$", re.IGNORECASE)
# A server that answers questions, but does not store memories.
_MODEL = re.compile(r"llm|embed|model|openai|anthropic|ollama|rerank|chat", re.IGNORECASE)

# What a run of the host leaves, and what any program may: no memories.
_NO_MEMORIES = {
    *("SOUL.md", "audio_cache", "cron", "hooks", "image_cache", "pairing", "plugins", "sessions"),
    *("skills", ".cache", ".config", ".npm", ".local"),
}

_PROGRAM = re.compile(
    r"([\w-]+) (?:executable|binary|command)\b|([\w-]+) (?:is|was) not (?:on|found on|in) PATH"
)

_MAX_TEXT = 160


def main() -> int:
    """Write the index; with --check, return 1 if it is out of date."""
    results = json.loads((HERE / "results.json").read_text("utf-8"))
    text = json.dumps(index(results), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if "--check" in sys.argv:
        return int(not INDEX.exists() or INDEX.read_text("utf-8") != text)
    INDEX.write_text(text, "utf-8")
    return 0


def index(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the index."""
    plugins = [_entry(each) for each in results]
    return {
        "schema": 1,
        "made": max(each.get("tried", "") for each in results),
        # The oldest: each grade is of this one or a later one.
        "kit": min(each["kit"] for each in results if each.get("kit")),
        "plugins": sorted(plugins, key=lambda each: (each["name"], each["distribution"])),
    }


def _entry(result: dict[str, Any]) -> dict[str, Any]:
    checks = result.get("checks") or {}
    names = [result.get("name"), *(row[0] for row in result["listing"]), result["distribution"]]
    described = result.get("described") or {}
    return {
        "name": next(each for each in names if each),
        "distribution": result["distribution"],
        "version": result["version"],
        "description": _line(described.get("description") or result.get("summary", "")),
        "memories": memories(result),
        "needs": needs(result),
        "made_for": result.get("made_for", "hermes-agent"),
        "tested": bool(checks),
        "grade": checks.get("grade", "not graded"),
        "checks": {key: checks.get(key, empty) for key, empty in _NO_CHECKS.items()},
        "problem": _line(_problem(result)),
        "hash": described.get("hash", "") if checks else "",
    }


_NO_CHECKS: dict[str, Any] = {"passed": 0, "failed": [], "skipped": 0}


def _problem(result: dict[str, Any]) -> str:
    unpublished = "" if result.get("published", True) else "not on PyPI"
    listed = next((row[2] for row in result["listing"] if row[2]), "")
    failed = result.get("failures", {}).get("initialize", "")
    start = f"initialize failed here: {failed}" if failed else ""
    late = "" if result.get("checks") else "the checks did not finish here"
    return "; ".join(filter(None, (unpublished, result["problem"] or listed or start or late)))


def needs(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a person has to provide: keys, servers, settings, packages and programs."""
    described = result.get("described") or {}
    found: dict[str, dict[str, Any]] = {}
    for each in described.get("fields", ()):
        name = each["variable"] or each["key"]
        kind = "key" if each["secret"] else _kind(name)
        # Of what is optional only credentials and servers: the rest is configuration.
        if each["required"] or kind != "setting":
            found[name] = {"kind": kind, "name": name, "optional": not each["required"]}
    for each in described.get("requires_env", ()):
        kind = _kind(each["name"])
        row = {"kind": kind, "name": each["name"], "optional": not each["required"]}
        found.setdefault(each["name"], row)
    for each in described.get("packages", ()):
        found[each["name"]] = {"kind": "package", "name": each["name"], "optional": False}
    # A package that it imports and does not declare.
    for name in re.findall(r"No module named '([\w.]+)'", result["problem"]):
        found[name] = {"kind": "package", "name": name, "optional": False}
    # The words of those who look for a program: "the X executable", "X was not found on PATH".
    for name in ("".join(pair) for pair in _PROGRAM.findall(result["problem"])):
        found[name] = {"kind": "binary", "name": name, "optional": False}
    return sorted(found.values(), key=lambda row: (row["optional"], row["kind"], row["name"]))


def _kind(name: str) -> str:
    if _KEY.search(name):
        return "key"
    return "server" if _SERVER.search(name) else "setting"


def memories(result: dict[str, Any]) -> str:
    """Return where its memories live, as far as the run has shown it."""
    # What was recalled without a network is on this machine.
    recalls = result.get("recalls") or result.get("recalls_in_session")
    local = bool(recalls) and "server" not in result
    needed = [each for each in needs(result) if each["kind"] in ("key", "server")]
    elsewhere = [each for each in needed if not _MODEL.search(each["name"])]
    if local:
        remote = any(each["kind"] == "server" for each in elsewhere)
        return "both" if remote else "local"
    if elsewhere:
        return "service"
    # It may need the network for a model only: then its files say where the memories are.
    files = {*(result.get("files_in_home") or ()), *(result.get("writes_outside") or ())}
    if files - _NO_MEMORIES:
        return "local"
    return "service" if result.get("needs_network") and not needed else "unknown"


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1].rstrip()}…"


if __name__ == "__main__":
    sys.exit(main())
