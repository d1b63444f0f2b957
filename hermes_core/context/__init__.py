"""Recalled text on its way to the model, and model output on its way to a person.

What providers recall goes to the model in a fence, ``<memory-context> ... </memory-context>``,
so that it is taken for data (`fenced`). Nobody else's text may hold that fence (`defused`),
and a model that repeats it must not show it to people (`StreamScrubber`, `without_fences`).
"""

from __future__ import annotations

from hermes_core.context._block import Block, Recalled, fenced
from hermes_core.context._scrubber import StreamScrubber
from hermes_core.context._tags import defused, without_fences

__all__ = ["Block", "Recalled", "StreamScrubber", "defused", "fenced", "without_fences"]
