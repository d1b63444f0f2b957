"""What is masked anywhere is masked everywhere, in values of every shape."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from functools import partial
from typing import NamedTuple
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.canaries import CANARIES, body

from hermes_core import HermesError
from hermes_core.privacy import RedactionResult, Redactor

TOKEN = "ghp" + "_" + body(36)
KNOWN = "canary/4711'0815 ü"
MASK = "[redacted: github-token]"


class Pair(NamedTuple):
    first: str
    second: str


# -- everywhere --------------------------------------------------------------------------------


def test_what_is_found_in_one_place_is_masked_in_all_others():
    turn = {"user": "api_key = Zx81bQ7mK2vN4pL9", "messages": [{"content": "xZx81bQ7mK2vN4pL9y"}]}
    value, kinds = Redactor().redact(turn)
    assert value["messages"] == [{"content": "x[redacted: api-key]y"}]
    assert kinds == ("api-key",)


def test_a_short_password_is_masked_elsewhere_as_a_word_of_its_own():
    value = Redactor().redact(["password: Cat2dog", "Cat2dog!", "Cat2dogs"]).value
    assert value == ["password: [redacted: password]", "[redacted: password]!", "Cat2dogs"]


def test_all_kinds_at_once_leave_nothing_behind():
    turn = {str(n): each.within.replace("{}", each.secret) for n, each in enumerate(CANARIES)}
    text = json.dumps(Redactor().redact(turn).value)
    assert [each.kind for each in CANARIES if each.secret in text] == []


@pytest.mark.parametrize("name", ["password", "api_key", "apiKey", "OPENAI_KEY", "client-secret"])
def test_a_value_is_known_by_the_key_that_it_stands_under(name):
    value = Redactor().redact([{name: "Zx81bQ7mK2vN4pL9"}, "Zx81bQ7mK2vN4pL9"]).value
    assert "Zx81" not in str(value)


@pytest.mark.parametrize("name", ["content", "cache_key", "max_tokens", "key", "token_type", ""])
def test_a_key_that_speaks_of_no_secret_says_nothing_of_its_value(name):
    given = {name: "Zx81bQ7mK2vN4pL9"}
    assert Redactor().redact(given).value is given


# -- known secrets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        KNOWN,
        quote(KNOWN, safe=""),
        quote(KNOWN),
        quote(KNOWN, safe="").lower(),
        json.dumps(KNOWN)[1:-1],
        json.dumps(json.dumps(KNOWN))[3:-3],
        repr(KNOWN + '"')[1:-2],
        base64.b64encode(KNOWN.encode()).decode(),
        base64.urlsafe_b64encode(KNOWN.encode()).decode().rstrip("="),
    ],
)
def test_a_known_secret_is_masked_however_it_is_written(written):
    for redacted in (
        Redactor([KNOWN]).redact,
        partial(Redactor([KNOWN], formats=False).redact, known_only=True),
    ):
        value, kinds = redacted({"text": f"it is {written} here"})
        assert value["text"].replace("=", "") == "it is [redacted: secret] here"
        assert kinds == ("known-secret",)


def test_what_is_short_is_no_secret():
    assert Redactor(["8000", "", "abcde"]).redact("abcde 8000") == ("abcde 8000", ())


def test_arguments_of_a_tool_lose_known_secrets_only():
    value, kinds = Redactor([KNOWN]).redact({"a": TOKEN, "b": f"password={KNOWN}"}, known_only=True)
    assert value == {"a": TOKEN, "b": "password=[redacted: secret]"}
    assert kinds == ("known-secret",)


def test_known_secrets_that_overlap_leave_no_rest():
    assert Redactor(["abcdef", "defghi"]).redact("abcdefghi").value == "[redacted: secret]"


def test_a_token_that_is_known_is_called_a_secret():
    assert Redactor([TOKEN]).redact(TOKEN) == ("[redacted: secret]", ("known-secret",))


def embedded(secret: str) -> st.SearchStrategy[object]:
    texts = st.builds(lambda a, b: f"{a}{secret}{b}", st.text(), st.text())
    return st.recursive(
        texts,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text() | texts, inner, max_size=3)
            | st.tuples(inner, st.none() | st.integers())
        ),
        max_leaves=6,
    )


def strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in strings(part)]
    return [value] if isinstance(value, str) else []


@given(st.data())
def test_a_known_secret_at_any_depth_of_any_text_never_comes_out(data):
    secret = data.draw(st.text(min_size=6, max_size=40))
    assume(secret not in "[redacted: secret] (2)")
    value = data.draw(embedded(secret))
    for redacted in (
        Redactor([secret]).redact,
        partial(Redactor([secret]).redact, known_only=True),
    ):
        assert not [text for text in strings(redacted(value).value) if secret in text]


@given(st.data())
def test_masking_what_is_masked_changes_nothing(data):
    secret = data.draw(st.sampled_from([*CANARIES])).secret
    redactor = Redactor([secret[:20], "redacted", "secret"])
    once = redactor.redact(data.draw(embedded(secret))).value
    assert redactor.redact(once) == RedactionResult(once, ())


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists))
def test_any_text_can_be_looked_at(value):
    assert isinstance(Redactor().redact(value), RedactionResult)


@pytest.mark.parametrize("canary", CANARIES)
def test_every_kind_reads_the_same_after_a_second_time(canary):
    once = Redactor().redact(canary.within.replace("{}", canary.secret)).value
    assert Redactor().redact(once) == (once, ())


# -- shapes ------------------------------------------------------------------------------------


def test_the_shape_stays_and_so_does_every_part_without_a_secret():
    clean = {"n": [1, 2.5, None, True]}
    given = {"a": clean, "b": (TOKEN, b"raw"), "c": Pair("x", TOKEN), TOKEN: [TOKEN]}
    value = Redactor().redact(given).value
    assert value == {"a": clean, "b": (MASK, b"raw"), "c": Pair("x", MASK), MASK: [MASK]}
    assert value["a"] is clean
    assert type(value["c"]) is Pair
    assert given["b"] == (TOKEN, b"raw")


def test_a_clean_value_is_given_back_as_it_is():
    given = {"messages": [{"role": "user", "content": "hello"}]}
    assert Redactor([KNOWN]).redact(given).value is given


def test_keys_that_read_the_same_once_masked_lose_no_value():
    other = "ghp" + "_" + body(36)
    assert Redactor().redact({TOKEN: 1, other: 2}).value == {MASK: 1, f"{MASK} (2)": 2}


def test_bytes_are_left_alone():
    raw = TOKEN.encode()
    assert Redactor([TOKEN]).redact([raw]).value[0] is raw


def test_a_value_that_contains_itself_is_an_error():
    cyclic: list[object] = []
    cyclic += [cyclic, cyclic]
    with pytest.raises(HermesError, match="contains itself"):
        Redactor().redact(cyclic)


def test_an_absurdly_deep_value_is_an_error():
    deep: object = TOKEN
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(HermesError, match="levels deep"):
        Redactor().redact(deep)
    while isinstance(deep, list):  # or the interpreter takes it apart one call in the other
        deep = deep.pop()


def test_a_part_that_is_shared_many_times_is_looked_at_once():
    shared: object = [TOKEN]
    for _ in range(100):
        shared = [shared, shared]
    value = Redactor().redact(shared).value
    assert value[0] is value[1]


def test_with_nothing_to_look_for_even_a_cyclic_value_passes():
    cyclic: list[object] = []
    cyclic.append(cyclic)
    assert Redactor(formats=False).redact(cyclic).value is cyclic
    assert Redactor().redact(cyclic, known_only=True).value is cyclic


# -- cost --------------------------------------------------------------------------------------


def test_nothing_is_compiled_at_import():
    code = (
        "import re; made = []; real = re._compiler.compile\n"
        "def count(pattern, flags=0): made.append(pattern); return real(pattern, flags)\n"
        "import base64, json, urllib.parse, collections, typing, math, string\n"
        "import hermes_core.errors\n"
        "re._compiler.compile = count\n"
        "import hermes_core.privacy; print(made)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
