"""Chinese, Japanese, Korean, Thai: short words are found wherever they stand."""

# ruff: noqa: RUF001 - people type such signs

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.talks import StartTalk, stored, talks

#: Over PostgreSQL in `make test`, too.
FAST = True
pytestmark = pytest.mark.usefixtures("both_storages")


@pytest.fixture
def talk(home: Path) -> Iterator[StartTalk]:
    yield from talks(home)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("茶", "我喜欢喝茶"),
        ("我", "我喜欢喝茶"),
        ("喝", "我喜欢喝茶"),
        ("喜欢", "我喜欢喝茶"),
        ("北京", "明天去北京出差"),
        ("北京天气怎么样？", "北京的天气很好"),
        ("猫", "うちの猫はかわいい"),
        ("かわいい", "うちの猫はかわいい"),
        ("サーバー", "新しいサーバーを買った"),
        ("ｻｰﾊﾞｰ", "新しいサーバーを買った"),
        ("東京", "東京都に住む"),
        ("々", "人々の声"),
        ("서울", "서울에서 만나요"),
        ("물", "물을 마신다"),
        ("서", "서울에서 만나요"),
        ("한국어", "저는 한국어를 공부해요"),
        ("แมว", "ฉันมีแมวสองตัว"),
        ("ปลา", "กินปลาทุกวัน"),
        ("น้ำ", "ดื่มน้ำเยอะๆ"),
        ("ກາ", "ດື່ມກາເຟ"),
        ("ဆေး", "ဆေးသောက်ပါ"),
        ("Docker", "我用Docker部署"),
        ("部署", "我用Docker部署"),
        ("Docker部署", "我用Docker部署"),
        ("用Docker", "我用Docker部署"),
        ("iPhone15", "新的iPhone15很贵"),
        ("v2版本", "升级到v2版本了"),
        ("𠮷野家", "在𠮷野家吃饭"),
        ("𠮷", "在𠮷野家吃饭"),
        ("茶*", "我喜欢茶叶"),
    ],
)
def test_words_of_one_and_two_characters_are_found_wherever_they_stand(
    typed: str, said: str, home: Path, talk: StartTalk
) -> None:
    stored(home, "other", "完全に別の話です", "다른 이야기", "เรื่องอื่น", "another")
    stored(home, "it", "hello", said, "bye")
    answer = talk().search(typed)
    assert answer["results"][0]["session_id"] == "it"
    assert ">>>" in answer["results"][0]["snippet"]
    assert not answer.get("approximate")


@pytest.mark.parametrize("query", ['"北京"', '"看天气"', "北京 AND 天气", "天气 AND 北京"])
def test_operators_work_in_chinese(query: str, home: Path, talk: StartTalk) -> None:
    stored(home, "it", "我们在北京看天气预报")
    stored(home, "other", "天津的天空和北方的空气")
    answer = talk().search(query)
    assert [each["session_id"] for each in answer["results"]] == ["it"]
    assert "message" not in answer
