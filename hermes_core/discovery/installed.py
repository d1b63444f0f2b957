"""Plugins that are installed: entry points of distributions, and directories.

Everything here comes from metadata and text; no plugin code is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from hermes_core.config.names import normalise
from hermes_core.discovery.metadata import Distribution, EntryPoint, distributions
from hermes_core.discovery.provider_info import (
    COMMAND_GROUP,
    MEMORY_GROUP,
    NO_PROVIDER,
    OBSERVER_GROUP,
    OURS,
    PLUGIN_GROUP,
    ProviderInfo,
    Record,
    read_record,
)
from hermes_core.discovery.source_text import module_files, registers_provider, speaks_of_provider
from hermes_core.errors import ProviderConflictError, UnknownProviderError
from hermes_core.provider import BUILTIN
from hermes_core.storage.files import read_regular

# A real plugin.yaml has a few hundred bytes.
_MAX_BYTES: Final = 100_000


def home_directories(home: Path) -> Iterator[ProviderInfo]:
    """The plugins that a person put below ``$HERMES_HOME/plugins``."""
    yield from _in_folder(home / "plugins")


def project_directories(home: Path) -> Iterator[ProviderInfo]:
    """The plugins below ``./.hermes/plugins``, if a person allows it.

    Whoever wrote a repository decides what is in that folder, and a plugin is code that reads
    everything in an agent's conversations. So nothing there is looked at unless the person who runs
    the agent has set ``HERMES_ENABLE_PROJECT_PLUGINS``, as with hermes-agent.
    """
    folder = _project_folder() if _is_enabled() else None
    # Run from the home's parent folder, ./.hermes/plugins is the home's own folder: those plugins
    # are listed once, as what a person installed.
    if folder is not None and folder.resolve() != (home / "plugins").resolve():
        yield from (each._replace(source="project") for each in _in_folder(folder))


def ignored_project_plugin(name: str) -> str:
    """How to use a plugin of this name that the project has and nobody allowed; "" if none."""
    folder = _project_folder()
    if _is_enabled() or not name or folder is None or not (folder / name).is_dir():
        return ""
    return f"{folder / name} is used if you set {_ENABLE_PROJECT}=1"


def _is_enabled() -> bool:
    return os.environ.get(_ENABLE_PROJECT, "").strip().lower() in _TRUE


def _project_folder() -> Path | None:
    try:
        return Path.cwd() / ".hermes" / "plugins"
    except OSError:  # the working folder is gone
        return None


_ENABLE_PROJECT: Final = "HERMES_ENABLE_PROJECT_PLUGINS"
_TRUE: Final = frozenset({"1", "true", "yes", "on"})


def _in_folder(plugins: Path) -> Iterator[ProviderInfo]:
    try:
        folders = sorted(plugins.iterdir())
    except OSError:
        return
    for folder in folders:
        # "_" and ".": __pycache__, .git, and the temporary folders of an installation in progress.
        if not folder.name.startswith(("_", ".")) and os.path.isdir(folder):  # noqa: PTH112
            yield describe_directory(folder)


def describe_directory(folder: Path) -> ProviderInfo:
    """What is known about a directory plugin without importing it."""
    manifest, problem = read_manifest(folder)
    record = read_record(folder) or Record()
    state = "broken" if problem else "installed"
    loadable = True
    if not os.path.isfile(folder / "__init__.py"):  # noqa: PTH113 - swallows what pathlib raises
        state, problem, loadable = "broken", "has no __init__.py that can be read", False
    # Directories may hold any kind of hermes-agent plugin, not only memory providers.
    elif not speaks_of_provider(folder):
        state, problem = "no-provider", NO_PROVIDER  # by its text only; `enable` loads it
    return ProviderInfo(
        name=folder.name,
        source="directory",
        version=_text(manifest.get("version")),
        description=_text(manifest.get("description")),
        state=state,
        problem=problem,
        directory=folder,
        loadable=loadable,
        commit=record.commit,
        bridge=record.bridge,
    )


def manifest_of(info: ProviderInfo) -> dict[str, Any]:
    """A provider's plugin.yaml, wherever it is; {} if it has none that can be read."""
    if info.directory is not None:
        return read_manifest(info.directory)[0]
    named = [name for name in info.files if name.rpartition("/")[2] == "plugin.yaml"]
    if info.location is None or not named:
        return {}
    return read_manifest((info.location / min(named, key=len)).parent)[0]


