"""How long a consumer sleeps at most where the store tells of messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

import shardq
from shardq.base.shard import Shard
from shardq.core.context.identity import REGISTRATION_LIFETIME
from shardq.core.context.queue_context import REFRESH_SECONDS
from shardq.core.context.retry import Retry
from shardq.core.receiving import idling
from shardq.core.receiving.idling import FIRST_POLL_SECONDS, LAST_POLL_SECONDS, LONGEST_POLL_SECONDS, Idling
from shardq.core.sharding.ownership import Ownership
from shardq.core.sharding.reading import ShardReader
from shardq.storage.listening import Waiter
from shardq.storage.opening import open_store
from shardq.storage.requests import Probe
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock, ManualTimer
from shardq.testing.seam import drive_timers, has_slept, seconds_until_due, seconds_until_poll, store_of


def longest(consumers: int, due: float | None, queues: int = 1) -> float:
    """Seconds, on a store that signals; ``due`` in so many."""
    receiving: Any = SimpleNamespace(
        queues=("q",) * queues, paused=(), consumers=consumers, seconds_until_due=lambda: due
    )
    store: Any = SimpleNamespace(capabilities=SimpleNamespace(signals=True))
    return Idling(store, Retry(0), receiving, lambda: False).longest()


@pytest.mark.parametrize(("consumers", "seconds"), [(1, 5), (5, 5), (8, 8), (10, 10), (100, 10)])
def test_many_consumers_look_less_often_each(consumers: int, seconds: float) -> None:
    assert longest(consumers, None) == seconds


@pytest.mark.parametrize(("queues", "seconds"), [(1, 5), (12, 5), (20, 8), (25, 10), (100, 10)])
def test_a_consumer_of_many_queues_looks_at_all_of_them_less_often(queues: int, seconds: float) -> None:
    assert longest(1, None, queues) == seconds
    assert longest(10, None, queues) == 10


@pytest.mark.parametrize("took", [0.0, 0.001, 0.02])
def test_polls_begin_as_often_whatever_a_look_takes_but_rest_for_as_long_as_it(
    took: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a store without signals, and looks that take so many seconds and find nothing
    at = 0.0

    class Passing(Waiter):
        def wait(self, queues: Sequence[str], seconds: float) -> tuple[str, ...]:
            nonlocal at
            at += seconds
            return ()

    monkeypatch.setattr(idling, "time", SimpleNamespace(monotonic=lambda: at))
    monkeypatch.setattr(idling, "Waiter", Passing)
    store: Any = SimpleNamespace(capabilities=SimpleNamespace(signals=False))
    receiving: Any = SimpleNamespace(
        queues=("q",), waits_for={"q": "q"}, paused=(), consumers=1, seconds_until_due=lambda: None
    )
    consumer = Idling(store, Retry(0), receiving, lambda: False)
    began, gaps = at, []
    for _ in range(40):
        at += took
        ended = at
        assert consumer.sleep(60) == ("q",)
        assert at - ended >= min(took, at - began - took) - 1e-9
        gaps.append(at - began)
        began = at
    # Then the looks begin a quarter of a second apart in the end, and before that earlier
    assert gaps[-1] == pytest.approx(LAST_POLL_SECONDS)
    assert gaps[0] <= max(2 * took, FIRST_POLL_SECONDS + took) + 1e-9
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(gaps))
    # And soon after something was read
    consumer.reset()
    at += took
    ended = at
    consumer.sleep(60)
    assert at - ended <= FIRST_POLL_SECONDS + 1e-9


@pytest.mark.parametrize("due", [0.0, 0.5, 4.9])
def test_a_due_time_that_is_known_is_not_slept_through(due: float) -> None:
    assert longest(100, due) == due


def test_a_consumer_that_sleeps_its_longest_still_counts_as_live() -> None:
    assert LONGEST_POLL_SECONDS * 1_000_000 * 1.5 <= REGISTRATION_LIFETIME


def test_who_was_told_of_a_message_and_found_none_looks_again_when_the_settings_may_tell_of_other_shards() -> (
    None
):
    signals = iter([("q",)] * 3)
    listener = SimpleNamespace(news=lambda _: next(signals, ()), rest=lambda: None)
    store: Any = SimpleNamespace(capabilities=SimpleNamespace(signals=True), listen=lambda _: listener)
    receiving: Any = SimpleNamespace(
        queues=("q",), waits_for={"q": "q"}, paused=(), consumers=1, seconds_until_due=lambda: None
    )
    sleeper = Idling(store, Retry(0), receiving, lambda: False)
    assert sleeper.longest() > REFRESH_SECONDS
    sleeper.sleep(60)  # a signal ends it, and then nothing is found
    assert sleeper.longest() == REFRESH_SECONDS
    sleeper.sleep(60)
    sleeper.reset()  # this time something is found
    assert sleeper.longest() > REFRESH_SECONDS
    sleeper.sleep(60)
    assert sleeper.longest() == REFRESH_SECONDS
    sleeper.sleep(0)  # no signal ends this one
    assert sleeper.longest() > REFRESH_SECONDS


def test_a_consumer_that_knows_an_old_layout_reads_the_shards_of_the_new_one_soon_after_the_signal(
    url: str, clock: ManualClock
) -> None:
    # Given a consumer that has just read the settings, and waits
    client, other = shardq.connect(url, clock=clock), shardq.connect(url, clock=clock)
    consumer = client.create_queue("q", shards=1, time_shards=1).consumer()
    assert not consumer.receive(1)
    queue = client.queue("q")
    told: list[Sequence[str]] = []
    store, probe, listen = store_of(queue), store_of(queue).probe, store_of(queue).listen

    def listen_meanwhile(wake: Callable[[], None]) -> SimpleNamespace:
        listener = listen(wake)

        def meanwhile(names: Sequence[str]) -> tuple[str, ...]:
            if told:
                return listener.news(names)
            told.append(names)
            other.queue("q").alter(shards=1, time_shards=4)
            clock.advance(30)
            other.queue("q").producer().send(b"x")
            return ("q",)

        return SimpleNamespace(news=meanwhile, rest=listener.rest)

    sleeps: list[float] = []

    def note(shards: Sequence[Shard], **how: bool) -> tuple[Probe, ...]:
        if told:
            sleeps.append(seconds_until_poll(consumer))
        return probe(shards, **how)

    store.listen, store.probe = listen_meanwhile, note  # type: ignore[method-assign]
    # When another client alters the layout, and sends to a shard of the new one
    assert consumer.receive(1, wait=60)
    # Then the consumer has not slept on for as long as if nobody had told it
    assert max(sleeps) <= REFRESH_SECONDS
    client.close()
    other.close()


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
    assert reader.candidates
    client.close()


class Looking(GlancingStore):
    """Counts the looks by their kind."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.full = self.glances = 0

    def probe(
        self, shards: Sequence[Shard], *, glance: bool = False, deep: bool = False
    ) -> tuple[Probe, ...]:
        self.full += not glance
        self.glances += glance
        return super().probe(shards, glance=glance, deep=deep)


