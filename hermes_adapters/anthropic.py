"""Claude's memory tool on the notes: MEMORY.md and USER.md as files below /memories.

    client.beta.messages.tool_runner(model=..., messages=..., tools=[MemoryTool(memory)])

Every command becomes operations of the notes, with their guard, limits, history and approval. What
notes can't do, such as other files, is answered with an error of the tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

from hermes_adapters.frameworks import require

require("anthropic", extra="anthropic", tested=">=2.8,<2.11")

from anthropic.lib.tools import ToolError  # noqa: E402 - after the check
from anthropic.tools.memory import (  # noqa: E402
    BetaAbstractMemoryTool,
    BetaAsyncAbstractMemoryTool,
)

from hermes_core import AsyncMemoryManager, MemoryManager  # noqa: E402

_ROOT: Final = "/memories"
_FILES: Final = {f"{_ROOT}/MEMORY.md": "memory", f"{_ROOT}/USER.md": "user"}
_SEPARATOR: Final = "§"
_SEPARATOR_LINE: Final = re.compile(r"^[^\S\n]*§[^\S\n]*$", re.MULTILINE)
# A line of an entry that would be taken for the separator has a backslash, as in the files.
_LIKE_SEPARATOR: Final = re.compile(r"^(\s*)(\\*§\s*)$", re.MULTILINE)
_ESCAPED: Final = re.compile(r"^(\s*)\\(\\*§\s*)$", re.MULTILINE)
#: Calls of the notes' own tool: yields its arguments, receives its answer, returns for Claude.
_Calls = Generator[dict[str, Any], str, str]


class MemoryTool(BetaAbstractMemoryTool):
    """The memory tool for a `MemoryManager` whose session has started.

    Args:
        memory: The manager, for example within ``with memory.conversation(...)``.
        **options: As for `BetaAbstractMemoryTool`, such as ``cache_control``.
    """

    def __init__(self, memory: MemoryManager, **options: Any) -> None:
        super().__init__(**options)
        self._memory = memory

    def _run(self, command: Any) -> str:
        calls, answer = _carry_out(command), None
        while True:
            try:
                arguments = calls.send(answer)  # type: ignore[arg-type]  # None starts it
            except StopIteration as end:
                return str(end.value)
            answer = self._memory.handle_tool_call("memory", arguments)

    view = create = str_replace = insert = delete = rename = _run


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool for an `AsyncMemoryManager` whose session has started."""

    def __init__(self, memory: AsyncMemoryManager, **options: Any) -> None:
        super().__init__(**options)
        self._memory = memory

    async def _run(self, command: Any) -> str:
        calls, answer = _carry_out(command), None
        while True:
            try:
                arguments = calls.send(answer)  # type: ignore[arg-type]  # None starts it
            except StopIteration as end:
                return str(end.value)
            answer = await self._memory.handle_tool_call("memory", arguments)

    view = create = str_replace = insert = delete = rename = _run


# -- the commands -----------------------------------------------------------------------------


class _Notebook(NamedTuple):
    """The entries of a notebook, as a file. Without entries, there is no such file."""

    path: str
    entries: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"\n{_SEPARATOR}\n".join(
            _LIKE_SEPARATOR.sub(r"\1\\\2", each) for each in self.entries
        )


class _FileEdit(NamedTuple):
    """The text that a file shall have, and what to answer then."""

    text: str
    done: str


def _carry_out(command: Any) -> _Calls:
    """Carry out a command.

    Raises:
        ToolError: It can't be carried out; the text is for Claude.
    """
    kind = command.command
    path = _text(command, "old_path" if kind == "rename" else "path")
    if kind in ("view", "delete", "rename") and path.rstrip("/") == _ROOT:
        return (yield from _carry_out_on_root(kind))
    if path not in _FILES:
        _refuse_path(kind, path)
    book = yield from _read(path)
    if kind == "create" and book.entries:
        raise ToolError(f"File {path} already exists")
    if kind != "create" and not book.entries:
        _refuse_path(kind, path)
    if kind == "view":
        return _viewed(book, command.view_range)
    if kind == "rename":
        return (yield from _rename(path, _text(command, "new_path")))
    return (yield from _change(book, _CHANGES[kind](book, command)))


def _text(command: Any, name: str) -> str:
    value = getattr(command, name, None)
    if not isinstance(value, str):
        raise ToolError(f"`{name}` must be a string")
    return value


def _refuse_path(kind: str, path: str) -> None:
    if kind == "create":
        raise ToolError(f"File {path} can't be created. Write to {' or '.join(_FILES)}")
    hint = ". Please provide a valid path." if kind in ("view", "str_replace") else ""
    raise ToolError(f"The path {path} does not exist{hint}")


def _read(path: str) -> Generator[dict[str, Any], str, _Notebook]:
    found = _checked((yield {"action": "read", "target": _FILES[path]}))
    return _Notebook(path, tuple(map(str, found.get("entries") or ())))


