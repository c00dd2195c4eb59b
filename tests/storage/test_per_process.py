"""What every process has for itself."""

from __future__ import annotations

import pytest

from shardq.storage.per_process import OwnLock, PerProcess, forks
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


class _Failing:
    """Something that cannot be renewed in a child."""

    def renew(self) -> None:
        raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the child
def test_a_renewal_that_is_interrupted_keeps_no_other_from_being_made() -> None:
    failing, locks = _Failing(), [OwnLock() for _ in range(50)]
    forks.renewed.add(failing)
    inherited = [lock.plain for lock in locks]
    kept = forked(lambda: str(sum(lock.plain is old for lock, old in zip(locks, inherited, strict=True))))
    assert kept == "0"
    forks.renewed.discard(failing)


def test_the_handler_of_a_signal_takes_a_lock_that_its_thread_holds() -> None:
    lock = OwnLock()
    with lock.plain:
        assert lock.plain.acquire(timeout=0)
        lock.plain.release()
