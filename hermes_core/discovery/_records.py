"""What `install` and `bridge` note in a directory plugin that they made."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.home import replace_file

#: Begins with a dot, so that it is no part of the plugin's content.
RECORD: Final = ".hermes-plugins.json"


class Record(NamedTuple):
    """Where a directory plugin came from, and with which content.

    ``source`` is a URL or a folder, ``commit`` the one that was taken from it. ``bridge``
    is the distribution that the directory makes visible to hermes-agent.
    """

    source: str = ""
    commit: str = ""
    bridge: str = ""
    hash: str = ""


def read_record(folder: Path) -> Record | None:
    """The record of a directory plugin; None if a person put it there."""
    try:
        content = (folder / RECORD).read_bytes()
    except OSError:
        return None
    import json  # noqa: PLC0415 - few directories have a record

    try:
        data: Any = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    texts = {key: data.get(key) for key in Record._fields}
    return Record(**{key: value for key, value in texts.items() if isinstance(value, str)})


def write_record(folder: Path, record: Record) -> None:
    """Note where a directory plugin came from."""
    import json  # noqa: PLC0415

    text = json.dumps({"schema": 1, **record._asdict()}, indent=2) + "\n"
    replace_file(folder / RECORD, text.encode("ascii"))
