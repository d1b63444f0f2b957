"""Wheels that lead outside, unpack to gigabytes, or affect more than their plugin."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

import pytest
from support.commands import posix_only
from support.sites import MEMORY, provider_source
from support.wheels import Venv, make_provider_wheel, make_wheel


def with_entry(wheel: Path, name: str, content: bytes = b"", mode: int = 0) -> Path:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(entry, content)
    return wheel


OUTSIDE = [
    ("../outside.py", 0),
    ("memory_acme/../../outside.py", 0),
    ("/tmp/outside.py", 0),
    ("C:/outside.py", 0),
    ("..\\outside.py", 0),
    ("memory_acme/link.py", stat.S_IFLNK | 0o777),
    ("memory_acme/pipe", stat.S_IFIFO | 0o777),
]


@pytest.mark.parametrize(("name", "mode"), OUTSIDE)
def test_a_wheel_that_leads_outside_is_refused_before_the_question(venv: Venv, name, mode):
    assert_refused(venv, name, mode, direct=True)


@pytest.mark.parametrize(
    ("name", "mode"),
    [OUTSIDE[0], *(pytest.param(*each, marks=pytest.mark.stress) for each in OUTSIDE[1:])],
)
@pytest.mark.stress
def test_and_so_is_one_from_an_index(venv: Venv, name, mode):
    assert_refused(venv, name, mode, direct=False)


def assert_refused(venv: Venv, name: str, mode: int, *, direct: bool) -> None:
    wheel = with_entry(make_provider_wheel(venv.links, "acme"), name, b"outside.py", mode)
    said = venv.run("install", str(wheel) if direct else "memory-acme").failed()
    assert "which leads outside of it" in said or "a link or a special file" in said
    assert "--yes" not in said
    assert venv.installed() == set()
    assert not list(venv.home.parent.parent.rglob("outside.py"))


@pytest.mark.stress
@posix_only
@pytest.mark.parametrize("name", ["memory_acme/big.py", "memory_acme-1.0.dist-info/METADATA.txt"])
def test_a_wheel_that_unpacks_to_gigabytes_is_refused_before_the_question(
    venv: Venv, tmp_path, name
):
    wheel = make_provider_wheel(venv.links, "acme")
    block = bytes(1 << 20)
    with (
        zipfile.ZipFile(wheel, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open(name, "w", force_zip64=True) as file,
    ):
        for _ in range(1_200):
            file.write(block)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    said = venv.run("install", str(wheel), "--yes", env={"TMPDIR": str(temporary)}).failed()
    assert "unpacks to 1,2" in said
    assert venv.installed() == set()
    assert not list(temporary.glob("hermes-*"))


def risky(venv: Venv, files: dict[str, str], **options) -> str:
    groups = {MEMORY: {"acme": "memory_acme:register"}, **options}
    files = {"memory_acme/__init__.py": provider_source("acme"), **files}
    return str(make_wheel(venv.links, "memory-acme", groups=groups, files=files))


RISKS = {
    "acme.pth": "acme.pth runs whenever Python starts",
    "memory_acme-1.0.data/purelib/acme.pth": "acme.pth runs whenever Python starts",
    "sitecustomize.py": "sitecustomize runs whenever Python starts",
    "usercustomize/__init__.py": "usercustomize runs whenever Python starts",
    "json/__init__.py": "json has the name of a module of the standard library",
    "other_package/extra.py": "other_package.extra takes the place of",
    "other_package/__init__.py": "other_package takes the place of",
    "other_module.py": "other_module takes the place of",
    "memory_acme-1.0.data/scripts/python": "the program python takes the place of",
    "memory_acme-1.0.data/data/bin/python": "the program python takes the place of",
}


#: Where other_package is replaced as a whole, this file of it is not named.
ALONE = "other_package/extra.py"


def put_others(venv: Venv) -> None:
    """Install what the files of a risky wheel take the place of."""
    files = {"other_package/__init__.py": "", "other_module.py": ""}
    venv.put(make_wheel(venv.links.parent / "others", "other", files=files))


@pytest.mark.stress
def test_all_that_affects_more_than_the_plugin_is_named(venv: Venv):
    put_others(venv)
    programs = (venv.folder / "bin").is_dir()
    names = [each for each in RISKS if each != ALONE and (programs or "data/data" not in each)]
    spec = risky(venv, dict.fromkeys(names, "import os\n"))
    shown = venv.run("install", spec, "--yes")
    shown.failed()
    data = venv.json("install", spec, "--dry-run")
    for name in names:
        assert RISKS[name] in shown.out
        assert any(RISKS[name] in each for each in data["risks"])


#: One after the other they take long; the test above has them all at once.
ONE_BY_ONE = [
    name if name == ALONE else pytest.param(name, marks=pytest.mark.stress) for name in RISKS
]


@pytest.mark.stress
@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_what_affects_more_than_the_plugin_is_named_and_yes_does_not_accept_it(venv: Venv, name):
    if "data/data" in name and not (venv.folder / "bin").is_dir():
        pytest.skip("programs lie elsewhere")
    put_others(venv)
    spec = risky(venv, {name: "import os\n"})
    shown = venv.run("install", spec, "--yes")
    assert RISKS[name] in shown.failed()
    assert "--allow-risky" in shown.failed()
    assert RISKS[name] in shown.out
    assert "memory_acme" not in venv.installed()
    data = venv.json("install", spec, "--dry-run")
    assert any(RISKS[name] in each for each in data["risks"])


@pytest.mark.stress
def test_a_program_that_takes_the_place_of_another_is_named(venv: Venv):
    spec = risky(
        venv, {}, console_scripts={"python": "memory_acme:x", "acme-tool": "memory_acme:y"}
    )
    said = venv.run("install", spec, "--yes")
    assert "the program python takes the place of" in said.failed()
    assert "acme-tool" not in said.out


@pytest.mark.stress
def test_risky_files_of_a_dependency_are_named_too(venv: Venv):
    make_provider_wheel(venv.links, "deep", requires=["helper"])
    make_wheel(venv.links, "helper", files={"helper.py": "", "helper.pth": "import helper\n"})
    assert "helper: helper.pth runs" in venv.run("install", "memory-deep", "--yes").failed()


@pytest.mark.stress
def test_what_a_person_accepts_is_installed_and_its_own_files_are_no_risk(venv: Venv):
    spec = risky(venv, {"acme.pth": "# nothing\n"}, console_scripts={"acme-tool": "memory_acme:x"})
    venv.run("install", spec, "--yes", "--allow-risky").done()
    assert "memory_acme" in venv.installed()
    make_wheel(
        venv.links,
        "memory-acme",
        "2.0",
        groups={MEMORY: {"acme": "memory_acme:register"}, "console_scripts": {"acme-tool": "a:x"}},
        files={"memory_acme/__init__.py": provider_source("acme")},
    )
    assert venv.json("install", "memory-acme==2.0", "--yes")["risks"] == []
