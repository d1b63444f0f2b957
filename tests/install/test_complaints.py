"""What pip and uv say, word for word, and what we make of it."""

# ruff: noqa: E501 - what others say is quoted as it is

from __future__ import annotations

import pytest

from hermes_core.install._commands import install_error

SAID = {
    "externally managed": (
        "error: externally-managed-environment\n\nThis environment is externally managed\n",
        "operating system manages this Python",
    ),
    "no permission": (
        (
            "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: "
            "'/usr/lib/python3/dist-packages/x'\nConsider using the `--user` option\n"
        ),
        "no permission to write",
    ),
    "read-only": (
        "ERROR: Could not install packages due to an OSError: [Errno 30] Read-only file system",
        "no permission to write",
    ),
    "pip, no such version": (
        (
            "ERROR: Could not find a version that satisfies the requirement x==9 (from versions: "
            "0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0)\nERROR: No matching distribution found for x==9\n"
        ),
        "no such version; the newest are: 0.3, 0.4, 0.5, 0.6, 1.0",
    ),
    "pip, another Python": (
        (
            "ERROR: Ignored the following versions that require a different python version: 1.0 "
            "Requires-Python >=3.99\nERROR: Could not find a version that satisfies the requirement "
            "later (from versions: none)\nERROR: No matching distribution found for later\n"
        ),
        "another version of Python",
    ),
    "pip, no requirement": ("ERROR: Invalid requirement: 'a b'\n", "not a valid requirement"),
    "pip, no wheel": (
        "ERROR: Wheel 'broken' located at /links/broken-1.0-py3-none-any.whl is invalid.\n",
        "not a valid wheel",
    ),
    "disk full": (
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
        "the disk is full",
    ),
    "pip without network": (
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<x>: "
            "Failed to establish a new connection: [Errno -2] Name or service not known')': /simple/x/"
            "\nERROR: Could not find a version that satisfies the requirement x (from versions: none)"
            "\nERROR: No matching distribution found for x\n"
        ),
        "index is unreachable",
    ),
    "uv without network": (
        (
            "error: Request failed after 3 retries in 9.0s\n  cause: Failed to fetch: http://h/x/\n"
            "  cause: tcp connect error\n  cause: Connection refused (os error 111)\n"
        ),
        "index is unreachable",
    ),
    "uv, unknown": (
        (
            "error: No solution found when resolving dependencies\n  cause: Because nothere was not "
            "found in the package registry and you require nothere, we can conclude that your "
            "requirements are unsatisfiable.\n"
        ),
        "the package index has no nothere",
    ),
    "uv, no such version": (
        (
            "  cause: Because there is no version of acme==9 and you require acme==9, we can conclude "
            "that your requirements are unsatisfiable.\n"
        ),
        "no such version: acme==9",
    ),
    "uv, conflict": (
        (
            "  cause: Because all versions of bad depend on click<5 and click>=8.1.7, we can conclude "
            "that all versions of bad cannot be used.\n And because you require bad, we can conclude "
            "that your requirements are unsatisfiable.\n"
        ),
        "conflict of versions",
    ),
    "uv, another Python": (
        (
            "  cause: Because py2==1.0 requires Python >=3.99 and only py2==1.0 is available, we can "
            "conclude that all versions of py2 cannot be used.\n"
        ),
        "another version of Python",
    ),
    "old pip": ("Usage: ...\n\nno such option: --report\n", "this pip is too old"),
    "other platform": (
        "ERROR: x-1.0-cp27-none-any.whl is not a supported wheel on this platform.\n",
        "another platform",
    ),
    "a build that fails": (
        "error: subprocess-exited-with-error\nGetting requirements to build wheel did not run\n",
        "its build failed",
    ),
    "anything else": ("WARNING: x\nERROR: The moon\tis full\n", "The moon is full"),
    "a line without a mark": ("something odd\n", "something odd"),
    "nothing": ("", "without an error message"),
}


@pytest.mark.parametrize("case", SAID)
def test_a_complaint_is_one_line_that_names_what_was_asked_for(case):
    said, told = SAID[case]
    line = str(install_error(said, "spec"))
    assert line.startswith("spec: ")
    assert told in line
    assert "\n" not in line
