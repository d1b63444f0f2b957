"""Banks: what hermes-agent calls them, and never one for two people who did not ask for that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hermes_core import ConfigError
from hermes_core.service import SessionStart
from hermes_memory_hindsight.documents import bank_of, person_of
from hermes_memory_hindsight.settings import HindsightSettings

HOMES: list[Path] = []


@pytest.fixture(autouse=True)
def _home(tmp_path: Path) -> Iterator[None]:
    """The home of a test: who came first is remembered there."""
    HOMES.append(tmp_path)
    yield
    HOMES.pop()


def bank(template: str = "", bank_id: str = "", session: str = "s", **facts: Any) -> str:
    settings = HindsightSettings(bank_id=bank_id, bank_id_template=template)
    start = SessionStart(session, HOMES[-1], **facts)
    return bank_of(settings, start, person_of(start), session)


def test_without_settings_the_bank_is_the_one_that_hermes_agent_uses():
    assert bank() == "hermes"


def test_without_settings_each_profile_and_user_has_a_bank():
    banks = [
        bank(),
        bank(profile="work"),
        bank(user_id="work"),
        bank(profile="work", user_id="ann"),
        bank(profile="work-ann"),
        bank(user_id="work-ann"),
    ]
    assert banks[1] == "hermes-work"
    assert banks[3] == "hermes-work-ann"
    assert len(set(banks)) == len(banks)


def test_a_bank_that_a_person_named_is_taken_as_it_is():
    name = "my bank: ü 0123456789ab"
    assert bank(bank_id=name, user_id="ann", profile="work") == name


def test_a_template_counts_more_and_gives_what_hermes_agent_gives():
    assert bank("hermes-{profile}", "fixed", profile="work") == "hermes-work"
    assert bank("hermes-{user}") == "hermes"
    assert bank("{platform}_{workspace}", platform="telegram") == "telegram_hermes"
    assert bank("hermes-{profile}") == "hermes-default"
    assert bank("talk-{session}", session="s-1") == "talk-s-1"


def test_a_template_that_comes_to_nothing_leaves_the_named_bank():
    assert bank("{user}", "fixed") == "fixed"
    assert bank("{user}") == "hermes"


@pytest.mark.parametrize("name", ["a/b", "x" * 193, "ü" * 97])
def test_a_name_that_the_server_would_refuse_is_refused_first(name):
    with pytest.raises(ConfigError, match="can't be the name of a bank"):
        bank(bank_id=name)


@pytest.mark.parametrize("template", ["hermes-{nobody}", "hermes-{", "{0}"])
def test_a_broken_template_is_told(template):
    with pytest.raises(ConfigError, match="template"):
        bank(template)


@pytest.mark.parametrize("letter", ["u", "ü", "记", "\U0001d482"])
def test_a_long_name_fits_into_the_servers_bytes(letter):
    banks = {bank(user_id=letter * 200 + ending) for ending in "ab"}
    assert len(banks) == 2
    assert all(len(each.encode("utf-8")) <= 192 for each in banks)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(min_size=1), st.text(min_size=1))
def test_two_users_never_share_a_bank_and_every_bank_is_one_that_the_server_takes(first, second):
    banks = [bank(user_id=user) for user in (first, second)]
    assert (banks[0] == banks[1]) == (first == second)
    for each in banks:
        assert "/" not in each
        assert 0 < len(each.encode("utf-8")) <= 192


def test_the_same_number_on_two_platforms_has_two_banks():
    for template in ("", "hermes-{user}"):
        banks = [bank(template, user_id="1001", platform=name) for name in ("telegram", "discord")]
        assert banks[0].startswith("hermes-1001")
        assert banks[0] != banks[1]
        assert bank(template, user_id="1001", platform="telegram") == banks[0]
    assert banks[0] == "hermes-1001"


def test_nobody_of_a_gateway_has_not_the_bank_of_the_terminal():
    facts = ({}, {"platform": "telegram"}, {"platform": "telegram", "chat_id": "c"})
    assert len({bank(**each) for each in facts}) == 3
    assert len({bank("hermes-{user}", **each) for each in facts}) == 3


PLATFORMS = st.sampled_from(["cli", "telegram", "Telegram", "a\0b", ""])
IDS = st.text(st.sampled_from("aA1 @/*\0\n'-_é\u0301e\ud800\ud801\ufffd"), max_size=4)
PEOPLE = st.tuples(PLATFORMS, IDS, st.sampled_from(["default", "work", "a-b", ""]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(PEOPLE, PEOPLE)
def test_two_people_never_share_a_bank(one, other):
    same_profile = {one[2] or "default", other[2] or "default"} == {"default"}
    assume(one[:2] != other[:2] or (one[2] != other[2] and not same_profile))
    banks = [
        bank(platform=platform, user_id=user, profile=profile)
        for platform, user, profile in (one, other)
    ]
    assert banks[0] != banks[1]
