"""What the browser loads: small, ours, readable in both themes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "hermes_inspector"
CSS = (FOLDER / "static" / "ui.css").read_text("utf-8")
TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))

#: What stands on what.
PAIRS = [
    *[(colour, ground) for colour in ("text", "dim", "link", "bad", "good", "warn")
      for ground in ("bg", "panel")],
    ("on-accent", "accent"), ("ins", "ins-bg"), ("del", "del-bg"), ("mark", "mark-bg"),
]  # fmt: skip


def test_everything_together_is_under_200_kilobytes():
    files = [*(FOLDER / "static").iterdir(), *TEMPLATES]
    assert sum(each.stat().st_size for each in files) < 200_000


def test_nothing_is_loaded_from_elsewhere():
    for each in [*(FOLDER / "static").iterdir(), *TEMPLATES]:
        text = each.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, each
        assert "https://" not in text, each
        assert "url(" not in text, each


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda each: each.name)
def test_no_template_has_inline_script_style_or_unescaped_text(path):
    text = path.read_text("utf-8")
    assert not re.search(r"<style|style=|\son\w+=|javascript:", text)
    assert "|safe" not in text
    assert "autoescape" not in text
    assert not re.search(r"<script(?! src=)", text)


def themes() -> dict[str, dict[str, str]]:
    blocks = re.findall(r":root[^{]*\{(.*?)\}", CSS, re.DOTALL)
    found = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", each)) for each in blocks]
    light, by_system, by_choice = (each for each in found if each)
    assert by_system == by_choice
    return {"light": light, "dark": by_choice}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_enough_contrast(theme):
    colours = themes()[theme]
    for text, ground in PAIRS:
        high, low = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)
