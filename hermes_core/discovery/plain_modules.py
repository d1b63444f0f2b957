"""Providers in installed packages that declare nothing: no entry point, no plugin.yaml.

Such a package has a class that derives from ``MemoryProvider``, or a ``register(ctx)``, in a
plain module, and an installer that copies it into a Hermes home. Its files are read as text;
nothing is imported. Reading every file of every package would take too long, so a package has
to look like one first, and the number of files is bounded.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from hermes_core.config.names import name_problem, normalise
from hermes_core.discovery.installed import read_manifest
from hermes_core.discovery.metadata import Distribution
from hermes_core.discovery.provider_info import OURS, ProviderInfo
from hermes_core.discovery.source_text import REGISTERS, content_of, python_files

_BASE: Final = "MemoryProvider"
#: The packages that the base class comes from.
_HOSTS: Final = frozenset({"agent", "hermes_agent", "hermes_core"})
#: What a path, a name or a summary has in it if the package may be one; "hermes" counts
#: anywhere in the package's description.
_WORDS: Final = ("hermes", "memory")
_SMALL: Final = 20  # a package with so few modules is read, whatever its name
# Bounds the time of a search, which parses what it reads.
_MOST_FILES: Final = 400
# Their classes are examples or test doubles. "src" is a source tree that was packed by mistake.
_ASIDE: Final = frozenset({"test", "tests", "testing", "example", "examples", "docs", "src"})

#: How an installer names the folder that it makes.
_INSTALLER_NAMES: Final = (
    re.compile(
        r"""^(?:\w+_)?(?:PLUGIN|PROVIDER)_NAME\b[^=\n]*=\s*["']([\w.-]+)["']""", re.MULTILINE
    ),
    re.compile(r"""["']plugins["']\s*[/,]\s*(?:["']memory["']\s*[/,]\s*)?["']([\w.-]+)["']"""),
    re.compile(r"""\.hermes/plugins/(?:memory/)?([A-Za-z][\w.-]*)\b(?!\.)"""),
)
# What the patterns match that is a placeholder or a part of the path.
_NOT_NAMES: Final = frozenset({"memory", "plugins", "name", "__init__", "plugin"})


class _Source(NamedTuple):
    """A module of a package: its dotted name, and what its text says."""

    module: str
    tree: ast.Module
    classes: tuple[ast.ClassDef, ...]
    taken: tuple[tuple[str, str], ...]  # from other modules of the package: name there, and here
    aliases: frozenset[str]  # its names for the host's base class


class _Texts:
    """The files of a package."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self.contents = contents

    def parsed(self, wanted: Callable[[bytes], bool]) -> list[_Source]:
        """The syntax of those files whose text is wanted."""
        own = {name.partition("/")[0].removesuffix(".py") for name in self.contents}
        chosen = {name: text for name, text in self.contents.items() if wanted(text)}
        return [each for name, text in chosen.items() if (each := _parsed(name, text, own))]

    def with_class(self, names: set[str]) -> list[_Source]:
        """The files that may have a class of one of these names."""
        words = [f"class {name}".encode() for name in names if name]
        return self.parsed(lambda text: any(word in text for word in words))

    def constant(self, name: str) -> str:
        """The text that one of the files assigns to a name."""
        if not name.isidentifier():
            return ""
        # Also with an annotation between name and "=". Only texts that can be a provider's name.
        pattern = re.compile(rf"""^{name}\b[^=\n]*=\s*["']([\w.-]+)["']""", re.MULTILINE)
        found = map(pattern.search, map(_decoded, self.contents.values()))
        return next((each.group(1) for each in found if each), "")


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "replace")


class _Candidate(NamedTuple):
    """A way to a provider: what to load, and what the provider is called."""

    reference: str
    name: str


