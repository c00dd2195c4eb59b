"""A dedupe key stands for one message for its whole window, whatever fails between its reservation and its end."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import shardq
from shardq.storage.opening import open_store
from shardq.storage.requests import DedupeEntry
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock

_names = itertools.count()


def client_of(store: Store) -> shardq.Client:
    """A client that repeats nothing by itself."""
    return shardq.Client(store, retry_seconds=0.0)


def failing(url: str, clock: ManualClock, method: str, kind: FaultKind, times: int = 1) -> FaultyStore:
    """A store whose first calls of a method fail."""
    faults = tuple(Fault(method, number, kind) for number in range(1, times + 1))
    return FaultyStore(open_store(url, clock), FaultPlan(faults=faults))


def work(queue: shardq.Queue) -> list[bytes]:
    """Receive and ack all that there is."""
    batch = queue.consumer().receive(1_000)
    bodies: list[bytes] = batch.bodies
    batch.ack()
    return bodies


@pytest.mark.parametrize("kind", [FaultKind.UNAVAILABLE, FaultKind.LOST_REQUEST])
def test_a_key_that_its_producer_did_not_confirm_holds_for_its_window_after_its_message_was_worked(
    url: str, clock: ManualClock, kind: FaultKind
) -> None:
    queue = client_of(failing(url, clock, "confirm_keys", kind)).create_queue("q", dedupe_window=3_600)
    first = queue.producer().send(b"charge", dedupe_key="order-1")
    assert work(queue) == [b"charge"]
    clock.advance(50 * 60)
    queue.sweep()
    assert queue.producer().send(b"charge", dedupe_key="order-1") == first
    assert work(queue) == []


def test_a_key_is_not_confirmed_for_a_message_that_it_does_not_stand_for(
    url: str, clock: ManualClock
) -> None:
    class Slow(WrappedStore):
        def confirm_keys(self, queue: str, entries: Sequence[DedupeEntry]) -> None:
            clock.advance(301)
            dying = client_of(failing(url, clock, "append", FaultKind.UNAVAILABLE)).queue("q")
            with pytest.raises(shardq.StoreUnavailable):
                dying.producer().send(b"second", dedupe_key="key")
            super().confirm_keys(queue, entries)

    sound = client_of(open_store(url, clock))
    sound.create_queue("q", dedupe_window=300)
    client_of(Slow(open_store(url, clock))).queue("q").producer().send(b"first", dedupe_key="key")
    identity = sound.queue("q").producer().send(b"second", dedupe_key="key")
    assert sound.queue("q").get(identity) is not None
    assert work(sound.queue("q")) == [b"first", b"second"]


def test_a_producer_that_stood_still_after_it_reserved_its_key_does_not_store_the_message_again(
    url: str, clock: ManualClock
) -> None:
    class Suspended(WrappedStore):
        def reserve_keys(
            self, queue: str, entries: Sequence[DedupeEntry], window: int
        ) -> tuple[DedupeEntry, ...]:
            standing = super().reserve_keys(queue, entries, window)
            sound.queue("q").producer().send(b"charge", dedupe_key="key")
            assert work(sound.queue("q")) == [b"charge"]
            clock.advance(20 * 60)
            sound.queue("q").sweep()
            return standing

    sound = client_of(open_store(url, clock))
    sound.create_queue("q", dedupe_window=3_600)
    producer = client_of(Suspended(open_store(url, clock))).queue("q").producer()
    with pytest.raises(shardq.RepeatTooLate):
        producer.send(b"charge", dedupe_key="key")
    assert work(sound.queue("q")) == []


@pytest.mark.parametrize(
    "settings", [{"retention": 60.0}, {"max_deliveries": 1}], ids=["expiry", "dead letter"]
)
def test_a_message_that_is_kept_from_its_consumer_has_its_key_confirmed_before(
    url: str, clock: ManualClock, settings: dict[str, Any]
) -> None:
    store = failing(url, clock, "confirm_keys", FaultKind.UNAVAILABLE, times=2)
    queue = client_of(store).create_queue("q", dedupe_window=3_600, visibility_timeout=30, **settings)
    first = queue.producer().send(b"x", dedupe_key="key")
    for _ in range(3):
        try:
            queue.consumer().receive(10)
        except shardq.StoreUnavailable:
            assert queue.get(first) is not None
        clock.advance(61)
    queue.consumer().receive(10)
    assert queue.get(first) is None
    assert queue.producer().send(b"x", dedupe_key="key") == first
    assert queue.counts().ready == 0


def test_what_was_claimed_is_given_back_when_its_keys_cannot_be_confirmed(
    url: str, clock: ManualClock
) -> None:
    store = failing(url, clock, "confirm_keys", FaultKind.UNAVAILABLE, times=3)
    queue = client_of(store).create_queue("q")
    queue.producer().send(b"x", dedupe_key="key")
    with pytest.raises(shardq.StoreUnavailable):
        queue.consumer().receive(1)
    (message,) = queue.consumer().receive(1)
    assert (message.body, message.deliveries) == (b"x", 1)


@pytest.mark.parametrize(
    "second",
    [{}, {"priority": 0}, {"delay": 30.0}, {"due": datetime(2030, 1, 1, tzinfo=UTC)}],
    ids=["as it was", "another priority", "another delay", "a due time"],
)
def test_a_message_that_is_sent_again_after_its_producer_died_is_where_it_was(
    url: str, clock: ManualClock, second: dict[str, Any]
) -> None:
    clock.advance(0.123457)
    dying = client_of(failing(url, clock, "confirm_keys", FaultKind.UNAVAILABLE)).create_queue("q")
    first = dying.producer().send(b"x", dedupe_key="key")
    clock.advance(1)
    assert dying.producer().send(b"x", dedupe_key="key", **second) == first
    (message,) = dying.consumer().receive(10)
    assert (message.id, message.priority) == (first, 5)


def test_a_key_that_was_reserved_by_an_earlier_version_stands_for_the_same_message(
    url: str, clock: ManualClock
) -> None:
    store = open_store(url, clock)
    queue = client_of(store).create_queue("q", dedupe_window=3_600)
    unsent = queue.producer().send(b"another")
    queue.purge()
    for confirmed in (False, True):
        store.reserve_keys("q", [DedupeEntry("key", unsent)], 3_600_000_000)
        if confirmed:
            store.confirm_keys("q", [DedupeEntry("key", unsent)])
        assert queue.producer().send(b"x", dedupe_key="key") == unsent


class Keys(RuleBasedStateMachine):
    """Producers that die anywhere, and consumers, and time."""

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = FaultyStore(
            open_store(f"sqlite:///{self.folder}/{next(_names)}.db", self.clock), FaultPlan()
        )
        self.client = client_of(self.store)
        self.queue = self.client.create_queue("q", dedupe_window=7_200, shards=2, time_shards=2)
        self.started = self.clock.now()
        self.seen: Counter[bytes] = Counter()
        self.sent: set[bytes] = set()

    @rule(
        key=st.just("a"),
        delay=st.sampled_from([0.0, 0.0, 60.0]),
        priority=st.sampled_from([0, 5]),
        method=st.sampled_from(["append", "confirm_keys"]),
        kind=st.sampled_from(FaultKind),
        many=st.booleans(),
    )
    def send(self, key: str, delay: float, priority: int, method: str, kind: FaultKind, many: bool) -> None:
        message = shardq.OutgoingMessage(body=key.encode(), dedupe_key=key, delay=delay, priority=priority)
        self.fail(method, kind)
        try:
            producer = self.queue.producer()
            producer.send_many([message]) if many else producer.send(message)
            self.sent.add(key.encode())
        except (shardq.OutcomeUnknown, shardq.StoreUnavailable, shardq.PartialSend):
            pass

    @rule(method=st.sampled_from(["confirm_keys", "count", "count"]), kind=st.sampled_from(FaultKind))
    def work(self, method: str, kind: FaultKind) -> None:
        self.fail(method, kind)
        try:
            batch = self.queue.consumer().receive(10)
        except (shardq.OutcomeUnknown, shardq.StoreUnavailable):
            return
        self.store.plan = FaultPlan()
        self.seen.update(batch.bodies)
        batch.ack()

    @precondition(lambda self: self.clock.now() < self.started + 60 * 60 * 1_000_000)
    @rule(minutes=st.sampled_from([1, 50]))
    def wait(self, minutes: int) -> None:
        self.clock.advance(minutes * 60)
        self.store.plan = FaultPlan()
        self.queue.sweep()

    def fail(self, method: str, kind: FaultKind) -> None:
        """Let the next call of a method fail."""
        calls = sum(call.method == method for call in self.store.calls)
        self.store.plan = FaultPlan(faults=(Fault(method, calls + 1, kind),))

    @invariant()
    def nothing_is_doubled(self) -> None:
        assert all(times == 1 for times in self.seen.values())

    def teardown(self) -> None:
        self.store.plan = FaultPlan()
        self.clock.advance(61)
        self.seen.update(work(self.queue))
        self.nothing_is_doubled()
        assert self.sent <= set(self.seen)
        self.client.close()


@pytest.mark.long
def test_whatever_dies_a_key_has_one_message_within_its_window(tmp_path: Path) -> None:
    machine = type("OfFolder", (Keys,), {"folder": tmp_path})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=100, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize("kind", list(FaultKind))
def test_a_message_whose_key_another_one_of_its_send_has_is_not_stored_before_that_one_is(
    url: str, clock: ManualClock, kind: FaultKind
) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan(faults=(Fault("append", 2, kind),)))
    client = shardq.Client(store, retry_seconds=0.0)
    queue = client.create_queue("q", shards=1, time_shards=1)
    producer = queue.producer(bundle_messages=2)
    keyed = [shardq.OutgoingMessage(body=body, dedupe_key="k") for body in (b"1", b"2")]
    with pytest.raises(shardq.PartialSend) as caught:
        producer.send_many([shardq.OutgoingMessage(body=b"0"), shardq.OutgoingMessage(body=b"0"), *keyed])
    assert len(caught.value.stored) == 2
    assert [message.body for message in caught.value.unsent] == [b"1", b"2"]
    ids = producer.send_many(caught.value.unsent)
    assert len(set(ids)) == 1
    assert queue.get(ids[0]) is not None
    assert queue.counts().ready == 3
    client.close()
