"""Loads a plugin: from what was found to a provider, with a deadline and a cause for every failure.

A plugin may offer its provider as an instance, a class, a factory without arguments,
``register(ctx)``, or a module with ``register`` or with a subclass of `MemoryProvider`. A step
that raises is an error, never a reason to try the next shape: that would turn a plugin's bug
into "not found".
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

from hermes_core.config import Selection, read_selection
from hermes_core.config.names import name_problem, normalise
from hermes_core.discovery import (
    ProviderInfo,
    find_provider,
    pin_problem,
    reference_in,
    registering_module,
    same_owner,
    scan,
)
from hermes_core.dispatch import LOAD_SECONDS
from hermes_core.dispatch.caller import ProviderInstance, register_instance
from hermes_core.dispatch.streams import guarded_streams, stdout_to_stderr
from hermes_core.dispatch.worker import Worker, as_exception
from hermes_core.errors import (
    DeadlineExceeded,
    ProviderCallError,
    ProviderConflictError,
    ProviderLoadError,
    describe,
)
from hermes_core.loading.compat import (
    base_classes,
    begin_with_theirs,
    clash_of,
    is_written_for_hermes_agent,
    offer_hermes_agent_modules,
)
from hermes_core.loading.context import PluginContext, PluginManifest, counted
from hermes_core.loading.modules import import_directory, import_value
from hermes_core.loading.pinned import pin_imports
from hermes_core.loading.requirements import missing_packages
from hermes_core.provider import BUILTIN, REQUIRED_MEMBERS, MemoryProvider
from hermes_core.storage.home import resolve_home


class LoadResult(NamedTuple):
    """A loaded provider.

    ``name`` is what the provider calls itself, ``registered`` counts what else its plugin
    registers, ``warnings`` are problems in spite of which it was loaded.
    """

    provider: MemoryProvider
    name: str = ""
    registered: Mapping[str, int] = {}
    warnings: tuple[str, ...] = ()


def load_provider(
    name_or_info: str | ProviderInfo,
    home: str | os.PathLike[str] | None = None,
    *,
    deadline: float = LOAD_SECONDS,
) -> MemoryProvider:
    """Import a plugin and return its provider.

    Args:
        name_or_info: ``name``, ``name@owner`` or an item of `discover`.
        home: HERMES_HOME; by default the environment's.
        deadline: How many seconds loading may take.

    Raises:
        ProviderLoadError: It can't be loaded. The error names the plugin, its distribution, the
            step and the cause; ``__cause__`` is the plugin's own exception.
        UnknownProviderError: No such plugin is installed.
        ProviderConflictError: Two owners claim the name.
    """
    pin = ""
    if isinstance(name_or_info, ProviderInfo):
        info = name_or_info
        if info.state == "conflict":
            todo = f"choose one: hermes-plugins enable {info.name}@OWNER"
            raise ProviderConflictError(info.problem, where=f"plugin {info.name}", hint=todo)
    else:
        place = resolve_home(home)
        selection = read_selection(place)
        info = find_provider(name_or_info, scan(place, selection, everything=True))
        pin = _required_hash(info, selection)
    folder = None if home is None else resolve_home(home)
    return load(info, folder, deadline=deadline, pin=pin).provider


def _required_hash(info: ProviderInfo, selection: Selection) -> str:
    """Return the hash that a plugin's files must have; "" if any will do.

    Raises:
        ProviderConflictError: It is the active provider, and not the one that was enabled.
    """
    if info.key != normalise(selection.name):
        return ""
    # Unless pins are strict, a changed version loads here; to warn is the manager's decision.
    refused = selection.strict or not same_owner(info, selection.pin)
    if refused and (problem := pin_problem(info, selection)):
        todo = f"if you trust it: hermes-plugins enable {info.name}"
        raise ProviderConflictError(problem, where=f"plugin {info.name}", hint=todo)
    return selection.strict_hash


def load_command(name: str, entry_point: str, home: str | os.PathLike[str] | None = None) -> Any:
    """Import a command that a plugin adds; that of the active provider obeys its pin.

    Args:
        name: The command, which is also the name of its provider.
        entry_point: Where it is.
        home: HERMES_HOME; by default the environment's.

    Raises:
        ProviderConflictError: The provider is not the one that was enabled.
        ProviderLoadError: The command can't be imported.
    """
    place = resolve_home(home)
    selection = read_selection(place)
    if normalise(name) == normalise(selection.name):
        info = find_provider(selection.choice, scan(place, selection, everything=True))
        if pin := _required_hash(info, selection):
            pin_imports(info, pin)
    try:
        return import_value(entry_point)
    except Exception as error:
        todo = "this is a bug in the plugin: report it to its author"
        raise ProviderLoadError(describe(error), plugin=name, step="import", hint=todo) from error


def load(
    info: ProviderInfo,
    home: Path | None,
    *,
    deadline: float = LOAD_SECONDS,
    pin: str = "",
    instance: ProviderInstance | None = None,
) -> LoadResult:
    """Load like `load_provider`; return also what else was found out.

    Args:
        info: What to load.
        home: The Hermes home.
        deadline: How many seconds loading may take.
        pin: The hash that its files must have, if nothing else may run (``memory.pin: strict``).
        instance: What its calls are made for, if there is more to say than the home.
    """
    if info.source == BUILTIN:  # ours: it needs neither a thread nor a deadline
        return LoadResult(_provider(info, Progress()))
    if pin:
        pin_imports(info, pin)
    return _LoadSteps(info, home, deadline, instance).provider()


def load_observer(info: ProviderInfo, deadline: float = LOAD_SECONDS) -> Any:
    """Import an observer: return what its entry point names, as it is."""
    return _LoadSteps(info, None, deadline).run(_value)


class _LoadSteps:
    """The steps of loading, on a thread that may be left behind."""

    def __init__(
        self,
        info: ProviderInfo,
        home: Path | None,
        deadline: float,
        instance: ProviderInstance | None = None,
    ) -> None:
        self._info = info
        self._deadline = deadline
        self._context = PluginContext(_manifest(info), home)
        self._progress = Progress(self._context)
        self._instance = instance or ProviderInstance(info.name, home)

    def provider(self) -> LoadResult:
        """Load the provider; offer hermes-agent's modules if it was written for that."""
        # Decided per plugin: the finder stays in the process, so it is not added for those that do
        # not need it.
        if is_written_for_hermes_agent(self._info):
            offer_hermes_agent_modules()
        found: MemoryProvider = self.run(_provider)
        register_instance(found, self._instance)
        self._instance.unload = self._context.unload
        complaints = [f"plugin {self._info.name}: {each}" for each in self._context.complaints]
        return LoadResult(
            found,
            self._progress.name,
            dict(self._context.registered),
            tuple(complaints),
        )

    def run(self, steps: Callable[[ProviderInfo, Progress], Any]) -> Any:
        # A thread and not a process, since the provider has to live in this one. A hanging import
        # can't be interrupted: it is left behind, and the caller goes on.
        lane = Worker(f"load-{self._info.name}")

        def run() -> Any:
            begin_with_theirs(self._instance)
            # stdout may be a protocol (MCP, --json), which a plugin's print would break.
            with stdout_to_stderr(), self._instance.around():
                return steps(self._info, self._progress)

        try:
            with guarded_streams():
                return lane.call(run, self._deadline)
        # It names the step already.
        except ProviderLoadError:
            raise
        except Exception as error:  # noqa: BLE001 - the plugin boundary
            raise self._error(error) from (_cause(error) or error)
        finally:
            lane.close()

    def _error(self, error: Exception) -> ProviderLoadError:
        if isinstance(error, DeadlineExceeded):
            what = f"not finished after {self._deadline:g} s"
        else:
            what = clash_of(error) or describe(_cause(error) or error)
        return _failure(self._info, self._progress, what, _hint(error, self._info))


