"""A consumer that knows of messages claims them at once, and yet notices in time whatever else is due."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import shardq
from shardq.base.shard import Layout, Shard
from shardq.core.context import retry
from shardq.core.receiving import claiming, receiving
from shardq.core.receiving.registering import CLAIM_PATIENCE
from shardq.storage.bundles import BundleData, encode_bundle
from shardq.storage.opening import open_store
from shardq.storage.requests import Append, Bundle, Claim, Claimed
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, ManualTimer
from shardq.testing.seam import drive_timers

SECONDS_PER_ATTEMPT = 4.0


class Bench:
    """A consumer that has received some of many messages, knows of the others, and has nothing else to do."""

    def __init__(self, url: str, clock: ManualClock, *, retry_seconds: float = 0.0, shards: int = 1) -> None:
        self.url, self.clock, self.timer = url, clock, ManualTimer()
        self.store = FaultyStore(open_store(url, clock), FaultPlan())
        self.client = shardq.Client(self.store, retry_seconds=retry_seconds)
        self.queue = self.client.create_queue("q", shards=shards, time_shards=1)
        for shard in range(shards):
            bundle = Bundle(bytes([shard]) * 16, 5, 0, 0, 200, encode_bundle(BundleData([b"x"] * 200)))
            self.store.inner.append(Append(Shard("q", 0, shard), (bundle,)))
        self.consumer = self.queue.consumer()
        drive_timers(self.consumer, timer=self.timer)
        for _ in range(3):
            self.receive()

    def receive(self) -> None:
        """Receive and ack a message, after a tenth of a second."""
        self.clock.advance(0.1)
        batch = self.consumer.receive()
        assert len(batch) == 1
        batch.ack()

    def asked(self, method: str) -> int:
        return sum(call.method == method for call in self.store.calls)

    def fail_claims(self, *kinds: FaultKind) -> None:
        start = self.asked("claim")
        faults = tuple(Fault("claim", start + number, kind) for number, kind in enumerate(kinds, start=1))
        self.store.plan = FaultPlan(faults=faults)


@pytest.fixture
def bench(url: str, clock: ManualClock) -> Iterator[Bench]:
    bench = Bench(url, clock)
    yield bench
    bench.client.close()


def test_what_is_known_is_claimed_without_asking_for_anything_else(bench: Bench) -> None:
    before = len(bench.store.calls)
    for _ in range(2):
        bench.receive()
    asked = [call.method for call in bench.store.calls[before:]]
    assert asked == ["claim", "acknowledge"] * 2


def test_a_pause_by_another_client_ends_deliveries_within_a_second(bench: Bench) -> None:
    with shardq.connect(bench.url, clock=bench.clock) as other:
        other.queue("q").pause()
    bench.timer.advance(1.1)
    assert not bench.consumer.receive()


def test_a_pause_by_the_same_client_ends_deliveries_at_once(bench: Bench) -> None:
    bench.queue.pause()
    assert not bench.consumer.receive()


def test_a_limit_that_is_set_holds_within_a_second(bench: Bench) -> None:
    with shardq.connect(bench.url, clock=bench.clock) as other:
        other.queue("q").alter(max_in_flight=2)
    bench.timer.advance(1.1)
    assert [len(bench.consumer.receive()) for _ in range(3)] == [1, 1, 0]


def test_a_message_that_goes_first_is_found_within_half_a_second(bench: Bench) -> None:
    # Given a consumer that knows of messages in one shard, and what is sent now comes into another one
    bench.queue.alter(time_shards=2)
    layout = Layout(shards=1, time_shards=2, time_shard_seconds=30.0)
    while not layout.time_shard(bench.store.now()) == layout.time_shard(bench.store.now() + 2_000_000) == 1:
        bench.clock.advance(1)
    for _ in range(3):
        bench.receive()
    with bench.queue.producer() as producer:
        producer.send(b"first", priority=0)
    bodies = []
    for _ in range(6):
        bench.clock.advance(0.1)
        batch = bench.consumer.receive()
        bodies += batch.bodies
        batch.ack()
    assert b"first" in bodies


def test_slow_claims_need_one_survey_and_lose_nothing_when_no_shard_can_be_read_after_them(
    url: str, clock: ManualClock
) -> None:
    bench = Bench(url, clock, shards=3)
    store, claim = bench.store, bench.store.inner.claim

    def claim_slowly(request: Claim) -> Claimed:
        store.plan = FaultPlan(
            probability=1.0, kinds=(FaultKind.UNAVAILABLE,), methods=frozenset({"probe", "shards"})
        )
        clock.advance(0.6)
        return claim(request)

    store.inner.claim = claim_slowly  # type: ignore[method-assign]
    clock.advance(1)
    assert len(bench.consumer.receive(600)) == 597
    bench.client.close()


def test_a_consumer_that_always_finds_messages_is_counted_and_sweeps(bench: Bench) -> None:
    counted, swept = bench.asked("register_consumer"), bench.asked("sweep")
    for _ in range(60):
        bench.receive()
    assert bench.asked("register_consumer") == counted + 1
    bench.clock.advance(60)
    bench.receive()
    assert bench.asked("sweep") > swept


def test_a_schedule_is_kept_while_there_are_always_messages(bench: Bench) -> None:
    with shardq.connect(bench.url, clock=bench.clock) as other:
        other.schedules.create("tick", queue="q", every=1.2)
        bench.timer.advance(1.1)
        for sent in range(3):
            for _ in range(13):
                bench.receive()
            assert other.schedules.get("tick").sent == sent + 1


def test_a_claim_at_once_that_is_not_answered_is_repeated_under_its_token(
    url: str, clock: ManualClock
) -> None:
    bench = Bench(url, clock, retry_seconds=5.0)
    claims: list[Claim] = []

    def claim(request: Claim, do: Any = bench.store.claim) -> Any:
        claims.append(request)
        return do(request)

    bench.store.claim = claim  # type: ignore[method-assign]
    bench.fail_claims(FaultKind.LOST_RESPONSE)
    bench.receive()
    assert len(claims) == 2
    assert claims[0] == claims[1]
    assert bench.queue.counts().ready == 196
    bench.client.close()


def test_a_claim_that_was_not_answered_comes_before_what_is_known(url: str, clock: ManualClock) -> None:
    # Given messages in two shards, and a claim of one of them that is not answered
    bench = Bench(url, clock, shards=2)
    bench.fail_claims(FaultKind.LOST_RESPONSE)
    before = bench.asked("claim")
    bench.receive()
    # Then it is repeated as soon as its shard is left out no longer
    bench.timer.advance(0.6)
    bench.receive()
    claims = [call.arguments[0] for call in bench.store.calls if call.method == "claim"][before:]
    assert [claim.shard for claim in claims[:2]] != [claims[0].shard] * 2
    assert claims[2] == claims[0]
    bench.client.close()


@pytest.mark.parametrize(("pops", "attempts"), [(False, 1), (True, 3)])
def test_a_claim_at_once_is_repeated_no_longer_than_the_whole_call_may_take(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, pops: bool, attempts: int
) -> None:
    # Given attempts of some seconds each, of which none is answered
    bench = Bench(url, clock, retry_seconds=2.5 * SECONDS_PER_ATTEMPT)
    at = began = 1000.0
    asked = []

    def wait(seconds: float) -> None:
        nonlocal at
        at += seconds

    def claim(request: Claim) -> Any:
        wait(SECONDS_PER_ATTEMPT)
        asked.append(request.token)
        raise shardq.OutcomeUnknown("nobody answers")

    for module in (retry, claiming, receiving):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: at, sleep=wait))
    bench.store.claim = claim  # type: ignore[method-assign]
    # When a pop may have acked a message, it asks again; a receive leaves the shard out for a while
    with pytest.raises(shardq.OutcomeUnknown):
        if pops:
            bench.consumer.pop()
        else:
            with monkeypatch.context() as patch:
                patch.setattr(bench.store, "probe", _fail)
                bench.consumer.receive()
    # Then both end in time
    assert len(set(asked)) == 1
    assert len(asked) >= attempts
    assert at - began <= 2.5 * SECONDS_PER_ATTEMPT + SECONDS_PER_ATTEMPT + CLAIM_PATIENCE
    bench.client.close()


def test_what_a_claim_at_once_keeps_back_is_repeated_no_longer_than_the_whole_call_may_take(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given messages that have expired, of which each costs a request, and a store that is away after the claim
    at = began = 1000.0

    def wait(seconds: float) -> None:
        nonlocal at
        at += seconds

    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=1.0) as client:
        queue = client.create_queue("q", shards=1, time_shards=1)
        producer, consumer = queue.producer(), queue.consumer()
        for ttl in (None, None, *[1.15] * 20):
            producer.send(b"x", ttl=ttl)
        consumer.receive(1).ack()
        clock.advance(0.3)
        consumer.receive(1).ack()
        claim = store.claim

        def last_claim(request: Claim) -> Any:
            claimed = claim(request)
            store.plan = FaultPlan(probability=1.0, kinds=(FaultKind.UNAVAILABLE,))
            return claimed

        for _ in range(8):  # the survey stays young, and the others expire
            producer.send(b"y")
            clock.advance(0.1)
            consumer.receive(1, wait=0).ack()
        clock.advance(0.1)
        for module in (retry, claiming, receiving):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: at, sleep=wait))
        store.claim = last_claim  # type: ignore[method-assign]
        consumer.receive(100)
        # Then the call ends in time, and hands out nothing that has expired
        assert at - began <= 2 * 1.0 + CLAIM_PATIENCE
        store.plan = FaultPlan()


def test_a_clock_that_is_in_doubt_for_a_moment_costs_a_repetition(url: str, clock: ManualClock) -> None:
    bench = Bench(url, clock, retry_seconds=5.0)
    now, failures = bench.store.now, [shardq.StoreUnavailable("no node tells the time")]

    def doubtful() -> int:
        if failures:
            raise failures.pop()
        return now()

    bench.store.now = doubtful  # type: ignore[method-assign]
    bench.receive()
    assert not failures
    bench.client.close()


def _fail(*_: Any, **__: Any) -> Any:
    raise shardq.OutcomeUnknown("nobody answers")
