"""How long a consumer sleeps at most where the store tells of messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shardq.receiving.claiming import ENLIST_LIFETIME, LONGEST_POLL_SECONDS, Idling


def longest(consumers: int, due: float | None) -> float:
    """Seconds, on a store that signals; ``due`` in so many."""
    reader: Any = SimpleNamespace(consumers=consumers, seconds_until_due=lambda: due)
    store = SimpleNamespace(capabilities=SimpleNamespace(signals=True))
    context: Any = SimpleNamespace(store=store, settings=SimpleNamespace(delivery_paused=False))
    return Idling(context, reader, lambda: False)._longest()


@pytest.mark.parametrize(("consumers", "seconds"), [(1, 5), (5, 5), (8, 8), (10, 10), (100, 10)])
def test_many_consumers_look_less_often_each(consumers: int, seconds: float) -> None:
    assert longest(consumers, None) == seconds


@pytest.mark.parametrize("due", [0.0, 0.5, 4.9])
def test_a_due_time_that_is_known_is_not_slept_through(due: float) -> None:
    assert longest(100, due) == due


def test_a_consumer_that_sleeps_its_longest_still_counts_as_live() -> None:
    assert LONGEST_POLL_SECONDS * 1_000_000 * 1.5 <= ENLIST_LIFETIME
