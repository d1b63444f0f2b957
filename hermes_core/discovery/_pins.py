"""Pins: who owned a provider, and with which content, when a person enabled it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from hermes_core.config import Pin, Selection
from hermes_core.discovery._info import ProviderInfo
from hermes_core.names import normalise


def pin_of(info: ProviderInfo) -> Pin:
    """The pin for a provider as it is installed now."""
    return Pin(info.owner, info.version, content_hash(info))


def pin_problem(info: ProviderInfo, selection: Selection) -> str:
    """What differs from the selection's pin, in one line; "" if nothing or not pinned."""
    pin = selection.pin
    if pin is None or not pin.owner:
        return ""
    again = f"run: hermes-plugins enable {info.name}"
    if not info.owned_by(pin.owner):
        return f"belongs to {info.owner}, but was enabled as {pin.owner}'s; {again}"
    if pin.version and pin.version != info.version:
        return f"is version {info.version or 'unknown'}, but was enabled as {pin.version}; {again}"
    if pin.hash and pin.hash != content_hash(info):
        return f"its files differ from those that were enabled; {again}"
    return ""


def same_owner(info: ProviderInfo, pin: Pin | None) -> bool:
    """Whether the pin, if there is one, names this provider's owner."""
    return pin is None or not pin.owner or normalise(pin.owner) == normalise(info.owner)


def content_hash(info: ProviderInfo) -> str:
    """A hash over the package's files: their names and contents, nothing else.

    Of a distribution, the files in RECORD without metadata, scripts and bytecode (an
    editable install has none); of a directory plugin, all in the directory.
    """
    from hashlib import sha256  # noqa: PLC0415 - only for the provider that is pinned

    whole = sha256()
    for name, path in _content(info):
        try:
            digest = sha256(path.read_bytes()).hexdigest()
        except OSError:
            digest = "missing"
        whole.update(f"{name}\0{digest}\n".encode("utf-8", "surrogatepass"))
    return f"sha256:{whole.hexdigest()}"


def _content(info: ProviderInfo) -> Iterator[tuple[str, Path]]:
    if info.directory is not None and not info.distribution:
        for parent, folders, names in os.walk(info.directory):
            folders[:] = sorted(each for each in folders if not each.startswith("."))  # .git
            for name in sorted(names):
                path = Path(parent, name)
                relative = path.relative_to(info.directory).as_posix()
                if not name.startswith(".") and _counts(relative):
                    yield relative, path
    elif info.location is not None:
        for name in sorted(info.files):
            if _counts(name):
                yield name, info.location / name


def _counts(name: str) -> bool:
    path = PurePosixPath(name)
    outside = ".." in path.parts or Path(name).is_absolute()  # scripts lie there
    if path.suffix == ".pyc" or outside or not path.parts:
        return False
    return not path.parts[0].endswith((".dist-info", ".data"))