def plain_modules(
    known: Iterable[ProviderInfo], installed: Iterable[Distribution]
) -> Iterator[ProviderInfo]:
    """Providers in distributions of which nothing else is known.

    Args:
        known: What was found by other means.
        installed: The distributions to look in.
    """
    # "no-provider" was a guess about its entry point; a plain module of it may still have one.
    listed = {normalise(each.distribution) for each in known if each.state != "no-provider"}
    for distribution in installed:
        if normalise(distribution.name) in listed | OURS:
            continue
        for found in _providers(distribution):
            yield ProviderInfo(
                name=found.name,
                source="module",
                distribution=distribution.name,
                version=distribution.version,
                entry_point=found.reference,
                description=distribution.summary,
                location=distribution.location,
                files=distribution.files,
            )


def reference_in(folder: Path) -> str:
    """The module of a directory plugin that has its provider: ``module:attribute``, or ""."""
    relative = {path.relative_to(folder).as_posix(): path for path in python_files(folder)}
    # "_" stands for the package, whose name is not known here: relative imports work the same.
    contents = {f"_/{name}": content_of(path) for name, path in relative.items()}
    modules = {name: text for name, text in contents.items() if _is_module(name)}
    ways = sorted(_ways(_Texts(modules)), key=lambda way: way[0].count("."))
    return ways[0][0].removeprefix("_.") if ways else ""


def _providers(distribution: Distribution) -> list[_Candidate]:
    paths = _worth_reading(distribution)
    texts = _Texts({name: content_of(distribution.location / name) for name in paths})
    ways = _ways(texts)
    if not ways:
        return []
    names = {name for _, name in ways if name}
    otherwise = names.pop() if len(names) == 1 else _installers_name(distribution, texts.contents)
    named: dict[str, _Candidate] = {}
    for reference, name in ways:
        found = _Candidate(reference, name or otherwise)
        first = named.setdefault(normalise(found.name), found)
        # The shortest path wins: the others are usually re-exported or wrapped by it.
        if reference.count(".") < first.reference.count("."):
            named[normalise(found.name)] = found
    return list(named.values())


def _ways(texts: _Texts) -> list[tuple[str, str]]:
    """What can be loaded to get a provider, each with the provider's name if that is known."""
    # A bytes search before parsing: ast.parse is much slower.
    sources = texts.parsed(lambda text: _BASE.encode() in text or REGISTERS in text)
    classes = _provider_classes(sources, texts)
    names = {each.name for each in classes if each.name}
    only = names.pop() if len(names) == 1 else ""
    registering = [(reference, name or only) for reference, name in _registering(sources, texts)]
    # `register` knows how the class has to be made, so a class is only used without one.
    return registering or _leaves(classes)


# -- which files -------------------------------------------------------------------------------


def _worth_reading(distribution: Distribution) -> list[str]:
    """The modules of a package that may have a provider, in a bounded number."""
    modules = [name for name in distribution.files if _is_module(name)]
    if not modules or not _is_plausible(distribution, modules):
        return []
    # The most likely ones come first, in case there are too many.
    modules.sort(key=lambda name: not any(word in name.lower() for word in (*_WORDS, "provider")))
    return modules[:_MOST_FILES]


def _is_module(name: str) -> bool:
    if not name.endswith(".py"):  # a distribution may have ten thousand other files
        return False
    parts = name.removesuffix(".py").split("/")
    return all(map(str.isidentifier, parts)) and not _ASIDE & {*parts}


def _is_plausible(distribution: Distribution, modules: Sequence[str]) -> bool:
    metadata = [name for name in distribution.files if name.endswith(".dist-info/METADATA")]
    given = (distribution.location / name for name in metadata)
    return may_have_provider(modules, lambda: b"\n".join(map(content_of, given)))