def _change(book: _Notebook, change: _FileEdit) -> _Calls:
    """Make the operations that turn the notebook's text into another, all or none of them."""
    operations = [*_operations(book.entries, _entries(change.text))]
    if not operations:
        return change.done
    found = _checked((yield {"target": _FILES[book.path], "operations": operations}))
    return str(found["message"]) if found.get("staged") else change.done


def _checked(answer: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer)
    if not found.get("success"):
        raise ToolError(str(found.get("error")))
    return found


def _entries(text: str) -> tuple[str, ...]:
    """The entries of a text: what is between lines that have only a section sign."""
    found = (_ESCAPED.sub(r"\1\2", each.strip()) for each in _SEPARATOR_LINE.split(text))
    return tuple(filter(None, found))


def _operations(before: Sequence[str], after: Sequence[str]) -> Iterator[dict[str, str]]:
    """What turns some entries into others. Entries that stay are not touched."""
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, begin, end, new_begin, new_end in matcher.get_opcodes():
        old, new = before[begin:end], after[new_begin:new_end]
        if kind != "equal":
            for was, now in zip(old, new, strict=False):
                yield {"action": "replace", "old_text": was, "content": now}
            yield from ({"action": "remove", "old_text": each} for each in old[len(new) :])
            yield from ({"action": "add", "content": each} for each in new[len(old) :])


def _carry_out_on_root(kind: str) -> _Calls:
    if kind != "view":
        raise ToolError(f"Cannot {kind} the {_ROOT} directory itself")
    sizes = {}
    for path in _FILES:
        book = yield from _read(path)
        if book.entries:
            sizes[path] = len(book.text.encode())
    rows = [(_ROOT, sum(sizes.values())), *sizes.items()]
    listed = "\n".join(f"{size / 1024:.1f}K\t{path}" for path, size in rows)
    header = f"Here're the files and directories up to 2 levels deep in {_ROOT}"
    return f"{header}, excluding hidden items:\n{listed}"


def _numbered(lines: Sequence[str], first: int) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


def _viewed(book: _Notebook, view_range: Any) -> str:
    begin, end = view_range if isinstance(view_range, list) and len(view_range) == 2 else (1, -1)  # noqa: PLR2004
    lines = book.text.split("\n")[max(begin, 1) - 1 : None if end == -1 else end]
    numbered = _numbered(lines, max(begin, 1))
    return f"Here's the content of {book.path} with line numbers:\n{numbered}"


def _rename(old: str, new: str) -> _Calls:
    if new in _FILES and (yield from _read(new)).entries:
        raise ToolError(f"The destination {new} already exists")
    raise ToolError(f"{old} can't be renamed. It is one of {' and '.join(_FILES)}")


def _create(book: _Notebook, command: Any) -> _FileEdit:
    return _FileEdit(_text(command, "file_text"), f"File created successfully at: {book.path}")


def _str_replace(book: _Notebook, command: Any) -> _FileEdit:
    old, new, text = _text(command, "old_str"), _text(command, "new_str"), book.text
    found = [at for at in range(len(text)) if old and text.startswith(old, at)]
    if not found:
        raise ToolError(
            f"No replacement was performed, old_str `{old}` did not appear verbatim in {book.path}."
        )
    if len(found) > 1:
        lines = ", ".join(str(text.count("\n", 0, at) + 1) for at in found)
        raise ToolError(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
            f"{lines}. Please ensure it is unique"
        )
    after = text[: found[0]] + new + text[found[0] + len(old) :]
    line = text.count("\n", 0, found[0])
    begin = max(line - 2, 0)
    snippet = _numbered(after.split("\n")[begin : line + 3], begin + 1)
    done = "The memory file has been edited. Here is the snippet showing the change"
    return _FileEdit(after, f"{done} (with line numbers):\n{snippet}")


def _insert(book: _Notebook, command: Any) -> _FileEdit:
    text, line, lines = _text(command, "insert_text"), command.insert_line, book.text.split("\n")
    if not isinstance(line, int) or not 0 <= line <= len(lines):
        raise ToolError(
            f"Invalid `insert_line` parameter: {line}. "
            f"It should be within the range [0, {len(lines)}]."
        )
    above, below = lines[:line], lines[line:]
    # Beside an entry, a text is another entry: Claude does not know the separator.
    is_beside = not above or not below or _SEPARATOR in (above[-1], below[0])
    edge = [_SEPARATOR] if is_beside else []
    after = "\n".join([*above, *edge, text, *edge, *below])
    return _FileEdit(after, f"The file {book.path} has been edited.")


def _delete(book: _Notebook, _: Any) -> _FileEdit:
    return _FileEdit("", f"Successfully deleted {book.path}")


_CHANGES: Final = {
    "create": _create,
    "str_replace": _str_replace,
    "insert": _insert,
    "delete": _delete,
}