@pytest.fixture
def looking(url: str, clock: ManualClock) -> Iterator[Looking]:
    store = Looking(open_store(url, clock))
    yield store
    store.close()


@pytest.mark.parametrize("limit", [1, 10])
def test_messages_that_come_one_by_one_cost_a_glance_each_and_no_full_look(
    looking: Looking, limit: int
) -> None:
    # Given a consumer that has just looked in full
    client = shardq.Client(looking)
    queue = client.create_queue("q", shards=4, time_shards=1)
    consumer, producer = queue.consumer(), queue.producer()
    drive_timers(consumer, timer=ManualTimer())  # else a busy machine takes until a full probe is due
    consumer.receive(1)
    full, glances = looking.full, looking.glances
    # When messages come one by one, and each is received and acked when a signal told of it
    for number in range(40):
        producer.send(b"x")
        batch = consumer.receive(limit, wait=0.001)
        assert len(batch) == 1, number
        batch.ack()
    # Then it has glanced for each at most twice, and looked in full at none of the shards that it claimed from
    assert (
        looking.full - full <= 2
    )  # by the clock, on a machine that is busy; else there would be one for each
    assert looking.glances - glances <= 80


def test_what_is_not_handed_out_of_a_claim_or_is_released_is_looked_for_in_full(
    looking: Looking, clock: ManualClock
) -> None:
    client = shardq.Client(looking)
    queue = client.create_queue("q", shards=1, time_shards=1, visibility_timeout=1.0)
    consumer, producer = queue.consumer(), queue.producer()
    consumer.receive(1)
    producer.send(b"x")
    for _ in range(3):
        # A message that was released is there again
        batch = consumer.receive(1, wait=0.001)
        assert len(batch) == 1
        batch.release()
    # And one whose lease is over, when it is, though nobody tells of that
    assert consumer.receive(1, wait=0.001)
    seconds = seconds_until_due(consumer)
    assert seconds is not None
    assert seconds <= 1
    clock.advance(1)
    assert consumer.receive(1, wait=0.001)


@pytest.mark.parametrize("prefetch", [0, 5])
@pytest.mark.parametrize("end", ["stop", "close", "close the client"])
def test_a_consumer_that_waits_ends_its_wait_when_it_is_stopped_or_closed(
    url: str, monkeypatch: pytest.MonkeyPatch, end: str, prefetch: int
) -> None:
    """It does not go on until it would look again."""
    for pause in ("SLOW_POLL_SECONDS", "LONGEST_POLL_SECONDS"):
        monkeypatch.setattr(idling, pause, 3600.0)
    client = shardq.connect(url)
    consumer = client.create_queue("q").consumer(prefetch=prefetch)
    raised: list[BaseException] = []

    def receive() -> None:
        try:
            consumer.receive(1, wait=600)
        except shardq.Closed as error:
            raised.append(error)

    waiting = threading.Thread(target=receive)
    waiting.start()
    while not has_slept(consumer) and not prefetch:
        time.sleep(0.001)
    {"stop": consumer.stop, "close": consumer.close, "close the client": client.close}[end]()
    waiting.join(60)
    assert not waiting.is_alive()
    assert bool(raised) is (end == "close the client")
    client.close()