def may_have_provider(modules: Sequence[str], metadata: Callable[[], bytes]) -> bool:
    """Whether it is worth reading the modules of a package.

    Args:
        modules: Their paths.
        metadata: Returns METADATA; only called if that is needed.
    """
    # METADATA is read last: the list of modules is in memory already.
    if len(modules) <= _SMALL or any(word in "\n".join(modules).lower() for word in _WORDS):
        return True
    head, _, text = metadata().lower().partition(b"\n\n")
    named = re.findall(rb"^(?:name|summary|keywords):.*", head, re.MULTILINE)
    # "memory" is a common word in descriptions, so it counts only in name, summary and keywords.
    return b"hermes" in head + text or any(b"memory" in each for each in named)


def _parsed(name: str, content: bytes, own: set[str]) -> _Source | None:
    path = PurePosixPath(name)
    parts = path.parts[:-1] if path.name == "__init__.py" else (*path.parts[:-1], path.stem)
    try:
        tree = ast.parse(content)
    # ast.parse raises all of these: for other Python versions, null bytes, and deep nesting.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    classes = tuple(each for each in _statements(tree.body) if isinstance(each, ast.ClassDef))
    imports = [each for each in _statements(tree.body) if isinstance(each, ast.ImportFrom)]
    taken = tuple(
        (alias.name, alias.asname or alias.name)
        for each in imports
        # Relative, or absolute within the package: only these can import one of its own classes.
        if each.level or _top(each.module) in own
        for alias in each.names
    )
    module = ".".join(parts)
    return _Source(module, tree, classes, taken, _aliases(tree)) if module else None


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _aliases(tree: ast.Module) -> frozenset[str]:
    """What a module calls the host's base class; another framework may have one of that name."""
    names: set[str] = set()
    for node in _statements(tree.body):
        if isinstance(node, ast.ImportFrom) and not node.level and _top(node.module) in _HOSTS:
            names |= {each.asname or each.name for each in node.names if each.name == _BASE}
            names |= {_BASE for each in node.names if each.name == "memory_provider"}
        elif isinstance(node, ast.Import) and {_top(each.name) for each in node.names} & _HOSTS:
            names.add(_BASE)  # as an attribute of the module
        # Optional imports end in `Base = MemoryProvider if available else object`.
        elif isinstance(node, ast.Assign) and names & {*_either(node.value)}:
            names |= {each.id for each in node.targets if isinstance(each, ast.Name)}
    return frozenset(names)


def _either(value: ast.expr) -> Iterator[str]:
    """The names that an expression may stand for: ``Base or object``, ``Base if x else object``."""
    if isinstance(value, ast.IfExp):
        yield from (*_either(value.body), *_either(value.orelse))
    elif isinstance(value, ast.BoolOp):
        yield from (name for each in value.values for name in _either(each))
    else:
        yield _identifier(value)


# -- what they say -----------------------------------------------------------------------------


class _Class(NamedTuple):
    """A class that is a provider, and the module in which it is."""

    source: _Source
    node: ast.ClassDef
    name: str


def _provider_classes(sources: Sequence[_Source], texts: _Texts) -> list[_Class]:
    """The classes that derive from the base class, directly or not."""
    # A fixed point: every pass finds the classes whose bases were found in the pass before, and
    # ends since each class is added once.
    known: set[str] = set().union(*(each.aliases for each in sources))
    found: list[_Class] = []
    while True:
        more = [
            _Class(source, node, _own_name(node, source, texts))
            for source in sources
            for node in source.classes
            if node.name not in known and _visible(source, known) & {*_base_names(node)}
        ]
        if not more:
            return found
        found += more
        known |= {each.node.name for each in more}


def _visible(source: _Source, known: set[str]) -> set[str]:
    """What a module calls the base class, and the classes that derive from it."""
    imported = {here for there, here in source.taken if there in known}
    defined = {node.name for node in source.classes} & known
    return imported | defined | source.aliases


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, with those in ``if``, ``with`` and ``try``."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        elif isinstance(node, ast.With):
            yield from _statements(node.body)
        elif isinstance(node, ast.Try):
            handled = [each for handler in node.handlers for each in handler.body]
            yield from _statements([*node.body, *handled, *node.orelse, *node.finalbody])