def companions_of(info: ProviderInfo) -> dict[str, Path]:
    """The files beside a plugin that hermes-agent reads on their own, by their names.

    ``config_schema.py`` describes settings for its dashboard, ``cli.py`` adds commands to it.
    """
    folder = info.directory
    if folder is None and info.location is not None:
        # "a.b:c [extra]" is the package a/b; if a.b is a module, there is nothing beside it.
        package = info.entry_point.partition(":")[0].partition("[")[0].strip().replace(".", "/")
        folder = info.location / package if f"{package}/__init__.py" in info.files else None
    if folder is None:
        return {}
    paths = {name: folder / name for name in _COMPANIONS}
    return {name: path for name, path in paths.items() if os.path.isfile(path)}  # noqa: PTH113


_COMPANIONS: Final = ("config_schema.py", "cli.py")


def read_manifest(folder: Path) -> tuple[dict[str, Any], str]:
    """plugin.yaml, of which every field is optional, and what is wrong with it.

    Scalars are texts, as they are written: version 1.10 is not 1.1.
    """
    path = folder / "plugin.yaml"
    if not os.path.lexists(path):
        return {}, ""
    from hermes_core.config.document import TEXT_LOADER, YamlProblem, parse  # noqa: PLC0415

    text = ""
    try:
        text = _read(path)
        _, data = parse(text, TEXT_LOADER)
    # The plugin may still load, so it is listed as broken, with the name and version that can
    # be read.
    except YamlProblem as error:
        return _plain_lines(text), f"plugin.yaml is not valid YAML: {error.what}"
    except OSError as error:
        return {}, f"plugin.yaml {error.strerror or error}"
    if isinstance(data, dict):
        return data, ""
    return {}, "plugin.yaml has no keys" if data else ""


