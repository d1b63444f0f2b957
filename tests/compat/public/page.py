"""Generates a part of docs/compatibility.md from results.json."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[2] / "docs" / "compatibility.md"
BEGIN, END = "<!-- begin: tests/compat/public/page.py -->", "<!-- end -->"


def main() -> int:
    """Write the page; with --check, return 1 if it is out of date."""
    results = json.loads((HERE / "results.json").read_text("utf-8"))
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    new = f"{before}{BEGIN}\n\n{_generated(results)}\n{END}{after}"
    if "--check" in sys.argv:
        return int(new != text)
    PAGE.write_text(new, "utf-8")
    return 0


def _generated(results: list[dict[str, Any]]) -> str:
    ordered = sorted(results, key=lambda each: each["distribution"])
    return f"{_table(ordered)}\n\n{_details(ordered)}\n"


def _table(results: list[dict[str, Any]]) -> str:
    columns = ("listed", "loads", "initialises", "stores", "recalls")
    head = (
        "package", "listed as", "grade", "loads", "initialises", "stores",
        "recalls in a new process",
    )  # fmt: skip
    rows = [
        (
            f"{each['distribution']} {each['version']}",
            ", ".join(f"{name} ({state})" for name, state, _ in each["listing"]) or "not found",
            (each.get("checks") or {}).get("grade", "not graded"),
            *(_mark(each, column) for column in columns[1:]),
        )
        for each in results
    ]
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _mark(result: dict[str, Any], column: str) -> str:
    return "yes" if result.get(column) else "no" if column in result else ""


def _details(results: list[dict[str, Any]]) -> str:
    return "\n".join(f"- **{each['distribution']}**: {_remarks(each)}" for each in results)


def _remarks(result: dict[str, Any]) -> str:
    # The message of a plugin without a reason is about what users can do, which is of no use here.
    problem = re.sub(r": the plugin returned no reason.*", ", without a reason", result["problem"])
    found = [problem, *(each[2] for each in result["listing"])]
    if result.get("own_name") not in (None, result.get("name")):
        found.append(f"its `name` is {result['own_name']}")
    if result.get("registers"):
        found.append(f"also registers {result['registers']}, not run here")
    if result.get("recalls_in_session") and not result.get("recalls"):
        found.append("recalls only within a session")
    failures = result.get("failures", {}).items()
    found += [f"{hook} fails: {_failure(error)}" for hook, error in failures]
    tools = result.get("tools") or {}
    if any(tools.values()):
        counts = ", ".join(f"{count} {kind}" for kind, count in tools.items() if count)
        found.append(f"tools answer: {counts}")
    found += [f"warning: {each}" for each in result.get("warnings", ())]
    if result.get("writes_outside"):
        found.append(f"writes outside the Hermes home: {', '.join(result['writes_outside'])}")
    if result.get("threads_left"):
        found.append(f"leaves threads: {', '.join(result['threads_left'])}")
    slow = {k: v for k, v in result.get("step_seconds", {}).items() if v >= 5}
    found += [f"{step} took {seconds:g} s" for step, seconds in slow.items()]
    if result.get("loads") and result.get("checks", ()) is None:
        found.append("the checks exceeded their time limit")
    failed = (result.get("checks") or {}).get("failed")
    if failed:
        found.append(f"checks failed: {', '.join(failed)}")
    remarks = dict.fromkeys(" ".join(each.split()) for each in found if each)
    return "; ".join(remarks).replace("|", "/") or "no remarks"


def _failure(error: str) -> str:
    """Return what failed, in a few words."""
    if error.startswith("{"):  # the report of the process, which `run.py` reads from stdout
        return "it redirects standard output to standard error"
    error = re.sub(r"\d+\.\d{3,}(?= s\b)", lambda each: f"{round(float(each[0]), 2):g}", error)
    return textwrap.shorten(error, _MAX_FAILURE, placeholder=" …")


_MAX_FAILURE = 160


if __name__ == "__main__":
    sys.exit(main())
