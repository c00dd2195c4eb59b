"""What a reader does beside its messages costs little: it looks at shards, and takes them out of the directory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

import shardq
from shardq.base.shard import Layout, Shard, group_shard
from shardq.core.sharding.known_shard import DROP_GROUPS_AFTER, KnownShard
from shardq.core.sharding.ownership import Ownership
from shardq.core.sharding.reading import ShardReader
from shardq.core.sharding.surveying import Probing
from shardq.errors import StoreUnavailable
from shardq.storage.opening import open_store
from shardq.storage.requests import Append, Probe
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import BundleFactory, ManualClock

SHARDS = 5
LAYOUT = Layout(shards=SHARDS, time_shards=10, time_shard_seconds=1)
ONE_TIME_SHARD = Layout(shards=SHARDS, time_shards=1, time_shard_seconds=60)


class KeepingStore(WrappedStore):
    """It takes a second to find out that a shard cannot be taken out, as one with a history cannot."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.seconds = 0.0
        self.tried: list[int] = []

    def timer(self) -> float:
        return self.seconds

    def drop_if_empty(self, shard: Shard) -> bool:
        self.seconds += 1
        self.tried.append(shard.number)
        return False


def test_messages_wait_for_one_shard_at_a_time_and_no_shard_for_another_for_ever(
    url: str, clock: ManualClock
) -> None:
    # Given shards that were used, and surveys that are further apart than two tries of the same shard
    store = KeepingStore(open_store(url, clock))
    with shardq.Client(store) as client:
        queue = client.create_queue("q", shards=SHARDS, time_shards=10, time_shard_seconds=1)
        bundle = BundleFactory(store.now)
        (time_shard,) = LAYOUT.time_shards_between(store.now(), store.now())
        for number in range(SHARDS):
            store.append(Append(Shard("q", time_shard, number), (bundle(),)))
        with queue.consumer() as consumer:
            while consumer.pop() is not None:
                pass
        reader = ShardReader(store, "q", Ownership("me"), store.timer)
        reader.survey(LAYOUT)
        clock.advance(3.5)  # their time shard is not being written any more
        store.tried.clear()
        for _ in range(2 * SHARDS):
            clock.advance(10)
            before = len(store.tried)
            reader.survey(LAYOUT)
            # Then each survey tries one of them
            assert len(store.tried) - before == 1
    # And all have had their turns
    assert sorted(store.tried) == sorted(2 * list(range(SHARDS)))


@pytest.mark.parametrize("asked", [True, False])
def test_a_shard_of_groups_is_forgotten_an_hour_after_it_was_last_seen_to_hold_anything(asked: bool) -> None:
    shard = group_shard("q", "customer-42")
    empty, filled = Probe(shard, None, None, None), Probe(shard, 0, 1, None)
    late, later = DROP_GROUPS_AFTER - 2, DROP_GROUPS_AFTER - 1
    known = KnownShard.first(empty, 0)
    known.learn(filled, late)
    if asked:
        assert not known.is_to_be_dropped(late, is_written=False)
    known.learn(empty, later)
    assert not known.is_to_be_dropped(later + DROP_GROUPS_AFTER - 1, is_written=False)
    assert known.is_to_be_dropped(later + DROP_GROUPS_AFTER, is_written=False)


class CountingStore(WrappedStore):
    """Counts the full probes of shards."""

    looks = 0

    def probe(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        self.looks += not glance
        return super().probe(shards, glance=glance, deep=deep)


@pytest.mark.parametrize(("consumers", "seconds"), [(1, 2), (5, 5), (10, 10), (20, 10)])
def test_where_queues_are_polled_a_shard_rests_a_second_for_each_consumer_up_to_ten(
    url: str, clock: ManualClock, consumers: int, seconds: int
) -> None:
    store = CountingStore(open_store(url, clock))
    with shardq.Client(store) as client:
        queue = client.create_queue("q", shards=2, time_shards=1)
        ownership = Ownership("c0")
        ownership.update([f"c{number}" for number in range(consumers)])
        reader = ShardReader(store, "q", ownership, polled=1)
        reader.survey(queue.settings.layout)
        clock.advance(5)  # the first deep probes
        reader.survey(queue.settings.layout)
        store.looks = 0
        for _ in range(60):
            clock.advance(1)
            reader.survey(queue.settings.layout)
        assert 60 // seconds - 2 <= store.looks <= 60 // seconds + 2


@pytest.fixture
def store(url: str, clock: ManualClock) -> CountingStore:
    return CountingStore(open_store(url, clock))


@pytest.fixture
def probing(store: CountingStore) -> Probing:
    return Probing(store, time.monotonic)


@pytest.fixture
def reader(store: CountingStore, probing: Probing) -> Iterator[ShardReader]:
    """That of one of two consumers, which has just found nothing."""
    with shardq.Client(store) as client:
        client.create_queue("q", shards=SHARDS, time_shards=1)
        found = ShardReader(store, "q", ownership_of_two(), probing=probing)
        found.survey(ONE_TIME_SHARD)
        yield found


def ownership_of_two() -> Ownership:
    ownership = Ownership("me")
    ownership.update(["me", "other"])
    return ownership


def own_first(clock: ManualClock) -> list[Shard]:
    shards = ONE_TIME_SHARD.shards_between("q", clock.now(), clock.now())
    return sorted(shards, key=lambda shard: not ownership_of_two().is_own(shard.number))


def test_a_signal_has_a_shard_claimed_first_that_the_last_two_claims_got_something_of(
    reader: ShardReader, store: CountingStore, clock: ManualClock
) -> None:
    shard, *_ = own_first(clock)
    looks = store.looks
    for _ in range(2):
        reader.signalled()
        assert not reader.candidates
        reader.claimed(shard, store.now() + 60_000_000)
    reader.signalled()
    assert [each for *_, each in reader.candidates] == [shard]
    assert not reader.is_outdated(store.now())
    reader.candidates.clear()
    assert store.looks == looks
    # And no more once it was in vain
    reader.claimed(shard, None)
    reader.signalled()
    assert not reader.candidates
    reader.claimed(shard, store.now() + 60_000_000)
    reader.signalled()
    assert not reader.candidates


def test_what_another_consumer_owns_is_looked_at_before_it_is_claimed(
    reader: ShardReader, clock: ManualClock
) -> None:
    *_, others = own_first(clock)
    for _ in range(3):
        reader.claimed(others, clock.now() + 60_000_000)
    reader.signalled()
    assert not reader.candidates


def test_a_shard_that_was_not_looked_at_for_long_is_looked_at_before_it_is_claimed(
    reader: ShardReader, clock: ManualClock
) -> None:
    shard, *_ = own_first(clock)
    for _ in range(3):
        reader.claimed(shard, clock.now() + 60_000_000)
    clock.advance(1)
    reader.signalled()
    assert reader.is_outdated(clock.now())


def test_so_is_a_shard_that_could_not_be_looked_at(
    reader: ShardReader, probing: Probing, clock: ManualClock
) -> None:
    shard, *_ = own_first(clock)
    for _ in range(3):
        reader.claimed(shard, clock.now() + 60_000_000)
    probing.fail(shard, StoreUnavailable("nobody answers"))
    reader.signalled()
    assert not reader.candidates
