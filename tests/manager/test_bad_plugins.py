"""Plugins that fail on their way into a manager: told by name and cause; the built-in works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.providers import DRIVE
from support.sites import add_directory, provider_source
from support.trees import tree

from hermes_core import ProviderLoadError, ProviderUnavailableError

GOOD = provider_source("bad")
CLASS = GOOD.partition("def register")[0]

LOADING = {
    "raises at import": ("# MemoryProvider\nraise RuntimeError('boom')", "import", "boom"),
    "exits at import": ("# MemoryProvider\nimport sys; sys.exit(4)", "import", "SystemExit"),
    "no python": ("MemoryProvider MemoryProvider", "import", "SyntaxError"),
    "needs a module": (
        "# MemoryProvider\nimport not_installed_at_all",
        "import",
        "not_installed_at_all",
    ),
    "raises in register": (
        "def register(ctx):\n    raise RuntimeError('boom')  # MemoryProvider",
        "register",
        "boom",
    ),
    "registers nothing": (
        "def register(ctx):\n    pass  # register_memory_provider",
        "register",
        "no memory provider",
    ),
    "raises in its constructor": (
        CLASS + "\n    def __init__(self):\n        raise RuntimeError('boom')\n",
        "construct",
        "boom",
    ),
    "interrupts in its constructor": (
        CLASS + "\n    def __init__(self):\n        raise KeyboardInterrupt\n",
        "construct",
        "KeyboardInterrupt",
    ),
    "misses a method": (
        "from hermes_core import MemoryProvider\nclass Bad(MemoryProvider):\n    name = 'bad'\n",
        "construct",
        "get_tool_schemas",
    ),
    "name raises": (
        CLASS + "\n    @property\n    def name(self):\n        raise RuntimeError('boom')\n",
        "check",
        "boom",
    ),
    "name is a number": (CLASS.replace('name = "bad"', "name = 5"), "check", "5"),
    "name is the built-in's": (
        CLASS.replace('name = "bad"', 'name = "Builtin"'),
        "check",
        "reserved",
    ),
}

AVAILABILITY = {
    "no": ("return False", "the plugin reports no reason"),
    "raises": ("raise RuntimeError('boom')", "boom"),
    "exits": ("raise SystemExit(2)", "SystemExit"),
    "gives a number": ("return 1", "int"),
    "gives nothing": ("return None", ""),
}


@pytest.fixture
def chosen(home: Path, write_config: Any) -> Any:
    """Puts a directory plugin ``bad`` into the home and chooses it."""

    def choose(source: str, more: str = "") -> None:
        add_directory(home, "bad", source)
        write_config(f"memory:\n  provider: bad\n{more}")

    return choose


def _built_in_works(manager: Any) -> bool:
    manager.initialize_all("s1")
    for drive in DRIVE.values():
        drive(manager)
    return [each.name for each in manager.providers] == ["builtin"]


@pytest.mark.parametrize("case", LOADING.values(), ids=LOADING.keys())
def test_a_plugin_that_can_not_be_loaded_is_a_problem_with_step_and_cause(
    case: tuple[str, str, str], chosen: Any, configured: Any, home: Path
) -> None:
    source, step, told = case
    chosen(source)
    before = tree(home)
    manager = configured()
    (problem,) = manager.problems
    assert isinstance(problem, ProviderLoadError)
    assert (problem.plugin, problem.step) == ("bad", step)
    assert "plugin bad" in str(problem)
    assert told in str(problem)
    assert "\n" not in str(problem)
    assert tree(home) == before
    assert _built_in_works(manager)


@pytest.mark.parametrize(("body", "told"), AVAILABILITY.values(), ids=AVAILABILITY.keys())
def test_a_plugin_that_is_not_available_is_a_problem_with_its_reason(
    body: str, told: str, chosen: Any, configured: Any, home: Path
) -> None:
    chosen(CLASS.replace("return True", body))
    before = tree(home)
    manager = configured()
    (problem,) = manager.problems
    assert isinstance(problem, ProviderUnavailableError)
    assert "plugin bad" in str(problem)
    assert told in str(problem)
    assert tree(home) == before
    assert _built_in_works(manager)


def test_the_reason_is_the_plugin_s_own(chosen: Any, configured: Any) -> None:
    body = "return False\n\n    def unavailable_reason(self):\n        return 'set ACME_KEY'"
    chosen(CLASS.replace("return True", body))
    (problem,) = configured().problems
    assert "set ACME_KEY" in str(problem)


@pytest.mark.parametrize("where", ["import", "available"])
def test_a_plugin_that_hangs_is_given_up_at_its_deadline(
    where: str, chosen: Any, configured: Any
) -> None:
    hang = "import time; time.sleep(20)"
    source = f"{hang}\n{CLASS}" if where == "import" else CLASS.replace("return True", hang)
    chosen(source, "  deadlines: {load: 0.3, available: 0.3}\n")
    manager = configured()
    (problem,) = manager.problems
    assert "plugin bad" in str(problem)
    assert "0.3 s" in str(problem)
    assert _built_in_works(manager)


def test_two_hundred_tools_leave_everything_else_working(
    chosen: Any, configured: Any, caplog: pytest.LogCaptureFixture
) -> None:
    chosen(CLASS.replace("return []", "return [{'name': f't{n}'} for n in range(200)]"))
    manager = configured()
    assert [each.name for each in manager.providers] == ["builtin", "bad"]
    assert not manager.has_tool("t1")
    assert "provider bad: get_tool_schemas: offers 200 tools" in caplog.text


@pytest.mark.parametrize(
    "tools",
    [
        "[{'name': f't{n}'} for n in range(200)]",
        "[{'name': 'memory'}]",
        "[{'name': 't', 'x': {1}}]",
    ],
    ids=["200", "reserved", "no JSON"],
)
def test_tools_that_were_refused_are_told_by_the_manager(
    tools: str, chosen: Any, configured: Any
) -> None:
    chosen(CLASS.replace("return []", f"return {tools}"))
    manager = configured()
    told = [*map(str, manager.problems), *manager.warnings]
    assert any("bad" in each and "get_tool_schemas" in each for each in told)


def test_a_plugin_that_the_manager_refuses_is_a_problem(chosen: Any, configured: Any) -> None:
    name = (
        "\n    reads = 0\n\n    @property\n    def name(self):\n        self.reads += 1\n"
        "        if self.reads > 1:\n            raise RuntimeError('boom')\n"
        "        return 'bad'\n"
    )
    chosen(CLASS + name)
    manager = configured()
    if len(manager.providers) == 1:
        assert "boom" in str(manager.problems[0])


def test_the_plugin_s_traceback_is_kept(chosen: Any, configured: Any) -> None:
    chosen("# MemoryProvider\ndef helper():\n    raise RuntimeError('boom')\nhelper()")
    (problem,) = configured().problems
    assert isinstance(problem.__cause__, RuntimeError)
    frames = []
    trace = problem.__cause__.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "helper" in frames
