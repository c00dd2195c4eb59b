"""Limits hold whichever request of a consumer fails, is lost, or is its last; and nothing is lost by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from tests.dying_store import Died
from tests.sampling import every_third, some

LIMIT = 4
MESSAGES = 9
METHODS = (
    "claim",
    "release",
    "extend",
    "append",
    "acknowledge",
    "create_queue",
    "peek",
    "probe",
    "load_queue",
)


class Mortal(FaultyStore):
    """A store whose client ends at a request, before or after it is carried out."""

    left: int | None = None
    after = False

    def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        dies = self.left == 0
        self.left = None if self.left is None else self.left - 1
        if dies and not self.after:
            self.left = 0
            raise Died
        answer = super().call(method, do, *args, **kwargs)
        if dies:
            self.left = 0
            raise Died
        return answer


class Scene:
    """Two clients that receive and ack in turn. The first one's store fails; nobody ever holds too many."""

    def __init__(self, url: str, clock: ManualClock, plan: FaultPlan, **limits: Any) -> None:
        self.clock = clock
        self.sound = shardq.connect(url, clock=clock, retry_seconds=0)
        queue = self.sound.create_queue(
            "q", shards=1, time_shards=1, visibility_timeout=20, max_deliveries=None, **limits
        )
        queue.producer().send_many(b"%d" % number for number in range(MESSAGES))
        self.store = Mortal(open_store(url, clock), plan)
        self.client = shardq.Client(self.store, retry_seconds=0)
        self.held: list[tuple[int, shardq.Message]] = []  # until when, by whom it was received
        self.seen: set[bytes] = set()
        self.received: list[int] = []

    def close(self) -> None:
        self.client.close()
        self.sound.close()

    def receive(self, consumer: shardq.Consumer, limit: int) -> shardq.Batch:
        batch = consumer.receive(limit)
        now = self.clock.now()
        self.seen.update(batch.bodies)
        self.received += [now] * len(batch)
        self.held = [
            (until, message) for until, message in self.held if until > now and self.is_held(message)
        ]
        self.held += [(now + 20_000_000, message) for message in batch]
        return batch

    def is_held(self, message: shardq.Message) -> bool:
        """False when it was acked by a request whose answer nobody had."""
        found = self.sound.queue("q").get(message.id)
        return found is not None and found.state is shardq.EntryState.IN_FLIGHT

    def ack(self, batch: shardq.Batch) -> None:
        batch.ack()
        done = set(batch)
        self.held = [(until, message) for until, message in self.held if message not in done]

    def turn(self, consumer: shardq.Consumer, limit: int) -> None:
        """Receive, extend and ack, as far as that succeeds."""
        try:
            batch = self.receive(consumer, limit)
            assert len(self.held) <= LIMIT
            batch.extend(20)
            self.ack(batch)
        except (shardq.StoreUnavailable, shardq.OutcomeUnknown):
            return

    def run(self) -> None:
        """Let both take turns until every message is acked; the one that dies is replaced by the other."""
        other = self.sound.queue("q").consumer()
        try:
            mine = self.client.queue("q").consumer()
        except (Died, shardq.StoreUnavailable, shardq.OutcomeUnknown):
            mine = other
        for _ in range(40):
            try:
                self.turn(mine, 3)
            except Died:
                mine = other
            self.turn(other, 2)
            self.clock.advance(3)
            counts = self.sound.queue("q").counts()
            if not counts.ready + counts.delayed + counts.in_flight:
                return

    def check(self) -> None:
        """All was delivered and acked, and soon every permit is free."""
        assert len(self.seen) == MESSAGES
        self.clock.advance(40)
        queue = self.sound.queue("q")
        queue.producer().send_many([b"more"] * 10)
        assert len(queue.consumer().receive(10)) == LIMIT


@pytest.fixture
def scene(url: str, clock: ManualClock) -> Iterator[Callable[..., Scene]]:
    scenes: list[Scene] = []

    def open_scene(*faults: Fault, **limits: Any) -> Scene:
        scenes.append(Scene(url, clock, FaultPlan(faults), **(limits or {"max_in_flight": LIMIT})))
        return scenes[-1]

    yield open_scene
    for each in scenes:
        each.close()


@pytest.mark.parametrize("kind", list(FaultKind))
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("nth", range(1, some(9, 5)))
def test_no_request_that_fails_lets_in_too_many(
    scene: Callable[..., Scene], method: str, nth: int, kind: FaultKind
) -> None:
    it = scene(Fault(method, nth, kind))
    it.run()
    it.check()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("left", every_third(40))
def test_no_death_of_a_consumer_lets_in_too_many(scene: Callable[..., Scene], left: int, after: bool) -> None:
    it = scene()
    it.store.left, it.store.after = left, after
    it.run()
    it.check()


@pytest.mark.parametrize("kind", list(FaultKind))
@pytest.mark.parametrize("method", ["claim", "release", "append", "create_queue", "peek"])
@pytest.mark.parametrize("nth", range(1, some(9, 5)))
def test_no_request_that_fails_lets_a_rate_be_exceeded(
    scene: Callable[..., Scene], method: str, nth: int, kind: FaultKind
) -> None:
    it = scene(Fault(method, nth, kind), rate_limit="4/10s")
    it.run()
    assert len(it.seen) == MESSAGES
    for moment in it.received:
        assert sum(moment <= other < moment + 10_000_000 for other in it.received) <= LIMIT
