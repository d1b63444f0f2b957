"""Identity and packaging: the name of a plugin, its metadata, and the cost of loading it."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from hermes_core.config.names import normalise
from hermes_core.conformance._context import CheckContext, no_events
from hermes_core.conformance._watch import NETWORK, PROCESS, WRITE
from hermes_core.conformance.model import MUST, SHOULD, CheckFailure, check
from hermes_core.discovery import MEMORY_GROUP, read_manifest
from hermes_core.dispatch import method_of
from hermes_core.hookspecs import HOOKS


@check(
    "HP101",
    SHOULD,
    "`name` is the name of the entry point, or of the folder",
    fix="Use the same name for both.",
)
def names_agree(context: CheckContext) -> None:
    """People enable a plugin by the name in the list, which is the name of its entry point. Its
    settings, variables and files use `name`. If the two differ, users look for settings in the
    wrong place.
    """
    name = context.plugin.first.name
    if normalise(name) != context.info.key:
        raise CheckFailure(
            f"`name` is {name!r}",
            expected=f"{context.info.name!r}, as in the list",
            where=context.plugin.places.of(type(context.plugin.first)),
        )


@check(
    "HP102",
    MUST,
    "`name` never changes",
    fix="Return a constant from `name`.",
)
def name_is_stable(context: CheckContext) -> None:
    """Hosts read `name` once and use it as the key for settings, health and tools. If the name
    depends on the session or on a setting, the plugin loses access to its data.
    """
    first, second = context.driver(), context.driver()
    # Read at every stage of two objects and of a third that was never started.
    names = {first.provider.name, second.provider.name, context.plugin.first.name}
    context.start(first)
    names |= {first.provider.name}
    first.shut()
    names |= {first.provider.name}
    if len(names) > 1:
        raise CheckFailure(
            f"it was {' and '.join(sorted(map(repr, names)))}",
            where=context.plugin.places.of(type(first.provider)),
        )


@check(
    "HP103",
    SHOULD,
    "Every method of the contract is present",
    fix="Subclass `hermes_core.MemoryProvider`. Methods that you don't override have a neutral "
    "default.",
)
def has_every_method(context: CheckContext) -> None:
    """Not every host handles a missing method. A subclass of `MemoryProvider` has all methods,
    including those that a later version of the contract adds.
    """
    provider = context.plugin.first
    needed = [hook for hook, rule in HOOKS.items() if not rule.optional]
    missing = [hook for hook in needed if method_of(provider, hook) is None]
    # Its default is initialize itself.
    missing = [hook for hook in missing if hook != "initialize_for_inspection"]
    if missing:
        raise CheckFailure(
            f"missing: {', '.join(missing)}",
            where=context.plugin.places.of(type(provider)),
        )


@check(
    "HP104",
    SHOULD,
    "The entry point is in the group `hermes_agent.memory_providers`",
    fix=f'Declare it in pyproject.toml under [project.entry-points."{MEMORY_GROUP}"].',
)
def group_is_right(context: CheckContext) -> None:
    """Entry points in `hermes_agent.plugins` can be plugins of any kind, so hosts have to search
    the sources for a memory provider. In this group the kind is clear.
    """
    # A directory plugin has no entry point.
    if not context.info.distribution or context.info.directory is not None:
        return
    declared = importlib.metadata.distribution(context.info.distribution).entry_points
    groups = {each.group for each in declared if each.name == context.info.name}
    if MEMORY_GROUP not in groups:
        raise CheckFailure(
            f"{context.info.distribution} declares it in {', '.join(sorted(groups)) or 'no group'}",
            where="entry_points.txt",
        )


def _manifest(context: CheckContext) -> tuple[dict[str, Any], str]:
    return read_manifest(context.plugin.places.root)


@check(
    "HP105",
    MUST,
    "If plugin.yaml exists, it is valid",
    fix="Make it a YAML mapping with name, version and description. Quote values that contain a "
    "colon.",
)
def manifest_is_valid(context: CheckContext) -> None:
    """`list` and `info` show fields of plugin.yaml. If the file is not valid YAML, `list` shows the
    plugin as broken. All fields are optional.
    """
    _, problem = _manifest(context)
    if problem:
        raise CheckFailure(problem, where="plugin.yaml")


@check(
    "HP106",
    SHOULD,
    "plugin.yaml matches the provider and its distribution",
    fix="Correct plugin.yaml, or remove the field: it is optional.",
)
def manifest_agrees(context: CheckContext) -> None:
    """A wrong name or an old version number in plugin.yaml makes bug reports misleading."""
    manifest, _ = _manifest(context)
    name, version = manifest.get("name"), manifest.get("version")
    # Either name is right: HP101 reports if the two differ.
    known = {normalise(context.plugin.first.name), context.info.key}
    if name is not None and normalise(str(name)) not in known:
        happened = f"its name is {name!r}, the provider's {context.plugin.first.name!r}"
        raise CheckFailure(happened, where="plugin.yaml")
    if context.info.distribution and version is not None and str(version) != context.info.version:
        happened = f"its version is {version}, the distribution's {context.info.version}"
        raise CheckFailure(happened, where="plugin.yaml")


@check(
    "HP107",
    SHOULD,
    "Loading the plugin is cheap",
    fix="Import SDKs and models where you first use them: inside the method, not at the top of "
    "the module.",
)
def import_is_cheap(context: CheckContext) -> None:
    """Agents load the plugin when they start, and so do `enable`, `status` and `doctor`. All of
    them wait for every import at the top of its modules.
    """
    seconds, limit = context.plugin.loading.cpu, context.options.limits.import_cpu
    if seconds > limit:
        raise CheckFailure(
            f"{seconds:.1f} s of CPU time (`python -X importtime` shows for what)",
            expected=f"at most {limit:g} s of CPU time",
        )


@check(
    "HP108",
    MUST,
    "Loading the plugin does not use the network or start a process",
    fix="Do that in `initialize`. `register(ctx)` only creates the provider.",
)
def loading_stays_here(context: CheckContext) -> None:
    """Loading has a deadline, and it also happens on machines without a network or only to show a
    status. A plugin that runs `npx` while it registers exceeds the deadline and is not loaded.
    """
    events = list(context.plugin.loading.events)
    no_events(events, NETWORK, "it used the network while loading", "")
    no_events(events, PROCESS, "it started a process while loading", "")


@check(
    "HP109",
    SHOULD,
    "Loading the plugin does not write files or start threads",
    fix="Do that in `initialize`, where `hermes_home` is known.",
)
def loading_leaves_nothing(context: CheckContext) -> None:
    """The Hermes home is not known at import, so files written then go to the wrong place. Nothing
    stops a thread that starts at import.
    """
    loading = context.plugin.loading
    no_events(list(loading.events), WRITE, "it wrote a file while loading", "")
    if loading.threads:
        raise CheckFailure(f"it left a thread running: {', '.join(loading.threads)}")


@check(
    "HP110",
    SHOULD,
    "The metadata contains a description and the required Python version",
    fix="Set `description` and `requires-python` in pyproject.toml. For a folder, set "
    "`description` and `version` in plugin.yaml.",
)
def describes_itself(context: CheckContext) -> None:
    """`hermes-plugins list` shows the description. Without `requires-python`, pip installs the
    plugin on Python versions that it does not support.
    """
    missing = []
    if context.info.distribution and context.info.directory is None:
        metadata = importlib.metadata.metadata(context.info.distribution)
        missing += [] if metadata.json.get("summary") else ["no description"]
        missing += [] if metadata.json.get("requires_python") else ["no requires-python"]
    else:
        missing += [] if context.info.description else ["no description"]
        missing += [] if context.info.version else ["no version"]
    if missing:
        raise CheckFailure(f"the metadata has {' and '.join(missing)}", where="its metadata")
