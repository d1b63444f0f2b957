"""Recall on LoCoMo: does the search find the conversations that hold the answer?

``--locomo PATH`` names the file, which is not part of this project. Each question is asked as
it stands, through the tool, of an archive that holds its conversation's sessions. Printed is
the share of the evidence sessions among the first 1, 3, 5 and 10, by category, for ours and
for hermes-agent.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

CUTS = (1, 3, 5, 10)
ADVERSARIAL = 5
TARGET = 0.86
NAMES = {1: "multi-hop", 2: "temporal", 3: "open", 4: "single-hop"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--locomo", required=True, type=Path)
    parser.add_argument("--measure", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    parser.add_argument("--postgres", default="", help="Compare SQLite with this empty database.")
    given = parser.parse_args()
    if given.postgres:
        compare(given.locomo, given.postgres)
        return
    if given.measure:
        print(json.dumps(measure(given.measure, given.locomo)))
        return
    from _report import Report
    from _venvs import ours, peer

    path = str(given.locomo.resolve())
    me = str(Path(__file__).resolve())
    results = {
        "ours": json.loads(ours().run(me, "--locomo", path, "--measure", "ours")),
        "hermes-agent": json.loads(peer().run(me, "--locomo", path, "--measure", "theirs")),
    }
    report = Report("LoCoMo: share of the evidence sessions among the first n")
    print(f"  {'':30}" + "".join(f"{f'@{cut}':>8}" for cut in CUTS))
    for name, rows in results.items():
        for category, values in rows.items():
            label = f"{name}, {category}"
            print(f"  {label:30}" + "".join(f"{value:8.3f}" for value in values))
    report.at_least("ours, all, @5", results["ours"]["all"][CUTS.index(5)], TARGET)
    report.close()


def compare(path: Path, url: str) -> None:
    """The same questions to both storages."""
    from _report import Report

    report = Report("LoCoMo: SQLite and PostgreSQL")
    found = {"SQLite": measure("ours", path), "PostgreSQL": measure(url, path)}
    for name, rows in found.items():
        print(f"  {name:30}" + "".join(f"{value:8.3f}" for value in rows["all"]))
    at = CUTS.index(5)
    apart = abs(found["SQLite"]["all"][at] - found["PostgreSQL"]["all"][at])
    report.at_most("difference @5, in points", 100 * apart, 0.5)
    report.close()


def measure(kind: str, path: Path) -> dict[str, list[float]]:
    shares: dict[str, list[list[float]]] = defaultdict(list)
    for sample in json.loads(path.read_text("utf-8")):
        with tempfile.TemporaryDirectory(prefix="recall-") as folder:
            ask = fill(kind, Path(folder), sample["conversation"])
            for question in sample["qa"]:
                wanted = evidence(question)
                if question["category"] == ADVERSARIAL or not wanted:
                    continue
                found = ask(question["question"])
                share = [len(wanted & set(found[:cut])) / len(wanted) for cut in CUTS]
                shares["all"].append(share)
                shares[NAMES[question["category"]]].append(share)
    return {
        name: [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        for name, rows in sorted(shares.items())
    }


def evidence(question: dict[str, Any]) -> set[str]:
    named = " ".join(question.get("evidence") or ())
    return {f"session_{number}" for number in re.findall(r"D(\d+):\d+", named)}


def turns(conversation: dict[str, Any]) -> Any:
    for name, said in conversation.items():
        if re.fullmatch(r"session_\d+", name):
            when = conversation[f"{name}_date_time"].replace(",", "")
            at = datetime.strptime(when, "%I:%M %p on %d %B %Y").astimezone().timestamp()
            for number, turn in enumerate(said):
                first = turn["speaker"] == conversation["speaker_a"]
                text = f"{turn['speaker']}: {turn['text']}"
                yield name, "user" if first else "assistant", text, at + number


def fill(kind: str, home: Path, conversation: dict[str, Any]) -> Any:
    """Store a conversation; gives a function from a question to session ids."""
    os.environ["HERMES_HOME"] = str(home)
    if kind != "theirs":
        from hermes_builtin.sessions import Conversations, SessionSearch
        from hermes_builtin.sessions.archive import NewMessage, SessionFacts

        storage = {"storage": kind, "storage_namespace": home.name.replace("_", "-")}
        settings = {} if kind == "ours" else {"provider_config": storage}
        conversations = Conversations(home, "now", settings)
        for name, role, text, at in turns(conversation):
            facts = SessionFacts(name, started=at)
            conversations.archive.append(facts, [NewMessage(role, text, at)])
        tool = SessionSearch(conversations)
        return lambda question: ids(tool.call({"query": question, "limit": 10}))
    from hermes_state import SessionDB
    from tools.session_search_tool import session_search

    db = SessionDB(home / "state.db")
    known = set()
    for name, role, text, _ in turns(conversation):
        if name not in known:
            db.create_session(name, "cli")
            known.add(name)
        db.append_message(name, role, text)
    return lambda question: ids(session_search(query=question, limit=10, db=db))


def ids(answer: str) -> list[str]:
    return [result["session_id"] for result in json.loads(answer)["results"]]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