def _plain_lines(text: str) -> dict[str, Any]:
    """What can be made out in an invalid plugin.yaml: lines that are a key and a text."""
    pairs = (line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return {key: value.strip(" \"'") for key, value in pairs if key in _TEXT_KEYS}


_TEXT_KEYS: Final = ("name", "version", "description")


def _read(path: Path) -> str:
    try:
        # "-sig": some editors on Windows write a byte order mark.
        return read_regular(path, _MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OSError(None, "is not UTF-8 text") from error


def _text(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


# Import hooks that an editable install puts into the site instead of its sources.
_FINDERS: Final = ("__editable__", "_editable_impl_")
_MARKER: Final = b"hermes"  # not the whole group: that may be misspelt, and is reported
_BUILTIN_DESCRIPTION: Final = "What an agent remembers without any backend; always on."


def declared_providers(site: Iterable[str] | None = None) -> Iterator[ProviderInfo]:
    """One for each provider that a distribution declares in one of the two groups."""
    # The marker is looked for in the bytes of entry_points.txt, before anything is parsed: of
    # hundreds of distributions only a handful has it.
    for distribution in distributions(_MARKER, site):
        # The same line may be in the file twice.
        declared = list(dict.fromkeys(distribution.entry_points))
        memory = [each for each in declared if each.group == MEMORY_GROUP]
        plugins = [each for each in declared if each.group == PLUGIN_GROUP]
        misspelt = {each.name: each for each in declared if _is_misspelt(each)}
        if memory:
            # The group says which of its plugins are for memory, so the others are not listed.
            yield from (_info(distribution, each) for each in memory)
        # The general group of hermes-agent: only the text of the sources shows which of its
        # plugins register memory.
        elif plugins:
            for each in plugins:
                info = _plugin_info(distribution, each)
                if each.name in misspelt and not info.problem:
                    info = info._replace(problem=_unread(misspelt[each.name]))
                yield info
        # Damaged metadata may hide a declaration, so it is listed as broken instead of left out.
        elif distribution.problem:
            yield _broken(distribution)
        else:
            yield from (_unusable(distribution, each) for each in misspelt.values())


def _info(distribution: Distribution, entry_point: EntryPoint) -> ProviderInfo:
    # Both: another distribution may not call its provider builtin and become the built-in one.
    ours = normalise(distribution.name) in OURS and entry_point.name == BUILTIN
    problem = distribution.problem
    if entry_point.group and not entry_point.sound:
        problem = f"its entry point {entry_point.value!r} names no object"
    return ProviderInfo(
        name=entry_point.name,
        source="builtin" if ours else "entry-point",
        distribution=distribution.name,
        version=distribution.version,
        entry_point=entry_point.value,
        description=_BUILTIN_DESCRIPTION if ours else distribution.summary,
        state="broken" if problem else "installed",
        problem=problem,
        location=distribution.location,
        files=distribution.files,
        loadable=entry_point.sound,
    )


def _plugin_info(distribution: Distribution, entry_point: EntryPoint) -> ProviderInfo:
    info = _info(distribution, entry_point)
    if not info.loadable or _registers(distribution, entry_point):
        return info
    return info._replace(state="no-provider", problem=NO_PROVIDER, loadable=False)


def _broken(distribution: Distribution) -> ProviderInfo:
    info = _info(distribution, EntryPoint("", distribution.name, ""))
    return info._replace(loadable=False)


def _is_misspelt(entry_point: EntryPoint) -> bool:
    """Whether it is in an unknown group that was meant for us."""
    group = entry_point.group
    return group.startswith("hermes") and "memory" in group and group != MEMORY_GROUP


def _unread(entry_point: EntryPoint) -> str:
    return f"declared in the unknown group {entry_point.group}; the right one is {MEMORY_GROUP}"


def _unusable(distribution: Distribution, entry_point: EntryPoint) -> ProviderInfo:
    info = _info(distribution, entry_point)
    return info._replace(state="broken", loadable=False, problem=_unread(entry_point))


def _registers(distribution: Distribution, entry_point: EntryPoint) -> bool:
    """Whether the distribution's own sources register a memory provider.

    Not counted: directory plugins that it carries beside this one.
    """
    top = entry_point.module.partition(".")[0]
    carried = {
        str(PurePosixPath(name).parent)
        for name in distribution.files
        if PurePosixPath(name).name == "plugin.yaml"
    }
    recorded = [
        distribution.location / name
        for name in distribution.files
        if name.endswith(".py")
        and not name.startswith(_FINDERS)
        # Its own package always counts, even if a plugin.yaml lies in it.
        and (name.startswith(f"{top}/") or not carried & set(map(str, PurePosixPath(name).parents)))
    ]
    if distribution.registers or registers_provider(recorded):
        return True
    # An editable install does not record its sources.
    return not recorded and registers_provider(module_files(entry_point.module))


def installed_versions() -> dict[str, str]:
    """The versions of all installed distributions, by normalised name."""
    return {normalise(each.name): each.version for each in distributions()}


def find_distribution(project: str) -> Distribution | None:
    """An installed distribution by its name."""
    key = normalise(project)
    return next((each for each in distributions() if normalise(each.name) == key), None)


def own_commands() -> dict[str, str]:
    """The commands that providers add: name and entry point.

    Our own distribution may add any command; another one only a command with its provider's name.
    """
    return {
        each.name: each.value
        for distribution in distributions(COMMAND_GROUP.encode())
        for each in distribution.entry_points
        if each.group == COMMAND_GROUP and _may_add(distribution, each.name)
    }


def _may_add(distribution: Distribution, command: str) -> bool:
    if normalise(distribution.name) in OURS:
        return True
    # A third party can't take over a command such as `setup` or `list` by declaring it.
    provided = (each for each in distribution.entry_points if each.group == MEMORY_GROUP)
    return any(normalise(each.name) == normalise(command) for each in provided)


def find_observer(name: str) -> ProviderInfo:
    """The observer of that name, from its own entry-point group.

    Raises:
        UnknownProviderError: No installed distribution declares it.
        ProviderConflictError: Several do.
    """
    found = [
        _info(distribution, each)
        for distribution in distributions(OBSERVER_GROUP.encode())
        for each in distribution.entry_points
        if each.group == OBSERVER_GROUP and normalise(each.name) == normalise(name)
    ]
    where = "memory.observers"
    if not found:
        todo = "install it, or remove it from memory.observers in config.yaml"
        raise UnknownProviderError(f"no observer {name!r} is installed", where=where, hint=todo)
    if len(found) > 1:
        owners = ", ".join(sorted(each.distribution for each in found))
        what = f"observer {name!r} is claimed by {owners}"
        raise ProviderConflictError(what, where=where, hint="uninstall all but one of them")
    return found[0]


def carried_directories(
    known: Iterable[ProviderInfo], installed: Iterable[Distribution]
) -> Iterator[ProviderInfo]:
    """Directory plugins inside distributions that declare no provider: plugin.yaml beside
    an ``__init__.py``, used in place.
    """  # noqa: D205
    declared = {normalise(each.distribution) for each in known if each.loadable}
    for distribution in installed:
        if normalise(distribution.name) in declared:
            continue
        files = set(distribution.files)
        for name in sorted(each for each in files if each.endswith("plugin.yaml")):
            path = PurePosixPath(name)
            if path.name == "plugin.yaml" and str(path.parent / "__init__.py") in files:
                # A path in RECORD may lead out of the site: ../share/...
                folder = Path(os.path.normpath(distribution.location / path.parent))
                info = describe_directory(folder)
                # `describe_directory` judges by text; what has no provider in its text is some
                # other plugin.
                if info.loadable and info.state != "no-provider":
                    yield info._replace(
                        name=str(read_manifest(folder)[0].get("name") or info.name),
                        distribution=distribution.name,
                        version=distribution.version,
                        description=info.description or distribution.summary,
                        location=distribution.location,
                        files=distribution.files,
                    )
