"""The notes as the system prompt has them: taken once, the same bytes for a whole session."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from hermes_builtin.notes._format import DELIMITER
from hermes_builtin.notes._store import Notebook
from hermes_builtin.notes._tool import GUIDANCE
from hermes_builtin.notes._view import view
from hermes_core import HermesError

logger = logging.getLogger("hermes_builtin")

_LINE: Final = "═" * 46
_HEADERS: Final = {
    "memory": "MEMORY (your personal notes)",
    "user": "USER PROFILE (who the user is)",
}


def snapshot(notebooks: Mapping[str, Notebook]) -> str:
    """The block for the system prompt; "" if there are no notebooks."""
    if not notebooks:
        return ""
    blocks = [_block(notebook) for notebook in notebooks.values()]
    return "\n\n".join([GUIDANCE, *(block for block in blocks if block)])


def _block(notebook: Notebook) -> str:
    header = _HEADERS[notebook.target]
    try:
        page = notebook.read()
        seen = view(notebook, page)
    except HermesError as error:
        # An unreadable notebook is not an empty one, and the model should know.
        logger.error("notes: %s", error)  # noqa: TRY400 - the traceback says nothing more
        return _framed(f"{header} [can't be read]", f"Tell the user: {error}")
    for entry, finding in seen.objections.items():
        logger.warning("notes: an entry of %s is kept out of the prompt (%s): %.80s",
                       notebook.file.path.name, finding, entry)  # fmt: skip
    if seen.left_out:
        logger.warning("notes: %s is far over its cap: %d of %d entries are not in the prompt",
                       notebook.file.path.name, seen.left_out, len(page.entries))  # fmt: skip
    shown = [*seen.harmless, *filter(None, [seen.remark])]
    if not shown:
        return ""
    return _framed(f"{header} [{page.usage}]", DELIMITER.join(shown))


def _framed(header: str, body: str) -> str:
    return f"{_LINE}\n{header}\n{_LINE}\n{body}"
