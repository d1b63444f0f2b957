"""A pip package that declares nothing: listed, described and enabled by the command."""

from __future__ import annotations

from support.modules import leaves_a_mark
from support.theirs import their_source

INSTALLER = "PLUGIN_NAME = 'quiet'\n\ndef main():\n    pass\n"


def test_it_is_listed_with_all_described_and_enabled(machine, tmp_path):
    mark = tmp_path / "imported"
    files = {
        "quiet_memory/__init__.py": leaves_a_mark(mark) + their_source("quiet"),
        "quiet_memory/installer.py": INSTALLER,
    }
    machine.site.add("hermes-quiet", "3.1", files=files, summary="Quiet memory for Hermes")
    assert "quiet" not in machine.providers()
    row = machine.providers("--all")["quiet"]
    assert (row["source"], row["distribution"], row["version"]) == ("module", "hermes-quiet", "3.1")
    shown = machine.run("info", "quiet").done().out
    assert "module: quiet_memory:register" in shown
    assert "entry point" not in shown
    assert not mark.exists()
    assert machine.run("enable", "quiet").done().out == "quiet is enabled.\n"
    assert mark.exists()
    assert machine.pins["quiet"]["owner"] == "hermes-quiet"
    assert machine.json("status")["provider"]["works"] is True
    assert machine.providers()["quiet"]["active"] is True


def test_what_fails_when_it_is_tried_is_not_enabled(machine):
    source = "import module_that_nobody_has\n" + their_source("quiet")
    machine.site.add("hermes-quiet", files={"quiet_memory/__init__.py": source})
    error = machine.run("enable", "quiet").failed()
    assert "module_that_nobody_has" in error
    assert "nothing was changed" in error


def test_it_is_enabled_by_its_owner_where_another_package_declares_the_name(machine):
    machine.site.add("hermes-quiet", files={"quiet_memory/__init__.py": their_source("quiet")})
    machine.install("quiet")
    machine.run("enable", "quiet@hermes-quiet").done()
    status = machine.json("status")["provider"]
    assert (status["works"], status["distribution"]) == (True, "hermes-quiet")
    listed = machine.json("list")["providers"]
    assert [
        each["distribution"] for each in listed if each["name"] == "quiet" and each["active"]
    ] == ["hermes-quiet"]
