"""What is claimed while a batch is acked: it is handed out next, or given back as if it had not been claimed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import shardq
from shardq.core.receiving import overlap
from shardq.core.receiving.receiving import Receiving
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Claimed, Release
from shardq.storage.store import Capabilities
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from shardq.testing.seam import claim_thread, expire_caches
from tests.interrupted_starts import interrupt_after_start

PATIENCE = 30.0  # seconds


class OnNetwork(FaultyStore):
    """A store that takes a claim beside an ack. ``pausing`` is called before each acknowledge."""

    pausing: Callable[[], object] = staticmethod(lambda: None)

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(super().capabilities, claims_beside_acks=True)

    def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if method == "acknowledge":
            self.pausing()
        return super().call(method, do, *args, **kwargs)

    def asked(self, method: str) -> int:
        return sum(call.method == method for call in self.calls)

    def claims(self, number: int) -> bool:
        """Wait until so many claims were asked for."""
        waiting = threading.Event()
        for _ in range(int(PATIENCE * 100)):
            if self.asked("claim") >= number:
                return True
            waiting.wait(0.01)
        return False


@pytest.fixture
def open_queue(url: str, clock: ManualClock) -> Iterator[Callable[..., tuple[OnNetwork, shardq.Queue]]]:
    clients: list[shardq.Client] = []

    def open_one(*faults: Fault, messages: int = 10) -> tuple[OnNetwork, shardq.Queue]:
        store = OnNetwork(open_store(url, clock), FaultPlan(faults))
        client = shardq.Client(store, retry_seconds=0)
        clients.append(client)
        queue = client.create_queue("q", shards=1, time_shards=1, visibility_timeout=600, max_deliveries=3)
        with queue.producer() as producer:
            producer.send_many([b"%d" % number for number in range(messages)])
        return store, queue

    yield open_one
    for client in clients:
        client.close()


def numbers(batch: shardq.Batch) -> list[int]:
    return [int(message.body) for message in batch]


def test_the_next_batch_is_claimed_while_one_is_acked(open_queue: Callable[..., Any]) -> None:
    store, queue = open_queue()
    met: list[bool] = []
    with queue.consumer() as consumer:
        batches = consumer.batches(4, wait=0)
        store.pausing = lambda: met.append(store.claims(2))  # the ack waits until the claim was asked for
        first = next(batches)
        first.ack()
        assert met == [True]
        store.pausing = lambda: None
        second = next(batches)
        assert (numbers(first), numbers(second)) == ([0, 1, 2, 3], [4, 5, 6, 7])
        second.ack()
        assert [number for batch in batches for number in numbers(batch)] == [8, 9]


@pytest.mark.parametrize("then", ["read", "close"])
def test_nobody_waits_for_a_claim_whose_thread_was_not_started_as_an_interrupt_came(
    open_queue: Callable[..., Any], then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, queue = open_queue()
    consumer = queue.consumer()
    first = next(consumer.batches(4, wait=0))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(threading.Thread, "start", interrupt)
        first.ack()
    if then == "read":
        assert numbers(consumer.receive(10))[-1] == 9
    consumer.close()


@pytest.mark.parametrize("end", ["break", "stop", "close", "another read", "pop", "dawdle"])
def test_what_is_not_handed_out_is_free_at_once_in_its_place_and_without_a_delivery(
    open_queue: Callable[..., Any], end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, queue = open_queue()
    if end == "dawdle":
        monkeypatch.setattr(overlap, "LONGEST_WAIT", 0.0)
    consumer = queue.consumer()
    batches = consumer.batches(4, wait=0)
    next(batches).ack()
    assert store.claims(2)
    taken: list[int] = []
    if end == "break":
        batches.close()
    elif end == "stop":
        consumer.stop()
        assert list(batches) == []
    elif end == "close":
        consumer.close()
    elif end == "another read":
        taken = numbers(consumer.receive(3))
    elif end == "pop":
        taken = [int(consumer.pop().body)]
    else:
        claim_thread(consumer).join(PATIENCE)
    with queue.consumer() as other:
        rest = other.receive(10)
    assert taken + numbers(rest) == [4, 5, 6, 7, 8, 9]
    assert {message.deliveries for message in rest} == {1}
    consumer.close()


def test_a_claim_that_took_long_is_given_back_though_the_settings_cannot_be_read(
    open_queue: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, queue = open_queue()
    monkeypatch.setattr(overlap, "LONGEST_WAIT", 0.0)
    with queue.consumer() as consumer:
        batches = consumer.batches(4, wait=0)
        batch = next(batches)
        claim, acked = store.claim, threading.Event()

        def claim_slowly(request: Claim) -> Claimed:
            assert acked.wait(PATIENCE)
            loaded = store.asked("load_queue")
            store.plan = FaultPlan((Fault("load_queue", loaded + 1, FaultKind.UNAVAILABLE),))
            expire_caches(queue)  # settings are read again a second later
            return claim(request)

        monkeypatch.setattr(store, "claim", claim_slowly)
        batch.ack()
        acked.set()
        claim_thread(consumer).join(PATIENCE)
        store.plan = FaultPlan()
        assert queue.counts().ready == 6


def test_a_batch_that_was_not_full_says_that_nothing_else_is_due(open_queue: Callable[..., Any]) -> None:
    store, queue = open_queue()
    with queue.consumer() as consumer:
        for batch in consumer.batches(100, wait=0):
            before = store.asked("claim")
            batch.ack()
            assert store.asked("claim") == before and claim_thread(consumer) is None


def test_the_ack_of_some_of_a_batch_begins_nothing(open_queue: Callable[..., Any]) -> None:
    _, queue = open_queue()
    with queue.consumer() as consumer:
        for batch in consumer.batches(5, wait=0):
            batch.part(batch[:2]).ack()
            batch[2].ack()
            assert claim_thread(consumer) is None
            batch.part(batch).ack()
            assert claim_thread(consumer) is not None
            break


@pytest.mark.parametrize("kind", FaultKind)
def test_a_claim_that_fails_meanwhile_hurts_neither_the_ack_nor_the_next_batch(
    open_queue: Callable[..., Any], kind: FaultKind
) -> None:
    store, queue = open_queue(Fault("claim", 2, kind))
    with queue.consumer() as consumer:
        batches = consumer.batches(5, wait=0)
        next(batches).ack()
        assert store.claims(2)
        assert numbers(next(batches)) == [5, 6, 7, 8, 9]
    assert queue.counts().in_flight == 5


def test_an_ack_that_fails_keeps_what_was_claimed_from_nobody(open_queue: Callable[..., Any]) -> None:
    store, queue = open_queue(Fault("acknowledge", 1, FaultKind.UNAVAILABLE))
    with queue.consumer() as consumer:
        for batch in consumer.batches(5, wait=0):
            with pytest.raises(shardq.StoreUnavailable):
                batch.ack()
            assert store.claims(2)
            break
        assert numbers(consumer.receive(10)) == [5, 6, 7, 8, 9]


def test_two_threads_that_ack_and_read_claim_one_after_the_other(open_queue: Callable[..., Any]) -> None:
    """Batches may be acked by another thread than the one that reads on."""
    _, queue = open_queue(messages=400)
    seen: list[int] = []
    with queue.consumer() as consumer:
        threads = []
        for batch in consumer.batches(5, wait=0):
            seen += numbers(batch)
            threads.append(threading.Thread(target=batch.ack))
            threads[-1].start()
        for thread in threads:
            thread.join(PATIENCE)
    assert sorted(seen) == list(range(400))
    assert queue.counts().in_flight == 0


def test_a_read_waits_until_what_was_not_taken_in_time_is_free_again(
    open_queue: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, queue = open_queue(messages=8)
    monkeypatch.setattr(overlap, "LONGEST_WAIT", 0.0)
    release, releasing = store.release, threading.Event()

    def release_slowly(request: Release) -> object:
        releasing.set()
        threading.Event().wait(0.3)
        return release(request)

    monkeypatch.setattr(store, "release", release_slowly)
    with queue.consumer() as consumer:
        batches = consumer.batches(4, wait=0)
        next(batches).ack()
        assert releasing.wait(PATIENCE)
        assert [number for batch in batches for number in numbers(batch)] == [4, 5, 6, 7]


def test_a_claim_that_begins_while_a_read_looks_for_one_hides_nothing_from_the_read(
    open_queue: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, queue = open_queue(messages=8)
    with queue.consumer() as consumer:
        batches = consumer.batches(4, wait=0)
        unacked, fill = [next(batches)], Receiving.fill

        def ack_before(self: Receiving, limit: int, **options: Any) -> object:
            if unacked:
                unacked.pop().ack()
                thread = claim_thread(consumer)
                assert thread is not None
                thread.join(0.5)
            return fill(self, limit, **options)

        monkeypatch.setattr(Receiving, "fill", ack_before)
        assert [number for batch in batches for number in numbers(batch)] == [4, 5, 6, 7]
        assert not unacked


def test_what_a_pop_may_have_acked_is_left_to_the_next_read(
    open_queue: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, queue = open_queue()
    monkeypatch.setattr(overlap, "LONGEST_WAIT", 0.0)
    with queue.consumer() as consumer:
        batches = consumer.batches(4, wait=0)
        batch, asked = next(batches), store.asked("claim")
        kinds = [FaultKind.LOST_RESPONSE, *[FaultKind.UNAVAILABLE] * 9]
        store.plan = FaultPlan(
            tuple(Fault("claim", asked + number, kind) for number, kind in enumerate(kinds, start=1))
        )
        with pytest.raises(shardq.OutcomeUnknown):
            consumer.pop()
        store.plan = FaultPlan()
        batch.ack()
        thread = claim_thread(consumer)
        assert thread is not None
        thread.join(PATIENCE)
        popped = consumer.pop()
        assert popped is not None
        assert popped.body == b"4"


def test_a_store_that_does_one_thing_after_the_other_is_asked_for_one(queue: shardq.Queue) -> None:
    with queue.producer() as producer:
        producer.send_many([b"%d" % number for number in range(10)])
    with queue.consumer() as consumer:
        for batch in consumer.batches(5, wait=0):
            batch.ack()
        assert claim_thread(consumer) is None


def test_what_expires_while_a_batch_is_acked_is_not_handed_out(
    open_queue: Callable[..., Any], clock: ManualClock
) -> None:
    store, queue = open_queue(messages=4)
    queue.producer().send_many([b"%d" % number for number in range(4, 8)], ttl=5)
    queue.producer().send_many([b"8", b"9"])
    with queue.consumer() as consumer:
        batches = consumer.batches(4, wait=0)
        next(batches).ack()
        assert store.claims(2)
        clock.advance(10)
        assert [number for batch in batches for number in numbers(batch)] == [8, 9]
        assert queue.counts().in_flight == 2


def test_a_close_holds_nothing_after_an_interrupt_that_came_when_the_thread_had_begun(
    open_queue: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an ack that was interrupted as it had started the thread that claims the next batch
    store, queue = open_queue()
    consumer = queue.consumer()
    first, before = next(consumer.batches(4, wait=0)), set(threading.enumerate())
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        interrupt_after_start(patched, "shardq-overlap")
        first.ack()

    # When the consumer is closed, then nothing of it goes on, and the claimed messages are released
    consumer.close()
    assert set(threading.enumerate()) <= before
    assert store.asked("claim") == 2
    assert queue.counts().in_flight == 4