def _base_names(node: ast.ClassDef) -> list[str]:
    return [_identifier(each) for each in node.bases]


def _identifier(node: ast.expr | None) -> str:
    """``name`` of ``name`` and of ``module.name``."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _own_name(node: ast.ClassDef, source: _Source, texts: _Texts) -> str:
    """What a provider class calls itself, if it can be read; else ""."""
    for statement in node.body:
        value: ast.expr | None = None
        if isinstance(statement, ast.FunctionDef) and statement.name == "name":
            returned = [each.value for each in ast.walk(statement) if isinstance(each, ast.Return)]
            # Several returns depend on something at run time.
            value = returned[0] if len(returned) == 1 else None
        elif "name" in map(_identifier, _targets(statement)):
            value = getattr(statement, "value", None)
        if value is not None:
            found = _text(value, [node, source.tree], texts)
            return "" if name_problem(found) else found
    return ""


def _text(value: ast.expr, scopes: Sequence[ast.ClassDef | ast.Module], texts: _Texts) -> str:
    """The text of an expression: a constant, or the name of one."""
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, str) else ""
    name = _identifier(value)
    # The class first, then its module; at last any file of the package, for an imported constant.
    for scope in scopes:
        for statement in _statements(scope.body):
            given = getattr(statement, "value", None)
            if name in map(_identifier, _targets(statement)) and isinstance(given, ast.Constant):
                return str(given.value)
    return texts.constant(name)


def _targets(node: ast.stmt) -> list[ast.expr]:
    """What a statement assigns to."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def _registering(sources: Sequence[_Source], texts: _Texts) -> list[tuple[str, str]]:
    """The modules whose ``register`` registers a provider, each with its provider's name."""
    return [
        (f"{source.module}:register", _given_name(node, texts))
        for source in sources
        for node in _statements(source.tree.body)
        if isinstance(node, ast.FunctionDef) and node.name == "register"
        if any(map(_is_registration, ast.walk(node)))
    ]


def _is_registration(node: ast.AST) -> bool:
    """``ctx.register_memory_provider``, a function of that name, or a text for `getattr`."""
    wanted = REGISTERS.decode()
    if isinstance(node, ast.Constant):
        return bool(node.value == wanted)
    return isinstance(node, ast.expr) and _identifier(node) == wanted


def _given_name(register: ast.FunctionDef, texts: _Texts) -> str:
    """The name of the provider that ``register`` makes, as far as its text says which."""
    mentioned = {_identifier(each) for each in ast.walk(register) if isinstance(each, ast.expr)}
    names = {
        name
        for source in texts.with_class(mentioned)
        for node in source.classes
        if node.name in mentioned and (name := _own_name(node, source, texts))
    }
    return names.pop() if len(names) == 1 else ""


def _leaves(classes: Sequence[_Class]) -> list[tuple[str, str]]:
    """The classes that no other one is built on."""
    built_on = {base for each in classes for base in _base_names(each.node)}
    return [
        (f"{each.source.module}:{each.node.name}", each.name)
        for each in classes
        # A base class of others is abstract or shared code; a leading "_" is private to the
        # package.
        if each.node.name not in built_on and not each.node.name.startswith("_")
    ]


def _installers_name(distribution: Distribution, contents: Mapping[str, bytes]) -> str:
    """The name in the manifest or the installer; else the distribution's."""
    manifests = [name for name in distribution.files if name.rpartition("/")[2] == "plugin.yaml"]
    for each in manifests[:1]:
        given = read_manifest(Path(distribution.location / each).parent)[0].get("name")
        if isinstance(given, str) and not name_problem(given):
            return given
    # The installer knows the folder's name, since it makes that folder in the home.
    installers = [name for name in contents if re.search(r"install|setup|cli", name.lower())]
    for pattern in _INSTALLER_NAMES:
        for name in installers:
            for given in pattern.findall(_decoded(contents[name])):
                if given not in _NOT_NAMES and not name_problem(given):
                    return str(given)
    return distribution.name
