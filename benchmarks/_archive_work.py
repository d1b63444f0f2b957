"""Runs in either venv: fills an archive with the same conversations, and searches it.

Arguments: ``ours`` or ``theirs``, how many messages, and 1 to append one at a time.
"""

from __future__ import annotations

import bisect
import itertools
import json
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

PER_SESSION = 50
SEARCHES = 60
TURNS = 6000
CJK = "数据库密码服务器部署内存会话搜索索引备份恢复网络配置用户权限日志监控缓存队列"


class Texts:
    """Messages of about 190 characters, with words as frequent as in natural text."""

    def __init__(self) -> None:
        self.random = random.Random(7)
        syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "en", "or")]
        words = {
            "".join(self.random.choices(syllables, k=n)) for n in (1, 2, 3, 3) for _ in range(9000)
        }
        self.words = sorted(words, key=lambda word: (len(word), word))
        self.weights = list(itertools.accumulate(1 / (rank + 5) for rank in range(len(self.words))))

    def word(self) -> str:
        at = bisect.bisect(self.weights, self.random.random() * self.weights[-1])
        return self.words[min(at, len(self.words) - 1)]

    def message(self, number: int) -> str:
        words = [self.word() for _ in range(32)]
        if number % 10 == 3:
            words[5] = "commonword"
        if number % 9 == 4:
            words[7] = "otherword"
        if number % 50 == 7:
            start = self.random.randrange(len(CJK) - 6)
            words[9] = CJK[start : start + 6]
        words[11] = f"zq{number}x"
        return " ".join(words)


def queries(texts: Texts, messages: int) -> dict[str, list[dict[str, object]]]:
    """For each kind, calls of the tool."""
    chance = random.Random(11)
    rare = [f"zq{chance.randrange(messages)}x" for _ in range(SEARCHES)]
    head = texts.words[:20]
    middle = texts.words[300:2000]
    pairs = [(chance.choice(middle), chance.choice(middle)) for _ in range(SEARCHES)]
    pieces = [CJK[at : at + 2] for at in range(len(CJK) - 2)]
    return {
        "rare": [{"query": word} for word in rare],
        "common": [{"query": "commonword"}] * SEARCHES,
        "two words": [{"query": "commonword otherword"}] * SEARCHES,
        "question": [{"query": f"how did we {a} the {b} of commonword?"} for a, b in pairs],
        "most frequent word": [{"query": chance.choice(head[:3])} for _ in rare],
        "prefix": [{"query": f"{chance.choice(head)[:2]}*"} for _ in rare],
        "CJK": [{"query": chance.choice(pieces)} for _ in rare],
        "newest first": [{"query": "commonword", "sort": "newest"}] * SEARCHES,
    }


class Ours:
    def __init__(self, home: Path) -> None:
        from hermes_builtin.sessions import Conversations, SessionSearch
        from hermes_builtin.sessions.archive import NewMessage, SessionFacts

        self._message, self._facts = NewMessage, SessionFacts
        self.conversations = Conversations(home, "now", {})
        self.tool = SessionSearch(self.conversations)

    def append(self, session: str, role: str, text: str) -> None:
        self.conversations.archive.append(
            self._facts(session, source="cli"), [self._message(role, text, time.time())]
        )

    def fill(self, session: str, messages: list[tuple[str, str]]) -> None:
        made = [self._message(role, text, time.time()) for role, text in messages]
        self.conversations.archive.append(self._facts(session, source="cli"), made)

    def search(self, arguments: dict[str, object]) -> str:
        return self.tool.call(arguments)

    def close(self) -> None:
        self.conversations.close()


class Theirs:
    def __init__(self, home: Path) -> None:
        os.environ["HERMES_HOME"] = str(home)
        from hermes_state import SessionDB
        from tools.session_search_tool import session_search

        self.db, self._search = SessionDB(home / "state.db"), session_search
        self._known: set[str] = set()

    def append(self, session: str, role: str, text: str) -> None:
        if session not in self._known:
            self._known.add(session)
            self.db.create_session(session, "cli")
        self.db.append_message(session, role, text)

    def fill(self, session: str, messages: list[tuple[str, str]]) -> None:
        for role, text in messages:
            self.append(session, role, text)

    def search(self, arguments: dict[str, object]) -> str:
        query = str(arguments.get("query", ""))
        if "?" in query:  # its answer to a question is an error that it hides: help it
            arguments = {**arguments, "query": " OR ".join(query.rstrip("?").split())}
        return self._search(db=self.db, **arguments)

    def close(self) -> None:
        self.db.close()