def _manifest(info: ProviderInfo) -> PluginManifest:
    """Return what a plugin can read about itself."""
    place = info.directory or info.location
    return PluginManifest(
        name=info.name,
        version=info.version,
        description=info.description,
        source=info.source,
        path=None if place is None else str(place),
        # hermes-agent's word for a kind of plugin of which one is active, such as memory.
        kind="exclusive",
        key=info.name,
    )


def _cause(error: Exception) -> BaseException | None:
    """Return what a plugin really raised: an exit is wrapped in an error of ours."""
    return error.__cause__ if isinstance(error, ProviderCallError) else None


def _value(info: ProviderInfo, progress: Progress) -> Any:
    if not info.loadable:
        raise _failure(info, progress, info.problem)
    progress.step = "import"
    if info.directory is not None:
        return _offering(import_directory(info.directory, info.location), info.directory)
    return import_value(info.entry_point)


def _offering(package: ModuleType, folder: Path) -> Any:
    """Return a directory plugin, or the part of its modules that has the provider."""
    if offers_provider(package):
        return package
    # By text, and only after the import showed no provider: most plugins have it in __init__.py.
    reference = registering_module(folder) or reference_in(folder)
    if not reference:
        return package
    module, _, attribute = reference.partition(":")
    found = importlib.import_module(f"{package.__name__}.{module}")
    return found if attribute in ("", "register") else getattr(found, attribute)


