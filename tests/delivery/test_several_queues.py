"""A consumer of several queues: it is fair between them, waits for all at once, and none costs the others anything."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, ParamSpec, TypeVar

import msgspec
import pytest

import shardq
from shardq.core.context.identity import ConsumerIdentity
from shardq.core.receiving.several_queues import WeightedOrder
from shardq.storage.listening import Waiter
from shardq.storage.opening import open_store
from shardq.storage.requests import Sweep
from shardq.storage.store import Capabilities, Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, ManualTimer
from shardq.testing.seam import (
    claim_round,
    drive_timers,
    expire_caches,
    extend_leases,
    seconds_until_due,
    seconds_until_poll,
)

P = ParamSpec("P")
T = TypeVar("T")

QUEUES = ("a", "b", "c")
PATIENCE = 30.0


class QueuesDown(WrappedStore):
    """Every call that concerns a queue which is down fails. Counts calls."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.down: set[str] = set()
        self.methods: set[str] | None = None  # all
        self.asked: Counter[str] = Counter()

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.asked[method] += 1
        concerned = _queues_of(args[0]) & self.down if args and method != "listen" else set()
        if concerned and (self.methods is None or method in self.methods):
            raise shardq.StoreUnavailable(f"nobody answers for {min(concerned)}")
        return do(*args, **kwargs)


def _queues_of(argument: Any) -> set[str]:
    if isinstance(argument, str):
        return {argument}
    if isinstance(argument, Sequence):
        return {queue for each in argument for queue in _queues_of(each)}
    if hasattr(argument, "shard"):
        return {argument.shard.queue}
    return {argument.queue} if hasattr(argument, "queue") else set()


