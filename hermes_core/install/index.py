"""The index of known memory plugins: a file in our wheel, or a newer copy of it in the home.

`search` reads it as often as a prompt runs `list`, so this module imports only what that needs.
Nothing here decides what is installed: an entry names a distribution, and a person sees it first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hermes_core.config.names import name_problem, nearest, normalise, split_choice
from hermes_core.errors import HermesError
from hermes_core.storage.files import read_regular, replace_file
from hermes_core.storage.home import ensure_folder

if TYPE_CHECKING:
    from datetime import date

#: The copy of a home that `index update` writes.
FILE_NAME: Final = "plugin-index.json"
_OURS: Final = Path(__file__).with_name("plugins.json")
#: An index of a thousand plugins has 400 kB.
MAX_BYTES: Final = 5_000_000
_SCHEMA: Final = 1
_MAX_TEXT: Final = 500
_MADE: Final = re.compile(r"\d{4}-\d\d-\d\d")
#: What pip accepts as a project's name, and nothing that it would take for an option or a URL.
PROJECT: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
#: From the best to what is not known.
GRADES: Final = ("gold", "silver", "bronze", "none", "not graded")
_MEMORIES: Final = ("local", "service", "both", "unknown")
_HERMES_PLUGINS: Final = "hermes-plugins"
#: The problem of a plugin that only a checkout of hermes-plugins has.
_UNPUBLISHED: Final = "not on PyPI"
_OTHER_INDEX: Final = "name the plugins.json of a hermes-plugins release"


class PluginIndexError(HermesError):
    """An index of plugins can't be read, is not valid, or is older than the one in use."""


class Need(NamedTuple):
    """What a plugin does not work without, or works better with."""

    kind: str  # key, server, binary, package or setting
    name: str
    optional: bool = False


class IndexEntry(NamedTuple):
    """A plugin as the index knows it; ``version`` is the last one that was tried.

    ``memories`` says where they are: local, service, both or unknown. ``tested`` is False if it
    could not be installed or loaded; ``problem`` says why. ``failed`` lists the checks of the
    conformance kit that it did not pass. ``content_hash`` is the hash of the files that were tried:
    the grade is about these, and not about whatever has their name and version.
    """

    name: str
    distribution: str
    version: str = ""
    description: str = ""
    memories: str = "unknown"
    needs: tuple[Need, ...] = ()
    made_for: str = ""
    tested: bool = False
    grade: str = "not graded"
    failed: tuple[str, ...] = ()
    problem: str = ""
    content_hash: str = ""

    @property
    def key(self) -> str:
        """The name in the form in which names compare."""
        return normalise(self.name)

    @property
    def needed(self) -> str:
        """What it needs, in one line; what is optional comes last, and says so."""
        ordered = sorted(self.needs, key=lambda each: each.optional)
        return ", ".join(f"{each.name}{' (optional)' if each.optional else ''}" for each in ordered)

    @property
    def published(self) -> bool:
        """Whether a package index has it. If not, its sources are in a checkout."""
        return self.problem.partition(";")[0] != _UNPUBLISHED

    def is_project(self, distribution: str) -> bool:
        """Whether it is that distribution, however it is spelt."""
        return normalise(self.distribution) == normalise(distribution)


