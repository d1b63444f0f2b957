"""The tools of providers: which are taken, and what a call answers."""

from __future__ import annotations

import json
from types import SimpleNamespace

from peers.host import memory_manager
from peers.stage import Recorder, raised, scenario

EMPTY = {"type": "object", "properties": {}}


def tool(name, **more):
    return {"name": name, "description": "A tool.", "parameters": EMPTY, **more}


def _names(stage, *schemas):
    manager = stage.manager(Recorder(tools=schemas))
    advertised = [each["name"] for each in manager.get_all_tool_schemas()]
    assert set(advertised) == manager.get_all_tool_names(), advertised
    return advertised


@scenario("get_all_tool_schemas")
def a_bare_schema_is_given_as_it_is(stage):
    return stage.manager(Recorder(tools=[tool("ext_search")])).get_all_tool_schemas()


@scenario("get_all_tool_schemas")
def a_wrapped_schema_is_unwrapped(stage):
    wrapped = {"type": "function", "function": tool("ext_search")}
    return stage.manager(Recorder(tools=[wrapped])).get_all_tool_schemas()


@scenario("get_all_tool_schemas")
def schemas_without_a_name_are_dropped(stage):
    return _names(stage, {}, {"name": ""}, {"name": 5}, "text", None, tool("ext_search"))


@scenario("get_all_tool_schemas")
def a_name_is_taken_once(stage):
    return _names(stage, tool("ext_search"), tool("ext_search"), tool("ext_store"))


@scenario("get_all_tool_schemas")
def the_first_provider_keeps_a_name(stage):
    first = Recorder("builtin", tools=[tool("shared")], handle_tool_call='{"from": "builtin"}')
    second = Recorder("ext", tools=[tool("shared")], handle_tool_call='{"from": "ext"}')
    manager = stage.manager(first, second)
    return [len(manager.get_all_tool_schemas()), manager.handle_tool_call("shared", {})]


CORE = (
    *("clarify", "delegate_task", "todo", "terminal", "web_search", "web_extract", "memory"),
    *("session_search", "read_file", "write_file", "patch", "search_files", "execute_code"),
    *("cronjob", "process", "vision_analyze", "image_generate", "skills_list", "skill_view"),
    *("skill_manage", "browser_navigate", "text_to_speech", "ha_get_state", "kanban_show"),
)


@scenario("get_all_tool_schemas")
def names_of_core_tools_are_reserved(stage):
    return _names(stage, *map(tool, CORE), tool("ext_search"))


@scenario("has_tool")
def a_reserved_name_is_no_tool(stage):
    manager = stage.manager(Recorder(tools=[tool("terminal"), tool("ext_search")]))
    names = ("terminal", "ext_search", "nothing")
    return [manager.has_tool(each) for each in names]


@scenario("get_all_tool_names")
def names_are_a_set(stage):
    manager = stage.manager(Recorder(tools=[tool("b"), tool("a")]))
    return [type(manager.get_all_tool_names()).__name__, sorted(manager.get_all_tool_names())]


@scenario("get_all_tool_schemas")
def odd_names_that_a_model_api_takes(stage):
    return _names(stage, *map(tool, ("1st", "a-b", "A_B", "x" * 64, "_")))


@scenario("get_all_tool_schemas")
def names_that_a_model_api_refuses(stage):
    return _names(stage, *map(tool, ("a b", "n\u00e4me", "x" * 65, "a.b", "a/b")))


@scenario("get_all_tool_schemas")
def schemas_with_parts_missing(stage):
    return _names(
        stage,
        {"name": "only_a_name"},
        {"name": "no_description", "parameters": EMPTY},
        {"name": "no_parameters", "description": "x"},
        {"name": "empty_parameters", "description": "x", "parameters": {}},
        {"name": "null_parameters", "description": "x", "parameters": None},
        {"name": "null_description", "description": None, "parameters": EMPTY},
        {"name": "extra", "description": "x", "parameters": EMPTY, "strict": True},
    )


@scenario("get_all_tool_schemas")
def schemas_with_odd_parameters(stage):
    return _names(
        stage,
        tool("required_unknown", parameters={**EMPTY, "required": ["nothing"]}),
        tool("no_type", parameters={"properties": {"a": {"type": "string"}}}),
        tool("untyped_property", parameters={"type": "object", "properties": {"a": {}}}),
        tool("any_of", parameters={"type": "object", "properties": {"a": {"anyOf": [{}]}}}),
        tool("defaults", parameters={"type": "object", "properties": {"a": {"default": 1}}}),
    )


