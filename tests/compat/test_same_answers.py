"""Functions that only compute give the same answers as those of hermes-agent."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.hermes_agent import PEERS, missing

from hermes_core.loading.compat import offer_hermes_agent_modules

ONE = (
    '[IMPORTANT: The user has invoked the "work" skill, indicating they want you to follow it. '
    "The full skill content is loaded below.]\n\nBody: say so.\n\n"
)
SAYS = "The user has provided the following instruction alongside the skill invocation: "
SEVERAL = (
    '[IMPORTANT: The user has invoked the "/clean /work" skill bundle, loading 2 skills.]\n'
    "{}\n\n[Loaded as part of the bundle]\n\nBody.\nUser instruction: not this\n"
)
MERGED = (
    "[PRIOR CONTEXT — for reference only; not a new message]\nbefore\n"
    "[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]\n{}"
)
SUMMARY = "[CONTEXT SUMMARY]: it was about tea"
KINDS = [
    {"type": "text", "text": "a"}, {"type": "image_url", "text": "no"}, "b", None,
    {"content": "c"}, {"type": "output_text", "output_text": "d"}, {"type": "text", "text": ""}, 3,
]  # fmt: skip

#: Module, function, keywords, and the arguments of each call.
CASES: list[tuple[str, str, dict[str, Any], list[Any]]] = [
    ("agent.message_content", "flatten_message_text", {},
     [None, "", "text", KINDS, {"type": "text", "text": "x"}, {"type": "image"}, 5, [], [[]]]),
    ("agent.message_content", "flatten_message_text", {"sep": " | "}, [KINDS]),
    ("agent.skill_commands", "extract_user_instruction_from_skill_message", {},
     [None, 3, "", "hello", ONE, ONE + SAYS + " do it ", ONE + SAYS + "x\n\n[Runtime note: y]",
      ONE + SAYS + "quoted\n" + SAYS + "last", SEVERAL.format("User instruction: tidy up"),
      SEVERAL.format(""), "[IMPORTANT: The user has invoked the moon"]),
    ("agent.file_safety", "get_read_block_error", {"__truth__": True},
     ["/tmp/notes.txt", "/tmp/.env", "/tmp/.ENV", "/tmp/.env.example", "/srv/.env.production",
      "/srv/.envrc", "{home}/auth.json", "{home}/.env", "{home}/mcp-tokens",
      "{home}/mcp-tokens/a.json", "{home}/auth/google_oauth.json", "{home}/skills/.hub/x",
      "{home}/skills/mine/SKILL.md", "{home}/config.yaml", "{home}/cache/bws_cache.json"]),
    ("tools.url_safety", "is_always_blocked_url", {},
     ["http://169.254.169.254/latest", "http://169.254.1.2", "http://[::ffff:169.254.169.254]/",
      "http://metadata.google.internal./x", "http://METADATA.goog", "http://127.0.0.1:9",
      "http://10.0.0.1", "http://100.100.100.200/", "http://[fd00:ec2::254]/", "", "no url",
      "http://localhost:1933", "http://[::1"]),
    ("plugins.memory.query_rewrite", "rewrite_memory_query", {}, ["", "   "]),
    ("utils", "is_truthy_value", {}, [None, "yes", " ON ", "off", "", 1, 0, "2"]),
]  # fmt: skip
NEWER: list[tuple[str, str, dict[str, Any], list[Any]]] = [
    ("agent.memory_provider", "is_trivial_prompt", {},
     [None, "", " ", "/new", "Ok", "ok.", "OK!!!", "thank you :)", "thanks…", "k8s", "yolo",
      "hi there", "do it", "do it\u00a0", "done???", "“yes”", "yes”", "next\n", "continue please",
      "ok \U0001f44d", "lgtm-"]),
    ("agent.context_compressor", "is_compaction_summary_message", {},
     [SUMMARY, {"content": SUMMARY}, {"content": "about tea"}, {"_compressed_summary": True},
      {"content": MERGED.format(SUMMARY)}, {"content": MERGED.format("no summary")}, None, {},
      {"content": [{"type": "text", "text": SUMMARY}]}]),
    ("agent.memory_manager", "memory_provider_tools_enabled", {},
     [None, [], ["memory"], ["web"], ["hermes-cli"], ["web", "coding"], ["all"], ["*"],
      ["hermes-telegram"], ["hermes-webhook"], ["hermes-unknown"], ["no-such"], ["hermes-gateway"],
      ["hermes-acp"], ["hermes-api-server"], ["hermes-cron"], ["safe"], ["debugging"]]),
    ("agent.memory_manager", "memory_provider_tools_enabled", {"disabled_toolsets": ["memory"]},
     [None, ["memory"], ["all"]]),
    ("agent.memory_manager", "memory_provider_tools_enabled",
     {"disabled_toolsets": ["web"], "memory_tool_present": True}, [None, [], ["web"]]),
    ("agent.memory_manager", "memory_provider_tools_enabled",
     {"disabled_toolsets": ["memory"], "memory_tool_present": True}, [None, ["memory"]]),
]  # fmt: skip

_ASK = """
import importlib, json, sys
def answers(cases, home):
    found = []
    for module, name, keywords, calls in cases:
        keywords = dict(keywords)
        only_truth = keywords.pop("__truth__", False)
        function = getattr(importlib.import_module(module), name)
        for argument in calls:
            if isinstance(argument, str):
                argument = argument.replace("{home}", home)
            answer = function(argument, **keywords)
            found.append([f"{module}.{name}({argument!r}, {keywords})",
                          bool(answer) if only_truth else answer])
    return found
"""


def theirs(release: str, cases: Any, home: Path) -> Any:
    if reason := missing(release):
        pytest.skip(reason)
    script = f"{_ASK}\nprint(json.dumps(answers(json.loads(sys.argv[1]), sys.argv[2])))"
    done = subprocess.run(
        [PEERS[release], "-P", "-c", script, json.dumps(cases), str(home)],
        env={"HERMES_HOME": str(home), "HOME": str(home.parent), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("release", "cases"), [("0.19", CASES), ("0.20", CASES + NEWER)])
def test_the_answers_are_the_same(release, cases, home):
    expected = theirs(release, cases, home)
    offer_hermes_agent_modules()
    ours: dict[str, Any] = {}
    exec(_ASK, ours)
    assert json.loads(json.dumps(ours["answers"](cases, str(home)))) == expected
