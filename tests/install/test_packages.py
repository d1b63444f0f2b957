"""`install` of packages: real wheels, a real venv, a real pip."""

from __future__ import annotations

import signal

import pytest
from support.commands import posix_only, wait_until
from support.sites import provider_source
from support.theirs import their_source
from support.wheels import Venv, make_provider_wheel, make_sdist, make_wheel

from hermes_core.storage.processes import started


def traced(name: str, trace) -> str:
    """A provider whose import leaves a trace."""
    return f"open({str(trace)!r}, 'w').close()\n{provider_source(name)}"


@pytest.mark.stress
def test_what_it_brings_is_shown_before_it_is_installed_and_none_of_it_is_imported(
    venv: Venv, tmp_path
):
    trace = tmp_path / "imported"
    source = traced("acme", trace)
    make_provider_wheel(venv.links, "acme", source=source, requires=["helper>=1"])
    make_wheel(venv.links, "helper", "1.5", files={"helper.py": ""})

    shown = venv.run("install", "memory-acme")
    assert "--yes" in shown.failed()
    assert {"  memory-acme 1.0", "  helper 1.5", "  acme  Memory by memory-acme"} <= {*shown.lines}
    assert venv.installed() == set()

    done = venv.run("install", "memory-acme", "--yes").done()
    assert done.lines[-1] == "Next: hermes-plugins setup acme"
    assert venv.installed() == {"memory_acme", "helper"}
    assert venv.providers()["acme"]["state"] == "installed"
    assert not trace.exists()
    assert not venv.config_file.exists()

    again = venv.run("install", "memory-acme", "--yes").done()
    assert "is already installed. Nothing was changed." in again.out


@pytest.mark.stress
def test_a_newer_version_is_told_with_what_it_replaces_and_json_says_the_same(venv: Venv):
    venv.put(make_provider_wheel(venv.links, "acme", "1.0"))
    make_provider_wheel(venv.links, "acme", "2.0")
    data = venv.json("install", "memory-acme==2.0", "--dry-run")
    change = {"name": "memory-acme", "version": "2.0", "replaces": "1.0"}
    assert (data["changed"], data["packages"]) == (False, [change])
    assert venv.providers()["acme"]["version"] == "1.0"
    data = venv.json("install", str(venv.links / "memory_acme-2.0-py3-none-any.whl"), "--yes")
    assert (data["changed"], data["packages"]) == (True, [change])
    assert [each["name"] for each in data["providers"]] == ["acme"]
    assert venv.providers()["acme"]["version"] == "2.0"


@pytest.mark.parametrize(
    "spec", ["memory-src", pytest.param("memory-deep", marks=pytest.mark.stress)]
)
def test_a_build_is_not_run_without_a_word_of_its_own(venv: Venv, tmp_path, spec):
    trace = tmp_path / "built"
    make_sdist(venv.links, "src", trace)
    make_provider_wheel(venv.links, "deep", requires=["memory-src"])
    line = venv.run("install", spec, "--yes").failed()
    assert "memory-src has no wheel" in line
    assert "--build" in line
    assert not trace.exists()
    assert venv.installed() == set()


@pytest.mark.stress
def test_a_build_that_was_allowed_is_run_and_what_it_made_is_installed(venv: Venv, tmp_path):
    trace = tmp_path / "built"
    archive = make_sdist(venv.links, "src", trace)
    assert "has no wheel" in venv.run("install", str(archive), "--yes").failed()
    assert not trace.exists()
    venv.run("install", "memory-src", "--yes", "--build").done()
    assert trace.exists()
    assert "src" in venv.providers()


@pytest.mark.stress
def test_a_carried_directory_plugin_is_seen_and_what_brings_nothing_is_refused(venv: Venv):
    files = {
        "tool/__init__.py": "",
        "tool/plug/__init__.py": provider_source("carried"),
        "tool/plug/plugin.yaml": "name: carried\n",
    }
    tool = make_wheel(venv.links, "some-tool", files=files)
    make_wheel(venv.links, "no-memory", files={"no_memory.py": ""})
    misspelt = {"hermes_agent.memory_plugins": {"oops": "oops:register"}}
    make_wheel(venv.links, "oops", groups=misspelt, files={"oops.py": provider_source("oops")})

    line = venv.run("install", "no-memory", "--yes").failed()
    assert "contains no memory provider" in line
    assert "pip install no-memory" in line
    assert "in the unknown group" in venv.run("install", "oops", "--yes").failed()
    assert venv.installed() == set()
    shown = venv.run("install", "some-tool", "--dry-run").done()
    assert "  carried  Memory by some-tool" in shown.lines
    venv.put(tool)
    assert "carried" in venv.providers("--all")


