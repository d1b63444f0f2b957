"""What pip and uv complain about, as one line that says what to do."""

from __future__ import annotations

import re
import sys
from typing import Final, NamedTuple

from hermes_core.installing._errors import InstallError


class _Kind(NamedTuple):
    """A complaint: how it is recognised, what we say, and what helps."""

    pattern: str
    what: str
    hint: str = ""


_UNREACHABLE: Final = (
    r"NewConnectionError|Failed to establish a new connection|name resolution|getaddrinfo"
    r"|Name or service not known|ConnectTimeout|ReadTimeout|ProxyError|NameResolutionError"
    r"|error sending request|Failed to fetch|Network is unreachable|Connection refused"
)

#: The first that matches counts. A network that is down is told by pip as "not found".
_KINDS: Final = (
    _Kind(
        r"externally[- ]managed",
        "this Python belongs to the operating system, which does not want pip to change it",
        "use a virtual environment, or: pipx install hermes-plugins",
    ),
    _Kind(
        r"\[Errno 13\]|Permission denied|PermissionError|Read-only file system|Access is denied",
        "no permission to write where packages are installed",
        f"it is {sys.prefix}; use a virtual environment of your own",
    ),
    _Kind(r"No space left|\[Errno 28\]", "there is no room left on the disk"),
    _Kind(
        r"CERTIFICATE_VERIFY_FAILED|SSLError|invalid peer certificate",
        "the package index can't be trusted: its certificate is not valid here",
    ),
    _Kind(
        _UNREACHABLE, "the package index can't be reached", "check the network, or PIP_INDEX_URL"
    ),
    _Kind(
        # The newest come last.
        r"from versions: (?!none\))(?:[^)]*?, )??(?P<versions>[^,)]+(?:, [^,)]+){0,4})\)",
        "there is no such version; the newest are: {versions}",
    ),
    _Kind(r"there (?:is|are) no versions? of (?P<spec>\S+)", "there is no {spec}"),
    _Kind(
        r"requires a different Python: (?P<have>\S+) not in '(?P<want>[^']+)'"
        r"|require a different python version|current Python version| requires Python [<>=~!]",
        "it needs another version of Python; this is " + ".".join(map(str, sys.version_info[:3])),
    ),
    _Kind(
        r"Cannot install (?P<names>.+?) because these package versions have conflict",
        "conflict of versions: what {names} needs does not go with what is needed here",
        "another version of the plugin, or a virtual environment of its own, may do",
    ),
    _Kind(
        r"ResolutionImpossible|conflicting dependencies|incompatible|depends? on .*unsatisfiable",
        "conflict of versions: what it needs does not go with what is needed here",
        "another version of the plugin, or a virtual environment of its own, may do",
    ),
    _Kind(
        r"No matching distribution found for (?P<name>[^\s(]+)"
        r"|(?P<name2>\S+) was not found in the package registry"
        r"|(?P<name3>\S+) was not found in the provided",
        "the package index has no {name}",
        "is it spelt right?",
    ),
    _Kind(
        r"Invalid requirement: '?(?P<spec>[^'\n]*)|Failed to parse: `(?P<spec2>[^`]*)",
        "{spec!r} is no requirement",
        "one name, and a version if you like: name==1.2",
    ),
    _Kind(
        r"not a supported wheel on this platform|has no wheels with a matching",
        "the wheel is for another platform, or for another version of Python",
    ),
    _Kind(
        r"subprocess-exited-with-error|[Ff]ailed to build|metadata-generation-failed"
        r"|Failed building|build backend",
        "its build failed",
        "its authors' wheel, if there is one, needs none",
    ),
    _Kind(
        r"is invalid|BadZipFile|bad zip|Wheel .* invalid|not a valid wheel",
        "the file is not a wheel that can be read",
    ),
    _Kind(
        r"no such option: (?:--report|--dry-run)",
        "this pip is too old to say what it would install",
        f"run: {sys.executable} -m pip install --upgrade pip",
    ),
)

_PREFIX: Final = re.compile(r"^\s*(?:ERROR|error|fatal|cause)\s*:\s*(.+)$", re.MULTILINE)


def complaint(said: str, spec: str) -> InstallError:
    """The error for what pip or uv said about a specification."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", said)
    for kind in _KINDS:
        found = re.search(kind.pattern, text, re.DOTALL)
        if found:
            values = {
                key.rstrip("0123456789"): _short(value)
                for key, value in found.groupdict().items()
                if value
            }
            return InstallError(kind.what.format(**values), where=spec, hint=kind.hint)
    lines = _PREFIX.findall(text) or text.strip().splitlines()[-1:]
    return InstallError(_short(lines[0]) if lines else "it failed, without a word", where=spec)


def _short(text: str, limit: int = 200) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]}…"