class PluginIndex(NamedTuple):
    """All known plugins. ``problem`` says why the copy in the home is not used."""

    made: str
    kit: str
    entries: tuple[IndexEntry, ...]
    path: Path
    problem: str = ""

    def named(self, name: str) -> list[IndexEntry]:
        """The plugins with a provider of that name, the one that `install NAME` takes first."""
        wanted, owner = split_choice(name)
        same = [each for each in self.entries if each.key == normalise(wanted)]
        found = [each for each in same if not owner or each.is_project(owner)]
        return sorted(found, key=lambda each: (_precedence(each), each.distribution))

    def packaged(self, distribution: str) -> list[IndexEntry]:
        """The plugins of a distribution."""
        return [each for each in self.entries if each.is_project(distribution)]

    def find(self, name: str) -> list[IndexEntry]:
        """The plugins that a person means by a provider's name or a distribution's."""
        return self.named(name) or self.packaged(name)

    def search(self, words: Iterable[str]) -> list[IndexEntry]:
        """The plugins that contain every word, the most likely first."""
        wanted = [normalise(each) for each in words]
        found = [each for each in self.entries if all(word in _text(each) for word in wanted)]
        return sorted(found, key=lambda each: _rank(each, wanted))

    def near(self, name: str) -> list[str]:
        """The names of providers that look like ``name``, best first."""
        return nearest(split_choice(name)[0], (each.name for each in self.entries))

    def install_command(self, entry: IndexEntry) -> str:
        """The command that installs a plugin; see ``install_steps`` for where it works."""
        if not entry.published:
            return f"hermes-plugins install ./plugins/{entry.name} --build"
        short = choose(self.named(entry.name)) == entry and bool(PROJECT.fullmatch(entry.name))
        # By its distribution, unless that is the name of another provider.
        other = not short and any(not each.is_project(entry.distribution)
                                  for each in self.named(entry.distribution))  # fmt: skip
        exact = f"{entry.distribution}=={entry.version}" if other else entry.distribution
        return f"hermes-plugins install {entry.name if short else exact}"

    def install_steps(self, entry: IndexEntry) -> str:
        """What to do to install a plugin, as the end of a hint."""
        where = "" if entry.published else "in a checkout of hermes-plugins, "
        return f"{where}run: {self.install_command(entry)}"


def choose(same: Sequence[IndexEntry]) -> IndexEntry | None:
    """The plugin that the name of these stands for; None if a person has to decide."""
    best = min(map(_precedence, same), default=0)
    first = [each for each in same if _precedence(each) == best]
    return first[0] if len(first) == 1 else None


def _precedence(entry: IndexEntry) -> int:
    """Who has more right to a name: made for us, then the package of exactly that name."""
    if entry.made_for == _HERMES_PLUGINS:
        return 0
    return 1 if entry.is_project(entry.name) else 2


def _text(entry: IndexEntry) -> str:
    needs = " ".join(each.name for each in entry.needs)
    fields = (entry.name, entry.distribution, entry.description, entry.memories, entry.grade, needs)
    return normalise("\n".join(fields))


def _rank(entry: IndexEntry, words: Sequence[str]) -> tuple[Any, ...]:
    key = entry.key
    return (
        key not in words,
        not any(key.startswith(word) for word in words),
        not any(word in key for word in words),
        GRADES.index(entry.grade) if entry.grade in GRADES else len(GRADES),
        key,
        entry.distribution,
    )


# -- reading -----------------------------------------------------------------------------------


def read_index(home: Path) -> PluginIndex:
    """The index in use: the copy in the home if it is valid and newer than that in the wheel."""
    ours = parse_index(_OURS.read_bytes(), _OURS)
    path = home / FILE_NAME
    try:
        theirs = parse_index(read_regular(path, MAX_BYTES), path)
    except FileNotFoundError:
        return ours
    except OSError as error:
        return ours._replace(problem=f"{path}: {error.strerror or error}")
    except PluginIndexError as error:
        return ours._replace(problem=str(error))
    # One of the same day was chosen by a person, after this version was installed or knowingly.
    return theirs if theirs.made >= ours.made else ours


def parse_index(content: bytes, path: Path, source: str = "") -> PluginIndex:
    """The index that a file contains. Ignores keys that it does not know.

    Args:
        content: The file.
        path: Where it is stored.
        source: Where it comes from, for errors; by default its path.

    Raises:
        PluginIndexError: It is not a valid index.
    """
    import json  # noqa: PLC0415 - only where an index is read

    where = source or str(path)
    todo = _OTHER_INDEX if source else ""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        raise PluginIndexError("is not valid JSON", where=where, hint=todo) from None
    if not isinstance(data, dict) or not isinstance(data.get("plugins"), list):
        raise PluginIndexError("is not an index of plugins", where=where, hint=todo)
    if not data["plugins"]:  # every name would mean a stranger's package
        raise PluginIndexError("has no plugins in it", where=where)
    if data.get("schema") != _SCHEMA:
        what = f"has schema {data.get('schema')!r}; this version of hermes-plugins reads {_SCHEMA}"
        raise PluginIndexError(what, where=where, hint="upgrade hermes-plugins")
    made = data.get("made")
    if not isinstance(made, str) or not _MADE.fullmatch(made):
        raise PluginIndexError("does not say when it was made", where=where)
    rows = enumerate(data["plugins"], 1)
    entries = tuple(_entry(row, f"{where}: plugin {number}") for number, row in rows)
    twice = _repeated((each.key, normalise(each.distribution)) for each in entries)
    if twice:
        raise PluginIndexError(f"has {' of '.join(twice)} twice", where=where)
    return PluginIndex(made, _line(data, "kit", where), entries, path)


