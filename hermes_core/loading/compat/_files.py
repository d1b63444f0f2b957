"""``utils``: atomic file writes, and lenient conversion of values."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from hermes_core.errors import ConfigError
from hermes_core.storage.files import replace_file

#: By hermes-agent's module: the names that can be imported from it.
OFFERS: Final[dict[str, tuple[str, ...]]] = {
    "utils": (
        "atomic_json_write",
        "atomic_replace",
        "atomic_roundtrip_yaml_save",
        "atomic_roundtrip_yaml_update",
        "atomic_write_text",
        "atomic_yaml_write",
        "env_bool",
        "env_float",
        "env_int",
        "env_var_enabled",
        "is_truthy_value",
        "read_json_or_empty",
        "safe_json_loads",
    ),
}

Keys: TypeAlias = tuple[str, ...]

_TRUE: Final = frozenset({"1", "true", "yes", "on"})


def atomic_json_write(
    path: str | Path, data: Any, *, indent: int = 2, mode: int | None = None, **dump_kwargs: Any
) -> None:
    """Write a JSON file atomically."""
    options = {"ensure_ascii": False, **dump_kwargs}
    text = json.dumps(data, indent=indent, **options)
    _replace(Path(path), text, mode=mode)


def atomic_write_text(
    path: str | Path,
    content: str,
    *,
    encoding: str = "utf-8",
    tmp_prefix: str = ".tmp_",  # noqa: ARG001 - the temporary file is ours
    preserve_mode: bool = False,
    create_mode: int | None = None,
) -> None:
    """Write a text file atomically.

    Args:
        path: The file.
        content: The text.
        encoding: How it is encoded.
        tmp_prefix: Makes no difference here.
        preserve_mode: Leave the mode of an existing file unchanged; it becomes 0600 otherwise.
        create_mode: The mode of a new file.
    """
    target = Path(path)
    there = target.exists()
    # None leaves the mode to `replace_file`: the old file's, or the default of a new one.
    mode = (None if preserve_mode else 0o600) if there else create_mode
    _replace(target, content, mode=mode, encoding=encoding)


def atomic_yaml_write(
    path: str | Path,
    data: Any,
    *,
    default_flow_style: bool = False,
    sort_keys: bool = False,
    extra_content: str | None = None,
    create_mode: int | None = None,
) -> None:
    """Write a YAML file atomically; ``extra_content`` is put at its end."""
    import yaml  # noqa: PLC0415 - not for who only asks for a variable

    text = yaml.safe_dump(
        data, default_flow_style=default_flow_style, sort_keys=sort_keys, allow_unicode=True
    )
    target = Path(path)
    mode = None if target.exists() else create_mode
    _replace(target, text + (extra_content or ""), mode=mode)


def atomic_roundtrip_yaml_save(path: str | Path, new_state: dict[str, Any]) -> None:
    """Change a YAML file to what ``new_state`` says; every line that says the same stays.

    Raises:
        ConfigError: That can't be done, or the file can't be read; it is as it was.
    """
    _change_yaml(Path(path), lambda before: dict(differences(before, new_state)))


def atomic_roundtrip_yaml_update(path: str | Path, key_path: str, value: Any) -> None:
    """Change one value of a YAML file, at a path like ``memory.provider``.

    Raises:
        ConfigError: That can't be done without touching other parts; the file is as it was.
    """
    _change_yaml(Path(path), lambda _: {tuple(key_path.split(".")): value})


def _change_yaml(path: Path, changes: Callable[[Mapping[str, Any]], dict[Keys, Any]]) -> None:
    from hermes_core.config.document import parse_document, read_text  # noqa: PLC0415
    from hermes_core.config.editor import LOCK_SECONDS, apply_changes  # noqa: PLC0415
    from hermes_core.storage.files import file_lock  # noqa: PLC0415

    path.parent.mkdir(parents=True, exist_ok=True)
    # For config.yaml this is the same lock file that our own editor uses.
    with file_lock(path.with_name(f"{path.name}.lock"), LOCK_SECONDS):
        document = parse_document(path, read_text(path))
        # Differences are computed under the lock, from what is in the file now.
        text = apply_changes(document, changes(document.data))
        if text != document.text:
            _replace(path, document.mark + text)


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], *, merge: bool = False, at: Keys = ()
) -> Iterator[tuple[Keys, Any]]:
    """Yield what differs between two nested mappings, as deep down as can be.

    Args:
        before: The old one.
        after: The new one.
        merge: Leave what only the old one has.
        at: Where both of them are.

    Yields:
        Where, and what the new one has there, or `DELETE`. A mapping with keys that are not
        texts is replaced as a whole.

    Raises:
        ConfigError: Such a key differs at the top, where there is nothing to replace.
    """
    from hermes_core.config.editor import DELETE  # noqa: PLC0415

    for key, value in after.items():
        old = before.get(key)
        # `in`: a new key with the value None differs from a missing one.
        if key in before and old == value:
            continue
        if not (isinstance(value, dict) and isinstance(old, dict) and old):
            yield _below(at, key), value
        elif all(isinstance(each, str) for each in (*old, *value)):
            yield from differences(old, value, merge=merge, at=_below(at, key))
        else:
            yield _below(at, key), {**old, **value} if merge else value
    for key in before:
        if key not in after and not merge:
            yield _below(at, key), DELETE


def _below(at: Keys, key: Any) -> Keys:
    if not isinstance(key, str):
        raise ConfigError(
            f"the key {key!r} is not a text and can't be changed; nothing was written",
            hint="quote it, or change it by hand",
        )
    return (*at, key)


def atomic_replace(tmp_path: str | Path, target: str | Path) -> str:
    """Move a file into the place of another; a symbolic link stays a link.

    Returns:
        The file that was replaced, behind all links.
    """
    # os.replace would replace the link itself, and leave the file behind it unchanged.
    real = os.path.realpath(target) if os.path.islink(target) else str(target)  # noqa: PTH114
    try:
        os.replace(tmp_path, real)  # noqa: PTH105
    except OSError as error:
        # EBUSY: a single file that is mounted into a container can't be renamed over.
        if error.errno not in (errno.EXDEV, errno.EBUSY):
            raise
        shutil.copy2(tmp_path, real)  # another file system, or a mounted file
        os.unlink(tmp_path)  # noqa: PTH108
    return real


def _replace(target: Path, text: str, *, mode: int | None = None, encoding: str = "utf-8") -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, text.encode(encoding), mode=mode)


def read_json_or_empty(path: str | Path) -> dict[str, Any]:
    """Return the object in a JSON file; {} if there is none."""
    try:
        data = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def safe_json_loads(text: str, default: Any = None) -> Any:
    """Return what a JSON text says, or the default."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return default


def is_truthy_value(value: Any, default: bool = False) -> bool:
    """Return whether a value means yes."""
    if value is None:
        return default
    return value.strip().lower() in _TRUE if isinstance(value, str) else bool(value)


def env_var_enabled(name: str, default: str = "") -> bool:
    """Return whether a variable means yes."""
    return is_truthy_value(os.environ.get(name, default))


def env_bool(key: str, default: bool = False) -> bool:
    """Return a variable as yes or no."""
    return is_truthy_value(os.environ.get(key, ""), default)


def env_int(key: str, default: int = 0) -> int:
    """Return a variable as a whole number."""
    try:
        return int(os.environ.get(key, ""))
    except ValueError:
        return default


def env_float(key: str, default: float = 0.0) -> float:
    """Return a variable as a number."""
    try:
        return float(os.environ.get(key, ""))
    except ValueError:
        return default
