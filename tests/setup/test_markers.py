"""Requirements with conditions: only those that hold here are looked for."""

from __future__ import annotations

import sys

import pytest

from hermes_core.doctor._markers import applies


@pytest.mark.parametrize(
    ("marker", "holds"),
    [
        ("python_version >= '3.8'", True),
        ("python_version < '3'", False),
        (f"sys_platform == '{sys.platform}'", True),
        ("sys_platform == 'none'", False),
        ("sys_platform != 'none' and python_version > '3.2'", True),
        ("extra == 'dev'", False),
        ("(extra == 'dev' or python_full_version >= '3.8.1') and os_name != 'none'", True),
        ("'lin' in 'linux'", True),
        ("sys_platform not in 'none, other'", True),
        ("unknown == '1'", True),
        ("__import__('os').abort()", True),
        ("((", True),
    ],
)
def test_a_condition_is_looked_at_and_never_run(marker, holds):
    assert applies(marker) is holds
