"""What the offered helper modules do: on our own home, secrets, files and providers."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from support.providers import TOOL, Recorder
from support.recording_server import recording
from support.sites import MEMORY, add_directory
from support.theirs import their_source

from hermes_core import ConfigError, MemoryManager, load_provider
from hermes_core.loading.compat import offer_hermes_agent_modules

TOKEN = "ghp_Zk3vQ9xT1mW7rB5nYcL2dF8hJ4sG6pA0uEiO"


@pytest.fixture(autouse=True)
def _offered(home) -> None:
    (home / "config.yaml").write_text("secrets: {backend: dotenv}\n", "utf-8")
    offer_hermes_agent_modules()


# -- agent ------------------------------------------------------------------------------------


def test_an_agent_has_the_tools_of_its_toolsets():
    from agent.memory_manager import inject_memory_provider_tools, memory_provider_tools_exposed

    manager = MemoryManager()
    manager.add_provider(Recorder(tools=[TOOL]))

    def agent(enabled, disabled=None, tools=()):
        return SimpleNamespace(
            _memory_manager=manager,
            tools=list(tools),
            enabled_toolsets=enabled,
            disabled_toolsets=disabled,
        )

    own = {"type": "function", "function": {"name": "memory"}}
    for each, count in [
        (agent(None), 1), (agent(["hermes-cli"]), 1), (agent([]), 0), (agent(["web"]), 0),
        (agent(["web"], tools=[own]), 1), (agent(None, ["memory"], [own]), 0),
    ]:  # fmt: skip
        assert memory_provider_tools_exposed(each) is bool(count)
        assert inject_memory_provider_tools(each) == count
    manager.shutdown_all()


def test_a_host_s_own_toolset_may_contain_the_memory_tool(site):
    from agent.memory_manager import memory_provider_tools_enabled

    tools = "def resolve_toolset(name):\n    return {'notes': ['memory', 'web']}[name]\n"
    site.add("a-host", files={"toolsets.py": tools})
    assert memory_provider_tools_enabled(["notes"])
    assert not memory_provider_tools_enabled(["nothing"])


@pytest.mark.parametrize(
    ("raw", "author"),
    [
        ({"id": " u1 ", "name": "Ann\x00", "is_bot": "yes"}, ("u1", "Ann", True)),
        ('{"name": "Ann"}', (None, "Ann", False)),
        ({"id": "bot:coder", "is_bot": 1, "origin": "here"}, ("bot:here/coder", None, True)),
        ({"id": "bot:a/coder", "origin": "here"}, ("bot:a/coder", None, False)),
        ({"id": "x" * 300}, ("x" * 200, None, False)),
        ({"id": "", "name": " "}, None),
        ("no json", None), (None, None), ([1], None), (b"[]", None),
    ],
)  # fmt: skip
def test_an_author_is_read_from_whatever_says_who_it_is(raw, author):
    from agent.turn_author import parse_turn_author

    found = parse_turn_author(raw)
    assert found == (author and dict(zip(("id", "name", "is_bot"), author, strict=True)))


def test_an_author_goes_to_a_child_process_and_no_further():
    from agent import turn_author

    bot = turn_author.plugin_turn_author("clock", "The clock")
    assert bot == {"id": "plugin:clock", "name": "The clock", "is_bot": True}
    environment = turn_author.turn_author_env(bot)
    assert turn_author.turn_author_from_env(environment) == bot
    assert turn_author.take_turn_author_from_env(environment) == bot
    assert environment == {}
    assert turn_author.a2a_key(bot) == "a2a:plugin:clock"
    assert turn_author.a2a_key({"id": "u1", "is_bot": False}) is None
    assert turn_author.plugin_turn_author(" ") is None
    assert "/" not in turn_author.local_origin()
    event = SimpleNamespace(metadata={"hermes_plugin_injection": 1, "hermes_plugin_id": "clock"})
    assert turn_author.plugin_author_for_event(event)["id"] == "plugin:clock"
    assert turn_author.plugin_author_for_event(SimpleNamespace()) is None


def test_nothing_secret_leaves(home, monkeypatch):
    from agent.redact import REDACTION_UNAVAILABLE, redact_for_egress, redact_sensitive_text
    from hermes_cli.config import save_env_value

    save_env_value("THEIRS_KEY", "correct horse battery")
    text = f"the key is {TOKEN}, or correct horse battery; tea is fine"
    for redacted in (redact_for_egress(text), redact_sensitive_text(text)):
        assert TOKEN not in redacted
        assert "correct horse" not in redacted
        assert redacted.endswith("tea is fine")
    assert redact_for_egress("") == redact_for_egress(None) == ""
    assert redact_sensitive_text(None) is None
    (home / "config.yaml").write_text("security: {redact_secrets: false}\n", "utf-8")
    assert TOKEN not in redact_for_egress(text)
    monkeypatch.setattr("hermes_core.privacy.Redactor.redact", lambda *_: 1 / 0)
    assert redact_for_egress(text) == REDACTION_UNAVAILABLE


def test_files_with_credentials_are_not_read(home, tmp_path):
    from agent.file_safety import raise_if_read_blocked

    raise_if_read_blocked(str(tmp_path / "notes.txt"))
    raise_if_read_blocked("\0")
    (tmp_path / "innocent").symlink_to(home / ".env")
    for path in (home / ".env", tmp_path / "innocent", home / "mcp-tokens" / "x.json"):
        with pytest.raises(ValueError, match="Access denied"):
            raise_if_read_blocked(str(path))


# -- tools ------------------------------------------------------------------------------------


def test_packages_are_never_installed_but_named(monkeypatch, caplog):
    from hermes_cli.tools_config import _pip_install
    from tools import lazy_deps

    def no_process(*_args, **_kwargs):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess.Popen, "__init__", no_process)
    monkeypatch.setattr(os, "system", no_process)
    monkeypatch.setitem(lazy_deps.LAZY_DEPS, "memory.none", ("no-such-library",))
    with pytest.raises(lazy_deps.FeatureUnavailable) as caught, caplog.at_level(logging.WARNING):
        lazy_deps.ensure("memory.none", prompt=False)
    command = lazy_deps.feature_install_command("memory.none")
    assert command == "pip install no-such-library"
    to_run = lazy_deps.feature_install_command("memory.none", venv_pip=True)
    assert to_run == f"{sys.executable} -m pip install no-such-library"
    assert command in str(caught.value)
    assert command in caplog.text
    assert (caught.value.feature, caught.value.missing) == ("memory.none", ("no-such-library",))
    assert not lazy_deps.is_available("memory.none")
    assert not lazy_deps.ensure_and_bind("memory.none", dict, {})
    refused = lazy_deps.install_specs(["no-such-library>=2", "click", ""])
    assert (refused.ok, refused.blocked) == (False, True)
    assert "pip install 'no-such-library>=2'" in refused.reason
    assert _pip_install(["no-such-library"]).returncode == 1


def test_packages_that_are_there_are_enough():
    from tools import lazy_deps

    name = "hermes-plugins"  # what `few_distributions` leaves
    assert lazy_deps.install_specs([name, f"{name}!=0"]).ok
    assert not lazy_deps.install_specs([f"{name}==0"]).ok
    with pytest.raises(lazy_deps.FeatureUnavailable, match="no such feature"):
        lazy_deps.ensure("memory.unheard-of")
    with pytest.raises(KeyError):
        lazy_deps.feature_specs("memory.unheard-of")


# -- hermes_cli -------------------------------------------------------------------------------


def test_a_set_up_stores_its_secrets_with_ours(home, tmp_path):
    from hermes_cli.config import get_env_path, get_env_value
    from hermes_cli.memory_setup import _write_env_vars

    _write_env_vars(get_env_path(), {"THEIRS_KEY": "one\nOTHER=two"})
    assert get_env_value("THEIRS_KEY") == "oneOTHER=two"
    assert get_env_value("OTHER") is None
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600
    other = tmp_path / "other.env"
    other.write_text("# mine\nA=1\n", "utf-8")
    _write_env_vars(other, {"A": "2", "B": "3"})
    assert other.read_text("utf-8") == "# mine\nA=2\nB=3\n"


def test_a_set_up_asks(monkeypatch, capsys):
    from hermes_cli.memory_setup import _CANCELLED, _curses_select, _prompt

    items = [("cloud", "over there"), ("local", "")]
    monkeypatch.setattr("sys.stdin", io.StringIO("a value\n\n"))
    assert [_prompt("URL", "http://here"), _prompt("URL", "http://here")] == [
        "a value",
        "http://here",
    ]
    assert _curses_select("Which?", items, 1) == 1  # nobody is there to ask
    assert _curses_select("Which?", items, cancel_returns=_CANCELLED) == _CANCELLED
    answers = io.StringIO("7\nnone\n2\n\nq\n")
    answers.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", answers)
    assert [_curses_select("Which?", items), _curses_select("Which?", items)] == [1, 0]
    assert _curses_select("Which?", items, cancel_returns=_CANCELLED) == _CANCELLED
    assert "  1. cloud - over there\n  2. local\n" in capsys.readouterr().out


def test_a_provider_can_be_set_up_by_its_name(home, capsys):
    from hermes_cli.memory_setup import cmd_setup_provider

    add_directory(home, "theirs", their_source())
    cmd_setup_provider("theirs")
    assert "provider: theirs" in (home / "config.yaml").read_text("utf-8")
    cmd_setup_provider("nobody")
    assert "nobody" in capsys.readouterr().out


def test_profiles_are_listed_with_the_default_first(home):
    from hermes_cli.profiles import _get_default_hermes_home, list_profiles

    (home / "profiles" / "coder").mkdir(parents=True)
    (home / "profiles" / "Not A Name").mkdir()
    (home / "profiles" / "coder" / ".env").touch()
    assert _get_default_hermes_home() == home
    assert [(each.name, each.is_default, each.has_env) for each in list_profiles()] == [
        ("default", True, False),
        ("coder", False, True),
    ]


def test_the_raw_config_of_a_path_is_read_or_refused(home, tmp_path):
    from hermes_cli.config import read_user_config_raw

    assert read_user_config_raw() == {"secrets": {"backend": "dotenv"}}
    assert read_user_config_raw(tmp_path / "none.yaml") == {}
    (tmp_path / "bad.yaml").write_text("a: [", "utf-8")
    with pytest.raises(ConfigError):
        read_user_config_raw(tmp_path / "bad.yaml")


def test_no_hooks_are_run_and_modules_are_found_without_import(site, monkeypatch):
    from hermes_cli import plugins

    site.add("x", files={"pack/__init__.py": "1/0", "pack/sub.py": "1/0"})
    assert plugins.resolve_module_origin("pack.sub") == str(site.folder / "pack" / "sub.py")
    assert plugins.resolve_module_origin("pack") == str(site.folder / "pack" / "__init__.py")
    assert plugins.resolve_module_origin("pack.none") is None
    assert plugins.resolve_module_origin("nothing.at.all") is None
    assert plugins.resolve_module_origin("") is None
    monkeypatch.setenv("HERMES_ENABLE_PROJECT_PLUGINS", "yes")
    assert plugins._env_enabled("HERMES_ENABLE_PROJECT_PLUGINS")
    assert (plugins.has_hook("pre_tool_call"), plugins.invoke_hook("pre_tool_call")) == (False, [])
    assert plugins.get_plugin_manager() is plugins.get_plugin_manager()
    assert plugins.get_plugin_manager().list_plugins() == []
    assert plugins.PluginManifest(name="x", key="x").kind == "standalone"


def test_credentials_do_not_follow_a_redirect_to_another_origin():
    from hermes_cli.urllib_security import open_credentialed_url

    seen = []

    def opener(redirects):
        def open_(request, timeout):
            seen.append(timeout)
            return redirects.redirect_request(request, None, 302, "", {}, "http://other.test/x")

        return SimpleNamespace(open=open_)

    request = urllib.request.Request("http://here.test/a", headers={"Authorization": "Bearer k"})
    request.add_header("Accept", "text/plain")
    following = open_credentialed_url(request, timeout=3, opener_factory=opener)
    assert dict(following.header_items()) == {"Accept": "text/plain"}
    assert seen == [3]
    with recording({"/a": {"yes": 1}}) as server:
        real = urllib.request.Request(f"{server.url}/a")
        with open_credentialed_url(real, timeout=20) as answer:
            assert json.loads(answer.read()) == {"yes": 1}


# -- plugins ----------------------------------------------------------------------------------


def test_providers_are_found_loaded_and_told_apart(home, site):
    from plugins import memory

    manifest = "description: Remembers\n"
    folder = add_directory(home, "theirs", their_source(), manifest)
    methods = "def is_available(self):\n    return False\n"
    files = {"pack/__init__.py": their_source("packed", methods=methods), "pack/cli.py": ""}
    site.add("a-pack", groups={MEMORY: {"packed": "pack"}}, files=files, summary="Packed")
    names = memory.list_memory_provider_names()
    assert {"theirs", "packed"} <= {*names}
    assert "builtin" not in names
    assert "pack" not in sys.modules
    assert memory.find_provider_dir("theirs") == folder
    assert memory.find_provider_dir("packed") == site.folder / "pack"
    assert memory.find_provider_dir("nobody") is None
    assert memory.find_provider_entry_point("packed").value == "pack"
    assert memory.find_provider_entry_point("theirs") is None
    assert memory.load_memory_provider("theirs", register_skills=True).name == "theirs"
    assert memory.load_memory_provider("nobody") is None
    found = {name: rest for name, *rest in memory.discover_memory_providers()}
    assert found["theirs"] == ["Remembers", True]
    assert found["packed"] == ["Packed", False]


def test_a_provider_that_can_t_be_loaded_is_none(home, caplog):
    from plugins.memory import discover_memory_providers, load_memory_provider

    add_directory(home, "broken", f"1/0\n{their_source('broken')}")
    assert load_memory_provider("broken") is None
    assert "ZeroDivisionError" in caplog.text
    assert ("broken", "", False) in discover_memory_providers()


def test_a_folder_wins_over_a_distribution_of_the_same_name(home, site):
    from plugins.memory import find_provider_dir, load_memory_provider

    site.add("twin", groups={MEMORY: {"theirs": "twin"}}, files={"twin.py": their_source()})
    folder = add_directory(home, "theirs", their_source(methods="mine = True\n"))
    assert find_provider_dir("theirs") == folder
    assert load_memory_provider("theirs").mine


def test_the_active_provider_s_command_is_found(home):
    from plugins.memory import discover_plugin_cli_commands

    folder = add_directory(home, "theirs", their_source(), "description: Remembers\n")
    assert discover_plugin_cli_commands() == []
    (home / "config.yaml").write_text("memory: {provider: theirs}\n", "utf-8")
    assert discover_plugin_cli_commands() == []
    (folder / "cli.py").write_text(
        "from . import Theirs\ndef register_cli(parser): parser.append(Theirs)\n"
        "def theirs_command(args): return args\n",
        "utf-8",
    )
    (command,) = discover_plugin_cli_commands()
    assert (command["name"], command["help"], command["plugin"]) == (
        "theirs",
        "Remembers",
        "theirs",
    )
    parser = []
    command["setup_fn"](parser)
    assert parser[0].__name__ == "Theirs"
    assert command["handler_fn"](3) == 3
    (folder / "cli.py").write_text("1/0\n", "utf-8")


def test_a_plugin_that_can_not_be_imported_still_has_its_command(home):
    from plugins.memory import discover_plugin_cli_commands

    folder = add_directory(home, "theirs", f"import sdk_that_nobody_has\n{their_source()}")
    (home / "config.yaml").write_text("memory: {provider: theirs}\n", "utf-8")
    (folder / "words.py").write_text("WORD = 'set up'\n", "utf-8")
    (folder / "cli.py").write_text(
        "from .words import WORD\ndef register_cli(parser): parser.append(WORD)\n", "utf-8"
    )
    (command,) = discover_plugin_cli_commands()
    parser = []
    command["setup_fn"](parser)
    assert parser == ["set up"]


def test_files_of_a_plugin_that_exit_end_nobody_else(home, caplog):
    from plugins.memory import discover_plugin_cli_commands
    from plugins.memory.config_schema import get_provider_config_schema

    folder = add_directory(home, "theirs", their_source())
    (home / "config.yaml").write_text("memory: {provider: theirs}\n", "utf-8")
    for name in ("cli.py", "config_schema.py"):
        (folder / name).write_text("raise SystemExit('enough')\n", "utf-8")
    assert discover_plugin_cli_commands() == []
    assert get_provider_config_schema("theirs") is None
    assert [each.getMessage().endswith("enough") for each in caplog.records] == [True, True]


def test_a_config_schema_is_read_without_the_provider(home):
    from plugins.memory.config_schema import get_provider_config_schema

    folder = add_directory(home, "theirs", f"1/0\n{their_source()}")
    assert get_provider_config_schema("theirs") is None
    (folder / "config_schema.py").write_text(
        "from plugins.memory.config_schema import ProviderConfigSchema, ProviderField\n"
        "CONFIG_SCHEMA = ProviderConfigSchema(name='theirs', label='Theirs', fields=(\n"
        "    ProviderField(key='k', label='K', kind='secret', inline=True),))\n",
        "utf-8",
    )
    schema = get_provider_config_schema("theirs")
    assert schema.inline_fields()[0].is_secret
    (folder / "config_schema.py").write_text("1/0", "utf-8")
    assert get_provider_config_schema("theirs") is None


LATE = """
def prefetch(self, query, *, session_id=""):
    from plugins.memory.theirs.client import ANSWER
    from plugins.memory.theirs import client
    import plugins.memory.theirs.client as same
    from . import client as ours
    return f"{ANSWER} {client.ANSWER} {same.ANSWER} {ours.Kind is client.Kind}"
