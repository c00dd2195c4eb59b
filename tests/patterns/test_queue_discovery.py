"""A consumer of patterns: it notices queues that come and go, at no cost while none does."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import pytest

import shardq
from shardq.core.hooks import HookCall
from shardq.core.receiving.several_queues import WeightedOrder
from shardq.storage.opening import open_store
from shardq.storage.requests import QueueRecord
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from shardq.testing.seam import fetch, fetch_by_hand, seconds_until_due

P = ParamSpec("P")
T = TypeVar("T")

FOLLOW_SECONDS = 5.0
LIST_SECONDS = 60.0
RECORDS_SECONDS = 600.0


class Asked(WrappedStore):
    """Counts the requests to a store."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.counts: Counter[str] = Counter()
        self.unreadable: set[str] = set()  # queues whose records cannot be read
        self.failing: set[str] = set()  # requests
        self.before: dict[str, Callable[[], None]] = {}  # by request, what happens before it is made

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.counts[method] += 1
        if method in self.before:
            self.before.pop(method)()
        if method in self.failing:
            raise shardq.StoreUnavailable(f"nobody answers {method}")
        if method == "load_queue" and args[0] in self.unreadable:
            raise shardq.StoreUnavailable(f"nobody answers for {args[0]}")
        return do(*args, **kwargs)


class Bench:
    """A client that follows patterns, whose requests are counted, and another one."""

    def __init__(self, url: str) -> None:
        self.url, self.clock = url, ManualClock()
        self.asked = Asked(open_store(url, self.clock))
        self.client = shardq.Client(self.asked, retry_seconds=0)
        self.other = shardq.connect(url, clock=self.clock)

    def send(self, name: str, *bodies: bytes) -> None:
        self.other.queue(name).producer().send_many(bodies)

    def create(self, name: str, *bodies: bytes, **settings: object) -> None:
        """Create a queue by the other client, with these messages."""
        self.other.create_queue(name, shards=1, time_shards=1, **settings)  # type: ignore[arg-type]
        self.send(name, *bodies)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


@pytest.fixture
def bench(url: str) -> Iterator[Bench]:
    bench = Bench(url)
    with bench.client, bench.other:
        yield bench


def received(consumer: shardq.Consumer, times: int = 10) -> list[tuple[str | None, bytes]]:
    """The queue and the body of each message that can be received now."""
    found = []
    for _ in range(times):
        batch = consumer.receive(100)
        found += [(batch.queue, message.body) for message in batch]
        batch.ack()
    return sorted(found)


def test_messages_of_all_matching_queues_are_received_and_no_others(bench: Bench) -> None:
    for name in ("mail/a", "mail/b", "mail/b/old", "orders"):
        bench.create(name, name.encode())
    bench.send("mail/a.dead", b"dead")
    with bench.client.consumer(["mail/*"]) as consumer:
        assert received(consumer) == [("mail/a", b"mail/a"), ("mail/b", b"mail/b")]
    with bench.client.consumer(["orders", "mail/**"]) as consumer:
        assert received(consumer) == [("mail/b/old", b"mail/b/old"), ("orders", b"orders")]


@pytest.mark.parametrize("prefetch", [0, 10])
def test_a_queue_that_is_created_is_received_from_within_five_seconds(bench: Bench, prefetch: int) -> None:
    with bench.client.consumer(["mail/*"], prefetch=prefetch) as consumer:
        assert not consumer.receive()
        bench.create("mail/new", b"hello")
        bench.advance(FOLLOW_SECONDS)
        batch = consumer.receive(wait=10)
        assert (batch.queue, batch.bodies) == ("mail/new", [b"hello"])


@pytest.mark.parametrize("prefetch", [0, 10])
def test_a_queue_that_is_deleted_is_dropped_and_the_others_go_on(bench: Bench, prefetch: int) -> None:
    bench.create("mail/a", b"1")
    bench.create("mail/b", b"2")
    with bench.client.consumer(["mail/*"], prefetch=prefetch) as consumer:
        batch = consumer.receive(wait=10)
        other = "mail/b" if batch.queue == "mail/a" else "mail/a"
        bench.other.delete_queue(str(batch.queue))
        bench.advance(FOLLOW_SECONDS)
        assert consumer.receive(wait=10).queue == other
        bench.other.delete_queue(other)
        bench.advance(FOLLOW_SECONDS)
        assert not consumer.receive()
        bench.create("mail/c", b"3")
        bench.advance(FOLLOW_SECONDS)
        assert consumer.receive(wait=10).bodies == [b"3"]


