"""The plugin context has hermes-agent's members, and costs no plugin its provider."""

from __future__ import annotations

import ast
import asyncio
import inspect
from pathlib import Path

import pytest
from support.modules import provider_class
from support.sites import MEMORY, add_directory

from hermes_core import MemoryManager, discover
from hermes_core.loading import PluginContext, PluginManifest, load
from hermes_core.secrets import Secrets

CLASS = provider_class("acme")

#: The public members of hermes-agent's PluginContext (0.19.0 and 0.20.1.2 together): parameters
#: after self, "=" for a default.
MEMBERS = {
    "llm": "property",
    "profile_name": "property",
    "plugin_id": "property",
    "state": "property",
    "platform_actions": "property",
    "subagent_lifecycle": "property",
    "register_tool": (
        "name toolset schema handler check_fn= requires_env= is_async= description= emoji= "
        "override="
    ),
    "inject_message": "content role= * session_key=",
    "register_cli_command": "name help setup_fn handler_fn= description=",
    "register_command": "name handler description= args_hint=",
    "dispatch_tool": "tool_name args **kwargs",
    "register_context_engine": "engine",
    "register_image_gen_provider": "provider",
    "register_dashboard_auth_provider": "provider",
    "register_video_gen_provider": "provider",
    "register_web_search_provider": "provider",
    "register_browser_provider": "provider",
    "register_secret_source": "source",
    "register_tts_provider": "provider",
    "register_transcription_provider": "provider",
    "register_platform": (
        "name label adapter_factory check_fn validate_config= required_env= install_hint= "
        "**entry_kwargs"
    ),
    "register_slack_action_handler": "action_id callback",
    "register_auxiliary_task": "key * display_name description defaults=",
    "register_hook": "hook_name callback",
    "register_middleware": "kind callback",
    "register_skill": "name path description= frontmatter=",
    "has_plugin": "plugin_id",
    "get_config": "key default=",
    "set_config": "key value",
    "on_unload": "callback",
    "spawn_task": "coro * name=",
    "register_approval_transport": "name present_fn",
    "has_capability": "capability",
    "call_mcp": "server tool arguments= timeout=",
    "register_context_reference": "provider",
    "register_memory_provider": "provider",
    "register_redaction_patterns": "patterns",
    "register_system_prompt_section": "id content * position= max_chars=",
    "emit": "event payload=",
    "subscribe": "event callback",
}

#: One call of each member, as a plugin's author would write it.
CALLS = [
    "ctx.register_tool('t', 'set', {}, print)",
    "ctx.register_tool(name='t', toolset='s', schema={}, handler=print, emoji='x')",
    "ctx.register_hook('on_session_start', print)",
    "ctx.register_cli_command('c', 'help', print, handler_fn=print)",
    "ctx.register_command('c', print, args_hint='<file>')",
    "ctx.register_context_engine(object())",
    "ctx.register_context_reference(object())",
    "ctx.register_skill('s', __import__('pathlib').Path('nowhere'), frontmatter={})",
    "ctx.register_auxiliary_task('k', display_name='K', description='d')",
    "ctx.register_middleware('tool_request', print)",
    "ctx.register_platform('irc', 'IRC', print, print, emoji='x')",
    "ctx.register_system_prompt_section('a.b', 'text', position='after_memory')",
    "ctx.register_approval_transport('mail', print)",
    "ctx.register_image_gen_provider(object())",
    "ctx.register_video_gen_provider(object())",
    "ctx.register_dashboard_auth_provider(object())",
    "ctx.register_web_search_provider(object())",
    "ctx.register_browser_provider(object())",
    "ctx.register_secret_source(object())",
    "ctx.register_tts_provider(object())",
    "ctx.register_transcription_provider(object())",
    "ctx.register_slack_action_handler('a', print)",
    "ctx.register_redaction_patterns([r'nvapi-[a-z]{20}'])",
]
USED = ["ctx.on_unload(print)", "ctx.subscribe('acme:done', print)", "ctx.emit('done', {'a': 1})"]
QUERIES = {
    "ctx.llm": None,
    "ctx.subagent_lifecycle": None,
    "ctx.profile_name": "custom",
    "ctx.plugin_id": "acme",
    "ctx.manifest.name": "acme",
    "ctx.manifest.version": "1.0",
    "ctx.has_plugin('acme')": True,
    "ctx.has_plugin('other')": False,
    "ctx.has_capability('tools.override')": False,
    "ctx.inject_message('hello', session_key='k')": False,
    "ctx.call_mcp('server', 'tool', {}, timeout=1)['ok']": False,
    "'error' in ctx.dispatch_tool('delegate_task', {}, extra=1)": True,
    "ctx.platform_actions.add_reaction('p', 'c', 'm', 'x')['error']": "gateway_unavailable",
    "ctx.platform_actions.set_thread_title('p', 'c', 't', 'x')['ok']": False,
    "ctx.get_config('nothing', 7)": 7,
    "ctx.state.get('nothing', 7)": 7,
    "ctx.emit('nobody-listens')": 0,
}

