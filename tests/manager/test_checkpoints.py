"""Before a compression: what providers want kept, and checkpoints that a host requires."""

from __future__ import annotations

from typing import Any

import pytest
from support.providers import QUICK, Gate, Minimal, Recorder, raising, running

from hermes_core import CheckpointError


def test_texts_before_a_compression_are_joined_and_the_messages_handed_over() -> None:
    messages = [{"role": "user", "content": "u"}]
    external = Recorder(on_pre_compress="keep this")
    with running(external) as manager:
        assert manager.on_pre_compress(messages) == "keep this"
    assert external.of("on_pre_compress")[0].args == (messages,)


class _Checkpoints(Minimal):
    pre_compress_checkpoint_api_version = 2
    fails = False

    def __init__(self) -> None:
        super().__init__()
        self.required: list[bool] = []

    def on_pre_compress(self, messages, *, require_checkpoint=False):
        self.required.append(require_checkpoint)
        if self.fails:
            raise OSError("disk full")
        return "saved"


class _BuiltinCheckpoints(_Checkpoints):
    name = "builtin"  # type: ignore[assignment]


def test_a_required_checkpoint_is_asked_for_and_made() -> None:
    provider = _Checkpoints()
    with running(provider) as manager:
        assert manager.on_pre_compress([], require_checkpoint=True) == "saved"
        assert manager.on_pre_compress([]) == "saved"
    assert provider.required == [True, False]


def test_a_required_checkpoint_that_fails_is_raised_with_the_provider_and_the_cause() -> None:
    provider = _Checkpoints()
    provider.fails = True
    with running(provider) as manager:
        with pytest.raises(CheckpointError, match=r"ext.*disk full") as caught:
            manager.on_pre_compress([], require_checkpoint=True)
        assert isinstance(caught.value.__cause__, OSError)
        assert manager.on_pre_compress([]) == ""


def test_a_provider_that_promises_no_checkpoints_can_not_prevent_a_compression() -> None:
    external = Recorder(on_pre_compress=raising(OSError("disk full")))
    with running(_BuiltinCheckpoints(), external) as manager:
        assert manager.on_pre_compress([], require_checkpoint=True) == "saved"


def test_a_required_checkpoint_that_nobody_promises_is_not_made() -> None:
    with running(Recorder()) as manager, pytest.raises(CheckpointError):
        manager.on_pre_compress([], require_checkpoint=True)


@pytest.mark.parametrize("version", ["2", None, object()], ids=["text", "none", "object"])
def test_a_checkpoint_version_that_is_no_number_breaks_nothing(version: Any) -> None:
    provider = _Checkpoints()
    provider.fails = True
    provider.pre_compress_checkpoint_api_version = version
    with running(_BuiltinCheckpoints(), provider) as manager:
        try:
            assert manager.on_pre_compress([], require_checkpoint=True) == "saved"
        except CheckpointError:
            assert version == "2"  # which may be read as the number


def test_a_required_checkpoint_that_hangs_is_not_made() -> None:
    class Hangs(_Checkpoints):
        def on_pre_compress(self, messages, *, require_checkpoint=False):
            gate()

    with Gate() as gate, running(Hangs(), deadlines=QUICK) as manager:
        for _ in range(2):  # the second time it is not even called
            with pytest.raises(CheckpointError, match="ext"):
                manager.on_pre_compress([], require_checkpoint=True)
        gate.open()


def test_an_older_signature_makes_its_checkpoint_without_being_asked() -> None:
    class Bare(_Checkpoints):
        def on_pre_compress(self, messages):
            return "saved"

    with running(Bare()) as manager:
        assert manager.on_pre_compress([], require_checkpoint=True) == "saved"


TRANSCRIPT: list[Any] = [
    {"role": "system", "content": "prompt"},
    {"role": "user", "content": "tea at five", "api_content": "recalled"},
    {"role": "assistant", "content": "Let me look.", "tool_calls": [{"id": "1"}]},
    {"role": "tool", "content": "secret output", "tool_call_id": "1"},
    {"role": "assistant", "content": "  "},
    {"role": "user", "content": [{"type": "text", "text": "and this"}, {"type": "image_url"}]},
    {"role": "assistant", "content": "an old summary", "_compressed_summary": True},
    "nonsense",
]


class _Seeing(_Checkpoints):
    def on_pre_compress(self, messages, *, require_checkpoint=False):
        self.seen = messages
        return "saved"


def test_a_provider_with_checkpoints_gets_what_was_said_and_others_get_everything() -> None:
    builtin, provider = Recorder("builtin"), _Seeing()
    with running(builtin, provider) as manager:
        manager.on_pre_compress(TRANSCRIPT)
    assert provider.seen == [
        {"role": "user", "content": "tea at five"},
        {"role": "assistant", "content": "Let me look."},
        {"role": "user", "content": "and this"},
    ]
    assert builtin.of("on_pre_compress")[0].args == (TRANSCRIPT,)


def test_the_host_may_choose_the_evidence_itself() -> None:
    builtin, provider = Recorder("builtin"), _Seeing()
    evidence = [{"role": "user", "content": "tea", "_row_id": 5}]
    with running(builtin, provider) as manager:
        manager.on_pre_compress(TRANSCRIPT, evidence_messages=evidence, require_checkpoint=True)
    assert provider.seen == evidence
    assert builtin.of("on_pre_compress")[0].args == (TRANSCRIPT,)


def test_a_provider_without_checkpoints_is_not_asked_for_one() -> None:
    seen = []

    class Older(Minimal):
        def on_pre_compress(self, messages, **kwargs):
            seen.append(kwargs)
            return ""

    with running(_BuiltinCheckpoints(), Older()) as manager:
        manager.on_pre_compress([], require_checkpoint=True)
    assert seen == [{}]


def test_the_version_that_counts_may_be_another_one() -> None:
    provider = _Seeing()
    with running(provider) as manager, pytest.raises(CheckpointError, match="v3") as caught:
        manager.on_pre_compress(TRANSCRIPT, require_checkpoint=True, checkpoint_api_version=3)
    assert isinstance(caught.value, RuntimeError)  # what hermes-agent raises
    assert not hasattr(provider, "seen")  # it is not compressed: nobody need look


@pytest.mark.parametrize(
    ("version", "supported"), [(1, False), (2, True), ("2", True), (None, False), ("x", False)]
)
def test_a_host_can_ask_whether_checkpoints_are_made(version: Any, supported: bool) -> None:
    provider = _Checkpoints()
    provider.pre_compress_checkpoint_api_version = version
    with running(provider) as manager:
        assert manager.supports_pre_compress_checkpoint() is supported
        assert manager.supports_pre_compress_checkpoint(1)
        assert not manager.supports_pre_compress_checkpoint(3)


def test_without_a_provider_there_are_no_checkpoints() -> None:
    with running() as manager:
        assert not manager.supports_pre_compress_checkpoint()
