"""The MCP server with the client of langchain-mcp-adapters, over both transports.

That client needs another version of the MCP library than our server, so it has its own venv in
.engines/mcp-client, made once.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Machine

pytestmark = pytest.mark.xdist_group("mcp-client")
FOLDER = Path(__file__).parents[3] / ".engines" / "mcp-client"
PYTHON = FOLDER / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
REQUIREMENT = "langchain-mcp-adapters>=0.3,<0.4"

CLIENT = """
import asyncio, json, sys
from langchain_mcp_adapters.client import MultiServerMCPClient

async def main(connection, fact, query):
    client = MultiServerMCPClient({"memory": connection})
    tools = {each.name: each for each in await client.get_tools()}
    assert {"memory", "session_search", "recall", "remember_turn"} <= set(tools), set(tools)
    await tools["remember_turn"].ainvoke({"user": fact, "assistant": "Noted."})
    print(await tools["session_search"].ainvoke({"query": query}))
    prompt = await client.get_prompt("memory", "memory")
    resources = await client.get_resources("memory", uris=["memory://notes/memory"])
    assert prompt and resources

asyncio.run(main(json.loads(sys.argv[1]), *sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter with the client."""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    pip = [PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", REQUIREMENT]
    subprocess.run(pip, check=True)
    return str(PYTHON)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "machine", in_process=True)
    made.environment["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    return made


def ask(python: str, connection: dict[str, object], fact: str, query: str) -> str:
    import json

    command = [python, "-c", CLIENT, json.dumps(connection), fact, query]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def address(machine: Machine) -> Iterator[str]:
    command = machine.command("mcp", "--http", "0", "--token", "secret-token-1")
    process = subprocess.Popen(
        command, env=machine.environment, stderr=subprocess.PIPE, encoding="utf-8"
    )
    assert process.stderr is not None
    try:
        yield re.findall(r"http://\S+", process.stderr.readline())[0]
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


def test_over_both_transports(python: str, machine: Machine, address: str) -> None:
    command, *rest = machine.command("mcp")
    stdio = {"transport": "stdio", "command": command, "args": rest, "env": machine.environment}
    headers = {"Authorization": "Bearer secret-token-1"}
    http = {"transport": "streamable_http", "url": address, "headers": headers}
    assert "Rio" in ask(python, stdio, "The parrot is called Rio", "parrot")
    assert "Rio" in ask(python, http, "The cat is called Tom", "parrot")
    assert "Tom" in ask(python, stdio, "x", "cat")
