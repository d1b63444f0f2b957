"""Runs pip, uv and git, and turns their error output into one line that says what to do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import IO, Final, NamedTuple

from hermes_core.install._sources import InstallError, NoSuchPackage
from hermes_core.storage.processes import end_tree

#: How long a command that was interrupted may take to undo what it had begun.
_GRACE_SECONDS: Final = 15

#: Called with each line of a command's output, as it comes.
Progress = Callable[[str], None]


#: What takes time, as pip and uv print it.
# pip: "Downloading name-1.0.whl (12 kB)", but not the small .metadata files of the resolver;
# "Building wheels for collected packages: a, b". uv: "Downloading name (1.0MiB)", "Building a".
_STEP: Final = re.compile(
    r"\s*(?:Downloading (?P<file>\S+(?<!\.metadata) \(.+\))"
    r"|Building (?:wheels for collected packages: )?(?P<name>.+))"
)


class CommandResult(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def run(
    command: Sequence[str],
    *,
    progress: Progress | None = None,
    prompts: bool = False,
    **variables: str,
) -> CommandResult:
    """Run a command to its end.

    Args:
        command: What to run; never through a shell.
        progress: Called with each line of its output.
        prompts: Whether it may ask a person for a password. Then it stays in the terminal's
            process group, and the processes that it starts are not ended with it.
        variables: Added to its environment.
    """
    with subprocess.Popen(  # noqa: S603
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        # Its own process group, so that Ctrl-C reaches only us and we decide how it ends. A new
        # session has no terminal, in which git could ask for a password.
        start_new_session=os.name == "posix" and not prompts,
        # LC_ALL=C: the patterns below are for English messages.
        env={**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "utf-8", **variables},
    ) as process:
        # Two threads, since a full pipe of one stream would block the command while we read the
        # other.
        said: tuple[list[str], list[str]] = ([], [])
        readers = [
            Thread(target=_read, args=(stream, lines, progress), daemon=True)
            for stream, lines in zip((process.stdout, process.stderr), said, strict=True)
        ]
        try:
            for each in readers:
                each.start()
            code = process.wait()
        except BaseException:
            _interrupt(process, alone=not prompts)
            raise
        finally:
            for each in readers:
                each.join(1)  # not for ever: a grandchild may hold the other end of the pipe
    return CommandResult(code, "".join(said[0]), "".join(said[1]))


def report_steps(progress: Progress) -> Progress:
    """Reports downloads and builds, out of everything that pip or uv print."""

    def report(line: str) -> None:
        found = _STEP.match(line)
        if found:
            progress(
                f"downloading {found['file']}" if found["file"] else f"building {found['name']}"
            )

    return report


def _read(stream: IO[str], lines: list[str], progress: Progress | None) -> None:
    for line in stream:
        lines.append(line)
        if progress is not None:
            progress(line)


def _interrupt(process: subprocess.Popen[str], *, alone: bool) -> None:
    """Let a command undo what it began, then end it with everything that it started."""
    with suppress(OSError):
        # Windows has no SIGINT for another process group.
        if os.name == "nt":
            process.terminate()
        elif alone:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    if alone:
        end_tree(process, grace=0)
    else:
        process.kill()


class _Kind(NamedTuple):
    """A kind of failure: how it is recognised, what we report, and what helps."""

    pattern: str
    what: str
    hint: str = ""
    error: type[InstallError] = InstallError


_UNREACHABLE: Final = (
    r"NewConnectionError|Failed to establish a new connection|name resolution|getaddrinfo"
    r"|Name or service not known|ConnectTimeout|ReadTimeout|ProxyError|NameResolutionError"
    r"|error sending request|Failed to fetch|Network is unreachable|Connection refused"
)

#: The first match counts. If the network is down, pip reports "not found" as well.
# Order: causes outside of the packages first, general wordings such as "is invalid" last.
_KINDS: Final = (
    _Kind(
        r"externally[- ]managed",
        "the operating system manages this Python, and does not let pip change it",
        "use a virtual environment, or: pipx install hermes-plugins",
    ),
    _Kind(
        r"\[Errno 13\]|Permission denied|PermissionError|Read-only file system|Access is denied",
        "no permission to write where packages are installed",
        f"use a virtual environment instead of {sys.prefix}",
    ),
    _Kind(r"No space left|\[Errno 28\]", "the disk is full"),
    _Kind(
        r"CERTIFICATE_VERIFY_FAILED|SSLError|invalid peer certificate",
        "the certificate of the package index is not valid here",
    ),
    _Kind(_UNREACHABLE, "the package index is unreachable", "check the network, or PIP_INDEX_URL"),
    _Kind(
        # The newest come last.
        r"from versions: (?!none\))(?:[^)]*?, )??(?P<versions>[^,)]+(?:, [^,)]+){0,4})\)",
        "no such version; the newest are: {versions}",
    ),
    _Kind(r"there (?:is|are) no versions? of (?P<spec>\S+)", "no such version: {spec}"),
    _Kind(
        r"requires a different Python: (?P<have>\S+) not in '(?P<want>[^']+)'"
        r"|require a different python version|current Python version| requires Python [<>=~!]",
        "it requires another version of Python; this is "
        + ".".join(map(str, sys.version_info[:3])),
    ),
    _Kind(
        r"Cannot install (?P<names>.+?) because these package versions have conflict",
        "conflict of versions: this environment can't meet the requirements of {names}",
        "try another version of the plugin, or a separate virtual environment",
    ),
    _Kind(
        r"ResolutionImpossible|conflicting dependencies|incompatible|depends? on .*unsatisfiable",
        "conflict of versions: it requires other versions than this environment",
        "try another version of the plugin, or a separate virtual environment",
    ),
    _Kind(
        r"No matching distribution found for (?P<name>[^\s(]+)"
        r"|(?P<name2>\S+) was not found in the package registry"
        r"|(?P<name3>\S+) was not found in the provided",
        "the package index has no {name}",
        "check the spelling",
        NoSuchPackage,
    ),
    _Kind(
        r"Invalid requirement: '?(?P<spec>[^'\n]*)|Failed to parse: `(?P<spec2>[^`]*)",
        "{spec!r} is not a valid requirement",
        "write a name, with or without a version: name==1.2",
    ),
    _Kind(
        r"not a supported wheel on this platform|has no wheels with a matching",
        "the wheel is for another platform, or for another version of Python",
    ),
    _Kind(
        r"subprocess-exited-with-error|[Ff]ailed to build|metadata-generation-failed"
        r"|Failed building|build backend",
        "its build failed",
        "look for a version with a wheel for this platform",
    ),
    _Kind(
        r"is invalid|BadZipFile|bad zip|Wheel .* invalid|not a valid wheel",
        "the file is not a valid wheel",
    ),
    _Kind(
        r"no such option: (?:--report|--dry-run)",
        "this pip is too old to show what it would install",
        "run: pip install --upgrade pip",
    ),
)

_PREFIX: Final = re.compile(r"^\s*(?:ERROR|error|fatal|cause)\s*:\s*(.+)$", re.MULTILINE)


def install_error(said: str, spec: str) -> InstallError:
    """The error for what pip or uv printed about a specification."""
    # Colours, which uv may print even to a pipe.
    text = re.sub(r"\x1b\[[0-9;]*m", "", said)
    for kind in _KINDS:
        found = re.search(kind.pattern, text, re.DOTALL)
        if found:
            values = {
                # A group name may occur once in a pattern: name, name2 and name3 are alternatives.
                key.rstrip("0123456789"): _short(value)
                for key, value in found.groupdict().items()
                if value
            }
            return kind.error(kind.what.format(**values), where=spec, hint=kind.hint)
    lines = _PREFIX.findall(text) or text.strip().splitlines()[-1:]
    return InstallError(
        _short(lines[0]) if lines else "it failed without an error message", where=spec
    )


def _short(text: str, limit: int = 200) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]}…"