PEERS = [
    Path(__file__).parents[2] / ".bench" / name / "lib" / "python3.11" / "site-packages"
    for name in ("peer", "peer20")
]


def parameters(function: ast.FunctionDef) -> str:
    if any(ast.unparse(each) == "property" for each in function.decorator_list):
        return "property"
    given = function.args
    first_default = len(given.args) - len(given.defaults)
    words = [each.arg + "=" * (number >= first_default) for number, each in enumerate(given.args)][
        1:
    ]
    words += ["*"] * bool(given.kwonlyargs)
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    words += [each.arg + "=" * (default is not None) for each, default in pairs]
    return " ".join([*words, *([f"**{given.kwarg.arg}"] if given.kwarg else [])])


def ours(member: str) -> str:
    value = inspect.getattr_static(PluginContext, member)
    if isinstance(value, property):
        return "property"
    words = []
    for each in list(inspect.signature(value).parameters.values())[1:]:
        if each.kind is each.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        name = f"**{each.name}" if each.kind is each.VAR_KEYWORD else each.name
        words.append(name + "=" * (each.default is not each.empty))
    return " ".join(words)


@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_is_there_with_its_signature(member):
    assert ours(member) == MEMBERS[member]


def newest(parameters: dict[str, str], member: str) -> str:
    """What 0.20 added by keyword does not make a call for 0.19 wrong."""
    return parameters[member].replace(" * session_key=", "").replace(" frontmatter=", "")


@pytest.mark.parametrize("peer", PEERS, ids=["0.19", "0.20"])
def test_the_list_has_the_members_of_hermes_agent(peer):
    source = peer / "hermes_cli" / "plugins.py"
    if not source.exists():
        pytest.skip(f"no hermes-agent in {peer}")
    tree = ast.parse(source.read_text("utf-8"))
    classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    theirs = {
        each.name: parameters(each)
        for each in classes["PluginContext"].body
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")
    }
    assert theirs.keys() <= MEMBERS.keys()
    assert {each: newest(theirs, each) for each in theirs} == {
        each: newest(MEMBERS, each) for each in theirs
    }
    fields = [
        each.target.id for each in classes["PluginManifest"].body if isinstance(each, ast.AnnAssign)
    ]
    assert set(fields) <= set(PluginManifest.__dataclass_fields__)


def registering(*lines: str) -> str:
    return CLASS + "\ndef register(ctx):\n" + "".join(f"    {line}\n" for line in lines)


GIVES = "ctx.register_memory_provider(Provider())"


@pytest.fixture
def loaded(site, home):
    """Install a plugin and load it, with all that is known of it then."""

    def install_and_load(*lines: str):
        files = {"acme_plugin.py": registering(*lines)}
        site.add("acme-memory", groups={MEMORY: {"acme": "acme_plugin:register"}}, files=files)
        info = next(each for each in discover(home) if each.name == "acme")
        return load(info, home)

    return install_and_load


@pytest.mark.parametrize("call", CALLS)
def test_a_plugin_that_calls_it_first_still_gets_its_provider(loaded, call):
    result = loaded(call, GIVES)
    assert result.provider.name == "acme"
    assert sum(result.registered.values()) == 1
    assert result.warnings == ()


@pytest.mark.parametrize("call", USED)
def test_what_works_here_is_not_counted_as_something_that_does_not(loaded, call):
    result = loaded(call, GIVES)
    assert result.provider.name == "acme"
    assert (result.registered, result.warnings) == ({}, ())


