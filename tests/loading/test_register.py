"""What register(ctx) gets, and what comes of what it does with it."""

from __future__ import annotations

import pytest
from support.modules import provider_class

CLASS = provider_class("acme")

RECORDED = [
    "register_tool",
    "register_hook",
    "register_cli_command",
    "register_command",
    "register_context_engine",
    "register_skill",
    "register_auxiliary_task",
    "register_middleware",
    "register_platform",
    "register_system_prompt_section",
]


def registering(*lines: str) -> str:
    return CLASS + "\ndef register(ctx):\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize("method", RECORDED)
def test_whatever_else_it_registers_is_taken_and_not_run(load, method):
    provider = load(
        registering(
            "def boom(*args, **kwargs): raise RuntimeError('run')",
            f"assert hasattr(ctx, {method!r})",
            f"assert ctx.{method}('name', boom, extra=boom) is None",
            "ctx.register_memory_provider(Provider())",
        )
    )
    assert provider.name == "acme"


def test_a_plugin_that_registers_something_else_only_is_told_what(failure):
    error = failure(
        registering(
            "ctx.register_tool('a', print)",
            "ctx.register_tool('b', print)",
            "ctx.register_cli_command('c', print)",
        )
    )
    assert error.step == "register"
    assert "no memory provider" in str(error)
    assert "2 tool" in str(error)
    assert "1 cli command" in str(error)


def test_a_plugin_that_registers_nothing_is_told_so(failure):
    error = failure(registering("pass"))
    assert error.step == "register"
    assert "registered no memory provider" in str(error)


def test_a_registration_of_a_later_release_costs_nothing(load):
    source = registering(
        "ctx.register_dream_engine('a', callback=print)",
        "ctx.register_memory_provider(Provider())",
    )
    assert load(source).name == "acme"


@pytest.mark.parametrize("name", ["config", "register", "__wrapped__"])
def test_probing_for_what_is_not_there_says_no(load, name):
    source = registering(
        f"assert not hasattr(ctx, {name!r})", "ctx.register_memory_provider(Provider())"
    )
    assert load(source).name == "acme"


def test_there_is_a_model_attribute_and_no_model(load):
    source = registering(
        "assert hasattr(ctx, 'llm') and ctx.llm is None", "ctx.register_memory_provider(Provider())"
    )
    assert load(source).name == "acme"


def test_a_method_that_is_not_there_fails_with_its_name(failure):
    error = failure(registering("ctx.teleport(print)"))
    assert error.step == "register"
    assert "teleport" in str(error)
    assert isinstance(error.__cause__, AttributeError)


def test_of_two_providers_the_one_with_the_entry_points_name_is_taken(load):
    source = provider_class("other", "Other") + registering(
        "ctx.register_memory_provider(Other())", "ctx.register_memory_provider(Provider())"
    )
    assert load(source).name == "acme"


def test_two_providers_of_other_names_are_refused(failure):
    source = provider_class("one", "One") + provider_class("two", "Two")
    source += registering(
        "ctx.register_memory_provider(One())", "ctx.register_memory_provider(Two())"
    )
    error = failure(source)
    assert "2 providers" in str(error)
    assert "acme" in str(error)


def test_the_same_name_twice_is_refused(failure):
    line = "ctx.register_memory_provider(Provider())"
    assert "2 providers" in str(failure(registering(line, line)))


@pytest.mark.parametrize("what", ["None", "42", "'text'", "object()", "{'name': 'acme'}"])
def test_what_is_no_provider_is_refused_with_what_it_misses(failure, what):
    error = failure(registering(f"ctx.register_memory_provider({what})"))
    assert "not a memory provider" in str(error)
    assert "is_available" in str(error)


def test_a_duck_type_that_misses_a_method_is_told_which(failure):
    error = failure(
        "class Half:\n    name = 'acme'\n    def is_available(self): return True\n"
        "    def initialize(self, *a, **k): pass\n"
        "def register(ctx): ctx.register_memory_provider(Half())\n"
    )
    assert "get_tool_schemas" in str(error)
    assert "is_available" not in str(error)


def test_what_register_returns_beside_a_registered_provider_does_not_matter(load):
    assert load(registering("ctx.register_memory_provider(Provider())", "return 42")).name == "acme"


def test_each_register_has_a_context_of_its_own(load, home):
    from hermes_core import load_provider

    source = registering(
        "assert not ctx.providers and not ctx.registered",
        "ctx.register_tool('x', print)",
        "ctx.register_memory_provider(Provider())",
    )
    load(source)
    assert load_provider("acme", home).name == "acme"


TRACED = """
def traced(function):
    def {inner}(*args, **kwargs):
        return function(*args, **kwargs)
    return {inner}

@traced
"""


@pytest.mark.parametrize(
    ("value", "inner"),
    [
        ("MODULE", "call"),
        ("MODULE", "_traced"),
        ("MODULE:register", "call"),
        ("MODULE:register", "wrapper"),
        ("MODULE:register", "_traced"),
        ("MODULE:register", "decorated"),
    ],
)
def test_a_register_behind_a_plain_decorator_gets_the_context(load, value, inner):
    source = CLASS + TRACED.format(inner=inner)
    source += "def register(ctx):\n    ctx.register_memory_provider(Provider())\n"
    assert load(source, value).name == "acme"


@pytest.mark.parametrize(
    "inner",
    [
        "call",
        "wrapper",
        "_traced",
        "decorated",
    ],
)
def test_a_factory_behind_a_plain_decorator_gets_nothing(load, inner):
    source = CLASS + TRACED.format(inner=inner) + "def make():\n    return Provider()\n"
    assert load(source, "MODULE:make").name == "acme"


def test_a_register_that_registers_nothing_and_returns_true_is_told_that_it_registered_nothing(
    failure,
):
    assert "registered no memory provider" in str(failure(registering("return True")))