def main() -> None:
    kind, messages, singly = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1"
    with tempfile.TemporaryDirectory(prefix="archive-bench-") as folder:
        archive = (Ours if kind == "ours" else Theirs)(Path(folder))
        result = work(archive, messages, singly)
        archive.close()
        size = sum(each.stat().st_size for each in Path(folder).glob("state.db*"))
        result["size"] = size / result.pop("text")
        if kind == "ours":
            result["turns"] = turns(Path(folder) / "turns")
    print(json.dumps(result))


def work(archive: Ours | Theirs, messages: int, singly: bool) -> dict[str, object]:
    texts = Texts()
    result: dict[str, object] = {}
    appends = []
    total = 0
    anchors = []
    for start in range(0, messages, PER_SESSION):
        session = f"session-{start // PER_SESSION}"
        turn = [
            (("user", "assistant")[number % 2], texts.message(number))
            for number in range(start, min(start + PER_SESSION, messages))
        ]
        total += sum(len(text.encode()) for _, text in turn)
        if not singly:
            archive.fill(session, turn)
            continue
        for role, text in turn:
            begin = time.perf_counter()
            archive.append(session, role, text)
            appends.append(time.perf_counter() - begin)
    result["text"], result["appends"] = total, summary(appends)
    result["last appends"] = summary(appends[-messages // 10 :])
    searches: dict[str, dict[str, float]] = {}
    found: dict[str, int] = {}
    for kind, calls in queries(texts, messages).items():
        times = []
        for arguments in calls:
            begin = time.perf_counter()
            answer = archive.search(arguments)
            times.append(time.perf_counter() - begin)
            found[kind] = found.get(kind, 0) + bool(json.loads(answer)["results"])
            if kind == "rare" and json.loads(answer)["results"]:
                anchors.append(json.loads(answer)["results"][0])
        searches[kind] = summary(times)
    looks = {"browse": [{}] * SEARCHES, "scroll": []}
    looks["scroll"] = [
        {"session_id": each["session_id"], "around_message_id": each["match_message_id"]}
        for each in anchors
    ]
    for kind, calls in looks.items():
        times = []
        for arguments in calls:
            begin = time.perf_counter()
            archive.search(arguments)
            times.append(time.perf_counter() - begin)
        searches[kind] = summary(times)
    result["searches"], result["found"] = searches, found
    result["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result


def turns(home: Path) -> dict[str, float]:
    """What keeping a turn costs: two messages of 200 characters, through the provider."""
    from hermes_builtin import BuiltinProvider

    texts = Texts()
    said = [texts.message(number).ljust(200, ".")[:200] for number in range(2 * TURNS)]
    provider = BuiltinProvider()
    provider.initialize("now", hermes_home=str(home))
    provider.sync_turn("Hello.", "Hello.")
    times = []
    cpu = time.process_time()
    for at in range(TURNS):
        begin = time.perf_counter()
        provider.sync_turn(said[2 * at], said[2 * at + 1], session_id=f"turns-{at // 25}")
        times.append(time.perf_counter() - begin)
    cpu = time.process_time() - cpu
    provider.shutdown()
    return {**summary(times), "cpu": cpu / TURNS}


def summary(times: list[float]) -> dict[str, float]:
    if not times:
        return {}
    ordered = sorted(times)
    at = lambda share: ordered[min(int(share * len(ordered)), len(ordered) - 1)]  # noqa: E731
    return {
        "rate": len(times) / sum(times),
        "p50": at(0.5),
        "p95": at(0.95),
        "p99.9": at(0.999),
        "max": ordered[-1],
    }


if __name__ == "__main__":
    main()
