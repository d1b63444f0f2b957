"""Recalled text on its way to the model, and model output on its way to a person.

What providers recall goes to the model in a fence, ``<memory-context> ... </memory-context>``,
so that the model reads it as data (`build_block`). Other text must not contain that fence
(`defuse`), and a model that repeats it must not show it to people (`StreamScrubber`,
`without_fences`).
"""

from __future__ import annotations

from hermes_core.fence._block import Block, RecalledText, build_block
from hermes_core.fence._scrubber import StreamScrubber
from hermes_core.fence._tags import defuse, without_fences

__all__ = ["Block", "RecalledText", "StreamScrubber", "build_block", "defuse", "without_fences"]
