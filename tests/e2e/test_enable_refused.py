"""`hermes-plugins enable`, where the plugin does not work: refused, and nothing changed."""

from __future__ import annotations

import pytest
from support.commands import Machine
from support.sites import add_directory, provider_source

pytestmark = pytest.mark.usefixtures("forked_children")

CONFIG = "# mine\nmemory:\n  provider: before  # stays\n"

GOOD = provider_source("alpha")


def with_method(source: str) -> str:
    """A provider with one more method, or another one in place of its own."""
    return GOOD.replace("    def is_available", source + "\n    def is_available")


NAME_RAISES = GOOD.replace(
    'name = "alpha"', 'name = property(lambda self: {}["no name"])  # noqa: RUF012'
)
UNAVAILABLE = GOOD.replace("return True", "return False")
UNAVAILABLE_WITH_REASON = UNAVAILABLE + (
    "\nProvider.unavailable_reason = lambda self: 'ALPHA_API_KEY is not set'\n"
)

#: source of the plugin -> what the one line must have in it
BROKEN = {
    "raises at import": ("raise RuntimeError('boom')  # MemoryProvider\n", "import", "boom"),
    "misses a module": ("import no_such_module  # MemoryProvider\n", "import", "no_such_module"),
    "raises in register": (
        GOOD + "def register(ctx):\n    raise RuntimeError('boom')\n",
        "register",
        "boom",
    ),
    "raises in the constructor": (
        with_method("    def __init__(self):\n        raise RuntimeError('boom')\n"),
        "register",
        "boom",
    ),
    "raises in name": (NAME_RAISES, "check", "no name"),
    "has a number as name": (GOOD.replace('"alpha"', "5"), "check", "name"),
    "takes the name of the built-in": (GOOD.replace('"alpha"', '"BuiltIn"'), "check", "reserved"),
    "exits at import": ("import sys; sys.exit(0)  # MemoryProvider\n", "import", "SystemExit"),
    "registers nothing": ("def register(ctx):\n    'MemoryProvider'\n", "register", "no memory"),
    "has no provider": ("'MemoryProvider'\nregister = 5\n", "", "int is not a"),
    "misses a method": (
        GOOD.replace("def get_tool_schemas", "def other"),
        "",
        "get_tool_schemas",
    ),
    "has an error of many lines": ("raise ValueError('a\\nb\\n\\nc')\n", "import", "a b c"),
}


#: One for every step at which loading may fail; tests/loading has all of them in process.
FEW = ("raises at import", "raises in register", "raises in name", "misses a method")


@pytest.mark.parametrize(
    "case",
    [each if each in FEW else pytest.param(each, marks=pytest.mark.stress) for each in BROKEN],
)
def test_a_plugin_that_cannot_be_loaded_is_refused_with_who_where_and_why(machine, case):
    source, step, cause = BROKEN[case]
    machine.install("alpha", source)
    machine.write_config(CONFIG)
    with machine.unchanged():
        line = machine.run("enable", "alpha").failed()
    assert "plugin alpha of memory-alpha" in line
    assert f"{step} failed" in line
    assert cause in line
    assert "nothing was changed" in line
    assert "--force" in line


def test_an_exception_that_cannot_be_printed_still_names_the_plugin(machine):
    source = (
        "class Odd(Exception):\n"
        "    def __str__(self):\n"
        "        raise RuntimeError('no text')\n"
        "raise Odd  # MemoryProvider\n"
    )
    machine.install("alpha", source)
    line = machine.run("enable", "alpha").failed()
    assert "plugin alpha of memory-alpha" in line
    assert "Odd" in line


def test_a_plugin_without_its_reason_is_refused_when_it_is_not_available(machine):
    machine.install("alpha", UNAVAILABLE)
    machine.write_config(CONFIG)
    with machine.unchanged():
        line = machine.run("enable", "alpha").failed()
    assert "plugin alpha" in line
    assert "not available" in line


def test_a_plugin_that_is_not_available_says_why_and_what_to_do(machine):
    machine.install("alpha", UNAVAILABLE_WITH_REASON)
    machine.write_config(CONFIG)
    with machine.unchanged():
        line = machine.run("enable", "alpha").failed()
    assert "ALPHA_API_KEY is not set" in line
    assert "documentation" in line
    assert "nothing was changed" in line


