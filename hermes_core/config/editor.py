"""Changes config.yaml: one scalar or one section at a time, and no other byte.

A round-trip emitter re-indents lists, folds lines and drops quotes in parts that nobody
asked it to touch. Here the parser only says where a value begins and ends. Every edit is
compared with the old text before it is written, so the editor may give up on rare YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from hermes_core.config.config_file import example_of, pins_in, validate
from hermes_core.config.document import (
    YamlDocument,
    YamlProblem,
    find_entry,
    nodes,
    parse,
    parse_document,
    read_document,
)
from hermes_core.config.lock_file import LockEntry, read_lock_file, write_lock_file
from hermes_core.config.names import normalise
from hermes_core.errors import CHECK_FOLDER, ConfigError
from hermes_core.storage.files import LockTimeoutError, file_lock, replace_file
from hermes_core.storage.home import ensure_folder

DELETE: Final = object()

# libyaml's emitter and parser are optional parts of PyYAML; the pure ones behave the same.
_DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

# Unquoted strings that YAML 1.1 and 1.2 read alike; every other string is written in quotes.
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
# Booleans, null and not-a-number in YAML 1.1: without quotes they would not be strings.
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"})

# The alias after "key:", up to what ends a name in block or flow style. Then: the comment behind
# "|" or ">"; and the "..." line, after which no key may be added.
_ALIAS: Final = re.compile(r"\s*:\s*(\*[^\s,\]}]+)")
_HEADER_COMMENT: Final = re.compile(r"[ \t]#[^\n]*")
_DOCUMENT_END: Final = re.compile(r"^\.\.\.[ \t]*$", re.MULTILINE)

KeyPath: TypeAlias = tuple[str, ...]


class CantEditError(Exception):
    """The text can't be changed there without changing what it says elsewhere."""


def edit(text: str, keys: KeyPath, value: Any) -> str:
    """The text with the value at ``keys`` set, or removed if it is `DELETE`.

    Not for every YAML that exists: the caller checks what came of it.
    """
    root = nodes(text)
    if isinstance(root, yaml.MappingNode):
        return _Editor(text).apply(root, keys, value)
    return text if value is DELETE else _filled_document(text, keys, value)


