"""Our errors: what, where, what to do, in one line."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from hermes_core import errors
from hermes_core.errors import ConfigError, HermesError, ProviderLoadError

CLASSES = {
    name: each
    for name, each in vars(errors).items()
    if inspect.isclass(each) and issubclass(each, Exception)
}


def drawn_tree() -> dict[str, str]:
    """Each class and its parent, as the module's docstring draws them."""
    tree: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"(?P<stem> +(?:[x+] )?)(?P<name>[A-Z]\w+)(?P<text>  +\S.*)?$", line)
        if not found:
            continue
        column = len(found["stem"])
        above = [each for each in above if each[0] < column]
        tree[found["name"]] = above[-1][1] if above else "Exception"
        above.append((column, found["name"]))
    return tree


def sample(kind: type[HermesError]) -> HermesError:
    if issubclass(kind, ProviderLoadError):
        return kind("it broke", plugin="mem0", distribution="dist", step="import", hint="do this")
    return kind("it broke", where="place", hint="do this")


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes():
    assert drawn_tree() == {name: each.__base__.__name__ for name, each in CLASSES.items()}


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_an_error_says_what_where_and_what_to_do_in_one_line(kind):
    error = sample(kind)
    assert isinstance(error, HermesError)
    text = str(error)
    assert "it broke" in text
    assert text.startswith(f"{error.where}: ")
    assert text.endswith(" (do this)")
    assert error.hint == "do this"
    assert "\n" not in text


def test_what_alone_is_enough():
    assert str(HermesError("it broke")) == "it broke"
    assert str(HermesError("it broke", where="a")) == "a: it broke"
    assert str(HermesError("it broke", hint="b")) == "it broke (b)"


@pytest.mark.parametrize(
    "error",
    [
        HermesError("two\nlines"),
        HermesError("one", where="/a\nb/config.yaml"),
        HermesError("one", hint="two\r\nlines"),
        ProviderLoadError("cause:\n  more", plugin="p", step="import"),
    ],
    ids=["what", "where", "hint", "load"],
)
def test_an_error_is_one_line_whatever_it_was_given(error):
    assert str(error).splitlines() == [str(error)]


def test_a_load_error_names_the_plugin_the_distribution_and_the_step():
    error = sample(ProviderLoadError)
    assert (error.plugin, error.distribution, error.step) == ("mem0", "dist", "import")
    assert str(error) == "plugin mem0 of dist: import failed: it broke (do this)"
    without = ProviderLoadError("it broke", plugin="mem0", step="find")
    assert str(without) == "plugin mem0: it broke"


def test_a_config_error_lists_its_problems():
    assert ConfigError("it broke", where="a", hint="b").problems == ("a: it broke",)
    assert ConfigError("one; two", problems=("one", "two")).problems == ("one", "two")


@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_an_error_survives_the_way_to_another_process(request, kind, again):
    error = sample(kind)
    arrived = again(error)
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_every_error_for_callers_is_public():
    import hermes_core

    inner = {
        "AgentEnded",
        "AnswerLate",
        "DeadlineExceeded",
        "ProviderCallError",
        "ProviderPaused",
        "WrongReturnType",
    }
    assert set(CLASSES) - inner <= set(hermes_core.__all__)
    for name in set(CLASSES) - inner:
        assert getattr(hermes_core, name) is CLASSES[name]


def test_an_error_is_known_without_its_hint():
    error = HermesError("can't be\nread", where="config.yaml", hint="edit it")
    assert error.without_hint == "config.yaml: can't be read"
    assert str(error) == "config.yaml: can't be read (edit it)"