@scenario("get_all_tool_schemas")
def schemas_that_a_model_api_refuses(stage):
    return _names(
        stage,
        tool("a_list", parameters={"type": "array"}),
        tool("not_json", parameters={"type": "object", "properties": {"a": {"enum": {1, 2}}}}),
        tool("text", parameters="a: string"),
        tool("ext_search"),
    )


@scenario("get_all_tool_schemas")
def a_wrong_part_of_a_schema(stage):
    wrong = {"type": "object", "properties": {"a": {"type": "strin"}, "b": {"type": "string"}}}
    (schema,) = stage.manager(Recorder(tools=[tool("a", parameters=wrong)])).get_all_tool_schemas()
    return schema["parameters"]["properties"]


@scenario("get_all_tool_schemas")
def tools_that_are_known_after_initialize(stage):
    known = []
    provider = Recorder(
        get_tool_schemas=lambda: list(known),
        initialize=lambda *_, **__: known.append(tool("late_search")),
        handle_tool_call='{"found": 1}',
    )
    manager = stage.manager(provider)
    advertised = [each["name"] for each in manager.get_all_tool_schemas()]
    return [advertised, manager.handle_tool_call("late_search", {})]


@scenario("get_all_tool_schemas")
def tools_of_a_provider_that_raises_later(stage):
    provider = Recorder(tools=[tool("ext_search")])
    manager = stage.manager(Recorder("builtin", tools=[tool("own")]), provider)
    provider.answers["get_tool_schemas"] = RuntimeError("no")
    return [each["name"] for each in manager.get_all_tool_schemas()]


# -- calls ---------------------------------------------------------------------------------


def _called(stage, answer, *args, **kwargs):
    provider = Recorder(tools=[tool("ext_search")], handle_tool_call=answer)
    manager = stage.manager(provider)
    found = manager.handle_tool_call("ext_search", *(args or ({"q": "tea"},)), **kwargs)
    return [found, provider.of("handle_tool_call")]


@scenario("handle_tool_call")
def a_tool_answers_with_json(stage):
    return _called(stage, '{"found": ["tea"]}')


@scenario("handle_tool_call")
def a_host_s_keywords_reach_a_tool(stage):
    return _called(stage, "{}", {"q": "tea"}, session_id="s1", task_id="t")[1]


@scenario("handle_tool_call")
def a_tool_that_nobody_has(stage):
    answer = json.loads(stage.manager(Recorder()).handle_tool_call("nothing", {}))
    return [list(answer), "nothing" in answer["error"]]


@scenario("handle_tool_call")
def a_tool_that_raises(stage):
    answer = json.loads(_called(stage, RuntimeError("the service said no"))[0])
    return [list(answer), "the service said no" in answer["error"]]


@scenario("handle_tool_call")
def a_tool_that_answers_with_a_dict(stage):
    return type(_called(stage, {"found": 1})[0]).__name__


@scenario("handle_tool_call")
def a_tool_that_answers_with_nothing(stage):
    return _called(stage, None)[0]


@scenario("handle_tool_call")
def a_tool_that_answers_with_plain_text(stage):
    return _called(stage, "just text")[0]


@scenario("handle_tool_call")
def a_tool_that_is_a_coroutine(stage):
    async def answer(*_, **__):
        return '{"found": 1}'

    found = _called(stage, answer)[0]
    if not isinstance(found, str):
        found.close()
    return type(found).__name__


class _NoKeywords(Recorder):
    def handle_tool_call(self, tool_name, args):
        return json.dumps({"ran": tool_name})


@scenario("handle_tool_call")
def a_tool_s_method_without_keywords(stage):
    manager = stage.manager(_NoKeywords(tools=[tool("ext_search")]))
    return "ran" in json.loads(manager.handle_tool_call("ext_search", {}, session_id="s1"))


@scenario("handle_tool_call")
def a_provider_without_the_method(stage):
    class Plain(Recorder):
        handle_tool_call = Recorder.__mro__[1].handle_tool_call

    manager = stage.manager(Plain(tools=[tool("ext_search")]))
    return sorted(json.loads(manager.handle_tool_call("ext_search", {})))


@scenario("handle_tool_call")
def a_reserved_tool_is_not_called(stage):
    provider = Recorder(tools=[tool("terminal")], handle_tool_call='{"ran": 1}')
    manager = stage.manager(provider)
    return ["error" in json.loads(manager.handle_tool_call("terminal", {})), provider.order()]


# -- an agent's tools ----------------------------------------------------------------------


