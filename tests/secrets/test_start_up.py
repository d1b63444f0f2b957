"""`keyring` is slow to import: nobody pays for it who does not use it."""

from __future__ import annotations

import pytest
from support.scripts import run_script


@pytest.mark.parametrize(
    "used",
    [
        "import hermes_core.secrets",
        "Secrets(home).get('KEY')",
        "Secrets(home).names()",
        "Secrets(home, 'dotenv').set('KEY', 'value')",
        "Secrets(home, 'dotenv').move('dotenv')",
    ],
)
def test_keyring_is_imported_only_when_it_is_asked(tmp_path, used):
    done = run_script(
        f"""
        import pathlib
        from hermes_core.secrets import Secrets
        home = pathlib.Path({str(tmp_path)!r})
        (home / ".env").write_text("OTHER=x")
        {used}
        print("keyring" in sys.modules)
        """
    )
    assert done.stdout == "False\n", done


def test_importing_the_package_or_listing_imports_no_secrets(machine):
    (machine.site.folder / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        "atexit.register(lambda: print('secrets:', 'hermes_core.secrets' in sys.modules))\n"
    )
    assert machine.run_process("list").done().lines[-1] == "secrets: False"
    done = run_script("print('hermes_core.secrets' in sys.modules)")
    assert done.stdout == "False\n", done