class Bench:
    """Three queues, and a client whose store fails by queue."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.clock = clock
        self.store = QueuesDown(open_store(url, clock))
        self.client = shardq.Client(self.store, retry_seconds=0)
        for name in QUEUES:
            self.client.create_queue(name, shards=2, time_shards=1, visibility_timeout=30)
        self.consumers: list[shardq.Consumer] = []

    def send(self, queue: str, count: int = 1) -> None:
        with self.client.queue(queue).producer(bundle_messages=5) as producer:
            producer.send_many([f"{queue}{number}".encode() for number in range(count)])

    def consumer(self, *queues: str, **options: Any) -> shardq.Consumer:
        self.consumers.append(self.client.consumer(queues or QUEUES, **options))
        return self.consumers[-1]

    def notice(self) -> None:
        """Let the time pass after which the settings are read again."""
        expire_caches(self.client, *self.consumers)


@pytest.fixture
def bench(url: str, clock: ManualClock) -> Iterator[Bench]:
    bench = Bench(url, clock)
    yield bench
    bench.client.close()


def received(consumer: shardq.Consumer, limit: int = 10) -> list[bytes]:
    """Everything there is, acked."""
    bodies = []
    for batch in consumer.batches(limit, wait=0):
        bodies += batch.bodies
        batch.ack()
    return bodies


# -- receiving ------------------------------------------------------------------------------------------------


def test_messages_of_every_queue_are_received_once_and_each_batch_is_of_one_queue(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue, 7)
    bodies = []
    with bench.consumer() as consumer:
        for batch in consumer.batches(5, wait=0):
            assert {message.queue for message in batch} == {batch.queue}
            assert {body[:1].decode() for body in batch.bodies} == {batch.queue}
            bodies += batch.bodies
            batch.ack()
        assert consumer.receive(5).queue is None
    assert sorted(bodies) == sorted(f"{queue}{number}".encode() for queue in QUEUES for number in range(7))
    assert all(bench.client.queue(queue).counts().in_flight == 0 for queue in QUEUES)


SETTLE: dict[str, Callable[[shardq.Batch], None]] = {
    "ack": lambda batch: batch.ack(),
    "release": lambda batch: batch.release(delay=5),
    "give_back": lambda batch: batch.release(count=False),
    "extend": lambda batch: batch.extend(60),
    "forward": lambda batch: batch.forward("c"),
    "dead_letter": lambda batch: batch.dead_letter("why"),
}


@pytest.mark.parametrize("verb", SETTLE)
def test_each_batch_is_settled_in_its_own_queue(bench: Bench, verb: str) -> None:
    bench.send("a", 2)
    bench.send("b", 3)
    with bench.consumer() as consumer:
        batches = [consumer.receive(10), consumer.receive(10)]
        assert {batch.queue: len(batch) for batch in batches} == {"a": 2, "b": 3}
        for batch in batches:
            SETTLE[verb](batch)
    counts = {queue: bench.client.queue(queue).counts() for queue in bench.client.queues()}
    left = {"extend": "in_flight", "release": "delayed", "give_back": "ready"}.get(verb)
    for queue, count in (("a", 2), ("b", 3)):
        assert counts[queue].ready + counts[queue].delayed + counts[queue].in_flight == (count if left else 0)
        assert left is None or getattr(counts[queue], left) == count
        assert counts[f"{queue}.dead"].ready == (count if verb == "dead_letter" else 0)
    assert counts["c"].ready == (5 if verb == "forward" else 0)


def test_the_settings_of_each_queue_hold_for_its_messages(bench: Bench) -> None:
    # Given queues with leases and limits of their own
    bench.client.queue("a").alter(visibility_timeout=10, max_deliveries=1)
    bench.client.queue("b").alter(visibility_timeout=100, max_deliveries=3)
    bench.send("a")
    bench.send("b")
    with bench.consumer() as consumer:
        assert {consumer.receive(1).queue, consumer.receive(1).queue} == {"a", "b"}
        # When the lease of one is over
        bench.clock.advance(20)
        # Then its message was delivered too often, and the other's is held
        assert not consumer.receive(1)
        assert bench.client.queue("a.dead").counts().ready == 1
        assert bench.client.queue("b").counts().in_flight == 1
        bench.clock.advance(100)
        assert consumer.receive(1).queue == "b"


def test_messages_are_popped_from_all_queues(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue)
    with bench.consumer() as consumer:
        popped = [consumer.pop() for _ in range(4)]
    assert {message and message.queue for message in popped} == {*QUEUES, None}
    assert all(bench.client.queue(queue).counts().in_flight == 0 for queue in QUEUES)


def test_what_a_pop_without_an_answer_acked_is_handed_out_whosever_turn_it_is(
    url: str, clock: ManualClock
) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0) as client:
        for name in QUEUES:
            client.create_queue(name, shards=1, time_shards=1).producer().send(name.encode())
        consumer = client.consumer(QUEUES)
        store.plan = FaultPlan(
            faults=(Fault("claim", 1, FaultKind.LOST_RESPONSE), Fault("claim", 2, FaultKind.LOST_RESPONSE))
        )
        with pytest.raises(shardq.OutcomeUnknown, match="may have been acked"):
            consumer.pop()
        (gone,) = [name for name in QUEUES if not client.queue(name).counts().ready]
        store.plan = FaultPlan()
        popped = [consumer.pop() for _ in QUEUES]
        assert gone in {message and message.queue for message in popped}


def test_leases_of_every_queue_are_kept_while_their_messages_are_worked_on(bench: Bench) -> None:
    for queue, timeout in (("a", 0.3), ("b", 0.6)):
        bench.client.queue(queue).alter(visibility_timeout=timeout)
        bench.send(queue)
    with bench.consumer(keep_leases=True) as consumer:
        batches = [consumer.receive(1), consumer.receive(1)]
        for _ in range(10):
            bench.clock.advance(0.2)
            extend_leases(consumer)
        for batch in batches:
            batch.ack()
    assert {batch.queue for batch in batches} == {"a", "b"}


class TwoAtOnce(WrappedStore):
    """Takes a claim beside an ack, so that an ack has the next batch claimed."""

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self.inner.capabilities, claims_beside_acks=True)


def test_what_an_ack_had_claimed_is_of_another_queue_and_given_back_to_it(
    url: str, clock: ManualClock
) -> None:
    with shardq.Client(TwoAtOnce(open_store(url, clock))) as client:
        for name in ("a", "b"):
            client.create_queue(name, shards=1, time_shards=1).producer().send_many([b"x"] * 5)
        consumer = client.consumer(["a", "b"])
        batches = consumer.batches(5)
        first = next(batches)
        first.ack()
        second = next(batches)
        assert {first.queue, second.queue} == {"a", "b"}
        second.ack()
        client.queue("a").producer().send_many([b"x"] * 5)
        client.queue("b").producer().send_many([b"x"] * 5)
        next(batches).ack()  # claims of the other queue meanwhile
        batches.close()  # type: ignore[attr-defined]
        counts = [client.queue(name).counts() for name in ("a", "b")]
        assert sorted(each.ready for each in counts) == [0, 5]
        assert all(each.in_flight == 0 for each in counts)


# -- turns ----------------------------------------------------------------------------------------------------


def test_queues_that_have_messages_share_the_receiving_by_their_weights(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue, 60)
    with bench.consumer(weights={"a": 3, "b": 2}) as consumer:
        got: Counter[str | None] = Counter()
        for _ in range(30):
            batch = consumer.receive(2)
            got[batch.queue] += len(batch)
    assert got == {"a": 30, "b": 20, "c": 10}


def test_a_queue_that_was_empty_has_its_share_from_now_on_and_has_saved_up_nothing() -> None:
    turns = WeightedOrder({"a": 1, "b": 1})
    for _ in range(1_000):
        turns.took("a", 10)  # b has nothing
    taken = []
    for _ in range(6):
        taken.append(turns.order()[0])
        turns.took(taken[-1], 10)
    assert sorted(taken) == ["a"] * 3 + ["b"] * 3


def test_no_queue_starves_however_small_its_weight() -> None:
    turns = WeightedOrder({"a": 1_000, "b": 1})
    taken = Counter[str]()
    for _ in range(3_003):
        queue = turns.order()[0]
        turns.took(queue, 1)
        taken[queue] += 1
    assert taken["b"] == 3


def test_one_thread_takes_its_turn_while_another_takes_over_other_queues() -> None:
    # Given one thread that takes over other queues, and a second one that has had its turn when half of that is done
    turns = WeightedOrder({"a": 1, "b": 1})
    with ThreadPoolExecutor(1) as second:
        took: list[Future[None]] = []

        class Others(dict[str, str]):
            def __iter__(self) -> Iterator[str]:
                took.append(second.submit(turns.took, "a", 1))
                wait(took, 0.1)
                return super().__iter__()

        turns.follow(Others(b="b"))

        # Then its turn counts among the queues from before, or nowhere
        took[0].result()
    assert turns.order() == ["b"]


def test_with_strict_order_a_queue_is_received_from_while_those_before_it_have_nothing(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue, 6)
    with bench.consumer("c", "a", "b", order="strict") as consumer:
        assert [body[:1] for body in received(consumer, 2)] == [b"c"] * 6 + [b"a"] * 6 + [b"b"] * 6


def test_what_comes_into_another_queue_while_there_is_work_is_noticed_within_half_a_second(
    bench: Bench,
) -> None:
    bench.send("b", 100)
    timer = ManualTimer()
    with bench.consumer("a", "b", order="strict") as consumer:
        drive_timers(consumer, timer=timer)
        assert consumer.receive(1).queue == "b"
        bench.send("a")
        assert consumer.receive(1).queue == "b"
        timer.advance(0.51)
        assert consumer.receive(1).queue == "a"


@pytest.mark.parametrize("news", [["a", "b"], ["b"]], ids=["both are told of", "one falls due"])
def test_a_signal_lets_the_queue_go_first_whose_turn_it_is(bench: Bench, news: list[str]) -> None:
    """However often the last messages came from the other one."""
    first, last = bench.client.queue("a").producer(), bench.client.queue("b").producer()
    if news == ["b"]:
        first.send(b"due later", delay=0.2)
    with bench.consumer("a", "b", order="strict") as consumer:
        for _ in range(3):
            last.send(b"b")
            assert consumer.receive(10).bodies == [b"b"]
        if news == ["b"]:
            bench.clock.advance(0.3)
        else:
            first.send(b"a")
        last.send(b"b")
        assert claim_round(consumer, 10, news=news).queue == "a"


# -- waiting --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", QUEUES)
def test_a_message_in_any_of_the_queues_ends_the_wait(
    bench: Bench, url: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[Sequence[str]] = []
    wait = Waiter.wait
    sent = threading.Event()

    def note(waiter: Waiter, queues: Sequence[str], seconds: float) -> tuple[str, ...]:
        waits.append(tuple(queues))
        if not sent.is_set():
            sent.set()
            with shardq.connect(url, clock=bench.clock) as other:
                other.queue(queue).producer().send(b"x")
        return wait(waiter, queues, seconds)

    monkeypatch.setattr(Waiter, "wait", note)
    with bench.consumer() as consumer:
        assert consumer.receive(1, wait=PATIENCE).queue == queue
    assert set(waits) == {QUEUES}


def test_a_signal_has_only_the_queue_looked_at_that_it_came_from(bench: Bench) -> None:
    with bench.consumer() as consumer:
        assert not consumer.receive(1)
        bench.send("b")
        probed: list[set[str]] = []
        probe = bench.store.probe
        bench.store.probe = lambda shards, **how: probed.append(_queues_of(shards)) or probe(shards, **how)  # type: ignore
        assert claim_round(consumer, news=["b"])
        assert probed == [{"b"}]


def test_a_message_that_becomes_due_is_not_slept_through_by_whoever_is_told_of_others(bench: Bench) -> None:
    bench.client.queue("a").producer().send(b"later", delay=3)
    with bench.consumer() as consumer:
        assert not consumer.receive(1)
        due = seconds_until_due(consumer)
        assert due is not None
        assert due <= 3
        bench.clock.advance(3)
        assert claim_round(consumer, news=["b"]).queue == "a"


@pytest.mark.parametrize("queues", [2, 20])
def test_looking_at_idle_queues_takes_the_same_number_of_probes_however_many_they_are(
    bench: Bench, queues: int
) -> None:
    names = [f"idle-{number}" for number in range(queues)]
    for name in names:
        bench.client.create_queue(name, max_deliveries=None)
    with bench.consumer(*names) as consumer:
        consumer.receive(1)
        for _ in range(10):
            bench.clock.advance(5)
            bench.store.asked.clear()
            claim_round(consumer)
            assert bench.store.asked["probe"] <= 2  # one of them without hints, now and then


# -- queues that fail -----------------------------------------------------------------------------------------


def test_a_paused_queue_is_left_out_and_costs_the_others_nothing(bench: Bench) -> None:
    bench.send("a", 3)
    bench.send("b", 3)
    with bench.consumer() as consumer:
        bench.client.queue("a").pause()
        bench.notice()
        assert [body[:1] for body in received(consumer)] == [b"b"] * 3
        assert not consumer.receive(1)
        bench.client.queue("a").resume()
        bench.notice()
        assert [body[:1] for body in received(consumer)] == [b"a"] * 3


def test_a_queue_that_is_paused_while_others_wait_is_looked_at_again_within_a_second(bench: Bench) -> None:
    with bench.consumer() as consumer:
        bench.client.queue("a").pause()
        bench.notice()
        assert not consumer.receive(1)
        assert seconds_until_poll(consumer) <= 1
        bench.client.queue("a").resume()
        bench.send("a")
        bench.notice()
        assert claim_round(consumer, news=["b"])


def test_a_deleted_queue_is_left_out_and_told_when_the_others_have_nothing(bench: Bench) -> None:
    with bench.consumer() as consumer:
        assert not consumer.receive(1)
        bench.client.delete_queue("a")
        bench.notice()
        bench.send("b", 3)
        assert [consumer.receive(1).queue for _ in range(3)] == ["b"] * 3
        with pytest.raises(shardq.QueueNotFound, match="'a'"):
            consumer.receive(1)
        # And when it is created again, it is received from
        bench.client.create_queue("a", shards=2, time_shards=1)
        bench.send("a")
        bench.notice()
        assert consumer.receive(1).queue == "a"
        assert not consumer.receive(1)


def test_when_every_queue_is_deleted_that_is_told_at_once(bench: Bench) -> None:
    with bench.consumer() as consumer:
        for queue in QUEUES:
            bench.client.delete_queue(queue)
        bench.notice()
        with pytest.raises(shardq.QueueNotFound):
            consumer.receive(1, wait=PATIENCE)


@pytest.mark.parametrize("method", ["load_queue", "register_consumer", "shards", "probe", "claim", None])
def test_a_queue_that_cannot_be_read_costs_the_others_nothing(bench: Bench, method: str | None) -> None:
    for queue in QUEUES:
        bench.send(queue, 4)
    with bench.consumer() as consumer:
        bench.store.down, bench.store.methods = {"a"}, {method} if method else None
        bench.notice()
        bodies = []
        try:
            for batch in consumer.batches(3, wait=0):
                bodies += batch.bodies
                batch.ack()
        except shardq.StoreUnavailable as error:
            assert "nobody answers for a" in str(error)
        else:
            assert method in (
                "register_consumer",
                "load_queue",
            )  # messages come first, and registering tells of the settings too
        others = [body for body in bodies if body[:1] != b"a"]
        assert sorted(others) == sorted(f"{queue}{number}".encode() for queue in "bc" for number in range(4))
        # And when it can be read again, it is
        bench.store.down = set()
        bench.notice()
        assert len(bodies) + len(received(consumer)) == 12
        assert not consumer.receive(1)


def test_a_wait_goes_on_while_one_queue_cannot_be_read(bench: Bench) -> None:
    with bench.consumer() as consumer:
        bench.store.down = {"a"}
        bench.notice()
        assert not claim_round(consumer)
        bench.send("c")
        assert claim_round(consumer, news=["c"])


def test_a_consumer_of_several_queues_is_counted_in_each_until_it_is_closed(bench: Bench) -> None:
    consumer = bench.consumer(name="me")
    consumer.receive(1)
    for told in bench.store.register_consumer(QUEUES, "other", 16_000_000):
        assert told is not None
        known = [identity and identity.name for identity in map(ConsumerIdentity.read, told.consumers)]
        assert sorted(known, key=str) == [None, "me"]
    consumer.close()
    assert all(
        told and told.consumers == ("other",)
        for told in bench.store.register_consumer(QUEUES, "other", 16_000_000)
    )
    with pytest.raises(shardq.Closed, match="'a', 'b', 'c'"):
        consumer.receive(1)


def test_two_consumers_of_overlapping_queues_receive_each_message_once(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue, 20)
    with bench.consumer("a", "b") as first, bench.consumer("c", "b") as second:
        bodies = []
        for _ in range(40):
            for consumer in (first, second):
                batch = consumer.receive(3)
                bodies += batch.bodies
                batch.ack()
    assert len(bodies) == len(set(bodies)) == 60


def test_who_is_told_of_a_queue_that_cannot_be_read_goes_on_waiting_for_the_others(bench: Bench) -> None:
    with bench.consumer() as consumer:
        assert not consumer.receive(1)
        bench.store.down, bench.store.methods = {"a"}, {"probe", "claim", "shards"}
        assert not claim_round(consumer, news=["a"])
        bench.send("b")
        assert claim_round(consumer, news=["b"])


def test_every_queue_is_swept_though_not_all_by_one_call_when_that_takes_long(bench: Bench) -> None:
    swept: list[str] = []
    sweep, timer = bench.store.sweep, ManualTimer()

    def slowly(request: Sweep) -> int:
        swept.append(request.queue)
        timer.advance(0.1)
        return sweep(request)

    bench.store.sweep = slowly  # type: ignore[method-assign]
    with bench.consumer() as consumer:
        drive_timers(consumer, timer=timer)
        for calls in range(1, 4):
            consumer.receive(1)
            assert len(swept) == calls
        consumer.receive(1)
    assert sorted(swept) == sorted(QUEUES)


# -- bad input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queues", "options", "told"),
    [
        ("orders", {}, "give a list of names"),
        ([], {}, "give a list of names"),
        (None, {}, "give a list of names"),
        (["a", "a"], {}, "'a' is named twice"),
        (["a", "b"], {"weights": {"x": 1}}, "'x', which is not among"),
        (["a", "b"], {"weights": {"a": 0}}, "weight of queue 'a'"),
        (["a", "b"], {"weights": {"a": float("nan")}}, "weight of queue 'a'"),
        (["a", "b"], {"weights": {"a": "3"}}, "weight of queue 'a'"),
        (["a", "b"], {"order": "random"}, "order='random'"),
        (["a", "b"], {"order": "strict", "weights": {"a": 2}}, "knows no weights"),
    ],
)
def test_what_makes_no_sense_is_refused(bench: Bench, queues: Any, options: Any, told: str) -> None:
    with pytest.raises(shardq.InvalidSetting, match=told):
        bench.client.consumer(queues, **options)


def test_a_queue_that_does_not_exist_or_has_no_name_is_refused_at_once(bench: Bench) -> None:
    with pytest.raises(shardq.QueueNotFound, match="'x'"):
        bench.consumer("a", "x")
    with pytest.raises(shardq.InvalidName):
        bench.consumer("a", "not a name")
