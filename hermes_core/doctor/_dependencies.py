"""What a plugin says it needs, against what is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from hermes_core.discovery import ProviderInfo, manifest_of
from hermes_core.doctor._finding import OK, PROBLEM, WARNING, Finding

_REQUIREMENT: Final = re.compile(
    r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(;.*)?"
)
_CLAUSE: Final = re.compile(r"\s*(===|==|!=|<=|>=|~=|<|>)\s*([^\s,]+)\s*")
_NUMBERS: Final = re.compile(r"\d+")


def examine_dependencies(info: ProviderInfo) -> Iterator[Finding]:
    """Each requirement that is not met; one line if all are."""
    from importlib_metadata import PackageNotFoundError, requires, version  # noqa: PLC0415

    wanted: list[str] = []
    if info.distribution:
        with suppress(PackageNotFoundError):
            wanted += requires(info.distribution) or []
    declared = manifest_of(info).get("pip_dependencies")
    wanted += (
        [each for each in declared if isinstance(each, str)] if isinstance(declared, list) else []
    )
    missing = 0
    for text in wanted:
        match = _REQUIREMENT.fullmatch(text)
        if match is None or match[3]:  # with a marker it may not be for us
            continue
        name, clauses = match[1], match[2].strip()
        try:
            installed = version(name)
        except PackageNotFoundError:
            missing += 1
            yield Finding(
                f"needs {name}", PROBLEM, "not installed", f"pip install '{text.strip()}'"
            )
            continue
        if not is_met(installed, clauses):
            missing += 1
            detail = f"{installed} is installed, wanted is {clauses}"
            yield Finding(f"needs {name}", WARNING, detail, f"pip install '{text.strip()}'")
    if wanted and not missing:
        yield Finding("dependencies", OK, f"{len(wanted)} declared, none missing")


def is_met(installed: str, clauses: str) -> bool:
    """Whether a version satisfies all clauses, as far as their numbers tell."""
    have = _release(installed)
    for clause in filter(None, clauses.split(",")):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            continue
        sign, text = match[1], match[2]
        want = _release(text)
        if text.endswith(".*"):
            same = have[: len(want)] == want
            if (sign == "==" and not same) or (sign == "!=" and same):
                return False
        elif not _compares(have, sign, want):
            return False
    return True


def _compares(have: tuple[int, ...], sign: str, want: tuple[int, ...]) -> bool:
    width = max(len(have), len(want))
    left, right = (each + (0,) * (width - len(each)) for each in (have, want))
    if sign == "~=":
        return left >= right and have[: len(want) - 1] == want[:-1]
    return {
        "==": left == right, "===": left == right, "!=": left != right, "<=": left <= right,
        ">=": left >= right, "<": left < right, ">": left > right,
    }[sign]  # fmt: skip


def _release(text: str) -> tuple[int, ...]:
    """The numbers of a version, without what follows them."""
    release = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(map(int, _NUMBERS.findall(release[1]))) if release else (0,)
