"""What every process has for itself."""

from __future__ import annotations

from shardq.storage.per_process import PerProcess, forks
from tests.forking import forked


def test_no_process_has_the_generation_or_the_value_of_one_that_it_was_forked_from() -> None:
    made: list[int] = []
    own = PerProcess(lambda: made.append(0) or len(made))

    def seen() -> str:
        return f"{forks.count}-{own.get()}"

    def child() -> str:
        return f"{seen()} {forked(seen)} {seen()}"

    own.get()
    mine, (first, second, again) = seen(), forked(child).split()
    assert len({mine.split("-")[0], first.split("-")[0], second.split("-")[0]}) == 3
    assert [each.split("-")[1] for each in (mine, first, second)] == ["1", "2", "3"]
    assert again == first
    assert seen() == mine
