"""One shard that cannot be reached, among others that can: it costs them nothing, and nothing is told wrongly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import pytest

import shardq
from shardq.base.shard import Shard
from shardq.core.receiving import upkeep
from shardq.storage.opening import open_store
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, ManualTimer
from shardq.testing.seam import claim_round, claims_of, drive_timers, extend_leases, settle_through

P = ParamSpec("P")
T = TypeVar("T")


class ShardsDown(WrappedStore):
    """Calls that concern a shard which is down fail, as where the replicas of a token range are away."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.down: set[Shard] = set()
        self.methods: set[str] | None = None  # all
        self.answered = False  # True: what fails was done, and the answer was lost
        self.asked: list[tuple[str, set[Shard]]] = []

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        shards = _shards_of(args[0]) if args else set()
        self.asked.append((method, shards))
        if shards & self.down and (self.methods is None or method in self.methods):
            if not self.answered:
                raise shardq.StoreUnavailable("1 of the 2 replicas that the consistency needs")
            do(*args, **kwargs)
            raise shardq.OutcomeUnknown("no answer in time")
        return do(*args, **kwargs)


def _shards_of(argument: Any) -> set[Shard]:
    if isinstance(argument, Shard):
        return {argument}
    if isinstance(argument, list | tuple):
        return {shard for shard in argument if isinstance(shard, Shard)}
    if hasattr(argument, "acknowledge"):
        return {argument.acknowledge.shard, argument.append.shard}
    return {argument.shard} if hasattr(argument, "shard") else set()


class Bench:
    """A queue of four shards with five messages in each, and a consumer whose store fails by shard."""

    def __init__(self, url: str, clock: ManualClock, hooks: shardq.Hooks | None = None) -> None:
        self.clock = clock
        self.store = ShardsDown(open_store(url, clock))
        self.client = shardq.Client(self.store, retry_seconds=0, hooks=hooks)
        self.queue = self.client.create_queue("q", shards=4, time_shards=1, visibility_timeout=30)
        self.client.create_queue("other", shards=4, time_shards=1)
        with self.queue.producer(bundle_messages=5) as producer:
            producer.send_many([b"%d" % number for number in range(20)])
        self.first, *self.others = self.store.shards("q")

    def states(self) -> Counter[str]:
        down, self.store.down = self.store.down, set()
        counts = self.queue.counts()
        self.store.down = down
        return Counter(ready=counts.ready, in_flight=counts.in_flight)


@pytest.fixture
def bench(url: str, clock: ManualClock) -> Iterator[Bench]:
    bench = Bench(url, clock)
    yield bench
    bench.client.close()


SETTLE: dict[str, Callable[[shardq.Batch], None]] = {
    "ack": lambda batch: batch.ack(),
    "release": lambda batch: batch.release(),
    "give_back": lambda batch: batch.release(count=False),
    "extend": lambda batch: batch.extend(60),
    "dead_letter": lambda batch: batch.dead_letter("why"),
    "forward": lambda batch: batch.forward("other"),
}


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("verb", SETTLE)
def test_settling_goes_on_with_the_other_shards_and_tells_at_the_end_what_failed(
    bench: Bench, verb: str, answered: bool
) -> None:
    batch = bench.queue.consumer().receive(20)
    bench.store.down, bench.store.answered = {bench.first}, answered
    kind = shardq.OutcomeUnknown if answered else shardq.StoreUnavailable
    with pytest.raises(kind, match=f"5 messages of queue 'q' were not .* in shard {bench.first}") as caught:
        SETTLE[verb](batch)
    assert caught.value.retryable
    if verb == "extend":
        bench.clock.advance(45)
        assert bench.states()["in_flight"] == (20 if answered else 15)
    elif not answered:
        assert bench.states()["in_flight"] == 5
    bench.store.down = set()
    if verb != "extend":
        SETTLE[verb](batch)  # what was done is known to be done, and the rest follows
        assert bench.states()["in_flight"] == 0
        moved = [bench.client.queue(name).counts().ready for name in ("q.dead", "other")]
        assert sum(moved) == (20 if verb in ("dead_letter", "forward") else 0)