"""


def test_a_late_import_finds_the_module_of_its_own_home(tmp_path):
    managers = []
    for answer in ("first", "second"):
        home = tmp_path / answer
        folder = add_directory(home, "theirs", their_source(methods=LATE))
        (folder / "client.py").write_text(f"ANSWER = {answer!r}\nclass Kind: pass\n", "utf-8")
        managers.append(MemoryManager(home=home))
        assert managers[-1].add_provider(load_provider("theirs", home))
        managers[-1].initialize_all("s")
    recalled = [manager.prefetch_all("which?") for manager in managers]
    for manager in managers:
        manager.shutdown_all()
    assert "first first first True" in recalled[0]
    assert "second second second True" in recalled[1]


def test_who_looks_at_all_modules_does_not_trip_over_a_home_that_is_gone(home):
    folder = add_directory(home, "theirs", "import plugins.memory.theirs\n" + their_source())
    module = type(load_provider("theirs", home)).__module__
    alias = sys.modules["plugins.memory.theirs"]
    assert alias.__file__ == str(folder / "__init__.py")
    del sys.modules[module]
    shutil.rmtree(folder)
    assert not hasattr(alias, "__warningregistry__")
    with pytest.raises(OSError, match="theirs"):
        _ = alias.Theirs


def test_of_a_singleton_there_is_one():
    from plugins.plugin_utils import SingletonSlot, lazy_singleton

    slot, made, start = SingletonSlot(), [], threading.Barrier(4)

    def make():
        made.append(object())
        return made[-1]

    def ask(_):
        start.wait(20)
        return slot.get(make)

    assert slot.peek() is None
    with pytest.raises(ZeroDivisionError):
        slot.get(lambda: 1 / 0)
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(4)))) == len(made) == 1
    assert slot.peek() is made[0]
    slot.reset()
    assert slot.peek() is None
    once = lazy_singleton(make)
    assert once() is once()
    first = once()
    once.reset()
    assert once() is not first


def test_a_singleton_may_be_none():
    from plugins.plugin_utils import SingletonSlot

    slot, calls = SingletonSlot(), []
    for _ in range(2):
        assert slot.get(lambda: calls.append(1)) is None
    assert calls == [1]


# -- hermes_state, utils ----------------------------------------------------------------------


class _Refusing:
    """A database on a file system without shared memory."""

    def __init__(self, error: str) -> None:
        self.error, self.asked = error, []

    def execute(self, statement: str) -> sqlite3.Cursor:
        self.asked.append(statement)
        if statement.endswith("=WAL"):
            raise sqlite3.OperationalError(self.error)
        return sqlite3.connect(":memory:").execute("select 'delete'")


def test_a_database_has_a_write_ahead_log_where_that_works(tmp_path):
    from hermes_state import apply_wal_with_fallback

    database = sqlite3.connect(tmp_path / "x.db")
    assert apply_wal_with_fallback(database, require_wal=True) == "wal"
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    database.close()
    refusing = _Refusing("locking protocol")
    assert apply_wal_with_fallback(refusing, db_label="x.db") == "delete"
    assert refusing.asked[-1] == "PRAGMA journal_mode=DELETE"
    for error, required in (("locking protocol", True), ("database is locked", False)):
        with pytest.raises(sqlite3.OperationalError):
            apply_wal_with_fallback(_Refusing(error), require_wal=required)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_texts_and_yaml_are_written_whole(tmp_path):
    import yaml
    from utils import atomic_replace, atomic_write_text, atomic_yaml_write

    path = tmp_path / "new" / "notes.txt"
    atomic_write_text(path, "tea ☕\n", create_mode=0o644)
    assert (path.read_text("utf-8"), mode_of(path)) == ("tea ☕\n", 0o644)
    atomic_write_text(path, "more", preserve_mode=True)
    assert mode_of(path) == 0o644
    atomic_write_text(path, "more", encoding="utf-16")
    assert (path.read_text("utf-16"), mode_of(path)) == ("more", 0o600)
    made = tmp_path / "new" / "a.yaml"
    atomic_yaml_write(made, {"b": ["☕"], "a": 1}, extra_content="# the end\n")
    text = made.read_text("utf-8")
    assert text.endswith("# the end\n")
    assert "☕" in text
    assert yaml.safe_load(text) == {"b": ["☕"], "a": 1}
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "next").write_text("next", "utf-8")
    assert atomic_replace(tmp_path / "next", tmp_path / "link") == str(path)
    assert (tmp_path / "link").is_symlink()
    assert path.read_text("utf-8") == "next"
    assert sorted(each.name for each in path.parent.iterdir()) == ["a.yaml", "notes.txt"]


def test_yaml_is_changed_and_every_other_line_stays(tmp_path):
    from utils import atomic_roundtrip_yaml_save, atomic_roundtrip_yaml_update

    path = tmp_path / "some.yaml"
    path.write_text("# mine\na:\n  b: 1  # one\n  c: 2\nd: 'x'\n", "utf-8")
    atomic_roundtrip_yaml_save(path, {"a": {"b": 1, "c": 3}, "e": True})
    assert path.read_text("utf-8") == "# mine\na:\n  b: 1  # one\n  c: 3\ne: true\n"
    atomic_roundtrip_yaml_update(path, "a.c", "off")
    atomic_roundtrip_yaml_update(tmp_path / "new.yaml", "x.z", 1)
    assert '  c: "off"\n' in path.read_text("utf-8")
    assert (tmp_path / "new.yaml").read_text("utf-8").split() == ["x:", "z:", "1"]
    path.write_text("a: [", "utf-8")
    with pytest.raises(ConfigError):
        atomic_roundtrip_yaml_save(path, {"a": 1})
    assert path.read_text("utf-8") == "a: ["


def test_keys_of_a_yaml_file_that_are_numbers_are_neither_lost_nor_doubled(tmp_path):
    from utils import atomic_roundtrip_yaml_save

    path = tmp_path / "some.yaml"
    path.write_text("channels:\n  17: one\n  18: two\nother: 1  # kept\n", "utf-8")
    for text in ("new", "newer"):
        atomic_roundtrip_yaml_save(path, {"channels": {17: text, 18: "two"}, "other": 1})
        data = yaml.safe_load(path.read_text("utf-8"))
        assert data == {"channels": {17: text, 18: "two"}, "other": 1}
    assert "# kept" in path.read_text("utf-8")
    path.write_text("17: one\nother: 1\n", "utf-8")
    atomic_roundtrip_yaml_save(path, {17: "one", "other": 2})
    with pytest.raises(ConfigError, match="17"):
        atomic_roundtrip_yaml_save(path, {17: "two", "other": 2})
    assert path.read_text("utf-8") == "17: one\nother: 2\n"