@pytest.mark.parametrize(("query", "answer"), QUERIES.items())
def test_a_query_has_a_harmless_answer(loaded, query, answer):
    result = loaded(f"assert ({query}) == {answer!r}, {query}", GIVES)
    assert result.provider.name == "acme"


def test_a_call_with_wrong_arguments_does_not_cost_the_provider(loaded):
    result = loaded("assert ctx.register_hook('alone') is None", GIVES)
    assert result.registered == {"hook": 1}
    assert result.warnings == ()


def test_a_handle_can_be_disposed(loaded):
    loaded(
        "handle = ctx.register_hook('h', print)",
        "assert handle.active and handle.kind == 'hook' and handle.key == 'h'",
        "handle.dispose(); handle.dispose()",
        "assert not handle.active",
        GIVES,
    )


@pytest.mark.parametrize("error", ["RuntimeError('late')", "SystemExit('late')"])
def test_an_exception_after_the_provider_keeps_it_and_is_reported(loaded, error):
    result = loaded(GIVES, f"raise {error}")
    assert result.provider.name == "acme"
    (warning,) = result.warnings
    assert "acme" in warning
    assert "late" in warning
    assert "after it registered its memory provider" in warning


def test_a_member_that_does_not_exist_yet_costs_nothing_after_the_provider(loaded):
    result = loaded(GIVES, "ctx.teleport(print)")
    assert "teleport" in result.warnings[0]


def test_from_config_uses_the_provider_and_warns(site, home):
    files = {"acme_plugin.py": registering(GIVES, "raise RuntimeError('late')")}
    site.add("acme-memory", groups={MEMORY: {"acme": "acme_plugin:register"}}, files=files)
    (home / "config.yaml").write_text("memory: {provider: acme}\n", "utf-8")
    manager = MemoryManager.from_config(home)
    try:
        assert manager.get_provider("acme") is not None
        assert manager.problems == ()
        assert any("RuntimeError: late" in each for each in manager.warnings)
    finally:
        manager.shutdown_all()


def test_unload_callbacks_run_after_shutdown_last_first_whatever_they_do(site, home, tmp_path):
    log = tmp_path / "calls"
    source = provider_class("acme", body="def shutdown(self): note('shutdown ')")
    source += f"\ndef note(word):\n    with open({str(log)!r}, 'a') as file: file.write(word)\n"
    source += "\ndef register(ctx):\n"
    source += "    ctx.on_unload(lambda: note('first '))\n"
    source += "    ctx.on_unload(lambda: 1 / 0)\n"
    source += "    ctx.on_unload(lambda: note('last '))\n"
    source += f"    {GIVES}\n"
    site.add(
        "acme-memory",
        groups={MEMORY: {"acme": "acme_plugin:register"}},
        files={"acme_plugin.py": source},
    )
    (home / "config.yaml").write_text("memory: {provider: acme}\n", "utf-8")
    manager = MemoryManager.from_config(home)
    manager.initialize_all("s1")
    assert not log.exists()
    manager.shutdown_all()
    assert log.read_text("utf-8") == "shutdown last first "


def test_settings_come_from_hermes_agents_place_or_ours(loaded, home):
    (home / "config.yaml").write_text(
        "plugins:\n  entries:\n    acme:\n      settings: {retry: {policy: slow}}\n"
        "      config: {old: 1}\nmemory:\n  Acme: {endpoint: here, retry: {policy: never}}\n",
        "utf-8",
    )
    loaded(
        "assert ctx.get_config('retry.policy') == 'slow'",
        "assert ctx.get_config('old') == 1",
        "assert ctx.get_config('endpoint') == 'here'",
        "assert ctx.get_config('endpoint.deeper', 5) == 5",
        "ctx.set_config('limits.size', 3)",
        "assert ctx.get_config('limits.size') == 3",
        GIVES,
    )
    assert "size: 3" in (home / "config.yaml").read_text("utf-8")


@pytest.mark.parametrize("key", ["", "../x", "plugins.entries", "a..b", "model", "a/b", 7])
def test_a_key_that_leads_elsewhere_is_refused(home, key):
    context = PluginContext(PluginManifest("acme"), home)
    with pytest.raises(ValueError, match="plugin's own"):
        context.get_config(key)
    with pytest.raises(ValueError, match="plugin's own"):
        context.set_config(key, 1)