@pytest.mark.parametrize(
    ("body", "deadline", "cause"),
    [
        pytest.param("raise OSError('no disk')", 60, "no disk", marks=pytest.mark.stress),
        ("import time; time.sleep(600)", 0.3, "0.3 s"),
        ("import os; os._exit(7)", 60, "7"),
    ],
)
def test_a_plugin_that_fails_when_asked_whether_it_is_available_is_refused(
    machine, body, deadline, cause
):
    machine.install("alpha", GOOD.replace("return True", body))
    machine.write_config(CONFIG + f"  deadlines: {{available: {deadline}}}\n")
    with machine.unchanged():
        line = machine.run("enable", "alpha").failed()
    assert "plugin alpha" in line
    assert cause in line


@pytest.mark.parametrize(
    "source",
    [
        UNAVAILABLE_WITH_REASON,
        pytest.param(BROKEN["raises at import"][0], marks=pytest.mark.stress),
    ],
)
def test_force_enables_what_does_not_work_and_says_that_it_does_not(machine, source):
    machine.install("alpha", source)
    machine.write_config(CONFIG)
    result = machine.run("enable", "alpha", "--force").done()
    assert "alpha is enabled" in result.out
    assert "does not work yet: plugin alpha" in result.out
    assert machine.memory["provider"] == "alpha"
    assert machine.pins["alpha"]["owner"] == "memory-alpha"
    report = machine.json("status", code=1)
    assert report["provider"]["works"] is False
    assert report["builtin"]["active"] is True


@pytest.mark.parametrize(
    "arguments",
    [
        ("enable", "mnemosine"),
        ("setup", "mnemosine", "--no-input"),
        ("info", "mnemosine"),
        ("config", "set", "memory.mnemosine.url", "x"),
        ("bridge", "mnemosine"),
        ("uninstall", "mnemosine", "--yes"),
        ("check", "mnemosine"),
    ],
    ids=lambda each: each[0],
)
def test_an_unknown_name_gets_the_nearest_names(machine, arguments):
    for name in ("mnemosyne", "mnemonic", "other"):
        machine.install(name, distribution=f"dist-{name}")
    with machine.unchanged():
        result = machine.run(*arguments)
    what = "plugin" if arguments[0] == "uninstall" else "provider"
    assert (result.code, result.out) == (3 if arguments[0] == "check" else 1, "")
    assert result.err.splitlines() == [
        f"hermes-plugins: no memory {what} 'mnemosine' is installed",
        "hint: did you mean mnemosyne or mnemonic?",
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mem0", "in a checkout of hermes-plugins, run: hermes-plugins install ./plugins/mem0 "),
        ("mem00", "did you mean mem0"),
        ("xyzzy", "run `hermes-plugins list` to see what is installed, and `hermes"),
    ],
)  # fmt: skip
def test_a_name_near_to_nothing_that_is_installed_gets_what_to_install(machine, name, hint):
    for command in ("enable", "setup", "bridge"):
        assert machine.run(command, name).failed().partition(" hint: ")[2].startswith(hint)


def test_an_unknown_name_is_not_enabled_by_force(machine):
    with machine.unchanged():
        assert "'nothing-like-it'" in machine.run("enable", "nothing-like-it", "--force").failed()


def test_a_conflict_is_not_enabled_by_force(machine):
    machine.install("twice", distribution="first-owner")
    machine.install("twice", distribution="second-owner")
    with machine.unchanged():
        assert "second-owner" in machine.run("enable", "twice", "--force").failed()


def test_a_claim_to_the_builtin_name_is_never_enabled(machine):
    machine.install("builtin", distribution="usurper")
    with machine.unchanged():
        line = machine.run("enable", "builtin@usurper", "--force").failed()
    assert "reserved" in line
    assert "usurper" in line


@pytest.mark.parametrize("name", ["pins", "Prefetch-Budget"])
def test_a_provider_with_the_name_of_one_of_our_keys_is_refused(machine, name):
    machine.install(name, distribution="memory-odd")
    assert machine.providers()[name]["state"] == "broken"
    with machine.unchanged():
        assert "reserved" in machine.run("enable", name, "--force").failed()


def test_what_is_no_memory_plugin_is_refused_with_its_problem(machine):
    add_directory(machine.home, "gadget", "def register(ctx):\n    ctx.register_tool()\n")
    (machine.home / "plugins" / "hollow").mkdir()
    with machine.unchanged():
        assert "registered no memory provider" in machine.run("enable", "gadget").failed()
        assert "has no __init__.py" in machine.run("enable", "hollow").failed()


def test_an_invalid_manifest_is_a_nuisance_and_no_obstacle(machine: Machine):
    machine.add_directory("beta", manifest="name: [unclosed\n")
    machine.run("enable", "beta").done()
    assert machine.json("status")["provider"]["works"] is True
