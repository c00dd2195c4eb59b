"""What waits in the shards of a consumer that is busy, or gone, is taken by the next in line soon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

import shardq
from shardq.base.shard import Shard
from shardq.core.sharding.ownership import Ownership
from shardq.core.sharding.reading import NEXT_AFTER, NEXT_PROBES, STEAL_AFTER, ShardReader
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Probe
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock

NAMES = ("a", "b", "c")
SECOND = 1_000_000


class Counting(WrappedStore):
    """Counts looks, each of which takes a while by the timer of the readers."""

    looks = 0
    timer = 0.0
    takes = 0.0

    def probe(self, shards: object, **how: bool) -> tuple[Probe, ...]:
        self.looks += 1
        self.timer += self.takes
        return super().probe(shards, **how)  # type: ignore[arg-type]


class Scene(NamedTuple):
    """A queue of one shard, a reader for each consumer by its place there, and a message that has just come."""

    queue: shardq.Queue
    store: Counting
    clock: ManualClock
    readers: list[ShardReader]

    def send(self) -> Shard:
        """Send a message; returns its shard."""
        with self.queue.producer() as producer:
            producer.send(b"x")
        (shard,) = self.store.shards("q")
        return shard

    def takes(self, place: int) -> bool:
        """True when the reader in that place would claim now."""
        reader = self.readers[place]
        reader.survey(self.queue.settings.layout)
        return bool(reader.candidates)


@pytest.fixture
def scene(url: str, clock: ManualClock) -> Iterator[Scene]:
    store = Counting(open_store(url, clock))
    client = shardq.Client(store)
    queue = client.create_queue("q", shards=1, time_shards=1)
    readers = {}
    for name in NAMES:
        ownership = Ownership(name)
        ownership.update(NAMES)
        readers[ownership.ranks[0]] = ShardReader(store, "q", ownership, lambda: store.timer)
    scene = Scene(queue, store, clock, [readers[place] for place in range(3)])
    for place in range(3):
        assert not scene.takes(place)
    clock.advance(1)
    yield scene
    client.close()


def test_consumers_have_different_places_at_a_shard_and_the_first_owns_it() -> None:
    for number in range(20):
        places = []
        for name in NAMES:
            ownership = Ownership(name)
            ownership.update(NAMES)
            places.append(ownership.ranks[number])
            assert ownership.is_own(number) == (places[-1] == 0)
        assert sorted(places) == [0, 1, 2]


def test_the_owner_takes_a_message_at_once_the_next_soon_and_all_others_later(scene: Scene) -> None:
    scene.send()
    assert scene.takes(0)
    assert not scene.takes(1)
    assert not scene.takes(2)
    wait = scene.readers[1].seconds_until_due()
    assert wait == NEXT_AFTER / SECOND <= 0.01
    scene.clock.advance(wait)
    assert scene.takes(1)
    assert not scene.takes(2)
    scene.clock.advance((STEAL_AFTER - NEXT_AFTER) / SECOND)
    assert scene.takes(2)


def test_the_next_takes_nothing_that_the_owner_has_taken_meanwhile(scene: Scene) -> None:
    shard = scene.send()
    assert not scene.takes(1)
    scene.store.claim(Claim(shard, bytes(16), 1, 30 * SECOND))
    scene.clock.advance(NEXT_AFTER / SECOND)
    assert not scene.takes(1)


def test_the_next_looks_only_once_more_at_what_the_owner_leaves(scene: Scene) -> None:
    scene.send()
    before = scene.store.looks
    assert not scene.takes(1)
    scene.clock.advance(scene.readers[1].seconds_until_due() or 0)
    assert scene.takes(1)
    assert scene.store.looks - before == 2


def test_the_time_of_the_next_counts_from_when_it_saw_the_message(scene: Scene) -> None:
    scene.send()
    scene.clock.advance(0.02)  # the signal came late: to the owner, too
    assert not scene.takes(1)
    scene.clock.advance(NEXT_AFTER / SECOND)
    assert scene.takes(1)


def test_a_message_that_follows_another_has_its_own_time(scene: Scene) -> None:
    shard = scene.send()
    assert not scene.takes(1)
    scene.clock.advance(NEXT_AFTER / SECOND)
    scene.store.claim(Claim(shard, bytes(16), 1, 30 * SECOND))
    scene.send()
    assert not scene.takes(1)


@pytest.mark.parametrize(("takes", "expected"), [(0.0, NEXT_AFTER), (0.01, 30_000), (1.0, STEAL_AFTER)])
def test_the_next_leaves_the_owner_time_for_some_looks_where_they_take_long(
    scene: Scene, takes: float, expected: int
) -> None:
    scene.store.takes = takes
    scene.send()
    assert not scene.takes(1)
    wait = scene.readers[1].seconds_until_due()
    assert wait == pytest.approx(expected / SECOND)
    assert expected <= max(NEXT_AFTER, NEXT_PROBES * takes * SECOND)
