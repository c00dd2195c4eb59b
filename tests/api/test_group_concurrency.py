"""Groups of which several messages may be worked on at once: each in a lane, which is in order."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import msgspec
import pytest

import shardq
from shardq.base.outgoing_message import SEPARATOR
from shardq.core.sharding import placement
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from shardq.worker import Worker

Connect = Callable[[], shardq.Client]


@pytest.fixture
def queue(client: shardq.Client) -> shardq.Queue:
    return client.create_queue("q", group_concurrency=3, visibility_timeout=10, retry_delay=0)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def fill(queue: shardq.Queue, count: int, group: str = "a") -> None:
    with queue.producer() as producer:
        producer.send_many(numbered(count), group=group)


def held_by_each(queue: shardq.Queue, connect: Connect, consumers: int, limit: int = 1) -> list[shardq.Batch]:
    """What so many consumers of clients of their own receive, as far as they receive anything."""
    batches = [connect().queue(queue.name).consumer().receive(limit) for _ in range(consumers)]
    return [batch for batch in batches if batch]


def test_as_many_consumers_as_the_setting_says_work_on_a_group(queue: shardq.Queue, connect: Connect) -> None:
    fill(queue, 30)
    fill(queue, 5, "b")
    assert [batch[0].group for batch in held_by_each(queue, connect, 10)].count("a") == 3


def test_a_bulk_send_is_spread_evenly_over_the_lanes(queue: shardq.Queue) -> None:
    fill(queue, 30)
    lanes: dict[str | None, list[int]] = defaultdict(list)
    for message in queue.consumer().receive(30):
        lanes[message.lane].append(int(message.body))
    assert [len(each) for each in lanes.values()] == [10, 10, 10]
    assert all(each == sorted(each) for each in lanes.values())


def test_single_sends_come_to_every_lane(queue: shardq.Queue) -> None:
    with queue.producer() as producer:
        for body in numbered(60):
            producer.send(body, group="a")
    assert len({message.lane for message in queue.consumer().receive(60)}) == 3


@pytest.mark.parametrize("linger", [0.0, 0.001])
@pytest.mark.parametrize("groups", [1, 2, 5])
def test_single_sends_are_spread_evenly_over_the_lanes_of_each_group(
    queue: shardq.Queue, groups: int, linger: float
) -> None:
    names = [f"g{number}" for number in range(groups)]
    for turn in range(6):  # each with a producer of its own
        with queue.producer(linger=linger) as producer:
            for name in names:
                producer.send(b"%d" % turn, group=name)
    lanes = Counter((message.group, message.lane) for message in queue.consumer().receive(100))
    assert sorted(lanes.values()) == [2] * 3 * groups
    assert {group for group, _ in lanes} == set(names)


def test_the_lanes_of_more_groups_than_are_remembered_are_used_all_the_same(
    queue: shardq.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "MOST_GROUPS", 2)
    with queue.producer() as producer:
        for turn in range(20):
            for name in "abc":
                producer.send(b"%d" % turn, group=name)
    assert len({(message.group, message.lane) for message in queue.consumer().receive(100)}) == 9


def test_whoever_looks_sees_the_group_and_not_the_lane(client: shardq.Client, queue: shardq.Queue) -> None:
    queue.alter(history_retention=60, max_deliveries=1)
    fill(queue, 6)
    assert {each.group for each in queue.peek(10)} == {"a"}
    consumer = queue.consumer()
    batch = consumer.receive(10)
    assert {message.group for message in batch} == {"a"}
    batch[0].dead_letter("poison")
    batch.ack()
    assert {each.group for each in queue.history()} == {"a"}
    assert queue.redrive() == 1
    (again,) = consumer.receive(10)
    assert (again.group, again.lane) == ("a", batch[0].lane)


def test_hooks_see_the_group_as_it_was_given(url: str, clock: ManualClock) -> None:
    seen: list[str | None] = []

    class Hooks(shardq.Hooks):
        def before_send(self, queue: str, messages: Sequence[shardq.OutgoingMessage]) -> None:
            seen.extend(message.group for message in messages)

    with shardq.connect(url, clock=clock, hooks=Hooks()) as client:
        fill(client.create_queue("q", group_concurrency=3), 6)
    assert seen == ["a"] * 6


def test_a_lane_that_waits_for_a_retry_holds_up_no_other(queue: shardq.Queue) -> None:
    queue.alter(retry_delay=60.0)
    fill(queue, 9)
    worked: list[int] = []
    lanes: dict[int, str | None] = {}

    def work(message: shardq.Message) -> None:
        lanes[int(message.body)] = message.lane
        if message.body == b"0":
            raise ValueError("not yet")
        worked.append(int(message.body))

    Worker(queue, work, idle_exit=0).run()
    assert len(worked) == 6
    assert lanes[0] not in {lanes[number] for number in worked}


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (2, 3)])
def test_what_waits_when_the_number_is_changed_is_delivered_once(
    client: shardq.Client, connect: Connect, before: int, after: int
) -> None:
    queue = client.create_queue("changed", group_concurrency=before)
    fill(queue, 20)
    queue.alter(group_concurrency=after)
    with queue.producer() as producer:
        producer.send_many([b"%d" % number for number in range(20, 40)], group="a")
    held = held_by_each(queue, connect, 8)
    assert len(held) <= max(before, after)
    found = [body for batch in held for body in batch.bodies]
    for batch in held:
        batch.ack()
    found += queue.consumer().receive(100).bodies
    assert sorted(found, key=int) == numbered(40)


def test_all_of_a_group_is_in_order_again_once_the_older_messages_are_gone(queue: shardq.Queue) -> None:
    fill(queue, 9)
    queue.alter(group_concurrency=1)
    queue.consumer().receive(9).ack()
    fill(queue, 9)
    batch = queue.consumer().receive(4)
    assert batch.bodies == numbered(4)
    assert not queue.consumer().receive(9)


@pytest.mark.parametrize("kind", [FaultKind.LOST_RESPONSE, FaultKind.LOST_REQUEST])
@pytest.mark.parametrize(
    "options", [{}, {"dedupe_key": "k"}, {"unique_key": "k"}], ids=["alone", "dedupe", "unique"]
)
@pytest.mark.parametrize("count", [1, 12])
@pytest.mark.parametrize(("before", "after"), [(3, 3), (1, 3), (3, 4), (4, 1), (500, 2)])
def test_what_is_sent_again_after_no_answer_is_there_once(
    url: str,
    clock: ManualClock,
    kind: FaultKind,
    options: dict[str, str],
    count: int,
    before: int,
    after: int,
) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0) as client:
        for number in range(2):  # lanes are chosen by chance
            queue = client.create_queue(f"q{number}", group_concurrency=before)
            first = shardq.OutgoingMessage(body=b"0", group="a", **options)  # type: ignore[arg-type]
            rest = [shardq.OutgoingMessage(body=body, group="a") for body in numbered(count)[1:]]
            appended = sum(call.method == "append" for call in store.calls)
            store.plan = FaultPlan(faults=(Fault("append", appended + 1, kind),))
            with queue.producer() as producer:
                with pytest.raises((shardq.OutcomeUnknown, shardq.PartialSend)) as caught:
                    producer.send(first) if count == 1 else producer.send_many([first, *rest])
                queue.alter(group_concurrency=after)
                error = caught.value
                assert isinstance(error, shardq.OutcomeUnknown | shardq.PartialSend)
                producer.send_many(error.unsent)
            batch = queue.consumer().receive(100)
            assert sorted(batch.bodies) == sorted(numbered(count))
            assert {message.group for message in batch} == {"a"}


@pytest.mark.parametrize("kind", list(FaultKind))
@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4), (3, 4)])
def test_a_key_that_is_sent_again_is_there_once_also_when_the_number_was_changed(
    url: str, clock: ManualClock, kind: FaultKind, before: int, after: int
) -> None:
    for number in range(8):
        plan = FaultPlan((Fault("append", 1, kind),))
        with shardq.Client(FaultyStore(open_store(url, clock), plan), retry_seconds=0) as client:
            queue = client.create_queue(f"q{number}", group_concurrency=before)
            with queue.producer() as producer:
                with pytest.raises((shardq.StoreUnavailable, shardq.OutcomeUnknown)):
                    producer.send(b"x", group="a", dedupe_key=f"k{number}")
                queue.alter(group_concurrency=after)
                identity = producer.send(b"x", group="a", dedupe_key=f"k{number}")
                assert producer.send(b"x", group="a", dedupe_key=f"k{number}") == identity
            with queue.consumer() as consumer:
                assert [(each.id, each.group) for each in consumer.receive(5)] == [(identity, "a")]


@pytest.mark.parametrize("key", ["dedupe_key", "unique_key"])
def test_a_key_finds_its_message_in_its_lane(queue: shardq.Queue, key: str) -> None:
    with queue.producer() as producer:
        message = shardq.OutgoingMessage(body=b"x", group="a")
        ids = {producer.send(msgspec.structs.replace(message, **{key: "k"})) for _ in range(8)}
    assert len(ids) == 1
    assert queue.counts().ready == 1


def test_what_waits_is_replaced_in_its_lane(queue: shardq.Queue) -> None:
    with queue.producer() as producer:
        for body in numbered(8):
            producer.send(body, group="a", unique_key="k", on_conflict="replace")
    assert queue.consumer().receive(8).bodies == [b"7"]


@pytest.mark.parametrize("wrong", [0, -1, 1_001, 2.5, True, None])
def test_a_number_that_makes_no_sense_is_refused(client: shardq.Client, wrong: object) -> None:
    with pytest.raises(shardq.InvalidSetting, match="group_concurrency"):
        client.create_queue("wrong", group_concurrency=wrong)  # type: ignore[arg-type]
    assert not client.exists("wrong")


def test_a_name_that_is_that_of_a_lane_is_refused(queue: shardq.Queue) -> None:
    with queue.producer() as producer:
        known = producer.send(b"x", group="a")
        for lane, identity in [("1", None), ("x", known), ("0", known), ("1" * 5_000, known)]:
            message = shardq.OutgoingMessage(body=b"x", group=f"a{SEPARATOR}{lane}", id=identity)
            with pytest.raises(shardq.InvalidMessage, match="shardq's own"):
                producer.send(message)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_consumers_do_no_more_than_the_setting_says_hold_a_group_and_lanes_keep_their_order(
    queue: shardq.Queue, connect: Connect, clock: ManualClock, seed: int
) -> None:
    chance = random.Random(seed)
    queue.alter(max_deliveries=None)
    for group in "ab":
        fill(queue, 40, group)
    place = {each.id: number for number, each in enumerate(queue.peek(100))}
    consumers = [connect().queue(queue.name).consumer() for _ in range(6)]
    held: list[shardq.Batch] = []
    finished: dict[tuple[str | None, str | None], list[str]] = defaultdict(list)
    for _ in range(2_000):
        if len(place) == sum(map(len, finished.values())):
            break
        if held and chance.random() < 0.6:
            batch = held.pop(chance.randrange(len(held)))
            if chance.random() < 0.3:
                batch.release()
                continue
            batch.ack()
            for message in batch:
                finished[message.group, message.lane].append(message.id)
        elif batch := chance.choice(consumers).receive(chance.randrange(1, 5)):
            held.append(batch)
        for group in "ab":
            assert sum(any(message.group == group for message in each) for each in held) <= 3
    assert {each for lane in finished.values() for each in lane} == set(place)
    assert sum(map(len, finished.values())) == len(place)
    assert all(lane == sorted(lane, key=place.__getitem__) for lane in finished.values())
