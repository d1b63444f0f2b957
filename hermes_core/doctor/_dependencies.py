"""What a plugin says it needs, against what is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from hermes_core.discovery import ProviderInfo, manifest_of
from hermes_core.doctor._finding import OK, PROBLEM, WARNING, Finding
from hermes_core.doctor._markers import applies
from hermes_core.doctor._versions import is_met

_REQUIREMENT: Final = re.compile(
    r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?"
)


def examine_dependencies(info: ProviderInfo) -> Iterator[Finding]:
    """Each requirement that is not met; one line if all are."""
    from importlib_metadata import PackageNotFoundError, requires  # noqa: PLC0415

    wanted: list[str] = []
    if info.distribution:
        with suppress(PackageNotFoundError):
            wanted += requires(info.distribution) or []
    declared = manifest_of(info).get("pip_dependencies")
    wanted += (
        [each for each in declared if isinstance(each, str)] if isinstance(declared, list) else []
    )
    matches = [match for text in wanted if (match := _REQUIREMENT.fullmatch(text))]
    ours = [match for match in matches if not match[3] or applies(match[3])]
    findings = [found for match in ours if (found := _lack(match[1], match[2].strip()))]
    yield from findings
    if ours and not findings:
        yield Finding("dependencies", OK, f"{len(ours)} declared, none missing")


def _lack(name: str, clauses: str) -> Finding | None:
    """What is wrong with a package that is needed, if anything is."""
    from importlib_metadata import PackageNotFoundError, version  # noqa: PLC0415

    install = f"pip install '{name}{clauses}'"
    try:
        installed = version(name)
    except PackageNotFoundError:
        return Finding(f"needs {name}", PROBLEM, "not installed", install)
    except KeyError:
        installed = None
    if not installed:
        detail = "broken: its metadata has no version"
        return Finding(f"needs {name}", PROBLEM, detail, f"{install} --force-reinstall")
    if is_met(installed, clauses):
        return None
    detail = f"{installed} is installed, wanted is {clauses}"
    return Finding(f"needs {name}", WARNING, detail, install)
