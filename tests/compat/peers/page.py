"""Makes the table of members in docs/compatibility.md.

Run it after a change of the members or of the differences: python tests/compat/peers/page.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- begin: tests/compat/peers/page.py -->", "<!-- end: members -->"
HEAD = ("member", "0.19", "0.20", "ours", "difference")

Found = dict[str, dict[str, Any]]


def with_table(text: str, found: Found) -> str:
    """A page with the table for what was found on every side."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{_table(found)}\n\n{END}{after}"


def _table(found: Found) -> str:
    scenarios = found["ours"]["scenarios"]
    theirs = [found[side]["members"] for side in HEAD[1:3]]
    names = {*theirs[0], *theirs[1], *scenarios.values()}
    rows = [_row(name, found, scenarios) for name in sorted(names, key=_rank)]
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rank(name: str) -> tuple[bool, bool, str]:
    """The manager first, then the modules' functions, then the provider."""
    provider = name.startswith(("MemoryProvider", "StreamingContextScrubber"))
    return provider, name in ("memory", "session_search", "threads"), name.lower()


def _row(name: str, found: Found, scenarios: dict[str, str]) -> tuple[str, ...]:
    from compat.peers.differences import DIFFERENCES, SIGNATURES

    reasons = [
        each.reason for scenario, each in DIFFERENCES.items() if scenarios.get(scenario) == name
    ]
    reasons += [SIGNATURES[name]] if name in SIGNATURES else []
    shapes = [found[side]["members"].get(name, "no") for side in HEAD[1:4]]
    if all(each == "no" for each in shapes):  # a tool, or something else that has no signature
        cells = ["yes", "yes", "yes"]
    else:
        cells = [_cell(each, shapes[-1]) for each in shapes[:2]] + [_own(shapes)]
    return f"`{name}`", *cells, "; ".join(dict.fromkeys(reasons))


def _cell(shape: Any, ours: Any) -> str:
    if shape == "no":
        return "no"
    absent = _names(ours) - _names(shape) if shape and ours != "no" else set()
    return f"yes, without {_listed(absent)}" if absent else "yes"


def _own(shapes: list[Any]) -> str:
    return "no" if shapes[-1] == "no" else "yes"


def _names(shape: Any) -> set[str]:
    return {name for name, kind, _ in shape or () if not kind.startswith("VAR")}


def _listed(names: set[str]) -> str:
    return ", ".join(f"`{each}`" for each in sorted(names))


def main() -> None:
    """Write the table."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.hermes_agent import PEERS
    from support.releases import scenarios

    with tempfile.TemporaryDirectory() as folder:
        found = scenarios(Path(folder), *PEERS, "ours", options=("--members",))
    PAGE.write_text(with_table(PAGE.read_text("utf-8"), found), "utf-8")


if __name__ == "__main__":
    main()