def _repeated(pairs: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    seen: set[tuple[str, str]] = set()
    for each in pairs:
        if each in seen:
            return each
        seen.add(each)
    return None


def _entry(row: object, where: str) -> IndexEntry:
    if not isinstance(row, dict):
        raise PluginIndexError("is not a plugin", where=where)
    name, distribution = _line(row, "name", where), _line(row, "distribution", where)
    if problem := name_problem(name):
        raise PluginIndexError(problem, where=where)
    # Letters of other scripts look like these: nobody must take one plugin for another.
    if not PROJECT.fullmatch(name):
        what = f"{name!r} is not a plain name (letters a to z, digits, '.', '_' and '-')"
        raise PluginIndexError(what, where=where)
    grade = _line(row, "grade", where) or GRADES[-1]
    if grade not in GRADES:
        raise PluginIndexError(f"{grade!r} is not a grade", where=where)
    # It becomes an argument of pip: neither an option nor a URL may get there.
    if not PROJECT.fullmatch(distribution):
        raise PluginIndexError(f"{distribution!r} is not the name of a package", where=where)
    memories = _line(row, "memories", where)
    checks = row.get("checks")
    return IndexEntry(
        name,
        distribution,
        _line(row, "version", where),
        _line(row, "description", where),
        memories if memories in _MEMORIES else "unknown",
        tuple(_needs(row.get("needs"), where)),
        _line(row, "made_for", where),
        row.get("tested") is True,
        grade,
        tuple(_lines(checks.get("failed") if isinstance(checks, dict) else None)),
        _line(row, "problem", where),
        _line(row, "hash", where),
    )


def _needs(rows: object, where: str) -> Iterator[Need]:
    for each in rows if isinstance(rows, list) else ():
        if isinstance(each, dict):
            name = _line(each, "name", where)
            yield Need(_line(each, "kind", where), name, each.get("optional") is True)


def _lines(values: object) -> Iterator[str]:
    for each in values if isinstance(values, list) else ():
        if isinstance(each, str) and each.isprintable():
            yield each


def _line(row: Mapping[str, Any], key: str, where: str) -> str:
    """A text of one line; "" if there is none."""
    value = row.get(key, "")
    if not isinstance(value, str) or not value.isprintable() or len(value) > _MAX_TEXT:
        raise PluginIndexError(f"{key} is not a line of text", where=where)
    return value


# -- what to do about a name -------------------------------------------------------------------


def meant_by(index: PluginIndex, spec: str) -> IndexEntry | None:
    """The plugin whose provider is called exactly ``spec``; None if it says anything else.

    With a version, extras, a URL or a path, a person has named a package and not a provider.

    Raises:
        PluginIndexError: Several plugins have that name.
    """
    same = index.named(spec) if PROJECT.fullmatch(spec) else []
    chosen = choose(same)
    if same and chosen is None:
        commands = " or ".join(f"`{index.install_command(each)}`" for each in same)
        raise PluginIndexError(
            f"{spec} is the name of {len(same)} plugins", hint=f"choose one: {commands}"
        )
    return chosen


def refuse_stranger(index: PluginIndex, project: str, spec: str) -> None:
    """Raise if a package has the name of a known plugin, and is not one of its packages.

    Args:
        index: The known plugins.
        project: The package.
        spec: What was asked for: the package with a version or extras.

    Raises:
        PluginIndexError: The hint has the command for the plugin.
    """
    same = index.named(project)
    if not same or index.packaged(project):
        return
    chosen = choose(same) or same[0]
    exact = f"run: hermes-plugins install {chosen.distribution}{spec.removeprefix(project)}"
    todo = exact if chosen.published else index.install_steps(chosen)
    raise PluginIndexError(
        f"the package {project} is not the plugin {chosen.name}, which is {chosen.distribution}",
        hint=f"{todo}; if you want the other package: pip install {spec}",
    )


def suggestion(
    index: PluginIndex, name: str, installed: Sequence[str] = (), *, asked: bool = False
) -> str:
    """What to do if nothing of that name is installed; "" if the index does not help.

    Args:
        index: The known plugins.
        name: What was asked for.
        installed: The installed providers that look like it.
        asked: Whether the person was asked already which name they meant.
    """
    if same := index.find(name):
        chosen = choose(same)
        if chosen is not None:
            return index.install_steps(chosen)
        return f"choose one: {' or '.join(f'`{index.install_command(each)}`' for each in same)}"
    near = [each for each in index.near(name) if each not in installed]
    close = nearest(split_choice(name)[0], [*installed, *near])[:2]
    if not close or close[0] in installed:
        return ""  # an installed one is the better guess, and the error has it already
    guess = f"did you mean {' or '.join(close)}? To install it"
    guess = f"to install {close[0]}" if asked else guess
    chosen = choose(index.named(close[0]))
    if chosen is None or chosen.published:
        return f"{guess}: hermes-plugins install {close[0]}"
    return f"{guess}, {index.install_steps(chosen)}"


# -- updating ----------------------------------------------------------------------------------


class IndexUpdate(NamedTuple):
    """A new index, and what is different in it.

    ``moved`` lists the names of providers and packages for which `install NAME` would take another
    distribution than before, as (name, before, now).
    """

    now: PluginIndex
    changed: bool
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    moved: tuple[tuple[str, str, str], ...] = ()


def update_index(home: Path, source: str, *, today: date) -> IndexUpdate:
    """Replace the index of a home by a newer one, if that is valid.

    Args:
        home: HERMES_HOME.
        source: A file, an https URL, or an http URL of this machine.
        today: No index is newer than tomorrow: one that claims to be would stay for ever.

    Raises:
        PluginIndexError: Nothing was changed; says why.
    """
    from datetime import timedelta  # noqa: PLC0415 - `search` needs no dates

    content = fetch_index(source)
    path = home / FILE_NAME
    before = read_index(home)
    new = parse_index(content, path, source)
    if new.made < before.made:
        what = f"was made on {new.made}, and the one in use on {before.made}"
        raise PluginIndexError(what, where=source, hint="nothing was changed")
    if new.made > (today + timedelta(days=1)).isoformat():
        what = f"claims to be made on {new.made}, which is in the future"
        raise PluginIndexError(what, where=source, hint="nothing was changed")
    if new.entries == before.entries:
        return IndexUpdate(before, changed=False)
    try:
        replace_file(ensure_folder(home) / FILE_NAME, content)
    except OSError as error:
        raise PluginIndexError(f"can't be written: {error}", where=str(path)) from error
    return _difference(before, new)


def _difference(before: PluginIndex, new: PluginIndex) -> IndexUpdate:
    old_names = {each.key: each.name for each in before.entries}
    names = {each.key: each.name for each in new.entries}
    # People install by the name of a package, too, until a provider has that name.
    typed = {*old_names, *(normalise(each.distribution) for each in before.entries)}
    moved = []
    for key in sorted(names.keys() & typed):
        was, now = _installs(before, key), _installs(new, key)
        if was and normalise(was) != normalise(now):
            moved.append((names[key], was, now or "several"))
    return IndexUpdate(
        new,
        changed=True,
        added=tuple(names[key] for key in sorted(names.keys() - old_names.keys())),
        removed=tuple(old_names[key] for key in sorted(old_names.keys() - names.keys())),
        moved=tuple(moved),
    )


def _installs(index: PluginIndex, name: str) -> str:
    """The package that `install NAME` installs; "" if a person has to choose one."""
    same = index.named(name)
    packages = index.packaged(name)
    if not same:
        return packages[0].distribution if packages else name
    chosen = choose(same)
    return chosen.distribution if chosen is not None else ""


def fetch_index(source: str) -> bytes:
    """The content of a file or URL, if it is not too large.

    Raises:
        PluginIndexError: It can't be read, or its address is not allowed.
    """
    from hermes_core.install._download import download  # noqa: PLC0415 - urllib takes 0.05 s

    if "://" in source:
        return download(source, MAX_BYTES)
    try:
        return read_regular(Path(source).expanduser(), MAX_BYTES)
    except OSError as error:
        raise PluginIndexError(
            error.strerror or str(error), where=source, hint="check the path"
        ) from None