def render(value: Any) -> str:
    """A value in flow style, on one line, the same for YAML 1.1 and 1.2."""
    # JSON is YAML in flow style, so json.dumps below quotes and escapes for both versions.
    if isinstance(value, dict):
        return "{" + ", ".join(f"{render(k)}: {render(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(render(each) for each in value) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.casefold() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _filled_document(text: str, keys: KeyPath, value: Any) -> str:
    newline = _newline(text)
    # The document is empty, or only comments: the new keys go after them.
    end = _DOCUMENT_END.search(text)
    head, tail = (text[: end.start()], text[end.start() :]) if end else (text, "")
    if head and not head.endswith("\n"):
        head += newline
    return head + _block(keys, value, 0, newline) + newline + tail


def _block(keys: KeyPath, value: Any, indent: int, newline: str) -> str:
    """Nested keys, one per line, the value after the last."""
    lines = [" " * (indent + 2 * depth) + f"{render(key)}:" for depth, key in enumerate(keys)]
    lines[-1] += f" {render(value)}"
    return newline.join(lines)


def _nested(keys: KeyPath, value: Any) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


class _Editor:
    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = _newline(text)

    def apply(self, node: yaml.MappingNode, keys: KeyPath, value: Any) -> str:
        """Walk down to the deepest mapping that exists, and change it there."""
        entry = find_entry(node, keys[0])
        if entry is None:
            return self._text if value is DELETE else self._insert(node, keys, value)
        key, old = entry
        if len(keys) == 1:
            if value is DELETE:
                return self._remove(node, key, old)
            return self._replace(key, old, render(value))
        # Through an alias the edit would change the anchor's mapping, and all other uses of it.
        if isinstance(old, yaml.MappingNode) and not _is_alias(key, old):
            return self.apply(old, keys[1:], value)
        return self._text if value is DELETE else self._fill(key, old, keys[1:], value)

    def _replace(self, key: yaml.Node, old: yaml.Node, rendered: str) -> str:
        if _is_alias(key, old):
            start, end = self._alias(key)
            return self._text[:start] + rendered + self._text[end:]
        start, end = old.start_mark.index, self._end(old)
        if start == end:  # no value at all: the mark is after the colon
            return f"{self._text[:start]} {rendered}{self._text[start:]}"
        if old.start_mark.line > key.start_mark.line:  # below its key: leave comments between them
            colon = self._text.index(":", key.end_mark.index) + 1
            between = self._text[colon:start].rstrip()
            return f"{self._text[:colon]} {rendered}{between}{self._text[end:]}"
        kept = ""
        # "key: |  # why": the comment is inside the value's marks, but it is not the value.
        if isinstance(old, yaml.ScalarNode) and old.style in ("|", ">"):
            comment = _HEADER_COMMENT.search(self._text, start, self._line_end(start))
            kept = comment.group() if comment else ""
        return self._text[:start] + rendered + kept + self._text[end:]

    def _alias(self, key: yaml.Node) -> tuple[int, int]:
        """Where the alias after a key is; the node has the marks of the value that it refers to."""
        found = _ALIAS.match(self._text, key.end_mark.index)
        if found is None:
            raise CantEditError("an alias that can't be found")
        return found.span(1)

    def _fill(self, key: yaml.Node, old: yaml.Node, keys: KeyPath, value: Any) -> str:
        """Insert keys below one that has no value yet, after the comment on its line."""
        if not isinstance(old, yaml.ScalarNode) or old.tag != "tag:yaml.org,2002:null":
            raise CantEditError("there is no section")
        if old.start_mark.index != old.end_mark.index:  # it is written out: null, ~
            return self._replace(key, old, render(_nested(keys, value)))
        at = self._line_end(key.end_mark.index)
        block = _block(keys, value, key.start_mark.column + 2, self._newline)
        return self._text[:at] + self._newline + block + self._text[at:]

    def _insert(self, node: yaml.MappingNode, keys: KeyPath, value: Any) -> str:
        if node.flow_style:
            # Just before the closing brace. A trailing comma is legal YAML: then no second one.
            at = node.end_mark.index - 1
            last = self._entry_end(*node.value[-1]) if node.value else at
            comma = ", " if node.value and self._comma(last, at) is None else ""
            entry = f"{render(keys[0])}: {render(_nested(keys[1:], value))}"
            return f"{self._text[:at]}{comma}{entry}{self._text[at:]}"
        at = self._line_end(self._end(node))
        # Indented as its first sibling, whatever width the person uses.
        block = _block(keys, value, node.value[0][0].start_mark.column, self._newline)
        return self._text[:at] + self._newline + block + self._text[at:]

    def _remove(self, node: yaml.MappingNode, key: yaml.Node, old: yaml.Node) -> str:
        if node.flow_style:
            return self._remove_from_flow(node, key, old)
        # A block without entries would be null, and may stand where a mapping is required.
        if len(node.value) == 1:
            start, end = node.start_mark.index, self._end(node)
            return self._text[:start] + "{}" + self._text[end:]
        # Whole lines, so that no blank line stays behind; a comment on the line goes with its
        # value.
        start = self._text.rfind("\n", 0, key.start_mark.index) + 1
        end = self._line_end(self._end(old))
        end += len(self._newline) if self._text.startswith(self._newline, end) else 0
        return self._text[:start] + self._text[end:]

    def _remove_from_flow(self, node: yaml.MappingNode, key: yaml.Node, old: yaml.Node) -> str:
        """Take out an entry and one comma, and nothing else: there may be comments."""
        start, end = key.start_mark.index, self._entry_end(key, old)
        position = [each for each, _ in node.value].index(key)
        comma = self._comma(end, node.end_mark.index)
        # The last entry has no comma behind it: then the one before it goes.
        if comma is None and position:
            comma = self._comma(self._entry_end(*node.value[position - 1]), start)
        if comma is None:
            return self._text[:start] + self._text[end:]
        if comma < start:
            between = self._text[comma + 1 : start].rstrip(" ")
            return self._text[:comma] + between + self._text[end:]
        behind = self._text[comma + 1 :]
        # One blank belongs to the comma, but a "#" needs a blank in front to start a comment.
        behind = behind[1:] if behind.startswith(" ") and behind[1:2] != "#" else behind
        return self._text[:start] + self._text[end:comma] + behind

    def _comma(self, start: int, end: int) -> int | None:
        """Where the first comma is that is not in a comment."""
        comment = False
        for index in range(start, end):
            char = self._text[index]
            if char == "\n":
                comment = False
            elif char == "#":
                comment = True
            elif char == "," and not comment:
                return index
        return None

    def _end(self, node: yaml.Node) -> int:
        """Where a node's text ends. A block's end mark is after the comments that follow it."""
        if isinstance(node, yaml.ScalarNode):
            end = int(node.end_mark.index)
            # A block scalar's end mark is at the next token, past blank lines and comments.
            return len(self._text[:end].rstrip()) if node.style in ("|", ">") else end
        if not isinstance(node, yaml.CollectionNode) or node.flow_style:
            return int(node.end_mark.index)
        last = node.value[-1]
        return self._entry_end(*last) if isinstance(last, tuple) else self._end(last)

    def _entry_end(self, key: yaml.Node, value: yaml.Node) -> int:
        if _is_alias(key, value):
            return self._alias(key)[1]
        # The mark of a missing value may be far away; the end of its key is right then.
        return max(int(key.end_mark.index) + 1, self._end(value))

    def _line_end(self, index: int) -> int:
        end = self._text.find("\n", index)
        if end < 0:
            return len(self._text)
        return end - 1 if self._text[end - 1] == "\r" else end


def _is_alias(key: yaml.Node, value: yaml.Node) -> bool:
    """Whether the value is written elsewhere, before its key."""
    # PyYAML composes an alias to the very node of its anchor, so its marks are the anchor's.
    return bool(value.start_mark.index < key.end_mark.index)


def only_changed(old: str, new: str, keys: KeyPath, value: Any) -> bool:
    """Return whether ``new`` is ``old`` with the value at ``keys`` set or removed.

    Nodes are compared, not data: as data, ten aliases of aliases can fill a machine's memory,
    and 1, True and 1.0 are the same.
    """
    return _only_changed(_mapping(nodes(old)), nodes(new), keys, value)


def _only_changed(
    before: yaml.MappingNode, after: yaml.Node | None, keys: KeyPath, value: Any
) -> bool:
    if not isinstance(after, yaml.MappingNode):
        return value is DELETE and not before.value
    was, now = find_entry(before, keys[0]), find_entry(after, keys[0])
    # At each level every sibling must be the same, in the same order.
    if _others(before, was) != _others(after, now):
        return False
    if now is None:
        return value is DELETE
    if len(keys) == 1:
        return value is not DELETE and _says(now[1], value)
    # A level that did not exist counts as an empty mapping before the change.
    return _only_changed(_mapping(was and was[1]), now[1], keys[1:], value)


def _mapping(node: yaml.Node | None) -> yaml.MappingNode:
    """The node, or an empty mapping in its place."""
    if isinstance(node, yaml.MappingNode):
        return node
    return yaml.MappingNode("tag:yaml.org,2002:map", [])


def _others(
    node: yaml.MappingNode, entry: tuple[yaml.Node, yaml.Node] | None
) -> list[tuple[str, str]]:
    """All entries but one, as text. Serialising writes an alias as an alias."""
    return [
        (_serialised(key), _serialised(value))
        for key, value in node.value
        if entry is None or key is not entry[0]
    ]


def _serialised(node: yaml.Node) -> str:
    return str(yaml.serialize(node, Dumper=_DUMPER, allow_unicode=True))


def _says(node: yaml.Node, value: Any) -> bool:
    # repr, because 1 == True == 1.0 in Python, and the types must be the same as well.
    _, data = parse(_serialised(node))
    return repr(data) == repr(value)


# A writer holds the lock for milliseconds. Ten seconds bridge a slow disk, but not a hang.
LOCK_SECONDS: Final = 10
_PINS: Final = ("memory", "pins")


def change_config(home: Path, changes: Mapping[KeyPath, Any], *, valid: bool = False) -> None:
    """Set the values at the given paths, or remove them (`DELETE`); all or none.

    Every other byte of the file stays as it is, except that entries which older versions wrote
    to ``memory.pins`` move to the lock file.

    Args:
        home: HERMES_HOME.
        changes: The new values by path.
        valid: Also refuse a change after which the file would not be valid.

    Raises:
        ConfigError: It can't be done; nothing was written. The hint has the lines to put in
            by hand.
    """
    with _locked(home):
        # Read again under the lock: what the caller saw may be older than another process's
        # change.
        document = read_document(home)
        text = apply_changes(document, changes)
        if valid and text != document.text:
            _check_changed(document, text, changes)
        _replace(document, _with_pins_moved(home, document, text))


def _check_changed(document: YamlDocument, text: str, changes: Mapping[KeyPath, Any]) -> None:
    """Raise `ConfigError` about the new values, unless the file would be valid with them."""
    try:
        validate(parse_document(document.path, text))
    except ConfigError as error:
        try:
            validate(document)
        except ConfigError:
            raise error from None  # it was not valid before, either: the file has to be corrected
        # Without file and line: nothing was written, and the line may not exist.
        new = (each.removeprefix(f"{document.path.name}:") for each in error.problems)
        problems = tuple(each.partition(": ")[2] for each in new)
        keys, value = next(iter(changes.items()))
        example = example_of(keys, value)
        todo = f"for example: hermes-plugins config set {'.'.join(keys)} {example}"
        if not example:
            todo = f"edit {document.path}"
        raise ConfigError("; ".join(problems), problems=problems, hint=todo) from error


def change_plugins(
    home: Path, changes: Mapping[KeyPath, Any], entries: Sequence[LockEntry]
) -> None:
    """Change config.yaml, and record these plugins in the lock file and no others.

    Entries that older versions wrote to ``memory.pins`` move to the lock file. A process that
    dies in between leaves every plugin that is selected with its pin, and the next change
    completes the move.

    Raises:
        ConfigError: It can't be done, or one of the files is damaged.
    """
    new = {normalise(each.name): each for each in entries}
    with _locked(home):
        document = read_document(home)
        recorded = read_lock_file(home)
        # Before the first write, so that a change that can't be made leaves both files alone.
        text = _without_pins(document, apply_changes(document, changes))
        # Pins first, the old ones too: until config.yaml is replaced, it selects another plugin.
        both = {**pins_in(document), **recorded, **new}
        if both != recorded:
            write_lock_file(home, both)
        _replace(document, text)
        # Only now the old entries go. After a crash before this line, the lock file has one entry
        # too many, which nothing selects.
        if both != new:
            write_lock_file(home, new)


def _with_pins_moved(home: Path, document: YamlDocument, text: str) -> str:
    """Add the entries in ``memory.pins`` to the lock file; return the text without them."""
    changed = parse_document(document.path, text)
    if not _is_there(changed.data, _PINS):
        return text  # the lock file is not read: a damaged one must not stop this change
    recorded = read_lock_file(home)
    both = {**pins_in(changed), **recorded}
    if both != recorded:
        write_lock_file(home, both)
    return _without_pins(document, text)


def _without_pins(document: YamlDocument, text: str) -> str:
    """The text without ``memory.pins``; with it where it can't be removed alone.

    That does no harm, since the lock file wins.
    """
    changed = parse_document(document.path, text)
    if not _is_there(changed.data, _PINS):
        return text
    try:
        return apply_changes(changed, {_PINS: DELETE})
    except ConfigError:
        return text


def _replace(document: YamlDocument, text: str) -> None:
    if text != document.text:
        replace_file(document.path, (document.mark + text).encode())


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Hold the lock of config.yaml, which covers plugins.lock.json too."""
    ensure_folder(home)
    try:
        with file_lock(home / "config.yaml.lock", LOCK_SECONDS):
            yield
    except LockTimeoutError as error:
        raise ConfigError(error.what, where=error.where, hint=error.hint) from error
    # Also raised by the body: the disk is full, or the home is read-only.
    except OSError as error:
        raise ConfigError(
            f"can't be written: {error.strerror or error}; nothing was changed",
            where=str(home / "config.yaml"),
            hint=CHECK_FOLDER,
        ) from error


def apply_changes(document: YamlDocument, changes: Mapping[KeyPath, Any]) -> str:
    """The text after all changes, if it says what was meant and nothing else."""
    text = document.text
    for keys, value in changes.items():
        try:
            changed = edit(text, keys, value)
            sound = only_changed(text, changed, keys, value)
            if value is DELETE:  # a merge may bring it back
                sound = sound and not _is_there(parse(changed)[1], keys)
        # All of these mean: YAML that the editor does not understand. Giving up is always safe.
        except (CantEditError, YamlProblem, RecursionError, TypeError, ValueError):
            sound = False
        if not sound:
            raise ConfigError(
                "can't be changed without touching other parts of it; nothing was written",
                where=str(document.path),
                hint=f"put this in by hand: {_by_hand(changes)}",
            )
        text = changed
    return text


def _by_hand(changes: Mapping[KeyPath, Any]) -> str:
    return ", ".join(
        f"{'.'.join(keys)} removed" if value is DELETE else f"{'.'.join(keys)}: {_shown(value)}"
        for keys, value in changes.items()
    )


def _shown(value: Any) -> str:
    try:
        return render(value)
    except TypeError:
        return repr(value)


def _is_there(data: Any, keys: KeyPath) -> bool:
    for key in keys:
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True