def test_a_queue_that_is_created_again_is_received_from(bench: Bench) -> None:
    bench.create("mail/a", b"1")
    with bench.client.consumer(["mail/*"]) as consumer:
        assert received(consumer) == [("mail/a", b"1")]
        bench.other.delete_queue("mail/a")
        bench.create("mail/a", b"2")
        bench.advance(FOLLOW_SECONDS)
        assert received(consumer) == [("mail/a", b"2")]


def test_a_pattern_costs_no_request_more_than_names_while_nothing_changes(bench: Bench) -> None:
    names = [f"mail/{number}" for number in range(5)]
    for name in names:
        bench.create(name)

    def asked_by(queues: list[str]) -> Counter[str]:
        with bench.client.consumer(queues) as consumer:
            consumer.receive()
            bench.asked.counts.clear()
            for _ in range(11):  # 55 seconds
                bench.advance(FOLLOW_SECONDS)
                consumer.receive()
            return Counter(bench.asked.counts)

    assert asked_by(["mail/*"]) == asked_by(names)


def test_a_change_that_was_not_noted_is_noticed_within_a_minute(bench: Bench) -> None:
    bench.create("mail/a")
    with bench.client.consumer(["mail/*"]) as consumer:
        consumer.receive()
        bench.create("mail/b", b"late")
        bench.other.delete_queue("_shardq/catalogue")  # and with it the note
        unnoted = bench.other.create_queue("mail/c", shards=1, time_shards=1)
        unnoted.producer().send(b"later")
        bench.advance(LIST_SECONDS)
        assert received(consumer) == [("mail/b", b"late"), ("mail/c", b"later")]
        bench.create("mail/d", b"noted again")
        bench.advance(FOLLOW_SECONDS)
        assert received(consumer) == [("mail/d", b"noted again")]


def test_a_queue_that_cannot_be_opened_is_followed_later_and_the_others_go_on(bench: Bench) -> None:
    bench.create("mail/a")
    with bench.client.consumer(["mail/*"]) as consumer:
        consumer.receive()
        bench.asked.unreadable = {"mail/b"}
        bench.create("mail/b", b"later")
        bench.create("mail/c", b"later, too")
        bench.send("mail/a", b"now")
        bench.advance(FOLLOW_SECONDS)
        assert received(consumer) == [("mail/a", b"now")]
        bench.asked.unreadable = set()
        bench.advance(FOLLOW_SECONDS)
        assert received(consumer) == [("mail/b", b"later"), ("mail/c", b"later, too")]


def test_messages_of_a_queue_that_was_deleted_meanwhile_are_settled_without_harm(bench: Bench) -> None:
    bench.create("mail/a", b"1")
    with bench.client.consumer(["mail/*"], keep_leases=True) as consumer:
        batch = consumer.receive()
        bench.other.delete_queue("mail/a")
        bench.advance(FOLLOW_SECONDS)
        assert not consumer.receive()
        with contextlib.suppress(shardq.QueueNotFound):
            batch.ack()
        bench.create("mail/b", b"2")
        bench.advance(FOLLOW_SECONDS)
        assert received(consumer) == [("mail/b", b"2")]


def test_a_queue_that_becomes_one_for_dead_letters_is_dropped(bench: Bench) -> None:
    bench.create("mail/a")
    bench.create("mail/spare", max_deliveries=None)
    bench.create("orders")
    with bench.client.consumer(["mail/*"]) as consumer:
        consumer.receive()
        bench.other.queue("orders").alter(dead_letter_queue="mail/spare")
        bench.send("mail/spare", b"not for you")
        bench.advance(FOLLOW_SECONDS)
        assert received(consumer) == []


@pytest.mark.parametrize("ends_by", ["alter", "delete"])
def test_a_queue_that_receives_dead_letters_no_longer_is_received_from(bench: Bench, ends_by: str) -> None:
    bench.create("mail/a")
    bench.create("mail/spare", b"for you", max_deliveries=None)
    bench.create("orders", dead_letter_queue="mail/spare")
    with bench.client.consumer(["mail/*"]) as consumer:
        assert received(consumer) == []
        if ends_by == "alter":
            bench.other.queue("orders").alter(dead_letter_queue=None)
        else:
            bench.other.delete_queue("orders")
            bench.create("orders")
        bench.advance(FOLLOW_SECONDS)
        assert received(consumer) == [("mail/spare", b"for you")]


