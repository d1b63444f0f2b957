"""`upgrade`: real wheels in a real venv, and the way back."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from support.commands import Machine, posix_only
from support.sites import MEMORY, provider_source
from support.wheels import Venv, make_provider_wheel, make_wheel

BROKEN = "raise ImportError('made for another host')\n"
NEEDY = "import os\nTOKEN = os.environ.get('ACME_TOKEN')\n"


def make_acme(venv: Venv, version: str, source: str = "", **options) -> Path:
    """A wheel of memory-acme, whose module says its version."""
    text = f"VERSION = {version!r}\n{source or provider_source('acme')}"
    return make_provider_wheel(venv.links, "acme", version, text, **options)


def module_text(venv: Venv) -> str:
    return (venv.packages / "memory_acme" / "__init__.py").read_text()


def snapshot(venv: Venv) -> dict[str, bytes]:
    """The files of the site, but for bytecode."""
    return {
        str(each.relative_to(venv.packages)): each.read_bytes()
        for each in venv.packages.rglob("*")
        if each.is_file() and each.suffix != ".pyc"
    }


def test_an_upgrade_shows_what_is_new_and_keeps_the_pin_in_step(venv: Venv):
    venv.put(make_acme(venv, "1.0"))
    venv.run("enable", "acme").done()
    files = {
        "memory_acme/__init__.py": provider_source("acme"),
        "memory_acme/extra.py": NEEDY,
        "memory_acme-2.0.dist-info/licenses/LICENSE": "Anybody may do anything.",
    }
    groups = {MEMORY: {"acme": "memory_acme:register"}, "console_scripts": {"acme": "x:main"}}
    make_wheel(venv.links, "memory-acme", "2.0", groups=groups, files=files, requires=["helper>=1"])
    make_wheel(venv.links, "helper", "1.5", files={"helper.py": ""})

    data = venv.json("upgrade", "acme", "--yes")
    assert data["changed"] is True
    (found,) = data["upgrades"]
    assert (found["state"], found["version"], found["new_version"]) == ("upgraded", "1.0", "2.0")
    assert found["files"] == {
        "added": ["memory_acme/extra.py"],
        "changed": ["memory_acme/__init__.py"],
        "removed": [],
    }
    assert found["entry_points"] == ["console_scripts: acme = x:main"]
    assert found["environment"] == ["ACME_TOKEN"]
    assert found["dependencies"] == ["helper>=1"]
    assert {"name": "helper", "version": "1.5", "replaces": ""} in found["packages"]
    acme = venv.providers()["acme"]
    assert (acme["version"], acme["state"]) == ("2.0", "active")
    assert not (venv.home / "upgrade-backup").exists()
    assert not (venv.home / "upgrade.json").exists()


def test_what_does_not_load_is_rolled_back_with_everything_that_came_with_it(venv: Venv):
    venv.put(make_acme(venv, "1.0", requires=["helper"]))
    venv.put(make_wheel(venv.links, "helper", "1.0", files={"helper.py": "OLD = 1\n"}))
    venv.run("enable", "acme").done()
    before = snapshot(venv)
    pin = (venv.home / "plugins.lock.json").read_bytes()
    make_acme(venv, "2.0", BROKEN, requires=["helper>=2", "more"])
    make_wheel(venv.links, "helper", "2.0", files={"helper.py": "NEW = 1\n", "helper2.py": ""})
    make_wheel(venv.links, "more", "1.0", files={"more/__init__.py": ""})

    line = venv.run("upgrade", "acme", "--yes").failed()
    assert "memory-acme 2.0 does not load" in line
    assert "made for another host" in line
    assert "1.0 is installed again" in line
    assert snapshot(venv) == before
    assert (venv.home / "plugins.lock.json").read_bytes() == pin
    assert venv.providers()["acme"]["state"] == "active"
    assert venv.json("status")["provider"]["works"] is True


STARTING = """
from hermes_core import MemoryProvider

class Provider(MemoryProvider):
    name = "acme"
    def is_available(self): return True
    def get_tool_schemas(self): return []
    def initialize(self, session_id, **kwargs):
        {body}

def register(ctx):
    ctx.register_memory_provider(Provider())
