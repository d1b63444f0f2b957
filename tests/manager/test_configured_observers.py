"""Observers that a person named in memory.observers, and nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.providers import DRIVE, Recorder
from support.sites import OBSERVERS, Site

from hermes_core import (
    ProviderConflictError,
    ProviderLoadError,
    UnknownProviderError,
)

TRACE = """
from pathlib import Path
from hermes_core import hookimpl

Path({log!r}).write_text("imported\\n")

class Trace:
    @hookimpl(wrapper=True)
    def prefetch(self, query):
        outcomes = yield
        with open({log!r}, "a") as file:
            file.write(f"{{query}} {{[each.provider for each in outcomes]}}\\n")
        return [each._replace(value=each.value.upper()) for each in outcomes]

trace = Trace()
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "trace.log"


@pytest.fixture
def installed(site: Site, log: Path) -> Any:
    """Installs an observer ``trace``; its module's source, and what in it is the observer."""

    def install(source: str = "", value: str = "Trace", distribution: str = "tracer") -> None:
        site.add(
            distribution,
            groups={OBSERVERS: {"trace": f"{distribution}_mod:{value}".removesuffix(":")}},
            files={f"{distribution}_mod.py": source or TRACE.format(log=str(log))},
        )

    return install


@pytest.mark.parametrize("value", ["Trace", "trace"])
def test_an_observer_that_was_named_sees_and_changes_answers(
    value: str, installed: Any, configured: Any, write_config: Any, log: Path
) -> None:
    installed(value=value)
    write_config("memory:\n  observers: [trace]\n")
    manager = configured()
    assert manager.problems == ()
    manager.add_provider(Recorder(prefetch="recalled"))
    assert manager.prefetch_all("where") == "RECALLED"
    assert log.read_text().splitlines()[1].startswith("where [")
    assert "observer:trace" in manager.health()


def test_an_observer_that_nobody_named_is_not_even_imported(
    installed: Any, configured: Any, write_config: Any, log: Path
) -> None:
    installed()
    write_config("memory:\n  observers: []\n")
    manager = configured()
    assert manager.problems == ()
    assert not log.exists()


def test_a_provider_can_not_bring_its_observer_along(
    site: Site, configured: Any, write_config: Any, log: Path
) -> None:
    site.add_provider("acme")
    entry_points = next(site.folder.glob("*.dist-info")) / "entry_points.txt"
    entry_points.write_text(entry_points.read_text() + f"\n[{OBSERVERS}]\nacme = acme_eye:Trace\n")
    (site.folder / "acme_eye.py").write_text(TRACE.format(log=str(log)))
    write_config("memory:\n  provider: acme\n")
    manager = configured()
    assert len(manager.providers) == 2
    assert not log.exists()


def test_an_unknown_observer_is_a_problem_and_the_rest_works(
    configured: Any, write_config: Any
) -> None:
    write_config("memory:\n  observers: [nonsense]\n")
    manager = configured()
    (problem,) = manager.problems
    assert isinstance(problem, UnknownProviderError)
    assert "nonsense" in str(problem)
    assert "memory.observers" in str(problem)
    manager.initialize_all("s1")
    for drive in DRIVE.values():
        drive(manager)


def test_an_observer_with_two_owners_is_a_problem_that_names_both(
    installed: Any, configured: Any, write_config: Any, log: Path
) -> None:
    installed(distribution="one")
    installed(distribution="two")
    write_config("memory:\n  observers: [trace]\n")
    (problem,) = configured().problems
    assert isinstance(problem, ProviderConflictError)
    assert "one, two" in str(problem)
    assert not log.exists()


BROKEN = {
    "raises at import": "raise RuntimeError('boom')",
    "exits at import": "raise SystemExit(3)",
    "has not what it names": "x = 1",
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN.keys())
def test_an_observer_that_can_not_be_loaded_is_a_problem(
    source: str, installed: Any, configured: Any, write_config: Any
) -> None:
    installed(source)
    write_config("memory:\n  observers: [trace]\n")
    (problem,) = configured().problems
    assert isinstance(problem, ProviderLoadError)
    assert "trace" in str(problem)
    assert "tracer" in str(problem)


HEAD = "from hermes_core import hookimpl\nimport time\nclass Trace:\n"
WRONG = {
    "constructor raises": HEAD + "    def __init__(self): raise RuntimeError('boom')\n",
    "constructor exits": HEAD + "    def __init__(self): raise SystemExit(3)\n",
    "unknown argument": HEAD + "    @hookimpl\n    def prefetch(self, qurey): pass\n",
}


@pytest.mark.parametrize("source", WRONG.values(), ids=WRONG.keys())
def test_an_observer_that_can_not_be_used_is_a_problem(
    source: str, installed: Any, configured: Any, write_config: Any
) -> None:
    installed(source)
    write_config("memory:\n  observers: [trace]\n")
    try:
        manager = configured()
    except SystemExit:
        pytest.fail("it ended the agent")
    (problem,) = manager.problems
    assert "trace" in str(problem)
    assert manager.prefetch_all("q") == ""


def test_an_old_style_hookwrapper_is_a_problem(
    installed: Any, configured: Any, write_config: Any
) -> None:
    installed(HEAD + "    @hookimpl(hookwrapper=True)\n    def prefetch(self): yield\n")
    write_config("memory:\n  observers: [trace]\n")
    (problem,) = configured().problems
    assert "hookwrapper" in str(problem)
    assert "trace" in str(problem)


def test_an_observer_that_observes_nothing_is_a_problem_or_a_warning(
    installed: Any, configured: Any, write_config: Any
) -> None:
    installed("class Trace:\n    def prefetch(self, query): pass\n")
    write_config("memory:\n  observers: [trace]\n")
    manager = configured()
    assert "trace" in str([*map(str, manager.problems), *manager.warnings])
