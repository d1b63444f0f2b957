"""A turn with Honcho, Mem0 and Hindsight: what our plugins cost beside hermes-agent's.

Both ask the same server, which answers at once: what is left is the plugin, its SDK and the
way to the server. hermes-agent's plugins run with the SDKs that they name.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from _report import Report
from _venvs import FOLDER, ROOT, Venv, ours, peer

ROUNDS = 5
SEEN = 3
WARM = 20
TURNS = 200
SDKS = ("honcho-ai==2.2.0", "mem0ai==2.0.10", "hindsight-client==0.6.1")

SETTINGS = {
    "honcho": "env = {'HONCHO_BASE_URL': url, 'HONCHO_API_KEY': 'k'}",
    "mem0": "env = {'MEM0_HOST': url, 'MEM0_API_KEY': 'k', 'MEM0_USER_ID': 'ann'}",
    "hindsight": """
(home / 'hindsight').mkdir()
(home / 'hindsight' / 'config.json').write_text(json.dumps(
    {'mode': 'local_external', 'api_url': url, 'bank_id': 'bench'}))
env = {}""",
}
TURN = """
import json, os, sys, tempfile, threading, time, urllib.request
from pathlib import Path
url = {url!r}
home = Path(tempfile.mkdtemp(prefix="backends-bench-"))
{settings}
os.environ.update(env, HERMES_HOME=str(home), HOME=str(home), MEM0_TELEMETRY="False")
os.chdir(home)
import logging; logging.disable()
{load}
assert provider.is_available()
provider.initialize("s1", hermes_home=str(home), platform="cli", agent_context="primary",
    agent_identity="default", agent_workspace="hermes", user_id="ann")
QUESTION = "How do we deploy the billing service, and who has to approve it? " * 3
SAID = "I deploy the billing service with make release, and two people have to approve it. " * 3
ANSWER = "With make release, every second Monday; two people of the platform team approve. " * 3

def settle():  # hermes-agent's plugins go on in threads of their own
    for thread in threading.enumerate():
        if thread.name.startswith(("honcho-", "mem0-", "hindsight-prefetch")) and (
                "loop" not in thread.name and "writer" not in thread.name):
            thread.join(10)
    waiting = getattr(provider, "_retain_queue", None)
    if waiting is not None:
        waiting.join()

def turn(number):
    provider.on_turn_start(number, QUESTION)
    found = provider.prefetch(QUESTION, session_id="s1")
    {sync}
    provider.queue_prefetch(QUESTION, session_id="s1")
    settle()
    return found

for number in range({seen}):  # so few that both recall about as much
    found = turn(number)
urllib.request.urlopen(urllib.request.Request(url + "/_freeze", b"", method="POST"))
for number in range({warm}):
    turn(number)
cpu, wall = time.process_time(), time.perf_counter()
for number in range({turns}):
    turn(number)
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
print(json.dumps({{"cpu": cpu / {turns}, "wall": wall / {turns}, "recalls": bool(found)}}))
sys.stdout.flush()
os._exit(0)
"""
OURS = """
import hermes_memory_{name}
before = {{"honcho", "mem0", "hindsight_client"}} & set(sys.modules)
assert not before, before
class Context:
    def register_memory_provider(self, provider): self.provider = provider
context = Context()
hermes_memory_{name}.register(context)
provider = context.provider
"""
OUR_SYNC = 'provider.sync_turn(f"{SAID} {number}.", ANSWER, session_id="s1", turn_id=f"t{number}")'
THEIRS = """
sys.path.append({sdks!r})
from plugins.memory import load_memory_provider
provider = load_memory_provider({name!r})
"""
THEIR_SYNC = 'provider.sync_turn(f"{SAID} {number}.", ANSWER, session_id="s1")'


def their_sdks(venv: Venv) -> str:
    """The SDKs beside hermes-agent, whose own packages come first."""
    folder = FOLDER / "peer-sdks"
    if not folder.exists():
        venv.install("--target", str(folder), *SDKS)
    return str(folder)


@contextmanager
def served(name: str):  # noqa: ANN201
    """The address of a server that replays."""
    script = Path(__file__).with_name("_replay.py")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, script, name], text=True, **pipes)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def run(venv: Venv, name: str, load: str, sync: str) -> dict[str, float]:
    with served(name) as url:
        settings = SETTINGS[name]
        values = {"url": url, "settings": settings, "load": load, "sync": sync}
        code = TURN.format(**values, seen=SEEN, warm=WARM, turns=TURNS)
        return json.loads(venv.run("-c", code).splitlines()[-1])


def main() -> None:
    here, there = ours(), peer()
    sdks = their_sdks(there)
    here.install(*(str(ROOT / "plugins" / name) for name in SETTINGS))
    report = Report(f"A turn with a service that answers at once, {TURNS} turns x {ROUNDS}")
    for name in sys.argv[1:] or SETTINGS:
        results: dict[str, list[dict[str, float]]] = {"ours": [], "hermes-agent": []}
        for _ in range(ROUNDS):
            results["ours"].append(run(here, name, OURS.format(name=name), OUR_SYNC))
            loaded = THEIRS.format(name=name, sdks=sdks)
            results["hermes-agent"].append(run(there, name, loaded, THEIR_SYNC))
        for kind in ("cpu", "wall"):
            report.samples(
                {f"{name}, {kind}, {whose}": [e[kind] for e in r] for whose, r in results.items()}
            )
        middle = {whose: median(e["cpu"] for e in r) for whose, r in results.items()}
        recalls = {whose: all(e["recalls"] for e in r) for whose, r in results.items()}
        print(f"  {name}, something was recalled: {recalls}")
        report.at_most(f"{name}, ms of CPU for a turn", 1e3 * middle["ours"], 5)
        report.at_most(
            f"{name}, ours / hermes-agent, CPU", middle["ours"] / middle["hermes-agent"], 1
        )
    report.close()


if __name__ == "__main__":
    main()
