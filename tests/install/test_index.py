"""The index of known plugins: `search`, `info`, `install NAME`, `index update` and suggestions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support.commands import Machine, posix_only, run_on_terminal
from support.wheels import Venv, make_provider_wheel

from hermes_core.config import Selection
from hermes_core.discovery import content_hash, find_provider, scan
from hermes_core.errors import HermesError
from hermes_core.install.index import (
    FILE_NAME,
    MAX_BYTES,
    PluginIndexError,
    choose,
    meant_by,
    read_index,
    refuse_stranger,
    suggestion,
    update_index,
)

TODAY = date(2030, 1, 10)


def plugin(name: str, distribution: str = "", **more: Any) -> dict[str, Any]:
    row = {
        "name": name,
        "distribution": distribution or f"memory-{name}",
        "version": "1.0",
        "description": f"Memory of {name}.",
        "memories": "local",
        "needs": [],
        "made_for": "hermes-agent",
        "tested": True,
        "grade": "silver",
        "checks": {"passed": 60, "failed": ["HP305"], "skipped": 7},
        "problem": "",
        "a key of tomorrow": 1,
    }
    return {**row, **more}


KEY = {"kind": "key", "name": "ACME_API_KEY", "optional": False}
URL = {"kind": "setting", "name": "ACME_URL", "optional": True}
PLUGINS = [
    plugin("acme", grade="gold", needs=[URL, KEY], memories="service"),
    plugin("acme-lite"),
    plugin("mnemosyne", "mnemosyne-hermes", description="Vectors for acme and others."),
    plugin("twin", "twin-one"),
    plugin("twin", "twin-two"),
    plugin("ours", "hermes-memory-ours", made_for="hermes-plugins"),
    plugin("unpublished", "hermes-memory-unpublished", problem="not on PyPI"),
    plugin("ours", "ours"),
]


def index_text(*plugins: dict[str, Any], made: str = "2030-01-01", **more: Any) -> str:
    rows = list(plugins) or PLUGINS
    return json.dumps({"schema": 1, "made": made, "kit": "1", "plugins": rows, **more})


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine whose home has an index of its own."""
    machine = Machine(tmp_path / "machine", in_process=True)
    (machine.home / FILE_NAME).write_text(index_text())
    return machine


# -- search and info -------------------------------------------------------------------------------


def test_the_index_of_the_wheel_is_valid_and_knows_our_plugins(tmp_path: Path):
    index = read_index(tmp_path)
    assert index.problem == ""
    for name in ("honcho", "mem0", "hindsight"):
        found = meant_by(index, name)
        assert found is not None
        assert found.distribution == f"hermes-memory-{name}"


def test_search_finds_every_word_and_the_name_first(machine: Machine):
    rows = [line.split("\t") for line in machine.run("search", "acme").done().lines]
    assert [row[0] for row in rows] == ["acme", "acme-lite", "mnemosyne"]
    assert rows[0] == [
        "acme",
        "memory-acme",
        "gold",
        "service",
        "ACME_API_KEY, ACME_URL (optional)",
        "Memory of acme.",
    ]
    assert [each.split("\t")[0] for each in machine.run("search", "ACME", "vector").lines] == [
        "mnemosyne"
    ]
    assert len(machine.run("search").done().lines) == len(PLUGINS)
    by_need = machine.json("search", "acme_api_key")["plugins"]
    assert [each["install"] for each in by_need] == ["hermes-plugins install acme"]


def test_a_search_without_a_match_says_what_comes_near(machine: Machine):
    assert machine.run("search", "mnemosine").done().lines == [
        "No known plugin matches 'mnemosine'. Did you mean mnemosyne?"
    ]
    data = machine.json("search", "mnemosine")
    assert (data["plugins"], data["near"]) == ([], ["mnemosyne"])


@pytest.mark.parametrize("arguments", [("search", "acme"), ("--home={home}", "search", "acme")])
def test_both_ways_to_search_print_the_same(machine: Machine, arguments):
    words = [each.format(home=machine.home) for each in arguments]
    assert len(machine.run(*words).done().lines) == 3