@pytest.mark.stress
def test_a_name_that_somebody_has_already_is_told_beforehand(venv: Venv):
    venv.add_directory("acme")
    make_provider_wheel(venv.links, "acme")
    shown = venv.run("install", "memory-acme", "--dry-run").done().out
    assert "the directory acme has a provider of that name too" in shown
    assert "acme@memory-acme" in shown


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Venv:
    """A venv and an index for what goes wrong: nothing is ever installed here."""
    venv = Venv(tmp_path_factory.mktemp("shop"), forked=True)
    make_provider_wheel(venv.links, "acme")
    make_provider_wheel(venv.links, "old", requires=["click<5"])
    make_wheel(venv.links, "click", "4.0")
    make_wheel(venv.links, "later", headers="Requires-Python: >=3.99\n")
    (venv.links / "broken-1.0-py3-none-any.whl").write_bytes(b"no zip")
    return venv


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nowhere", "nowhere: the package index has no nowhere"),
        ("memory-acme==9", "no such version; the newest are: 1.0"),
        ("memory-old", "this environment can't meet the requirements of memory-old==1.0"),
        # What pip says of these is in test_complaints.py too, word for word.
        pytest.param("later", "it requires another version of Python", marks=pytest.mark.stress),
        pytest.param("a b", "'a b' is not a valid requirement", marks=pytest.mark.stress),
        pytest.param("broken", "the file is not a valid wheel", marks=pytest.mark.stress),
    ],
)
def test_what_can_not_be_installed_is_told_in_one_line(shop: Venv, spec, said):
    assert said in shop.run("install", spec, "--yes").failed()
    assert shop.installed() == set()


def test_a_misspelt_name_is_asked_about_once(shop: Venv):
    result = shop.run("install", "honcko", "--yes")
    assert result.failed().startswith("hermes-plugins: honcko: the package index has no honcko")
    assert (result.out + result.err).lower().count("did you mean honcho?") == 1
    assert "hint: to install honcho, " in result.err
    assert "hint: did you mean honcho?" in shop.run("install", "honcko", "--yes", "--json").err


def test_an_index_that_can_not_be_reached_is_not_taken_for_one_without_the_package(shop: Venv):
    unreachable = {
        "PIP_NO_INDEX": None,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "0",
    }
    line = shop.run("install", "nowhere", env=unreachable).failed()
    assert "the package index is unreachable" in line


@posix_only
def test_a_person_is_asked_first_and_then_offered_the_set_up(venv: Venv, dialogue):
    make_provider_wheel(venv.links, "acme")
    refused = dialogue("install", "memory-acme")
    refused.answer(("Install this", "n"))
    assert refused.end() == 1
    assert venv.installed() == set()

    agreed = dialogue("install", "memory-acme")
    agreed.answer(("Install this", "y"), ("Set acme up now", "y"), ("Write this", "y"))
    assert agreed.end() == 0
    assert "acme is enabled and works." in agreed.shown
    assert venv.memory["provider"] == "acme"


@pytest.mark.stress
@posix_only
def test_an_install_that_is_ended_in_the_middle_leaves_nothing_behind(venv: Venv, tmp_path):
    trace = tmp_path / "built"
    make_sdist(venv.links, "slow", trace, sleep=60)
    process = venv.start("install", "memory-slow", "--yes", "--build", start_new_session=True)
    assert wait_until(trace.exists)
    assert wait_until(lambda: trace.read_text().isdigit())
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 143, err
    assert wait_until(lambda: started(int(trace.read_text())) == "", 5)
    assert venv.installed() == set()
    assert not venv.config_file.exists()


@pytest.mark.stress
def test_a_wheel_that_declares_nothing_is_seen_found_and_enabled(venv: Venv, tmp_path):
    trace = tmp_path / "imported"
    source = their_source("acme")
    files = {
        "acme_mem/__init__.py": "",
        "acme_mem/provider.py": f"open({str(trace)!r}, 'w').close()\n{source}",
        "acme_mem/installer.py": "PLUGIN_NAME = 'acme'\n\ndef main():\n    pass\n",
    }
    scripts = {"console_scripts": {"acme-install": "acme_mem.installer:main"}}
    wheel = make_wheel(venv.links, "hermes-acme", "1.2", groups=scripts, files=files)
    shown = venv.run("install", "hermes-acme", "--dry-run").done()
    assert "  acme  Memory by hermes-acme" in shown.lines
    venv.put(wheel)
    assert "acme" not in venv.providers()
    assert venv.providers("--all")["acme"]["entry_point"] == "acme_mem.provider:register"
    assert not trace.exists()
    venv.run("enable", "acme").done()
    assert venv.json("status")["provider"]["works"] is True
