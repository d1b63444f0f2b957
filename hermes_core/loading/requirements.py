"""What a plugin declares that it needs: packages, programs and variables."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_core.discovery import ProviderInfo, manifest_of

if TYPE_CHECKING:
    from packaging.requirements import Requirement


def applicable_requirements(texts: Iterable[object]) -> tuple[list[Requirement], list[str]]:
    """Parse requirements such as ``acme>=2; python_version < "3.13"``.

    Returns:
        Those whose marker holds for this interpreter with no extra chosen, and the texts that
        are not valid requirements.
    """
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - slow

    found: list[Requirement] = []
    invalid: list[str] = []
    for text in map(str, texts):
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            invalid.append(text)
            continue
        # Without {"extra": ""} packaging raises for a marker that mentions an extra.
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            found.append(wanted)
    return found, invalid


class Lack(NamedTuple):
    """Something that a plugin declares and this machine lacks, and how to get it, if known."""

    what: str
    hint: str = ""


def missing_packages(info: ProviderInfo) -> Lack | None:
    """Return the declared packages that are not installed, with the command to install them."""
    declared = _listed(manifest_of(info), "pip_dependencies")
    # Invalid requirements are left to `doctor`, which lists them.
    missing = [
        each
        for each in (applicable_requirements(declared)[0] if declared else ())
        if not _is_installed(each.name)
    ]
    if not missing:
        return None
    what = "; ".join(f"the package {each.name} is not installed" for each in missing)
    return Lack(what, f"run: pip install {' '.join(map(_quoted, missing))}")


def _quoted(requirement: Requirement) -> str:
    """Return a requirement as a shell takes it; its marker holds, so it is left out."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    place = f" @ {requirement.url}" if requirement.url else str(requirement.specifier)
    return shlex.quote(f"{requirement.name}{extras}{place}")


def missing_needs(info: ProviderInfo) -> Lack | None:
    """Return all that a plugin.yaml declares and this machine lacks."""
    manifest, packages = manifest_of(info), missing_packages(info)
    programs = _missing_programs(_listed(manifest, "external_dependencies"))
    variables = _missing_variables(_listed(manifest, "requires_env"))
    found = [*([packages.what] if packages else []), *programs, *variables]
    return Lack("; ".join(found), packages.hint if packages else "") if found else None


def _listed(manifest: Mapping[str, Any], key: str) -> list[Any]:
    value = manifest.get(key)
    return value if isinstance(value, list) else []


def _is_installed(package: str) -> bool:
    from importlib_metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow

    try:
        version(package)
    except PackageNotFoundError:
        return False
    except Exception:  # noqa: BLE001 - metadata without a version: something is there
        return True
    return True


def _missing_programs(declared: list[Any]) -> Iterator[str]:
    for each in declared:
        if not isinstance(each, Mapping):
            continue
        # `check` is a shell command such as "brew --version". It is never run: only its program is
        # looked for.
        words = str(each.get("check") or each.get("name") or "").split()
        if words and shutil.which(words[0]) is None:
            install = each.get("install")
            advice = f"; its plugin.yaml says: {install}" if install else ""
            yield f"the program {words[0]} is not on the PATH{advice}"


def _missing_variables(declared: list[Any]) -> Iterator[str]:
    for each in declared:
        name = each.get("name") if isinstance(each, Mapping) else each
        if isinstance(name, str) and name not in os.environ:
            yield f"the variable {name} is not set"