def _provider(info: ProviderInfo, progress: Progress) -> MemoryProvider:
    # The last name of "module:object.attribute [extra]".
    attribute = info.entry_point.partition("[")[0].rpartition(":")[2].rpartition(".")[2].strip()
    provider = provider_from(_value(info, progress), info.name, progress, attribute)
    progress.step = "check"
    # Reading the name runs plugin code, so it is a step with a deadline like the others.
    progress.name = provider.name
    problem = name_problem(progress.name, ours=info.source == BUILTIN)
    if problem:
        raise _failure(info, progress, problem)
    return provider


def _failure(
    info: ProviderInfo, progress: Progress, what: str, hint: str = ""
) -> ProviderLoadError:
    return ProviderLoadError(
        what, plugin=info.name, distribution=info.distribution, step=progress.step, hint=hint
    )


def _hint(error: Exception, info: ProviderInfo) -> str:
    if clash_of(error):
        return "rename that module, or run the agent from another folder"
    if isinstance(error, ModuleNotFoundError) and error.name:
        if lacks := missing_packages(info):
            return lacks.hint
        top = error.name.partition(".")[0]
        return f"install the package that contains it, usually: pip install {top}"
    return ""


class Progress:
    """How far loading got: the step that an error names, and what else is known."""

    def __init__(self, context: PluginContext | None = None) -> None:
        self.step = "find"
        self.name = ""  # the provider's own name, read once: a property may run any code
        self.context = context or PluginContext()


def provider_from(value: Any, name: str, progress: Progress, attribute: str = "") -> MemoryProvider:
    """Return the provider that the value of an entry point stands for.

    Args:
        value: What it names.
        name: The provider's name, for choosing among several.
        progress: Records how far it got.
        attribute: The name of the value where it was found.
    """
    # The order matters: a class has all members of a provider, but is not an instance; and an
    # instance may be callable.
    if isinstance(value, ModuleType):
        return _from_module(value, name, progress)
    if inspect.isclass(value):
        return _constructed(value, progress)
    if looks_like_provider(value):
        return cast("MemoryProvider", value)
    if callable(value):
        return _from_callable(value, name, progress, attribute)
    raise TypeError(f"{type(value).__name__} is not a MemoryProvider, a subclass or a factory")


def looks_like_provider(value: Any) -> bool:
    """Return whether an object has the members of a provider; it need not be a subclass."""
    return not missing_members(value)


def missing_members(value: Any) -> list[str]:
    """Return what an object lacks to be a provider.

    Looks at the class first, so that a ``name`` property which raises is not run yet.
    """
    return [
        member
        for member in REQUIRED_MEMBERS
        if not hasattr(type(value), member) and not hasattr(value, member)
    ]