@pytest.mark.parametrize("verb", SETTLE)
def test_every_shard_is_settled_before_one_that_fails_is_asked_again(bench: Bench, verb: str) -> None:
    with shardq.Client(bench.store, retry_seconds=0.2) as patient:
        batch = patient.queue("q").consumer().receive(20)
        bench.store.down = {
            next(shard for shard in (bench.first, *bench.others) if str(shard) in batch[0].id)
        }
        bench.store.methods = {"acknowledge", "release", "extend", "forward"}
        bench.store.asked.clear()
        with pytest.raises(shardq.StoreUnavailable):
            SETTLE[verb](batch)
    asked = [shards for method, shards in bench.store.asked if method in bench.store.methods]
    shards = [shard for each in asked for shard in each if shard.queue == "q"]
    assert shards[0] in bench.store.down
    assert set(shards[:4]) == {bench.first, *bench.others}
    assert set(shards[4:]) == bench.store.down


@pytest.mark.parametrize("hooks", [None, shardq.Hooks()])
def test_an_ack_by_receipt_goes_on_with_the_other_shards_too(
    url: str, clock: ManualClock, hooks: shardq.Hooks | None
) -> None:
    bench = Bench(url, clock, hooks)
    receipts = [message.receipt for message in bench.queue.consumer().receive(20)]
    bench.store.down = {bench.first}
    with pytest.raises(shardq.StoreUnavailable, match=str(bench.first)):
        bench.queue.ack(receipts)
    assert bench.states()["in_flight"] == 5
    bench.store.down = set()
    bench.queue.ack(receipts)
    assert bench.states()["in_flight"] == 0


def test_two_failing_shards_are_named_and_an_unanswered_one_makes_the_outcome_unknown(bench: Bench) -> None:
    batch = bench.queue.consumer().receive(20)
    plan = (Fault("acknowledge", 2, FaultKind.UNAVAILABLE), Fault("acknowledge", 3, FaultKind.LOST_RESPONSE))
    faulty = FaultyStore(bench.store, FaultPlan(faults=plan))
    other = shardq.Client(faulty, retry_seconds=0).queue("q")
    with pytest.raises(shardq.OutcomeUnknown, match=r"10 messages .* in 2 shards \(q:0:\d, q:0:\d\)"):
        other.ack([message.receipt for message in batch])


@pytest.mark.parametrize("fails", [0, 2])
def test_a_purge_that_fails_says_that_nothing_was_changed_only_where_that_is_so(
    bench: Bench, fails: int
) -> None:
    bench.store.down = {bench.store.shards("q")[fails]}
    with pytest.raises((shardq.OutcomeUnknown, shardq.StoreUnavailable), match="replicas") as caught:
        bench.queue.purge()
    left = bench.states()["ready"]
    assert (left, type(caught.value)) == (
        (10, shardq.OutcomeUnknown) if fails else (20, shardq.StoreUnavailable)
    )
    bench.store.down = set()
    assert bench.queue.purge() == left


def test_the_leases_of_healthy_shards_are_kept_and_the_failing_shard_is_tried_last(bench: Bench) -> None:
    consumer = bench.queue.consumer(keep_leases=True)
    batch = consumer.receive(20)
    for down in bench.store.shards("q"):
        bench.store.down = {down}
        for _ in range(2):
            bench.store.asked.clear()
            bench.clock.advance(10)
            extend_leases(consumer)
        assert [shards for method, shards in bench.store.asked if method == "extend"][-1] == {down}
        bench.store.down = set()
        extend_leases(consumer)
    bench.clock.advance(20)
    assert bench.states()["in_flight"] == len(batch) == 20
    consumer.close()


@pytest.mark.parametrize("verb", ["forward", "dead_letter"])
def test_after_an_unanswered_move_what_somebody_else_holds_by_then_is_told_to_be_lost(
    bench: Bench, verb: str
) -> None:
    """An attempt that never arrived does not explain why a message is not held any more."""
    batch = bench.queue.consumer().receive(20)
    lost = FaultyStore(bench.store, FaultPlan(faults=(Fault("forward", 1, FaultKind.LOST_REQUEST),)))
    settle_through(batch, shardq.Client(lost, retry_seconds=1).queue("q"))
    lost_forward = lost.forward

    def forward_late(request: Any) -> Any:
        try:
            return lost_forward(request)
        except shardq.OutcomeUnknown:
            bench.clock.advance(31)
            assert len(bench.queue.consumer().receive(20)) == 20
            raise

    lost.forward = forward_late  # type: ignore[method-assign]
    with pytest.raises(shardq.LeaseLost) as caught:
        SETTLE[verb](batch)
    assert len(caught.value.messages) == 20