def test_queues_share_the_receiving_by_the_weight_of_their_pattern(bench: Bench) -> None:
    for name in ("mail/a", "mail/b", "orders"):
        bench.create(name, *[b"x"] * 12)
    with bench.client.consumer(["mail/*", "orders"], weights={"mail/*": 2}) as consumer:
        taken = Counter(consumer.receive().queue for _ in range(10))
    assert taken == {"mail/a": 4, "mail/b": 4, "orders": 2}


def test_queues_of_a_pattern_are_in_its_place_in_strict_order(bench: Bench) -> None:
    for name in ("mail/a", "mail/b", "orders", "urgent"):
        bench.create(name, b"x")
    with bench.client.consumer(["urgent", "mail/*", "orders"], order="strict") as consumer:
        assert [consumer.receive().queue for _ in range(4)] == ["urgent", "mail/a", "mail/b", "orders"]


def test_receiving_by_a_pattern_does_not_keep_a_queue_from_expiring(bench: Bench) -> None:
    bench.create("mail/a", expires=60.0)
    bench.create("mail/b", expires=60.0)
    with bench.client.consumer(["mail/*", "mail/b"]) as consumer:
        for _ in range(20):
            consumer.receive()
            bench.other.delete_expired_queues("mail/")
            bench.advance(FOLLOW_SECONDS)
    assert not bench.other.exists("mail/a")
    assert bench.other.exists("mail/b")


@pytest.mark.parametrize("prefetch", [0, 10])
def test_hooks_are_shown_the_pattern_of_a_receive_that_finds_nothing(url: str, prefetch: int) -> None:
    calls: list[tuple[str, str]] = []

    class Seen(shardq.Hooks):
        @contextlib.contextmanager
        def around(self, call: HookCall) -> Iterator[None]:
            try:
                yield
            finally:
                calls.append((call.operation, call.queue))

    with (
        shardq.connect(url, hooks=Seen()) as client,
        client.consumer(["mail/*"], prefetch=prefetch) as consumer,
    ):
        consumer.receive().ack()
        client.create_queue("mail/a").producer().send(b"hello")
        client.queue("mail/a").consumer().receive()
    assert calls == [("receive", "mail/*"), ("send", "mail/a"), ("receive", "mail/a")]


def test_an_idle_consumer_wakes_to_look_for_new_queues(bench: Bench) -> None:
    with bench.client.consumer(["mail/*"]) as consumer:
        assert not consumer.receive()
        assert seconds_until_due(consumer) == FOLLOW_SECONDS
        bench.advance(3.0)
        assert seconds_until_due(consumer) == FOLLOW_SECONDS - 3.0


def test_bad_patterns_and_weights_are_refused(bench: Bench) -> None:
    with pytest.raises(shardq.InvalidName, match=r"mail/\[a\]\*"):
        bench.client.consumer(["mail/[a]*"])
    with pytest.raises(shardq.InvalidSetting, match="named twice"):
        bench.client.consumer(["mail/*", "mail/*"])
    with pytest.raises(shardq.InvalidSetting, match="mail/a"):
        bench.client.consumer(["mail/*"], weights={"mail/a": 2})


def test_an_unreadable_record_of_any_queue_costs_a_receive_no_time(bench: Bench) -> None:
    # Given a consumer of patterns, and a new queue that no pattern matches, whose record cannot be read
    bench.create("mail/a")
    asked = Asked(open_store(bench.url, bench.clock))
    with shardq.Client(asked, retry_seconds=30) as client, client.consumer(["mail/*"]) as consumer:
        consumer.receive()
        asked.unreadable = {"orders"}
        bench.create("orders")
        bench.advance(FOLLOW_SECONDS)

        # When it receives, then it tries to read that for a moment, and then not before the next five seconds
        began = time.monotonic()
        consumer.receive()
        assert time.monotonic() - began < 20
        asked.counts.clear()
        for _ in range(20):
            consumer.receive()
        assert asked.counts["list_queues"] == 0

        # And the queues that match are followed when it can be read
        bench.create("mail/b", b"hello")
        asked.unreadable = set()
        bench.advance(FOLLOW_SECONDS)
        assert received(consumer) == [("mail/b", b"hello")]


