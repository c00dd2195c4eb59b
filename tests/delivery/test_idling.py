"""How long a consumer sleeps at most where the store tells of messages."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

import shardq
from shardq.receiving.claiming import ENLIST_LIFETIME, LONGEST_POLL_SECONDS, Idling
from shardq.sharding.ownership import Ownership
from shardq.sharding.reading import ShardReader
from shardq.sharding.shard import Shard
from shardq.storage.opening import open_store
from shardq.storage.requests import Probe
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock


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


class GlancingStore(WrappedStore):
    """A glance tells nothing of what lies ahead, as on stores where that is another request."""

    def probe(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        probes = super().probe(shards, glance=glance, deep=deep)
        return tuple(structs.replace(probe, next_due=None) for probe in probes) if glance else probes


def test_a_message_that_becomes_due_soon_is_not_slept_through_when_a_glance_cannot_tell_of_it(
    url: str, clock: ManualClock
) -> None:
    store = GlancingStore(open_store(url, clock))
    client = shardq.Client(store)
    queue = client.create_queue("q", shards=1, time_shards=1)
    ownership = Ownership("me")
    ownership.update(("me",))
    reader = ShardReader(store, "q", ownership)
    layout = queue.settings.layout
    reader.survey(layout)
    clock.advance(0.5)
    queue.producer().send(b"soon", delay=1)
    reader.survey(layout)  # somebody told of it
    seconds = reader.seconds_until_due()
    assert seconds is not None
    assert seconds <= 2
    clock.advance(seconds)
    reader.survey(layout)
    assert reader.take(layout) is not None
    client.close()