def _from_module(module: ModuleType, name: str, progress: Progress) -> MemoryProvider:
    register = getattr(module, "register", None)
    # `register` first: the plugin says itself how its provider is made.
    if callable(register):
        return _registered(register, name, progress)
    classes = _provider_classes(module)
    # If all are abstract, one is constructed anyway: Python's error names the missing method.
    candidates = [each for each in classes if not inspect.isabstract(each)] or classes
    # Its own classes before imported ones: `from other import BaseProvider` is not an offer.
    candidates = [each for each in candidates if _is_within(each, module)] or candidates
    if len(candidates) == 1:
        return _constructed(candidates[0], progress)
    if candidates:
        names = ", ".join(each.__name__ for each in candidates)
        raise TypeError(f"module {module.__name__} has several providers: {names}")
    raise TypeError(f"module {module.__name__} has neither register(ctx) nor a MemoryProvider")


def offers_provider(module: ModuleType) -> bool:
    """Return whether a module offers a provider."""
    return callable(getattr(module, "register", None)) or bool(_provider_classes(module))


def _provider_classes(module: ModuleType) -> list[type]:
    bases = base_classes()
    # Without duplicates, in the order of definition: one class may have two names.
    named = dict.fromkeys(each for each in vars(module).values() if inspect.isclass(each))
    return [each for each in named if issubclass(each, bases) and each not in bases]


def _is_within(kind: type, module: ModuleType) -> bool:
    # With a dot at the end, so that "acme" does not match "acme_tools".
    return f"{kind.__module__}.".startswith(f"{module.__name__}.")


def _from_callable(
    value: Callable[..., Any], name: str, progress: Progress, attribute: str
) -> MemoryProvider:
    if attribute == "register" or _wants_context(value):
        return _registered(value, name, progress)
    progress.step = "construct"
    return _instance(value(), progress)


def _wants_context(value: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return False
    first = parameters[0] if parameters else None
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        return False
    # A factory may have optional parameters; a required one can only be the context.
    return first.default is first.empty or first.name in ("ctx", "context")


def _takes_one(register: Callable[..., Any]) -> bool:
    """Return whether a ``register`` accepts the context."""
    try:
        inspect.signature(register).bind(None)
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature: the contract says that it takes one
        return True
    return True


def _registered(register: Callable[..., Any], name: str, progress: Progress) -> MemoryProvider:
    progress.step = "register"
    context = progress.context
    returned = _called(register, context)
    offered = list(context.providers)
    # Some plugins return the provider instead of registering it.
    if not offered and (inspect.isclass(returned) or looks_like_provider(returned)):
        offered = [returned]
    if not offered:
        others = counted(context.registered)
        raise LookupError(f"it registered no memory provider{others and f', only {others}'}")
    providers = [_instance(each, progress) for each in offered]
    if len(providers) == 1:
        return providers[0]
    named = [each for each in providers if normalise(str(each.name)) == normalise(name)]
    if len(named) == 1:
        return named[0]
    raise LookupError(f"it registered {len(providers)} providers, not one called {name}")


def _called(register: Callable[..., Any], context: PluginContext) -> Any:
    """Call ``register``; an error after it registered its provider is only reported."""
    try:
        return register(context) if _takes_one(register) else register()
    # SystemExit: argparse and some SDKs call sys.exit on a configuration that they do not accept.
    except (Exception, SystemExit) as error:
        if not context.providers:
            raise
        context.complaints.append(
            f"register() failed after it registered its memory provider, which is used: "
            f"{describe(as_exception(error))}"
        )
        return None


def _instance(value: Any, progress: Progress) -> MemoryProvider:
    if inspect.isclass(value):
        return _constructed(value, progress)
    if looks_like_provider(value):
        return cast("MemoryProvider", value)
    raise TypeError(_no_provider(value))


def _no_provider(value: Any) -> str:
    missing = ", ".join(missing_members(value))
    return f"{type(value).__name__} is not a memory provider: it lacks {missing}"


def _constructed(kind: type[Any], progress: Progress) -> MemoryProvider:
    progress.step = "construct"
    value = kind()
    if looks_like_provider(value):
        return cast("MemoryProvider", value)
    raise TypeError(_no_provider(value))
