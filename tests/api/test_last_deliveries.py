"""A message that is released after its last delivery goes to the dead letters at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

import shardq
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from shardq.testing.seam import claims_of
from tests.dying_store import STEPS, Died, DyingStore


class Scene:
    """A queue whose messages may be delivered twice, and a client that counts what it asks of the store."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.clock = clock
        self.store = FaultyStore(open_store(url, clock), FaultPlan())
        self.client = shardq.Client(self.store, retry_seconds=0.0)
        self.queue = self.client.create_queue("q", shards=1, time_shards=1, max_deliveries=2)

    def send(self, *bodies: bytes) -> None:
        self.queue.producer().send_many(list(bodies))

    def received(self, *, again: bool) -> shardq.Batch:
        """All messages, delivered once or twice."""
        batch = self.queue.consumer().receive(100)
        if not again:
            return batch
        batch.release()
        return self.queue.consumer().receive(100)

    def asked(self, act: Callable[[], object]) -> list[str]:
        """What the store is asked while something is done."""
        before = len(self.store.calls)
        act()
        return [call.method for call in self.store.calls[before:]]

    def letters(self) -> dict[bytes, tuple[Any, Any]]:
        """The dead letters, each with its deliveries and its reason."""
        found = self.client.queue("q.dead").peek(100)
        return {
            each.body: (each.headers["shardq-deliveries"], each.headers["shardq-reason"]) for each in found
        }


@pytest.fixture
def scene(url: str, clock: ManualClock) -> Scene:
    return Scene(url, clock)


@pytest.mark.parametrize(
    ("reason", "told"), [(None, "delivered too often"), ("the bank said no", "the bank said no")]
)
def test_a_release_after_the_last_delivery_makes_a_dead_letter_that_tells_why(
    scene: Scene, reason: str | None, told: str
) -> None:
    scene.send(b"x")
    (message,) = scene.received(again=True)
    message.release(delay=60, reason=reason)
    assert scene.letters() == {b"x": (2, told)}
    assert scene.queue.counts().oldest is None


def test_those_of_a_batch_that_had_their_last_delivery_are_moved_and_the_others_wait(scene: Scene) -> None:
    scene.send(b"old")
    scene.received(again=False).release()
    scene.send(b"new")
    batch = scene.queue.consumer().receive(100)
    assert {message.body: message.last_delivery for message in batch} == {b"old": True, b"new": False}
    batch.release(delay=60, reason="late")
    assert scene.letters() == {b"old": (2, "late")}
    assert [(each.body, each.deliveries) for each in scene.queue.peek()] == [(b"new", 1)]
    counters = scene.client.counters
    assert (counters.released, counters.dead_lettered) == (2, 1)


def test_a_release_before_the_last_delivery_costs_one_request_as_ever(scene: Scene) -> None:
    scene.send(b"x")
    batch = scene.received(again=False)
    assert scene.asked(batch.release) == ["release"]


def test_a_release_after_the_last_delivery_costs_one_request_too_where_the_store_moves_in_one_step(
    scene: Scene,
) -> None:
    scene.send(b"x")
    batch = scene.received(again=True)
    asked = scene.asked(batch.release)
    assert set(asked) <= {"load_queue", "now", "forward"}
    assert asked.count("forward") == 1


def test_a_repeated_release_says_nothing(scene: Scene) -> None:
    scene.send(b"x")
    batch = scene.received(again=True)
    for _ in range(2):
        batch.release()
        batch[0].release(delay=5)
    assert len(scene.letters()) == 1


def test_a_message_that_is_given_back_is_never_at_its_last_delivery(scene: Scene) -> None:
    scene.send(b"x")
    for _ in range(6):
        (message,) = scene.queue.consumer().receive(1)
        assert not message.last_delivery
        message.release(delay=5, count=False)
        assert scene.queue.consumer().receive(1).bodies == []
        scene.clock.advance(6)
    assert scene.letters() == {}


def test_a_batch_can_be_given_back_for_a_while(scene: Scene) -> None:
    scene.send(b"1", b"2")
    scene.received(again=False).release(delay=5, count=False)
    assert {(each.state.value, each.deliveries) for each in scene.queue.peek()} == {("delayed", 0)}