def test_a_config_that_can_not_be_read_gives_the_default(home):
    (home / "config.yaml").write_text("memory: [", "utf-8")
    assert PluginContext(PluginManifest("acme"), home).get_config("a", "default") == "default"


def test_state_is_kept_in_hermes_agents_file(home):
    state = PluginContext(PluginManifest("Acme Memory"), home).state
    state.set("cursor", {"at": 3})
    state.set("other", None)
    again = PluginContext(PluginManifest("Acme Memory"), home).state
    assert again.get("cursor") == {"at": 3}
    assert again.path == home / "plugin-data" / "agent-plugin-acme-memory-cc15f9d6" / "state.json"
    assert PluginContext(PluginManifest("acme"), home).state.get("cursor") is None


def test_state_refuses_what_it_can_not_keep(home):
    state = PluginContext(PluginManifest("acme"), home).state
    for key, value in [("..", 1), ("", 1), ("a", object()), ("a", "x" * state.quota_bytes)]:
        with pytest.raises(ValueError):
            state.set(key, value)
    assert not state.path.exists()
    state.set("a", 1)
    state.path.write_text("{", "utf-8")
    with pytest.raises(RuntimeError, match="can't be read"):
        state.get("a")


def test_events_reach_the_plugins_own_subscribers(home):
    context = PluginContext(PluginManifest("acme"), home)
    heard = []

    def listen(items, **more):
        heard.append(list(items))
        items.append("changed")
        raise RuntimeError("a subscriber fails")

    async def listen_later(items):
        heard.append(items)

    context.subscribe("acme:saved", listen)
    context.subscribe("acme:saved", listen_later)
    context.subscribe("other:saved", listen)
    assert context.emit("saved", {"items": [1]}) == 2
    assert heard == [[1], [1]]
    for event in ("", "acme:saved", "hermes:x", None):
        with pytest.raises(ValueError):
            context.emit(event)
    with pytest.raises(TypeError):
        context.emit("saved", [1])


def test_subscribers_that_emit_what_they_hear_come_to_an_end(home):
    context = PluginContext(PluginManifest("acme"), home)
    heard = []

    def again():
        heard.append(1)
        context.emit("loop")

    context.subscribe("acme:loop", again)
    context.emit("loop")
    assert len(heard) < 20


def test_a_task_without_a_loop_is_reported_and_not_started(loaded):
    result = loaded(
        "async def work(): raise AssertionError",
        "task = ctx.spawn_task(work(), name='w')",
        "assert task.done() and task.cancelled()",
        GIVES,
    )
    assert "event loop" in result.warnings[0]


def test_a_task_on_a_loop_is_cancelled_when_the_plugin_is_unloaded(home):
    import asyncio

    async def run():
        context = PluginContext(PluginManifest("acme"), home)
        task = context.spawn_task(asyncio.sleep(3600))
        await asyncio.sleep(0)
        context.unload.pop().dispose()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_directory_plugins_get_the_same_context(home):
    add_directory(home, "acme", registering("ctx.on_unload(print)", "ctx.emit('x')", GIVES))
    info = next(each for each in discover(home) if each.name == "acme")
    result = load(info, home)
    assert result.registered == {}


def test_a_secret_in_a_late_exception_is_masked(site, home):
    Secrets(home, "dotenv").set("ACME_KEY", "canary-4711-canary", "acme")
    source = "import os\n" + registering(GIVES, "raise RuntimeError(os.environ['ACME_KEY'])")
    site.add(
        "acme-memory",
        groups={MEMORY: {"acme": "acme_plugin:register"}},
        files={"acme_plugin.py": source},
    )
    (home / "config.yaml").write_text("memory: {provider: acme}\n", "utf-8")
    manager = MemoryManager.from_config(home)
    try:
        told = "\n".join(manager.warnings)
        assert "RuntimeError: ***" in told
        assert "canary" not in told
    finally:
        manager.shutdown_all()


def test_an_event_on_a_running_loop_reaches_a_subscriber_that_is_a_coroutine(home):
    context = PluginContext(PluginManifest("acme"), home)
    heard = asyncio.Event()

    async def listen(item):
        heard.set()

    async def agent():
        context.subscribe("acme:saved", listen)
        assert context.emit("saved", {"item": 1}) == 1
        await asyncio.wait_for(heard.wait(), 30)

    asyncio.run(agent())
