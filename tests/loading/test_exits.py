"""A plugin that tries to end the process ends only its own loading."""

from __future__ import annotations

import pytest
from support.modules import provider_class, run_python
from support.sites import add_directory

from hermes_core import ProviderLoadError, load_provider

CLASS = provider_class("acme")
EXITS = ["raise SystemExit(3)", "import sys; sys.exit()", "raise KeyboardInterrupt", "exit(0)"]


def causes(error: BaseException | None) -> list[type[BaseException]]:
    found = []
    while error is not None:
        found.append(type(error))
        error = error.__cause__
    return found


@pytest.mark.parametrize("statement", EXITS)
def test_at_import(failure, statement):
    error = failure(statement, "MODULE")
    assert error.step == "import"
    assert {SystemExit, KeyboardInterrupt} & set(causes(error))
    assert "SystemExit" in str(error) or "KeyboardInterrupt" in str(error)


@pytest.mark.parametrize("statement", EXITS)
def test_in_register(failure, statement):
    error = failure(CLASS + f"\ndef register(ctx):\n    {statement}\n")
    assert error.step == "register"
    assert {SystemExit, KeyboardInterrupt} & set(causes(error))


@pytest.mark.parametrize("statement", EXITS)
def test_in_the_constructor(failure, statement):
    source = provider_class("acme", body=f"def __init__(self):\n    {statement}\n")
    error = failure(source, "MODULE:Provider")
    assert error.step == "construct"


def test_another_base_exception_does_not_get_through(failure):
    error = failure("class Fatal(BaseException): pass\nraise Fatal('end')\n", "MODULE")
    assert "Fatal" in str(error)


def test_a_directory_that_exits_at_import(home):
    add_directory(home, "mine", "import sys\nsys.exit('no')  # MemoryProvider\n")
    with pytest.raises(ProviderLoadError) as caught:
        load_provider("mine", home)
    assert caught.value.step == "import"


def test_the_process_goes_on_and_ends_with_its_own_code(home):
    add_directory(home, "mine", "import sys\nsys.exit(9)  # MemoryProvider\n")
    done = run_python(
        """
        from hermes_core import ProviderLoadError, load_provider
        try:
            load_provider("mine")
        except ProviderLoadError as error:
            print("told:", error)
        raise SystemExit(4)
        """,
        home=home,
    )
    assert done.returncode == 4
    assert "told: plugin mine" in done.stdout
    assert done.stderr == ""


def test_what_a_plugin_says_when_it_exits_is_told(failure):
    error = failure("import sys\nsys.exit('set ACME_KEY first')\n", "MODULE")
    assert "set ACME_KEY first" in str(error)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_the_cause_is_the_plugins_own_exception(failure, kind):
    error = failure(f"raise {kind.__name__}\n", "MODULE")
    assert isinstance(error.__cause__, kind)
    assert "ProviderCallError" not in str(error)