def tried_files(machine: Machine, name: str) -> str:
    """The hash of an installed plugin, as a run of the kit stores it in the index."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(machine.site.folder)
        found = scan(machine.home, Selection())
        return content_hash(next(each for each in found if each.name == name))


def test_an_installed_plugin_is_marked_with_the_grade_of_its_files(machine: Machine):
    machine.install("acme", version="1.0")
    row = plugin("acme", grade="gold", hash=tried_files(machine, "acme"))
    (machine.home / FILE_NAME).write_text(index_text(row))
    assert machine.json("search", "acme")["plugins"][0]["installed"] == "1.0"
    assert "Memory of acme. (installed)" in machine.run("search", "acme").done().lines[0]
    assert machine.json("info", "acme")["provider"]["grade"] == "gold"
    assert machine.providers("--all")["acme"]["grade"] == "gold"
    assert machine.run("list", "--all").rows["acme"][4] == "gold"
    machine.install("acme", version="2.0")  # which nobody has checked
    assert machine.json("search", "acme")["plugins"][0]["grade"] == "not checked"
    assert machine.json("info", "acme")["provider"]["grade"] == "not checked"
    assert "grade" not in machine.providers()["acme"]


@pytest.mark.parametrize("tried", ["", f"sha256:{'0' * 64}"], ids=["unknown", "other files"])
def test_a_name_and_a_version_are_not_enough_for_a_grade(machine: Machine, tried):
    (machine.home / FILE_NAME).write_text(index_text(plugin("acme", grade="gold", hash=tried)))
    machine.install("acme", version="1.0")
    assert machine.json("info", "acme")["provider"]["grade"] == "not checked"
    assert machine.providers("--all")["acme"]["grade"] == "not checked"
    assert machine.json("search", "acme")["plugins"][0]["grade"] == "not checked"
    assert machine.run("search", "acme").rows["acme"][2] == "not checked"
    fields = dict(line.split(": ", 1) for line in machine.run("info", "acme").done().lines[1:])
    assert fields["grade"] == "not checked"
    assert fields["index"] == "gold, for the tried version 1.0"


def test_another_entry_point_loses_the_grade_of_the_index(machine: Machine):
    machine.install("acme", version="1.0")
    row = plugin("acme", grade="gold", hash=tried_files(machine, "acme"))
    (machine.home / FILE_NAME).write_text(index_text(row))
    (points,) = machine.site.folder.glob("memory_acme-*.dist-info/entry_points.txt")
    name, _, where = points.read_text().partition(" = ")
    points.write_text(f"{name} = json:{where.partition(':')[2]}")
    assert machine.json("info", "acme")["provider"]["grade"] == "not checked"


def test_an_edited_plugin_loses_the_grade_of_the_index(machine: Machine):
    machine.install("acme", version="1.0")
    row = plugin("acme", grade="gold", hash=tried_files(machine, "acme"))
    (machine.home / FILE_NAME).write_text(index_text(row))
    with machine.module("memory-acme").open("a") as file:
        file.write("# edited\n")
    assert machine.json("info", "acme")["provider"]["grade"] == "not checked"


def test_the_built_in_memory_has_no_grade(machine: Machine):
    assert machine.json("info", "builtin")["provider"]["grade"] == ""


def test_info_of_what_is_not_installed_says_how_to_get_it(machine: Machine):
    lines = machine.run("info", "mnemosyne").done().lines
    assert lines[0] == "mnemosyne  not installed"
    fields = dict(line.split(": ", 1) for line in lines[1:])
    assert fields["distribution"] == "mnemosyne-hermes"
    assert fields["grade"] == "silver (tried with 1.0)"
    assert fields["failed checks"] == "HP305"
    assert fields["install"] == "hermes-plugins install mnemosyne"
    provider = machine.json("info", "mnemosyne-hermes")["provider"]
    assert (provider["state"], provider["name"]) == ("not-installed", "mnemosyne")
    assert "did you mean mnemosyne" in machine.run("info", "mnemosin").failed()


@pytest.mark.parametrize("command", ["enable", "setup", "bridge", "check"])
def test_a_known_plugin_that_is_not_installed_comes_with_the_command(machine: Machine, command):
    with machine.unchanged():
        result = machine.run(command, "mnemosyne")
        assert "run: hermes-plugins install mnemosyne" in result.err
        assert "did you mean mnemosyne" in machine.run(command, "mnemosin").err
        assert "`hermes-plugins install twin-one` or" in machine.run(command, "twin").err


CHECKOUT = "in a checkout of hermes-plugins"
BUILD = "hermes-plugins install ./plugins/unpublished --build"


@pytest.mark.parametrize("command", ["enable", "setup", "bridge", "check"])
def test_a_plugin_that_is_not_on_pypi_is_installed_from_a_checkout(machine: Machine, command):
    for name in ("unpublished", "hermes-memory-unpublished"):
        hint = machine.run(command, name).err.splitlines()[-1]
        assert hint == f"hint: {CHECKOUT}, run: {BUILD}"
    hint = machine.run(command, "unpublishd").err.splitlines()[-1]
    assert hint.endswith(f"did you mean unpublished? To install it, {CHECKOUT}, run: {BUILD}")


def test_info_and_search_say_how_to_install_what_is_not_on_pypi(machine: Machine):
    assert f"install: {CHECKOUT}, run: {BUILD}" in machine.run("info", "unpublished").done().lines
    (row,) = machine.json("search", "unpublished")["plugins"]
    assert (row["install"], row["problem"]) == (BUILD, "not on PyPI")
    assert f"{CHECKOUT}, run: {BUILD};" in machine.run("install", "unpublished==1.0").failed()


@posix_only
def test_search_on_a_terminal_names_what_pypi_does_not_have(machine: Machine):
    _, shown = run_on_terminal(machine, "search", "unpublished", columns=200)
    assert "hermes-plugins install NAME" not in shown
    assert "Not on PyPI: unpublished. In a checkout of hermes-plugins, run: " in shown
    _, shown = run_on_terminal(machine, "search", columns=200)
    assert "hermes-plugins install NAME" in shown


@posix_only
def test_what_a_plugin_needs_has_a_line_where_its_column_does_not_fit(machine: Machine):
    rows = [plugin("a" * 20, "b" * 30, needs=[KEY, URL]), plugin("c" * 20, "d" * 30)]
    (machine.home / FILE_NAME).write_text(index_text(*rows))
    _, shown = run_on_terminal(machine, "search", columns=80)
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
    assert lines[0].split() == ["NAME", "PACKAGE", "GRADE", "MEMORIES"]
    assert lines[2:4] == [
        "    needs: ACME_API_KEY, ACME_URL (optional)",
        f"    Memory of {'a' * 20}.",
    ]
    assert lines[5] == f"    Memory of {'c' * 20}."


@posix_only
@pytest.mark.parametrize(
    ("columns", "header", "first"),
    [(60, ["NAME", "PACKAGE"], "memories: local  "), (45, ["a" * 20, "b" * 30], "")],
)
def test_needs_and_description_have_their_lines_on_a_narrow_terminal(
    machine: Machine, columns: int, header: list[str], first: str
):
    rows = [plugin("a" * 20, "b" * 30, needs=[KEY]), plugin("c" * 20, "d" * 30)]
    (machine.home / FILE_NAME).write_text(index_text(*rows))
    _, shown = run_on_terminal(machine, "search", columns=columns)
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
    assert max(map(len, lines)) <= 60
    assert [word for line in lines[:2] for word in line.split()][:2] == header
    below = " ".join(line.strip() for line in lines[1:6])
    assert f"{first}needs: ACME_API_KEY Memory of {'a' * 20}." in below
    assert f"    Memory of {'a' * 20}." in lines


def test_no_page_and_no_hint_installs_by_name_what_is_not_on_pypi(tmp_path: Path):
    index = read_index(tmp_path)
    names = [
        name
        for each in index.entries
        if not each.published
        for name in (each.name, each.distribution)
    ]
    assert "honcho" in names
    dead = re.compile(rf"\binstall (?:{'|'.join(names)})(?![\w-])")
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *root.glob("docs/**/*.md"), *root.glob("plugins/*/README.md")]
    found = [f"{page}: {each}" for page in pages for each in dead.findall(page.read_text("utf-8"))]
    assert found == []
    shown = [suggestion(index, name) for name in names]
    shown += [suggestion(index, f"{name}x") for name in names]
    shown += [index.install_command(each) for each in index.entries if not each.published]
    for name in names:  # of a program, without the index
        with pytest.raises(HermesError) as unknown:
            find_provider(name, [])
        shown.append(unknown.value.hint)
    assert [each for each in shown if dead.search(each)] == []


def test_an_installed_plugin_is_the_better_guess(machine: Machine):
    machine.install("mnemosim")
    assert "did you mean mnemosim?" in machine.run("enable", "mnemosi").failed()


# -- which package a name means --------------------------------------------------------------------


def test_the_name_of_a_provider_is_never_a_strangers_package(machine: Machine):
    index = read_index(machine.home)
    assert meant_by(index, "Mnemosyne").distribution == "mnemosyne-hermes"
    # Made for hermes-plugins comes first, even if another package is called like the provider.
    assert meant_by(index, "ours").distribution == "hermes-memory-ours"
    for explicit in ("mnemosyne==1.0", "mnemosyne[x]", "./mnemosyne", "mnemosyne.whl", "unknown"):
        assert meant_by(index, explicit) is None
    with pytest.raises(PluginIndexError, match="twin is the name of 2 plugins"):
        meant_by(index, "twin")
    commands = {each.distribution: index.install_command(each) for each in index.entries}
    assert commands["hermes-memory-ours"] == "hermes-plugins install ours"
    # `install ours` would be the other one.
    assert commands["ours"] == "hermes-plugins install ours==1.0"
    assert commands["twin-two"] == "hermes-plugins install twin-two"
    assert choose([]) is None


@pytest.mark.parametrize("spec", ["mnemosyne==1.0", "mnemosyne[x]", "Mnemosyne>=2"])
def test_a_version_does_not_lead_to_a_strangers_package(machine: Machine, spec):
    error = machine.run("install", spec, "--yes").failed()
    assert "is not the plugin mnemosyne, which is mnemosyne-hermes" in error
    rest = spec[len("mnemosyne") :]
    assert f"run: hermes-plugins install mnemosyne-hermes{rest};" in error
    # Its own packages may be named with a version.
    refuse_stranger(read_index(machine.home), "ours", "ours==1.0")
    refuse_stranger(read_index(machine.home), "unknown", "unknown==1.0")


def test_install_by_name_shows_the_package_and_installs_it(venv: Venv, tmp_path: Path):
    (venv.home / FILE_NAME).write_text(index_text(plugin("acme", "memory-acme", needs=[KEY])))
    make_provider_wheel(venv.links, "acme")
    stranger = make_provider_wheel(tmp_path / "elsewhere", "stranger")
    stranger.rename(venv.links / "acme-9.0-py3-none-any.whl")
    done = venv.run("install", "acme", "--dry-run").done()
    assert done.lines[0] == "acme is a known plugin:"
    assert {"  distribution: memory-acme", "  needs: ACME_API_KEY"} <= {*done.lines}
    assert "  memory-acme 1.0" in done.lines
    data = venv.json("install", "acme", "--yes")
    assert data["known"]["grade"] == "silver"
    assert venv.installed() == {"memory_acme"}


@pytest.mark.stress
def test_a_package_that_is_not_there_gets_a_suggestion(venv: Venv):
    (venv.home / FILE_NAME).write_text(index_text())
    error = venv.run("install", "mnemosin", "--yes").failed()
    assert "to install mnemosyne: hermes-plugins install mnemosyne" in error
    assert "not in this package index" in venv.run("install", "mnemosyne", "--yes").failed()
    assert f"{CHECKOUT}, run: {BUILD}" in venv.run("install", "unpublished", "--yes").failed()


# -- updates ---------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    (home / FILE_NAME).write_text(index_text())
    return home


def test_a_provider_with_the_name_of_a_known_package_is_a_name_that_moved(home, tmp_path):
    file = tmp_path / "new.json"
    rows = [*PLUGINS, plugin("Mnemosyne_Hermes", "evil-pkg"), plugin("fresh", "memory-fresh")]
    file.write_text(index_text(*rows, plugin("twin-one", "twin-one"), made="2030-01-02"))
    assert meant_by(read_index(home), "mnemosyne-hermes") is None  # the package of that name
    done = update_index(home, str(file), today=TODAY)
    assert done.moved == (("Mnemosyne_Hermes", "mnemosyne-hermes", "evil-pkg"),)
    assert done.added == ("fresh", "Mnemosyne_Hermes", "twin-one")


def test_a_newer_index_replaces_the_old_one_and_says_what_moved(machine: Machine, tmp_path: Path):
    file = tmp_path / "new.json"
    rows = [plugin("acme", "other-acme"), plugin("fresh")]
    file.write_text(index_text(*rows, made="2030-01-02"))
    data = machine.json("index", "status")
    assert (data["plugins"], data["updated"]) == (len(PLUGINS), True)
    # The clock of this machine is before 2030, so the command refuses what the function accepts.
    assert "is in the future" in machine.run("index", "update", str(file)).failed()
    done = update_index(machine.home, str(file), today=TODAY)
    assert done.changed
    assert done.added == ("fresh",)
    assert done.removed == ("acme-lite", "mnemosyne", "ours", "twin", "unpublished")
    assert done.moved == (("acme", "memory-acme", "other-acme"),)
    assert not update_index(machine.home, str(file), today=TODAY).changed
    assert [each.split("\t")[0] for each in machine.run("search").done().lines] == ["acme", "fresh"]


def test_an_update_warns_about_names_that_it_removes(machine: Machine, tmp_path: Path):
    (machine.home / FILE_NAME).unlink()
    made = read_index(machine.home).made  # that of the wheel
    (tmp_path / "new.json").write_text(index_text(plugin("fresh"), made=made))
    done = machine.run("index", "update", str(tmp_path / "new.json"))
    assert done.code == 0
    assert "mem0" in done.out
    assert "a removed name now installs the package of that name" in done.err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is not an index of plugins"),
        (index_text(schema=2), "has schema 2"),
        (index_text(made="yesterday"), "does not say when it was made"),
        (index_text(made="2029-12-31"), "the one in use on 2030-01-01"),
        (index_text(made="2030-02-01"), "is in the future"),
        (index_text(plugin("a"), plugin("a"), made="2030-01-03"), "has a of memory-a twice"),
        (index_text(plugin("a", "--option"), made="2030-01-03"), "not the name of a package"),
        (index_text(plugin("a", "a @ https://x"), made="2030-01-03"), "not the name of a package"),
        (index_text(plugin("a\nb"), made="2030-01-03"), "name is not a line of text"),
        (index_text(plugin("builtin"), made="2030-01-03"), "is reserved"),
        (index_text(plugin("m\u0435m0"), made="2030-01-03"), "is not a plain name"),
        (index_text(plugin("a b"), made="2030-01-03"), "is not a plain name"),
        (index_text(plugin("a", grade="diamond"), made="2030-01-03"), "is not a grade"),
        (index_text({"name": 1}, made="2030-01-03"), "name is not a line of text"),
        (" " * (MAX_BYTES + 1), "too large"),
        (json.dumps({"schema": 1, "made": "2030-01-03", "plugins": []}), "has no plugins in it"),
    ],
    ids=range(17),
)
def test_an_old_or_broken_index_is_refused_in_one_line(home: Path, tmp_path: Path, text, problem):
    before = (home / FILE_NAME).read_bytes()
    file = tmp_path / "new.json"
    file.write_text(text)
    with pytest.raises(PluginIndexError) as caught:
        update_index(home, str(file), today=TODAY)
    assert problem in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (home / FILE_NAME).read_bytes() == before


def test_a_damaged_copy_in_the_home_is_reported_and_not_used(machine: Machine):
    (machine.home / FILE_NAME).write_text("{")
    result = machine.run("search", "mem0")
    assert result.code == 0
    assert "hermes-memory-mem0" in result.out
    assert "is not valid JSON; using the index of this version" in result.err
    assert machine.json("index", "status")["updated"] is False


class _Handler(BaseHTTPRequestHandler):
    """Answers with an index, a redirect, or too much."""

    def __init__(self, text: bytes, *arguments: Any) -> None:
        self.text = text
        super().__init__(*arguments)

    def do_GET(self) -> None:
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://example.org/index.json")
            self.end_headers()
            return
        text = b" " * (MAX_BYTES + 1) if self.path == "/large" else self.text
        self.send_response(404 if self.path == "/gone" else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        try:
            self.wfile.write(text)
        except OSError:  # the reader has read enough
            self.close_connection = True

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def serving(text: str) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, text.encode()))
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_index_comes_from_this_machine_or_over_https(home: Path):
    with serving(index_text(plugin("fresh"), made="2030-01-02")) as url:
        update = partial(update_index, home, today=TODAY)
        for path, problem in {
            "/gone": "the server answered 404",
            "/large": "has more than 5,000,000 bytes",
            "/away": "leads to http://example.org/index.json",
        }.items():
            with pytest.raises(PluginIndexError, match=problem):
                update(source=f"{url}{path}")
        assert update(source=f"{url}/index.json").added == ("fresh",)
    for address in ("http://example.org/i.json", "ftp://127.0.0.1/i.json", "file:///etc/passwd"):
        with pytest.raises(PluginIndexError, match="is not an address of an index"):
            update(source=address)
    with pytest.raises(PluginIndexError, match="is unreachable"):
        update(source="http://127.0.0.1:9/index.json")