def _agent(stage, tools=(), **facts):
    manager = stage.manager(Recorder(tools=[tool("ext_search"), tool("ext_store")]))
    return SimpleNamespace(_memory_manager=manager, tools=list(tools), **facts)


def _injected(stage, tools=(), **facts):
    agent = _agent(stage, tools, **facts)
    count = memory_manager.inject_memory_provider_tools(agent)
    return [count, [each["function"]["name"] for each in agent.tools]]


MEMORY = {"type": "function", "function": tool("memory")}


@scenario("inject_memory_provider_tools")
def tools_for_an_agent(stage):
    return [_injected(stage), _injected(stage, enabled_toolsets=None)]


@scenario("inject_memory_provider_tools")
def tools_for_an_agent_by_its_toolsets(stage):
    sets = ([], ["web"], ["memory"], ["web", "memory"], ["hermes-cli"], ["no-such-set"])
    return [_injected(stage, enabled_toolsets=each) for each in sets]


@scenario("inject_memory_provider_tools")
def tools_for_an_agent_that_has_the_memory_tool(stage):
    return _injected(stage, [MEMORY], enabled_toolsets=["web"])


@scenario("inject_memory_provider_tools")
def tools_for_an_agent_that_has_disabled_them(stage):
    return _injected(stage, [MEMORY], enabled_toolsets=None, disabled_toolsets=["memory"])


@scenario("inject_memory_provider_tools")
def tools_that_the_agent_has_already(stage):
    present = {"type": "function", "function": tool("ext_search")}
    return _injected(stage, [present])


@scenario("inject_memory_provider_tools")
def the_valid_names_of_an_agent(stage):
    agents = [_agent(stage), _agent(stage, valid_tool_names={"own"})]
    for each in agents:
        memory_manager.inject_memory_provider_tools(each)
        memory_manager.inject_memory_provider_tools(each)
    return [sorted(each.valid_tool_names) for each in agents]


@scenario("inject_memory_provider_tools")
def an_agent_without_a_manager_or_tools(stage):
    inject = memory_manager.inject_memory_provider_tools
    none = SimpleNamespace(_memory_manager=None, tools=[])
    agent = _agent(stage)
    agent.tools = None
    return [inject(none), inject(agent), inject(SimpleNamespace())]


@scenario("memory_provider_tools_enabled")
def toolsets_that_bring_memory(stage):
    enabled = memory_manager.memory_provider_tools_enabled
    sets = (None, [], ["memory"], ["web"], ["web", "memory"], ["no-such-set"])
    return [enabled(each) for each in sets]


@scenario("memory_provider_tools_enabled")
def composite_toolsets_that_bring_memory(stage):
    enabled = memory_manager.memory_provider_tools_enabled
    return [enabled([each]) for each in ("hermes-cli", "hermes-telegram", "hermes-cron", "file")]


@scenario("memory_provider_tools_enabled")
def toolsets_that_are_disabled(stage):
    enabled = memory_manager.memory_provider_tools_enabled
    return [
        enabled(None, ["memory"]),
        enabled(["memory"], ["memory"]),
        enabled(["memory"], ["web"]),
        enabled(["web"], None, memory_tool_present=True),
        enabled(["web"], ["memory"], memory_tool_present=True),
        enabled([], memory_tool_present=True),
    ]


@scenario("memory_provider_tools_exposed")
def whether_an_agent_shows_the_tools(stage):
    exposed = memory_manager.memory_provider_tools_exposed
    return [
        exposed(_agent(stage)),
        exposed(_agent(stage, enabled_toolsets=["web"])),
        exposed(_agent(stage, [MEMORY], enabled_toolsets=["web"])),
        exposed(_agent(stage, disabled_toolsets=["memory"])),
    ]


@scenario("normalize_tool_schema")
def schemas_made_bare(stage):
    values = (
        tool("a"),
        {"type": "function", "function": tool("a")},
        {"type": "function", "function": "a"},
        {"type": "function", "name": "a"},
        {"type": "object", "function": tool("a")},
        {"name": ""},
        {"name": 5},
        {},
        [],
        "a",
        None,
    )
    return [memory_manager.normalize_tool_schema(each) for each in values]


@scenario("add_provider")
def schemas_that_are_no_list(stage):
    values = (None, (tool("a"),), {"name": "a"}, "a")
    return [raised(lambda v=value: _add(stage, v)) for value in values]


def _add(stage, schemas):
    stage.manager(Recorder(get_tool_schemas=lambda: schemas))