def test_no_pattern_stumbles_over_settings_that_cannot_be_decoded(bench: Bench) -> None:
    bench.create("mail/a", b"1")
    for name in ("orders", "mail/odd"):
        bench.asked.inner.create_queue(QueueRecord.new(name, b"not settings"))
    with bench.client.consumer(["mail/*"]) as consumer:
        assert received(consumer) == [("mail/a", b"1")]


def test_queues_are_listed_every_five_seconds_while_the_consumer_cannot_register(bench: Bench) -> None:
    bench.create("mail/a")
    with bench.client.consumer(["mail/*"]) as consumer:
        bench.asked.failing = {"register_consumer", "create_queue"}
        for _ in range(10):
            consumer.receive()
        assert bench.asked.counts["list_queues"] == 1
        bench.create("mail/b", b"hello")
        bench.advance(FOLLOW_SECONDS)
        assert received(consumer) == [("mail/b", b"hello")]
        assert bench.asked.counts["list_queues"] == 2


def test_a_consumer_goes_on_if_the_catalogue_cannot_be_made_again(bench: Bench) -> None:
    bench.create("mail/a", b"1")
    with bench.client.consumer(["mail/*"]) as consumer:
        consumer.receive().ack()
        bench.other.delete_queue("_shardq/catalogue")
        bench.asked.failing = {"create_queue"}
        bench.advance(FOLLOW_SECONDS)
        bench.send("mail/a", b"2")
        assert received(consumer) == [("mail/a", b"2")]


@pytest.mark.parametrize("begins", [True, False], ids=["begins", "ends"])
def test_dead_letters_that_go_elsewhere_are_noticed_within_ten_minutes_without_a_note(
    bench: Bench, *, begins: bool
) -> None:
    # Given a client that cannot note what it changes
    bench.create("mail/spare", max_deliveries=None)
    bench.create("orders", dead_letter_queue=None if begins else "mail/spare")
    unnoted = Asked(open_store(bench.url, bench.clock))
    unnoted.unreadable = {"_shardq/catalogue"}
    with shardq.Client(unnoted, retry_seconds=0) as client, bench.client.consumer(["mail/*"]) as consumer:
        assert received(consumer) == []
        client.queue("orders").alter(dead_letter_queue="mail/spare" if begins else None)
        bench.advance(RECORDS_SECONDS)
        bench.send("mail/spare", b"one")
        assert received(consumer) == ([] if begins else [("mail/spare", b"one")])


@pytest.mark.parametrize(("prefetch", "step"), [(0, logging.LoggerAdapter.info), (10, WeightedOrder.follow)])
def test_a_new_queue_is_received_from_after_an_interrupt_as_it_was_taken_over(
    bench: Bench, prefetch: int, step: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.create("mail/a")
    with bench.client.consumer(["mail/*"], prefetch=prefetch) as consumer:
        if prefetch:
            fetch_by_hand(consumer)
        consumer.receive()
        bench.create("mail/b", b"hello")
        bench.advance(FOLLOW_SECONDS)

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(f"{step.__module__}.{step.__qualname__}", interrupt)
            consumer.receive()
        assert received(consumer) == [("mail/b", b"hello")]


def test_messages_that_could_not_be_handed_out_before_their_queue_was_dropped_are_released(
    bench: Bench,
) -> None:
    # Given messages that are claimed ahead, and their queue is dropped while the store cannot count their delivery
    bench.create("mail/a")
    bench.create("orders")
    bench.other.queue("mail/a").producer().send(b"hello", group="g")
    with bench.client.consumer(["mail/*"], prefetch=10) as consumer:
        fetch_by_hand(consumer)
        fetch(consumer, 2)

        def drop() -> None:
            bench.other.queue("orders").alter(dead_letter_queue="mail/a")
            bench.advance(FOLLOW_SECONDS)
            fetch(consumer)
            bench.asked.failing = {"extend"}

        bench.asked.before = {"extend": drop}
        assert not consumer.receive()

        # Then another consumer does not wait for the end of their lease
        bench.asked.failing = set()
        assert received(bench.other.queue("mail/a").consumer(), 1) == [("mail/a", b"hello")]
