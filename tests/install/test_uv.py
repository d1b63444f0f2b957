"""Where there is no pip: the same with uv."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

import pytest
from support.wheels import Venv, make_provider_wheel, make_sdist, make_wheel, requirements

UV = shutil.which("uv") or shutil.which("uv", path=sysconfig.get_path("scripts"))

pytestmark = pytest.mark.skipif(UV is None, reason="uv is not installed")


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    """A venv without pip. uv looks at no .pth file, so what we need lies in it for real."""
    made = Venv(tmp_path / "machine")
    (made.packages / "seen.pth").unlink()
    for each in requirements().iterdir():
        if each.suffix == ".dist-info" and not each.name.startswith("pip-"):
            shutil.copytree(each, made.packages / each.name)
        elif each.name != "pip" and each.suffix != ".dist-info":
            (made.packages / each.name).symlink_to(each)
    settings = tmp_path / "uv.toml"
    settings.write_text(f"no-index = true\nfind-links = [{str(made.links)!r}]\n")
    made.environment |= {
        "UV_CONFIG_FILE": str(settings),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "PATH": f"{Path(str(UV)).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return made


@pytest.mark.stress
def test_a_package_is_shown_installed_and_removed(venv: Venv):
    make_provider_wheel(venv.links, "acme", requires=["helper>=1"])
    make_wheel(venv.links, "helper", "1.5", files={"helper.py": ""})
    shown = venv.run("install", "memory-acme")
    assert "--yes" in shown.failed()
    assert {"  memory-acme 1.0", "  helper 1.5", "  acme  Memory by memory-acme"} <= {*shown.lines}
    assert "acme" not in venv.providers()
    venv.run("install", str(venv.links / "memory_acme-1.0-py3-none-any.whl"), "--yes").done()
    assert venv.providers()["acme"]["version"] == "1.0"
    assert "Uninstalled: memory-acme" in venv.run("uninstall", "acme", "--yes").done().out
    assert "acme" not in venv.providers()


@pytest.mark.stress
def test_a_build_needs_a_word_of_its_own_and_what_goes_wrong_is_one_line(venv: Venv, tmp_path):
    trace = tmp_path / "built"
    archive = make_sdist(venv.links, "src", trace)
    make_provider_wheel(venv.links, "old", requires=["click<5"])
    make_wheel(venv.links, "click", "4.0")
    assert "memory-src has no wheel" in venv.run("install", "memory-src", "--yes").failed()
    assert "has no wheel" in venv.run("install", str(archive), "--yes").failed()
    assert not trace.exists()
    assert "index has no nowhere" in venv.run("install", "nowhere", "--yes").failed()
    assert "conflict of versions" in venv.run("install", "memory-old", "--yes").failed()
    venv.run("install", str(archive), "--yes", "--build").done()
    assert trace.exists()
    assert "src" in venv.providers()


@pytest.mark.stress
def test_what_affects_more_than_the_plugin_is_named_with_uv_too(venv: Venv):
    make_provider_wheel(venv.links, "deep", requires=["helper"])
    files = {"helper.py": "", "helper.pth": "import helper\n", "json.py": ""}
    scripts = {"console_scripts": {"git": "helper:x", "helper-tool": "helper:y"}}
    make_wheel(venv.links, "helper", groups=scripts, files=files)
    shown = venv.run("install", "memory-deep", "--yes")
    assert "--allow-risky" in shown.failed()
    assert "helper: helper.pth runs whenever Python starts" in shown.out
    assert "helper: json has the name of a module of the standard library" in shown.out
    assert "helper: the program git takes the place of" in shown.out
    assert "helper-tool" not in shown.out
    assert "helper" not in venv.installed()
    venv.run("install", "memory-deep", "--yes", "--allow-risky").done()


@pytest.mark.stress
def test_an_upgrade_is_compared_installed_and_rolled_back(venv: Venv):
    make_provider_wheel(venv.links, "acme")
    venv.run("install", "memory-acme", "--yes").done()
    venv.run("enable", "acme").done()
    make_provider_wheel(venv.links, "acme", "2.0", requires=["helper>=1"])
    make_wheel(venv.links, "helper", "1.5", files={"helper.py": ""})
    (found,) = venv.json("upgrade", "acme", "--yes")["upgrades"]
    assert (found["state"], found["new_version"]) == ("upgraded", "2.0")
    assert found["dependencies"] == ["helper>=1"]
    assert venv.providers()["acme"]["state"] == "active"
    make_provider_wheel(venv.links, "acme", "3.0", "raise ImportError('no')\n")
    assert "2.0 is installed again" in venv.run("upgrade", "acme", "--yes").failed()
    assert venv.providers()["acme"]["version"] == "2.0"
    assert venv.providers()["acme"]["state"] == "active"