@pytest.mark.parametrize("limit", [None, 3])
def test_a_limit_that_was_raised_meanwhile_holds(scene: Scene, url: str, limit: int | None) -> None:
    scene.send(b"x")
    (message,) = scene.received(again=True)
    scene.queue.alter(max_deliveries=limit)
    assert not message.last_delivery
    message.release()
    assert scene.letters() == {}
    assert scene.queue.counts().ready == 1


def test_a_body_that_replaces_the_message_is_delivered_from_the_beginning(scene: Scene) -> None:
    scene.send(b"x")
    (message,) = scene.received(again=True)
    message.release(body=b"mended", reason="unused")
    assert scene.letters() == {}
    assert [(each.body, each.deliveries) for each in scene.queue.consumer().receive(1)] == [(b"mended", 1)]


def test_what_is_damaged_in_the_store_cannot_be_moved_and_is_released(scene: Scene) -> None:
    scene.send(b"damaged")
    batch = scene.received(again=True)
    (held,) = claims_of(batch)
    held.bundle = replace(held.bundle, data=b"damaged")
    batch.release(delay=60)
    assert scene.queue.counts().delayed == 1
    assert scene.letters() == {}


@pytest.mark.parametrize("reason", [5, b"bytes", ValueError("x")])
def test_a_reason_that_is_no_text_is_refused_with_nothing_done(scene: Scene, reason: Any) -> None:
    scene.send(b"x")
    batch = scene.received(again=True)
    with pytest.raises(shardq.InvalidSetting, match="reason"):
        batch.release(reason=reason)
    assert scene.queue.counts().in_flight == 1


def test_a_shard_that_fails_keeps_no_other_from_being_settled(url: str, clock: ManualClock) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    client = shardq.Client(store, retry_seconds=0.0)
    queue = client.create_queue("q", shards=1, time_shards=1, max_deliveries=2)
    queue.producer().send(b"old")
    queue.consumer().receive(1).release()
    queue.producer().send(b"new")
    batch = queue.consumer().receive(2)
    calls = sum(call.method == "release" for call in store.calls)
    store.plan = FaultPlan(faults=(Fault("release", calls + 1, FaultKind.UNAVAILABLE),))
    with pytest.raises(shardq.StoreUnavailable, match="1 message of queue 'q' was not released"):
        batch.release()
    assert [letter.body for letter in client.queue("q.dead").peek()] == [b"old"]
    store.plan = FaultPlan()
    batch.release()
    assert [(each.body, each.state.value) for each in queue.peek()] == [(b"new", "ready")]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
def test_a_client_that_dies_at_the_last_release_loses_and_doubles_nothing(
    url: str, clock: ManualClock, step: int, after: bool
) -> None:
    sound = shardq.Client(DyingStore(open_store(url, clock)))
    name = f"q{os.urandom(4).hex()}"
    queue = sound.create_queue(name, shards=1, time_shards=1, max_deliveries=1, visibility_timeout=30)
    queue.producer().send_many([b"1", b"2", b"3"])
    store = DyingStore(open_store(url, clock))
    store.calls_left, store.after = step, after
    batch = shardq.Client(store, retry_seconds=0.0).queue(name).consumer().receive(3)
    with pytest.raises(Died):
        batch.release(reason="once is enough")
    clock.advance(31)
    assert (
        queue.consumer().receive(10).bodies == []
    )  # delivered too often: whoever finds it completes the move
    letters = sound.queue(f"{name}.dead").peek(10)
    assert Counter(letter.body for letter in letters) == Counter([b"1", b"2", b"3"])
    assert queue.counts().oldest is None


@pytest.mark.parametrize("given", [{"reason": "late"}, {"body": b"new"}])
def test_a_release_that_is_not_counted_takes_neither_a_reason_nor_a_body(
    queue: shardq.Queue, given: dict[str, Any]
) -> None:
    queue.producer().send(b"x")
    (message,) = queue.consumer().receive(1)
    with pytest.raises(shardq.InvalidSetting, match=rf"{next(iter(given))}=.* with count=False"):
        message.release(count=False, **given)
    assert queue.counts().in_flight == 1
