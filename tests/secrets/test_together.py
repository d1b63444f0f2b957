"""Several at once: nobody's secret is lost, and a reader finds it while it moves."""

from __future__ import annotations

import threading

from support import keyrings

from hermes_core.secrets import Secrets


def test_all_that_is_set_at_the_same_time_is_kept(home, use):
    use(keyrings.InMemory())
    problems: list[str] = []

    def write(number: int) -> None:
        secrets = Secrets(home, "keyring" if number % 2 else "dotenv", seconds=30)
        try:
            for turn in range(4):
                secrets.set(f"KEY_{number}_{turn}", f"{number} {turn}", "honcho")
        except Exception as error:
            problems.append(repr(error))

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert problems == []
    names = Secrets(home).names()
    assert len(names) == 16
    for each in names:
        _, number, turn = each.variable.split("_")
        assert Secrets(home).get(each.variable).value == f"{number} {turn}"


def test_a_reader_finds_a_secret_while_it_moves(home, use):
    use(keyrings.InMemory())
    secrets = Secrets(home, seconds=30)
    secrets.set("KEY", "value")
    reader = Secrets(home, seconds=30)
    seen = set()
    for turn in range(12):
        mover = threading.Thread(target=secrets.move, args=["keyring" if turn % 2 else "dotenv"])
        mover.start()
        while mover.is_alive():
            found = reader.get("KEY")
            assert found is not None
            assert found.value == "value"
            seen.add(found.store)
        mover.join()
    assert seen == {"keyring", "dotenv"}