@pytest.mark.parametrize("unanswered", [False, True])
@pytest.mark.parametrize("by_receipt", [False, True])
def test_an_extension_of_what_is_gone_is_told_to_be_lost_through_every_door(
    bench: Bench, by_receipt: bool, unanswered: bool
) -> None:
    batch = bench.queue.consumer().receive(20)
    bench.queue.ack([batch[0].receipt])
    faults = (Fault("extend", 1, FaultKind.LOST_RESPONSE),) if unanswered else ()
    faulty = FaultyStore(bench.store, FaultPlan(faults=faults))
    queue = shardq.Client(faulty, retry_seconds=1).queue("q")
    settle_through(batch, queue)
    with pytest.raises(shardq.LeaseLost) as caught:
        if by_receipt:
            queue.extend([message.receipt for message in batch], 60)
        else:
            batch.extend(60)
    expected = [batch[0].receipt] if by_receipt else [batch[0]]
    assert list(caught.value.messages) == expected


class Recorder(shardq.Hooks):
    """Notes acks, and refuses those of a body."""

    def __init__(self) -> None:
        self.before: list[bytes] = []
        self.after: list[bytes] = []
        self.refused = b""

    def before_ack(self, queue: str, messages: Any) -> None:
        self.before += [message.body for message in messages]
        if self.refused in self.before:
            raise PermissionError

    def after_ack(self, queue: str, messages: Any) -> None:
        self.after += [message.body for message in messages]


def test_hooks_see_acks_by_receipt_as_they_see_others(url: str, clock: ManualClock) -> None:
    hooks = Recorder()
    bench = Bench(url, clock, hooks)
    batch = bench.queue.consumer().receive(4)
    bodies = [message.body for message in batch]
    bench.queue.ack([batch[0].receipt, batch[1].receipt])
    assert (hooks.before, hooks.after) == (bodies[:2], bodies[:2])
    hooks.refused = bodies[2]
    with pytest.raises(PermissionError):
        bench.queue.ack([batch[2].receipt])
    assert bench.states()["in_flight"] == 2
    hooks.refused = b""
    hooks.before.clear()
    bench.queue.ack([batch[0].receipt, batch[3].receipt])  # the first is acked, and shown to nobody, again
    assert (hooks.before, hooks.after[2:]) == (bodies[3:], bodies[3:])


def receive_all(bench: Bench, consumer: shardq.Consumer, *, wait: float = 0.0) -> set[bytes]:
    """The bodies of what comes until nothing more does."""
    bodies: set[bytes] = set()
    while batch := consumer.receive(6, wait=wait):
        bodies.update(message.body for message in batch)
        batch.ack()
    return bodies


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("method", ["probe", "claim"])
def test_a_shard_that_cannot_be_read_costs_the_messages_of_others_nothing(
    bench: Bench, method: str, answered: bool
) -> None:
    bench.store.down, bench.store.methods, bench.store.answered = {bench.first}, {method}, answered
    seen: set[bytes] = set()
    with bench.queue.consumer() as consumer:
        kind = shardq.OutcomeUnknown if answered else shardq.StoreUnavailable
        with pytest.raises(kind, match=str(bench.first)):  # never "empty", as a shard could not be read
            while batch := consumer.receive(6):
                seen.update(message.body for message in batch)
                batch.ack()
        assert len(seen) == 15
        bench.store.down = set()
        assert len(receive_all(bench, consumer)) == 5
        assert bench.states() == Counter(ready=0, in_flight=0)


@pytest.mark.parametrize("method", ["probe", "claim"])
def test_a_consumer_that_waits_goes_on_with_the_others_and_asks_for_the_failing_shard_less_and_less(
    bench: Bench, method: str
) -> None:
    bench.queue.alter(visibility_timeout=1_000)
    bench.store.down, bench.store.methods = {bench.first}, {method}
    timer = ManualTimer()
    with bench.queue.consumer() as consumer:
        drive_timers(consumer, timer=timer)
        asked = []
        for _ in range(600):
            bench.store.asked.clear()
            claims = claims_of(claim_round(consumer, 100))
            assert all(piece.shard != bench.first for piece in claims)
            asked.append(sum(shards == {bench.first} for name, shards in bench.store.asked if name == method))
            timer.advance(0.25)
            bench.clock.advance(0.25)
        assert sum(asked[:40]) >= 3  # soon again at first
        assert 2 <= sum(asked[-240:]) <= 4  # and every 30 seconds at last
        assert bench.states() == Counter(ready=5, in_flight=15)
        bench.store.down = set()
        timer.advance(31)
        bench.clock.advance(3)
        assert [piece.shard for piece in claims_of(claim_round(consumer, 100))] == [bench.first]


