"""The examples of docs/adapters.md run, and print what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from support.fake_claude import FakeClaude, results
from support.fake_model import Answer, FakeModel, Prompt

PAGE = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text("utf-8")
_LONGEST = 30


def example(title: str) -> tuple[str, str]:
    """The program that a section begins with, and its output."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    found = re.search(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL
    )
    assert found, title
    return found[1], found[2]


def helpful(prompt: Prompt) -> Answer:
    """Saves what it is asked to remember, with whichever tool it has, and answers from notes."""
    if '"role": "tool"' in str(prompt.body["messages"][-1]).replace("'", '"') or (
        isinstance(prompt.body["messages"][-1]["content"], list) and results(prompt.body)
    ):
        return Answer("helpful", "I saved that.\n")
    if "remember" in prompt.user:
        text = "Drinks green tea."
        claude = {"command": "create", "path": "/memories/USER.md", "file_text": text}
        note = {"action": "add", "target": "user", "content": text}
        is_claude = any(each.get("type") == "memory_20250818" for each in prompt.body["tools"])
        return Answer("helpful", calls=[("memory", claude if is_claude else note)])
    known = "Drinks green tea." in prompt.system
    return Answer("helpful", "You drink green tea.\n" if known else "I don't know.\n")


#: The stand-in has no Responses API, and nobody reads the traces.
_CHAT_API = """
import agents
agents.set_default_openai_api("chat_completions")
agents.set_tracing_disabled(True)
"""


def run(program: str, home: Path, before: str = "", **environment: str) -> str:
    """What a program prints, in a process of its own: its clients are never closed."""
    assert len(program.splitlines()) <= _LONGEST
    keys = {"HERMES_HOME": str(home), "OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
    ended = subprocess.run(
        [sys.executable, "-P", "-c", before + program],
        env={**os.environ, **keys, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return "\n".join(line for line in ended.stdout.splitlines() if line) + "\n"


def test_the_example_of_the_openai_agents_sdk(tmp_path: Path) -> None:
    program, output = example("OpenAI Agents SDK")
    with FakeModel(answerers=[helpful]) as model:
        assert run(program, tmp_path, _CHAT_API, OPENAI_BASE_URL=model.url) == output


def test_the_example_of_pydantic_ai(tmp_path: Path) -> None:
    program, output = example("Pydantic AI")
    with FakeModel(answerers=[helpful]) as model:
        assert run(program, tmp_path, OPENAI_BASE_URL=model.url) == output


def test_the_example_of_the_anthropic_sdk(tmp_path: Path) -> None:
    program, output = example("Anthropic SDK")
    with FakeClaude(answerers=[helpful]) as model:
        assert run(program, tmp_path, ANTHROPIC_BASE_URL=model.root) == output
    assert (tmp_path / "memories" / "USER.md").read_text("utf-8") == "Drinks green tea."


def test_the_example_of_langgraph(tmp_path: Path) -> None:
    program, output = example("LangGraph")
    with FakeModel(answerers=[helpful]) as model:
        assert run(program, tmp_path, OPENAI_BASE_URL=model.url) == output


#: Gemini, as far as the example needs it.
_GEMINI = """
import json
from google.adk.models import BaseLlm, LlmResponse
from google.adk.models.registry import LLMRegistry
from google.genai import types as t
class StandIn(BaseLlm):
    @classmethod
    def supported_models(cls):
        return ["gemini-.*"]
    async def generate_content_async(self, request, stream=False):
        last = request.contents[-1].parts[-1]
        if last.function_response:
            known = "I drink green tea" in str(last.function_response.response)
            said = t.Part(text="You drink green tea." if known else "I don't know.")
        elif "remember" in last.text:
            said = t.Part(text="I saved that.")
        else:
            said = t.Part.from_function_call(name="load_memory", args={"query": "drink"})
        yield LlmResponse(content=t.Content(role="model", parts=[said]))
LLMRegistry.register(StandIn)
"""


def test_the_example_of_the_agent_development_kit(tmp_path: Path) -> None:
    program, output = example("Agent Development Kit")
    assert run(program, tmp_path, _GEMINI) == output