"""


@pytest.mark.parametrize(
    ("old", "new", "state"),
    [
        ("pass", "raise KeyError('made wrong')", "failed"),
        pytest.param("pass", "import time; time.sleep(600)", "failed", marks=pytest.mark.stress),
        pytest.param(
            "pass", "raise ConnectionError('service down')", "upgraded", marks=pytest.mark.stress
        ),
        pytest.param(
            "raise KeyError('not set up')",
            "raise KeyError('not set up')",
            "upgraded",
            marks=pytest.mark.stress,
        ),
    ],
)
def test_a_version_that_no_longer_starts_is_rolled_back(venv: Venv, old, new, state):
    venv.put(make_acme(venv, "1.0", STARTING.format(body=old)))
    venv.run("enable", "acme").done()
    make_acme(venv, "2.0", STARTING.format(body=new))
    result = venv.run("upgrade", "acme", "--yes")
    if state == "failed":
        line = result.failed()
        assert "memory-acme 2.0 does not start" in line
        assert "made wrong" in line or "sleep" in new
        assert venv.json("status")["provider"]["works"] is True
    else:
        result.done()
        assert ("service down" in result.out) == ("service down" in new)
        assert venv.json("status", code=1)["provider"]["works"] is False
    assert venv.providers()["acme"]["version"] == ("1.0" if state == "failed" else "2.0")


@pytest.mark.stress
def test_risky_files_need_their_own_consent(venv: Venv):
    venv.put(make_acme(venv, "1.0"))
    files = {"memory_acme/__init__.py": provider_source("acme"), "zz.pth": "\n"}
    groups = {MEMORY: {"acme": "memory_acme:register"}}
    make_wheel(venv.links, "memory-acme", "2.0", groups=groups, files=files)
    line = venv.run("upgrade", "acme", "--yes").failed()
    assert "zz.pth runs whenever Python starts" in line
    assert "--allow-risky" in line
    assert venv.providers()["acme"]["version"] == "1.0"


@pytest.mark.stress
def test_without_a_name_every_plugin_with_a_newer_version_is_upgraded(venv: Venv):
    for name in ("acme", "beta", "gamma"):
        venv.put(make_provider_wheel(venv.links, name))
    make_acme(venv, "2.0", BROKEN)
    make_provider_wheel(venv.links, "beta", "1.5")
    venv.add_directory("mine")
    with venv.unchanged():
        shown = venv.run("upgrade", "--dry-run").done()
    assert "memory-gamma 1.0 is up to date" in shown.lines
    assert "memory-beta 1.0 -> 1.5" in shown.lines
    assert any("mine" in each and "its source is not known" in each for each in shown.lines)
    assert "--yes" in venv.run("upgrade").failed()

    done = venv.run("upgrade", "--yes", "--json")
    assert done.code == 1
    states = {each["name"]: each["state"] for each in json.loads(done.out)["upgrades"]}
    expected = {"memory-acme": "failed", "memory-beta": "upgraded", "memory-gamma": "up to date"}
    assert states == {**expected, "mine": "skipped"}
    versions = {name: each["version"] for name, each in venv.providers().items()}
    assert not (venv.home / "upgrade.json").exists()
    assert (versions["acme"], versions["beta"], versions["gamma"]) == ("1.0", "1.5", "1.0")


def test_what_came_from_elsewhere_is_not_taken_from_the_package_index(venv: Venv):
    venv.put(make_acme(venv, "1.0"))
    info = venv.packages / "memory_acme-1.0.dist-info"
    (info / "direct_url.json").write_text('{"url": "file:///src/acme.whl", "archive_info": {}}')
    make_acme(venv, "2.0")
    line = venv.run("upgrade", "acme", "--yes").failed()
    assert "was installed from /src/acme.whl" in line
    assert "hermes-plugins install /src/acme.whl" in line
    (info / "direct_url.json").write_text('{"url": "file:///src", "dir_info": {"editable": true}}')
    assert "editable" in venv.run("upgrade", "acme", "--yes").failed()
    assert venv.providers()["acme"]["version"] == "1.0"


@pytest.mark.stress
def test_a_wheel_that_install_took_from_a_file_is_remembered(venv: Venv, tmp_path: Path):
    wheel = make_acme(venv, "1.0").rename(tmp_path / "memory_acme-1.0-py3-none-any.whl")
    venv.run("install", str(wheel), "--yes").done()
    make_acme(venv, "2.0")  # by a stranger, in the package index
    assert f"was installed from {wheel}" in venv.run("upgrade", "acme", "--yes").failed()
    venv.run("uninstall", "acme", "--yes").done()
    assert venv.installed() == set()


def test_names_that_are_not_installed_or_ours(tmp_path: Path):
    machine = Machine(tmp_path / "machine", in_process=True)
    machine.add_directory("mine")
    assert "no memory plugin 'nobody'" in machine.run("upgrade", "nobody").failed()
    assert "did you mean mine" in machine.run("upgrade", "mind").failed()
    assert "is part of this program" in machine.run("upgrade", "builtin").failed()
    line = machine.run("upgrade", "mine", "--yes").failed()
    assert "its source is not known" in line
    assert "--replace" in line
    assert "No upgrade was interrupted" in machine.run("upgrade", "--rollback").done().out


# -- kill -9 -------------------------------------------------------------------------------------

# Stands in the site of the venv: ends the command in the middle of pip's work, when the first file
# of the new version is there.
KILLER = """
import os, signal, sys
if "install" in sys.argv and "--no-index" in sys.argv and "--force-reinstall" in sys.argv:
    import shutil
    def audit(event, args):
        if event == "open" and str(args[0]).endswith({last!r}) and "w" in str(args[1]):
            os.kill({pid_from}, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(audit)
"""


@posix_only
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("memory_acme/extra.py", marks=pytest.mark.stress),
        "-2.0.dist-info/METADATA",
    ],
)
def test_after_kill_9_doctor_and_upgrade_say_what_happened_and_rollback_restores(
    venv: Venv, tmp_path: Path, moment
):
    (tmp_path / "temporary").mkdir()
    venv.environment["TMPDIR"] = str(tmp_path / "temporary")
    venv.put(make_acme(venv, "1.0"))
    venv.run("enable", "acme").done()
    files = {"memory_acme/__init__.py": provider_source("acme"), "memory_acme/extra.py": NEEDY}
    groups = {MEMORY: {"acme": "memory_acme:register"}}
    make_wheel(venv.links, "memory-acme", "2.0", groups=groups, files=files)
    before = snapshot(venv)
    killer = venv.packages / "sitecustomize.py"
    killer.write_text(KILLER.format(last=moment, pid_from="os.getppid()"))
    done = venv.run_process("upgrade", "acme", "--yes")
    assert done.code == -signal.SIGKILL, done
    killer.unlink()
    assert snapshot(venv) != before
    assert list(tmp_path.glob("temporary/*upgrade*"))  # the downloaded wheels

    line = venv.run("upgrade").failed()
    assert "an upgrade of memory-acme from 1.0 to 2.0 was interrupted" in line
    assert "hermes-plugins upgrade --rollback" in line
    checks = {each["check"]: each for each in venv.json("doctor", code=1)["checks"]}
    assert checks["upgrade"]["state"] == "problem"
    assert "--rollback" in checks["upgrade"]["todo"]
    assert "was interrupted" in " ".join(json.loads(venv.run("status", "--json").out)["warnings"])

    assert "Restored: memory-acme 1.0" in venv.run("upgrade", "--rollback").done().out
    assert snapshot(venv) == before
    assert not [each for each in venv.packages.iterdir() if each.name.startswith("~")]
    assert venv.providers()["acme"]["state"] == "active"
    venv.run_process("upgrade", "acme", "--dry-run").done()
    assert not list(tmp_path.glob("temporary/*upgrade*"))


# Ends the command when everything is done but for the end of the journal.
AT_THE_END = """
import os, signal, sys
def audit(event, args):
    if event == "os.remove" and str(args[0]).endswith("upgrade.json") and os.path.exists(args[0]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(audit)
"""


@pytest.mark.stress
@posix_only
def test_a_rollback_after_the_pin_was_renewed_takes_the_pin_back_too(venv: Venv):
    venv.put(make_acme(venv, "1.0"))
    venv.run("enable", "acme").done()
    venv.write_config(f"{venv.config_file.read_text()}  pin: strict\n")
    pin = (venv.home / "plugins.lock.json").read_bytes()
    make_acme(venv, "2.0")
    killer = venv.packages / "sitecustomize.py"
    killer.write_text(AT_THE_END)
    assert venv.run_process("upgrade", "acme", "--yes").code == -signal.SIGKILL
    killer.unlink()
    assert (venv.home / "plugins.lock.json").read_bytes() != pin
    assert "Restored: memory-acme 1.0" in venv.run("upgrade", "--rollback").done().out
    assert (venv.home / "plugins.lock.json").read_bytes() == pin
    assert venv.providers()["acme"]["state"] == "active"


@posix_only
@pytest.mark.stress
def test_killed_before_anything_changed_nothing_is_said_and_nothing_stays(venv: Venv):
    venv.put(make_acme(venv, "1.0"))
    make_acme(venv, "2.0")
    killer = venv.packages / "sitecustomize.py"
    text = (
        "import os, signal, sys\n"
        "if '--force-reinstall' in sys.argv:\n    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killer.write_text(text)
    assert venv.run_process("upgrade", "acme", "--yes").code == -signal.SIGKILL
    killer.unlink()
    assert (venv.home / "upgrade.json").exists()
    assert "upgrade" not in {each["check"] for each in venv.json("doctor")["checks"]}
    assert venv.json("upgrade", "acme", "--dry-run")["upgrades"][0]["state"] == "available"
    assert venv.json("upgrade", "acme", "--yes")["upgrades"][0]["state"] == "upgraded"
    assert not (venv.home / "upgrade.json").exists()
    assert not (venv.home / "upgrade-backup").exists()


# -- directory plugins ---------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine", in_process=True)


def test_a_repository_is_fetched_again_and_compared(machine: Machine, repo):
    machine.run("install", f"git+{repo.url}@HEAD", "--yes").done()
    machine.run("enable", "gitty").done()
    machine.write_config(f"{machine.config_file.read_text()}  pin: strict\n")
    assert "is up to date" in machine.run("upgrade", "gitty").done().out
    repo.write("more.py", NEEDY)
    repo.write("plugin.yaml", "name: gitty\nversion: '0.4'\npip_dependencies: [httpx]\n")
    second = repo.commit()
    (found,) = machine.json("upgrade", "gitty", "--dry-run")["upgrades"]
    assert found["files"]["added"] == ["more.py"]
    assert (found["environment"], found["dependencies"]) == (["ACME_TOKEN"], ["httpx"])
    assert "--yes" in machine.run("upgrade", "gitty").failed()
    done = machine.run("upgrade", "gitty", "--yes").done()
    assert "  2 files: 1 new, 1 changed, 0 removed" in done.lines
    assert "    + more.py" in done.lines
    assert "  new environment variables: ACME_TOKEN" in done.lines
    gitty = machine.providers()["gitty"]
    assert (gitty["version"], gitty["state"]) == ("0.4", "active")
    assert machine.json("info", "gitty")["provider"]["commit"] == second


def test_a_directory_that_does_not_load_is_rolled_back(machine: Machine, repo):
    machine.run("install", repo.url, "--yes").done()
    machine.run("enable", "gitty").done()
    plugin = machine.home / "plugins" / "gitty"
    before = {each.name: each.read_bytes() for each in plugin.iterdir() if each.is_file()}
    # Its text mentions a provider, its import fails.
    repo.write("__init__.py", BROKEN + provider_source("gitty"))
    repo.commit()
    line = machine.run("upgrade", "gitty", "--yes").failed()
    assert "does not load" in line
    assert {each.name: each.read_bytes() for each in plugin.iterdir() if each.is_file()} == before
    assert machine.providers()["gitty"]["state"] == "active"
    assert not (machine.home / "upgrade.json").exists()


def test_a_folder_is_copied_again_and_edits_are_not_lost(machine: Machine, repo):
    machine.run("install", str(repo.folder), "--yes").done()
    repo.write("plugin.yaml", "name: gitty\nversion: '0.4'\n")
    machine.run("upgrade", "gitty", "--yes").done()
    assert machine.providers()["gitty"]["version"] == "0.4"
    (machine.home / "plugins" / "gitty" / "mine.py").write_text("")
    line = machine.run("upgrade", "gitty", "--yes").failed()
    assert "has been edited since it was installed" in line


def test_a_commit_that_a_person_chose_stays(machine: Machine, repo):
    machine.run("install", f"git+{repo.url}@{repo.first}", "--yes").done()
    repo.write("more.py", "")
    repo.commit()
    line = machine.run("upgrade", "gitty", "--yes").failed()
    assert f"was installed at commit {repo.first}, as you asked" in line