def test_when_all_shards_fail_a_consumer_that_waits_is_told(bench: Bench) -> None:
    bench.store.down, bench.store.methods = set(bench.store.shards("q")), {"probe"}
    with bench.queue.consumer() as consumer, pytest.raises(shardq.StoreUnavailable, match="4 shards"):
        consumer.receive(1, wait=5)


def test_the_shards_that_fail_are_found_in_few_requests(url: str, clock: ManualClock) -> None:
    store = ShardsDown(open_store(url, clock))
    client = shardq.Client(store, retry_seconds=0)
    queue = client.create_queue("q", shards=64, time_shards=1)
    consumer = queue.consumer()
    consumer.receive(1)
    for number in (0, 17, 63):
        store.down = {Shard("q", 0, number)}
        clock.advance(3)
        store.asked.clear()
        claim_round(consumer)
        assert sum(method == "probe" for method, _ in store.asked) <= 1 + 2 * 6 + 1
        store.down = set()
        assert not consumer.receive(1)
    store.down = set(queue.settings.layout.all_shards("q"))
    store.asked.clear()
    with pytest.raises(shardq.StoreUnavailable):  # the store is away: that is seen without asking for each
        consumer.receive(1)
    assert sum(method == "probe" for method, _ in store.asked) <= 12


def test_a_claim_that_was_not_answered_is_repeated_and_hides_nothing(bench: Bench) -> None:
    """What it got is delivered as soon as the shard can be reached, not when the lease is over."""
    with bench.queue.consumer() as consumer:
        bench.store.down, bench.store.methods, bench.store.answered = {bench.first}, {"claim"}, True
        others = receive_until_error(consumer)
        bench.store.down = set()
        batch = consumer.receive(2)  # fewer than the claim that was not answered
        assert [message.deliveries for message in batch] == [1, 1]
        batch.ack()
        rest = receive_all(bench, consumer)
        assert len(others) + len(batch) + len(rest) == 20


def receive_until_error(consumer: shardq.Consumer) -> list[bytes]:
    bodies: list[bytes] = []
    with pytest.raises(shardq.OutcomeUnknown):
        while batch := consumer.receive(6):
            bodies += [message.body for message in batch]
            batch.ack()
    return bodies


def test_dead_letters_that_cannot_be_moved_now_keep_nobody_from_the_other_messages(
    url: str, clock: ManualClock
) -> None:
    bench = Bench(url, clock)
    bench.queue.alter(max_deliveries=1)
    bench.queue.consumer().receive(5)
    clock.advance(31)
    bench.store.down = set(bench.store.shards("q.dead")) or {Shard("q.dead", 0, 0)}
    with bench.queue.consumer() as consumer:
        bodies = set(receive_all(bench, consumer))
    assert len(bodies) == 15


def test_what_is_damaged_among_leftovers_keeps_no_consumer_from_its_messages(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def meet_damage(*_: object, **__: object) -> int:
        raise shardq.InvalidMessage("a stored bundle cannot be read")

    monkeypatch.setattr(upkeep, "sweep_steps", meet_damage)
    with bench.queue.consumer() as consumer:
        assert len(consumer.receive(20)) == 20
    assert "queue q was not swept" in caplog.text


@pytest.mark.parametrize("method", ["sweep", "register_consumer"])
def test_what_is_no_reading_keeps_no_consumer_from_its_messages_when_it_fails(
    url: str, clock: ManualClock, method: str
) -> None:
    bench = Bench(url, clock)
    faults = tuple(Fault(method, number, FaultKind.UNAVAILABLE) for number in range(1, 100))
    faulty = FaultyStore(bench.store, FaultPlan(faults=faults))
    with shardq.Client(faulty, retry_seconds=1).queue("q").consumer() as consumer:
        assert len(consumer.receive(20)) == 20
    assert any(call.method == method and call.fault for call in faulty.calls)
