"""What a hint hides is delivered within half a minute, at no more calls than without deep probes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import pytest

import shardq
from shardq.base.clock import microseconds
from shardq.base.shard import Shard
from shardq.core.sharding.ownership import Ownership
from shardq.core.sharding.reading import ShardReader
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Claimed, Probe
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from shardq.testing.seam import claim_round, seconds_until_poll
from tests.sqlite.test_clock_jumps import JumpingClock

P = ParamSpec("P")
T = TypeVar("T")

SECOND = 1_000_000


class HidingStore(WrappedStore):
    """What is in a hidden shard is found by nothing but a deep probe of it, and by everything after that."""

    def __init__(self, inner: Store, clock: ManualClock) -> None:
        super().__init__(inner)
        self.clock = clock
        self.hidden: set[Shard] = set()
        self.unreadable_deep: set[Shard] = set()
        self.deep_seconds = 0.0
        self.calls: Counter[str] = Counter()
        self.deep: list[tuple[int, set[Shard]]] = []

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.calls[method] += 1
        return do(*args, **kwargs)

    def probe(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        if deep:
            self.deep.append((self.now(), set(shards)))
            self.clock.advance(self.deep_seconds)
            if self.unreadable_deep & set(shards):
                raise shardq.StoreUnavailable("the read took too long")
            self.hidden -= set(shards)
        probes = super().probe(shards, glance=glance, deep=deep)
        return tuple(Probe(probe.shard) if probe.shard in self.hidden else probe for probe in probes)

    def claim(self, request: Claim) -> Claimed:
        if request.shard in self.hidden:
            return Claimed((), self.now() + request.lease)
        return super().claim(request)


@pytest.fixture
def store(url: str, clock: ManualClock) -> HidingStore:
    return HidingStore(open_store(url, clock), clock)


@pytest.fixture
def client(store: HidingStore) -> shardq.Client:
    return shardq.Client(store, retry_seconds=0)


def seconds_until(got: Callable[[], bool], clock: ManualClock, at_most: int) -> int:
    """How many seconds pass until it is so."""
    for number in range(at_most):
        if got():
            return number
        clock.advance(1)
    raise AssertionError(f"not within {at_most} s")


def fill(client: shardq.Client, **settings: object) -> shardq.Queue:
    queue = client.create_queue("q", shards=4, time_shards=1, **settings)  # type: ignore[arg-type]
    with queue.producer(bundle_messages=3) as producer:
        producer.send_many([b"%d" % number for number in range(12)])
    return queue


def test_what_was_hidden_when_a_consumer_came_is_delivered_two_seconds_later(
    client: shardq.Client, store: HidingStore, clock: ManualClock
) -> None:
    queue = fill(client)
    store.hidden = set(store.shards("q"))
    with queue.consumer() as consumer:
        seen: list[shardq.Message] = []

        def all_received() -> bool:
            seen.extend(consumer.receive(100))
            return len(seen) == 12

        assert seconds_until(all_received, clock, 10) == 2


@pytest.mark.parametrize("consumers", [1, 3])
def test_what_is_hidden_later_is_delivered_within_thirty_seconds_by_whoever_prefers_the_shard(
    client: shardq.Client, store: HidingStore, clock: ManualClock, consumers: int
) -> None:
    queue = client.create_queue("q", shards=4, time_shards=1)
    group = [queue.consumer(name=f"c{number}") for number in range(consumers)]
    for _ in range(20):
        assert not any(consumer.receive(1) for consumer in group)
        clock.advance(1)
    queue.producer(bundle_messages=3).send_many([b"%d" % number for number in range(12)])
    store.hidden = set(store.shards("q"))
    seen: list[shardq.Message] = []

    def all_received() -> bool:
        for consumer in group:
            seen.extend(consumer.receive(100))
        return len(seen) == 12

    assert seconds_until(all_received, clock, 60) <= 30


@pytest.mark.usefixtures("shards_by_name")  # three are those of the one that dies
def test_the_shards_of_a_consumer_that_is_gone_are_looked_behind_by_the_others(
    client: shardq.Client, store: HidingStore, clock: ManualClock
) -> None:
    queue = fill(client)
    store.hidden = set(store.shards("q"))
    consumer, silent = queue.consumer(name="a"), queue.consumer(name="b")
    silent.receive(1)  # and no more: it dies
    seen: list[shardq.Message] = []

    def all_received() -> bool:
        seen.extend(consumer.receive(100))
        return len(seen) == 12

    assert 2 < seconds_until(all_received, clock, 60) <= 30


@pytest.mark.usefixtures("shards_by_name")
def test_the_shards_of_a_consumer_that_died_while_the_clock_was_ahead_are_looked_behind_by_the_others(
    url: str,
) -> None:
    clock = JumpingClock()
    store = HidingStore(open_store(url, clock), clock)
    queue = fill(shardq.Client(store, retry_seconds=0))
    store.hidden = set(store.shards("q"))
    consumer, silent = queue.consumer(name="a"), queue.consumer(name="b")
    clock.jump(3600)
    silent.receive(1)  # and no more: it dies
    clock.jump(-3600)
    seen: list[shardq.Message] = []

    def all_received() -> bool:
        seen.extend(consumer.receive(100))
        return len(seen) == 12

    assert seconds_until(all_received, clock, 60) <= 30


def test_a_free_permit_that_is_hidden_is_found_within_ten_seconds(
    client: shardq.Client, store: HidingStore, clock: ManualClock
) -> None:
    semaphore = client.semaphore("smtp", permits=1)

    def is_free() -> bool:
        try:
            semaphore.acquire(timeout=0).release()
        except shardq.PermitTimeout:
            return False
        return True

    for _ in range(2):  # the second time its client has made the permits long ago
        assert is_free()
        store.hidden = set(store.shards("_shardq/permits/smtp"))
        assert store.hidden
        assert seconds_until(is_free, clock, 60) <= 10


def test_messages_are_received_though_hints_hide_the_permits_of_their_queue(
    client: shardq.Client, store: HidingStore, clock: ManualClock
) -> None:
    queue = fill(client, max_in_flight=2)
    with queue.consumer() as consumer:
        consumer.receive(2).ack()
        store.hidden = set(store.shards("_shardq/permits/q.in-flight"))
        assert store.hidden
        assert seconds_until(lambda: bool(consumer.receive(2)), clock, 60) <= 10


def test_deep_probes_go_together_and_replace_full_ones(
    client: shardq.Client, store: HidingStore, clock: ManualClock
) -> None:
    queue = client.create_queue("q", shards=4, time_shards=5, time_shard_seconds=7)
    reader = ShardReader(store, "q", Ownership("me"))
    layout = queue.settings.layout
    start = clock.now()
    for _ in range(120):
        before = store.calls["probe"]
        reader.survey(layout)
        assert store.calls["probe"] - before <= 2
        clock.advance(1)
    looks = [moment - start for moment, _ in store.deep]
    assert 120 / 7 - 2 <= len(looks) <= 120 / 7 + 3  # the first ones of new time shards; all others go along
    assert {len(shards) for _, shards in store.deep} >= {4}


@pytest.mark.parametrize("consumers", [1, 3, 10])
def test_idle_consumers_make_no_more_calls_for_their_deep_probes(
    client: shardq.Client, store: HidingStore, clock: ManualClock, consumers: int
) -> None:
    """One look at shards and one at the directory for each time that they wake, as without deep probes."""
    queue = client.create_queue("q", shards=8, time_shards=10, time_shard_seconds=30)
    group = {queue.consumer(name=f"c{number}"): clock.now() for number in range(consumers)}
    store.calls.clear()
    ended = clock.now() + 300 * SECOND
    wakes = 0
    while clock.now() < ended:
        consumer = min(group, key=lambda consumer: group[consumer])
        clock.advance(max(0, group[consumer] - clock.now()) / SECOND)
        claim_round(consumer)
        group[consumer] = clock.now() + microseconds(seconds_until_poll(consumer))
        wakes += 1
    assert store.calls["probe"] + store.calls["shards"] <= 2 * wakes + 2 * consumers
    assert (
        len(set().union(*(shards for _, shards in store.deep))) >= 9 * 8
    )  # all but those that have just begun


@pytest.mark.parametrize(("took", "interval"), [(0.1, 30), (3.0, 60), (10.0, 200)])
def test_long_deep_probes_come_less_often(
    client: shardq.Client, store: HidingStore, clock: ManualClock, took: float, interval: int
) -> None:
    queue = client.create_queue("q", shards=2, time_shards=1)
    reader = ShardReader(store, "q", Ownership("me"), lambda: clock.now() / SECOND)
    store.deep_seconds = took
    while len(store.deep) < 4:
        reader.survey(queue.settings.layout)
        clock.advance(1)
    moments = [moment for moment, _ in store.deep]
    gaps = [(later - sooner) / SECOND for sooner, later in itertools.pairwise(moments)]
    assert all(interval - 6 <= gap <= interval + 1 + took for gap in gaps)


def test_a_shard_that_cannot_be_looked_at_deeply_is_read_as_before_and_keeps_no_other_from_its_deep_look(
    client: shardq.Client, store: HidingStore, clock: ManualClock
) -> None:
    queue = fill(client)
    first, *others = store.shards("q")
    store.unreadable_deep = {first}
    store.hidden = set(others)
    with queue.consumer() as consumer:
        assert len(consumer.receive(100)) == 3
        clock.advance(3)
        assert len(consumer.receive(100)) == 9
        with queue.producer(bundle_messages=1) as producer:
            producer.send_many([b"%d" % number for number in range(12)])
        assert len(consumer.receive(100)) == 12
        store.deep.clear()
        clock.advance(31)
        consumer.receive(100)
        assert sorted(len(shards) for _, shards in store.deep) == [1, 3]


def test_the_first_deep_look_is_not_made_before_late_writes_had_their_time(
    client: shardq.Client, store: HidingStore, clock: ManualClock
) -> None:
    queue = client.create_queue("q", shards=2, time_shards=2, time_shard_seconds=15)
    reader = ShardReader(store, "q", Ownership("me"))
    known: dict[Shard, int] = {}
    for _ in range(60):
        for shard in (
            *store.shards("q"),
            *queue.settings.layout.shards_between("q", clock.now(), clock.now()),
        ):
            known.setdefault(shard, clock.now())
        reader.survey(queue.settings.layout)
        clock.advance(0.5)
    for moment, shards in store.deep:
        assert all(moment >= known[shard] + microseconds(2) for shard in shards)
