"""Identity and packaging: who a plugin says it is, and what loading it costs."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from hermes_core.conformance._bench import Bench, no_events
from hermes_core.conformance._model import MUST, SHOULD, Failed, check
from hermes_core.conformance._watch import NETWORK, PROCESS, WRITE
from hermes_core.discovery._directories import read_manifest
from hermes_core.discovery._info import MEMORY_GROUP
from hermes_core.hookspecs import HOOKS
from hermes_core.names import normalise


@check(
    "HP101",
    SHOULD,
    "`name` is the name of the entry point, or of the folder",
    fix="Give both the same name; people type the entry point's, settings stand under `name`.",
)
def names_agree(bench: Bench) -> None:
    """A person enables a plugin by the name in the list, which is the entry point's. Its settings,
    its variables and its files go by `name`. Two names for one thing get mixed up sooner or later.
    """
    name = bench.stage.first.name
    if normalise(name) != bench.info.key:
        raise Failed(
            f"`name` is {name!r}",
            expected=f"{bench.info.name!r}, as it is listed",
            where=bench.stage.places.of(type(bench.stage.first)),
        )


@check(
    "HP102",
    MUST,
    "`name` is always the same",
    fix="Return a constant from `name`.",
)
def name_is_stable(bench: Bench) -> None:
    """Hosts read `name` once and keep it: as key for settings, health and tools. A name that
    depends on the session or on a setting separates a plugin from its own data.
    """
    first, second = bench.driver(), bench.driver()
    names = {first.provider.name, second.provider.name, bench.stage.first.name}
    bench.start(first)
    names |= {first.provider.name}
    first.shut()
    names |= {first.provider.name}
    if len(names) > 1:
        raise Failed(
            f"it was {' and '.join(sorted(map(repr, names)))}",
            where=bench.stage.places.of(type(first.provider)),
        )


@check(
    "HP103",
    SHOULD,
    "It has every method of the contract",
    fix="Subclass `hermes_core.MemoryProvider`: what you don't write has a neutral default.",
)
def has_every_method(bench: Bench) -> None:
    """Hosts guard against missing methods, some better than others. A subclass of `MemoryProvider`
    has them all, also those that a later contract adds.
    """
    provider = bench.stage.first
    missing = [hook for hook in HOOKS if not callable(getattr(provider, hook, None))]
    # A default of its own: the plain initialize.
    missing = [hook for hook in missing if hook != "initialize_for_inspection"]
    if missing:
        raise Failed(
            f"there is no {', '.join(missing)}",
            where=bench.stage.places.of(type(provider)),
        )


@check(
    "HP104",
    SHOULD,
    "Its entry point is in the group `hermes_agent.memory_providers`",
    fix=f'Declare it in pyproject.toml under [project.entry-points."{MEMORY_GROUP}"].',
)
def group_is_right(bench: Bench) -> None:
    """Entry points in `hermes_agent.plugins` are plugins of any kind: hosts have to guess from the
    sources which of them is a memory provider. In its own group there is nothing to guess.
    """
    if not bench.info.distribution or bench.info.directory is not None:
        return
    declared = importlib.metadata.distribution(bench.info.distribution).entry_points
    groups = {each.group for each in declared if each.name == bench.info.name}
    if MEMORY_GROUP not in groups:
        raise Failed(
            f"{bench.info.distribution} declares it in {', '.join(sorted(groups)) or 'no group'}",
            where="entry_points.txt",
        )


def _manifest(bench: Bench) -> tuple[dict[str, Any], str]:
    return read_manifest(bench.stage.places.root)


@check(
    "HP105",
    MUST,
    "plugin.yaml, where there is one, is valid",
    fix="Make it a YAML mapping with name, version and description; quote values with a colon.",
)
def manifest_is_valid(bench: Bench) -> None:
    """`list` and `info` show what plugin.yaml says, and lists a plugin as broken if it can't be
    read. Every field is optional; the syntax is not.
    """
    _, problem = _manifest(bench)
    if problem:
        raise Failed(problem, where="plugin.yaml")


@check(
    "HP106",
    SHOULD,
    "plugin.yaml agrees with the provider and its distribution",
    fix="Correct plugin.yaml, or leave the field out: nothing needs it.",
)
def manifest_agrees(bench: Bench) -> None:
    """A version that lags behind the wheel, or another name, sends whoever reports a problem in the
    wrong direction.
    """
    manifest, _ = _manifest(bench)
    name, version = manifest.get("name"), manifest.get("version")
    known = {normalise(bench.stage.first.name), bench.info.key}
    if name is not None and normalise(str(name)) not in known:
        happened = f"its name is {name!r}, the provider's {bench.stage.first.name!r}"
        raise Failed(happened, where="plugin.yaml")
    if bench.info.distribution and version is not None and str(version) != bench.info.version:
        happened = f"its version is {version}, the distribution's {bench.info.version}"
        raise Failed(happened, where="plugin.yaml")


@check(
    "HP107",
    SHOULD,
    "Loading it is cheap",
    fix="Import SDKs and models where they are first used: inside the method, not at the top.",
)
def import_is_cheap(bench: Bench) -> None:
    """A plugin is loaded when an agent starts, and by `enable`, `status` and `doctor`. Whatever its
    modules import at the top, everybody waits for, also those who only want to see the status.
    """
    seconds, limit = bench.stage.loading.cpu, bench.options.limits.import_cpu
    if seconds > limit:
        raise Failed(
            f"{seconds:.1f} s of CPU time (`python -X importtime` shows for what)",
            expected=f"at most {limit:g} s of CPU time",
        )


@check(
    "HP108",
    MUST,
    "Loading it reaches for no network and starts no process",
    fix="Do that in `initialize`; `register(ctx)` only creates the provider.",
)
def loading_stays_here(bench: Bench) -> None:
    """Loading has a deadline and happens where nobody expects a connection: to show a status, or on
    a machine without network. A plugin that runs `npx` while it registers is never loaded at all.
    """
    events = list(bench.stage.loading.events)
    no_events(events, NETWORK, "while it was loaded it tried the network", "")
    no_events(events, PROCESS, "while it was loaded it started a process", "")


@check(
    "HP109",
    SHOULD,
    "Loading it writes no file and starts no thread",
    fix="Do that in `initialize`, where the home is known.",
)
def loading_leaves_nothing(bench: Bench) -> None:
    """At import the Hermes home is not known, so what is written then is written in the wrong
    place; and a thread that starts with a module has nobody who ends it.
    """
    loading = bench.stage.loading
    no_events(list(loading.events), WRITE, "while it was loaded it wrote", "")
    if loading.threads:
        raise Failed(f"it left a thread behind: {', '.join(loading.threads)}")


@check(
    "HP110",
    SHOULD,
    "It says what it is, and which Python it needs",
    fix="Set `description` and `requires-python` in pyproject.toml; for a folder, `description` "
    "and `version` in plugin.yaml.",
)
def describes_itself(bench: Bench) -> None:
    """The description is what people see in `hermes-plugins list` when they choose. Without
    `requires-python` pip installs it where it can't run.
    """
    missing = []
    if bench.info.distribution and bench.info.directory is None:
        metadata = importlib.metadata.metadata(bench.info.distribution)
        missing += [] if metadata.json.get("summary") else ["no description"]
        missing += [] if metadata.json.get("requires_python") else ["no requires-python"]
    else:
        missing += [] if bench.info.description else ["no description"]
        missing += [] if bench.info.version else ["no version"]
    if missing:
        raise Failed(f"there is {' and '.join(missing)}", where="its metadata")
