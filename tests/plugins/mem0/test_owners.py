"""Whose memories they are: hermes-agent's ids where it has one, and never two users in one."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hermes_core import ConfigError
from hermes_core.service import SessionStart
from hermes_memory_mem0.memories import owner_of
from hermes_memory_mem0.settings import read_settings

NOWHERE = Path("nowhere")
HOMES = []


@pytest.fixture(autouse=True)
def _home(tmp_path):
    """The home of a test: who came first is remembered there."""
    HOMES.append(tmp_path)
    yield
    HOMES.pop()


def _user(config=None, **facts):
    start = SessionStart("s1", HOMES[-1])._replace(**facts)
    return owner_of(read_settings(NOWHERE, config or {}), start).user


@pytest.mark.parametrize(
    ("config", "facts", "user"),
    [
        ({}, {}, "hermes-user"),
        ({}, {"platform": "tui"}, "hermes-user"),
        ({}, {"platform": "desktop"}, "hermes-user"),
        ({}, {"user_id": "8123456789"}, "8123456789"),
        ({}, {"user_id": "ann@example.com"}, "ann@example.com"),
        ({"user_id": "hermes-user"}, {"user_id": "42"}, "42"),
        ({"user_id": "ann"}, {"user_id": "42"}, "ann"),
        ({"user_id": "ann"}, {"profile": "work"}, "ann"),
        ({"user_id": "{user}-{platform}"}, {"user_id": "42", "platform": "slack"}, "42-slack"),
    ],
)
def test_ids_are_those_of_hermes_agent(config, facts, user):
    assert _user(config, **facts) == user


def test_a_profile_has_users_of_its_own():
    users = {_user(profile=name, user_id="ann") for name in ("default", "work", "home")}
    assert len(users) == 3
    assert "ann" in users


def test_everybody_is_no_user():
    assert _user(user_id="*") != "*"
    assert not any(char.isspace() for char in _user(user_id="Ann Lee\tx"))


def test_a_template_that_names_something_unknown_is_an_error():
    with pytest.raises(ConfigError, match="colour"):
        _user({"user_id": "{colour}"})


def test_the_same_number_on_two_platforms_is_two_people():
    assert _user(user_id="1001", platform="telegram") == "1001"
    assert _user(user_id="1001", platform="discord") != "1001"
    assert _user(user_id="1001", platform="telegram") == "1001"
    template = {"user_id": "team-{user}"}
    users = [_user(template, user_id="1001", platform=name) for name in ("telegram", "discord")]
    assert users[0] == "team-1001"
    assert users[1] != "team-1001"


def test_in_a_home_that_cannot_be_written_nobody_has_a_plain_name(tmp_path):
    (tmp_path / "mem0").write_text("in the way")
    users = {_user(user_id="1001", platform=name) for name in ("telegram", "discord")}
    assert len(users) == 2
    assert "1001" not in users


def test_nobody_of_a_gateway_is_not_the_person_at_the_terminal():
    terminal = _user()
    others = [
        _user(platform="telegram"),
        _user(platform="telegram", chat_id="c1"),
        _user(platform="discord", chat_id="c1"),
        _user(user_id="hermes-user"),
        _user(user_id="hermes-user", platform="slack"),
    ]
    assert terminal == "hermes-user"
    assert len({terminal, *others}) == 6


PLATFORMS = st.sampled_from(["cli", "telegram", "Telegram", "a\0b", ""])
IDS = st.text(st.sampled_from("aA1 @/*\0\n'é\u0301e\ud800\ud801\ufffd"), max_size=4)
PEOPLE = st.tuples(PLATFORMS, IDS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(PEOPLE, PEOPLE)
def test_two_people_never_share_an_id(one, other):
    assume(one != other)
    users = [_user(platform=platform, user_id=user) for platform, user in (one, other)]
    assert users[0] != users[1]


names = st.text(st.sampled_from("ab-_ \n*.@é"), min_size=1, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(names, names), min_size=2, max_size=2, unique=True))
def test_two_users_or_profiles_never_share_an_id(pairs):
    (one, first), (other, second) = pairs
    assert _user(user_id=one, profile=first) != _user(user_id=other, profile=second)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(max_size=300), st.text(max_size=300))
def test_an_id_is_one_that_mem0_takes(user, profile):
    made = _user(user_id=user, profile=profile)
    assert 1 <= len(made) <= 128
    assert not any(char.isspace() or char == "*" for char in made)
