"""What moves into a queue has no more lanes there than the queue has, however the move was cut off and repeated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

import shardq
from shardq.base.shard import group_shards
from shardq.spark.jobs.copies import begin_copy, copy_shard, hash_of_shard
from shardq.storage.opening import open_store
from shardq.testing import ManualClock
from shardq.testing.seam import context_of
from tests.dying_store import STEPS, Died, DyingStore

Move = Callable[[shardq.Queue, shardq.Queue], object]

COUNT = 24
BODIES = [b"%d" % number for number in range(COUNT)]


@pytest.fixture(params=["in one step", "step by step"])
def client(request: pytest.FixtureRequest, url: str, clock: ManualClock) -> shardq.Client:
    store = open_store(url, clock)
    return shardq.Client(store if request.param == "in one step" else DyingStore(store))


def fill(client: shardq.Client, lanes: int = 4) -> shardq.Queue:
    queue = client.create_queue("source", group_concurrency=lanes, history_retention=600, shards=1)
    with queue.producer() as producer:
        producer.send_many(BODIES, group="a")
    return queue


def forward(source: shardq.Queue, target: shardq.Queue) -> None:
    source.consumer().receive(COUNT).forward(target.name, atomic=False)


def forward_one_by_one(source: shardq.Queue, target: shardq.Queue) -> None:
    for message in source.consumer().receive(COUNT):
        message.forward(target.name, headers={"x": 1}, priority=1, atomic=False)


def redrive(source: shardq.Queue, target: shardq.Queue) -> None:
    source.consumer().receive(COUNT).dead_letter("bad")
    source.alter(dead_letter_queue=None, group_concurrency=target.settings.group_concurrency)
    assert source.redrive() == COUNT


def replay(source: shardq.Queue, target: shardq.Queue) -> None:
    source.consumer().receive(COUNT).ack()
    source.alter(group_concurrency=target.settings.group_concurrency)
    assert source.replay() == COUNT


def lanes_in(queue: shardq.Queue) -> dict[str, list[bytes]]:
    """What one receive finds, by lane."""
    found: dict[str, list[bytes]] = defaultdict(list)
    for message in queue.consumer().receive(COUNT):
        assert message.group == "a" and message.lane is not None
        found[message.lane].append(message.body)
    return found


@pytest.mark.parametrize("lanes", [1, 3, 7])
@pytest.mark.parametrize("move", [forward, forward_one_by_one, redrive, replay])
def test_what_moves_has_no_more_lanes_than_its_new_queue_and_is_in_order(
    client: shardq.Client, clock: ManualClock, move: Move, lanes: int
) -> None:
    source, target = fill(client), client.create_queue("target", group_concurrency=lanes)
    move(source, target)
    clock.advance(1)
    found = lanes_in(source if move in (redrive, replay) else target)
    assert len(found) == min(lanes, 4)
    assert sorted((body for lane in found.values() for body in lane), key=int) == BODIES
    for lane in found.values():
        for turn in range(4):  # those of one send go round the lanes
            of_one = [int(body) for body in lane if int(body) % 4 == turn]
            assert of_one == sorted(of_one)


@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 4)])
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
def test_a_move_that_was_cut_off_doubles_nothing_when_the_lanes_were_changed_meanwhile(
    url: str, clock: ManualClock, step: int, late: bool, before: int, after: int
) -> None:
    sound, doomed = DyingStore(open_store(url, clock)), DyingStore(open_store(url, clock))
    client = shardq.Client(sound)
    source, target = fill(client), client.create_queue("target", group_concurrency=before)
    doomed.calls_left, doomed.after = step + len(STEPS), late
    with pytest.raises(Died):
        forward(shardq.Client(doomed, retry_seconds=0).queue("source"), target)
    target.alter(group_concurrency=after)
    clock.advance(3_600)
    forward(source, target)
    clock.advance(1)
    found = lanes_in(target)
    assert sorted((body for lane in found.values() for body in lane), key=int) == BODIES
    assert len(found) <= max(before, after)


@pytest.mark.parametrize("forwarded_first", [False, True])
@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
def test_a_forward_and_a_dead_letter_of_one_message_complete_each_other(
    url: str, clock: ManualClock, step: int, forwarded_first: bool
) -> None:
    sound, doomed = DyingStore(open_store(url, clock)), DyingStore(open_store(url, clock))
    source = fill(shardq.Client(sound))
    dead = shardq.Client(sound).queue("source.dead")

    def act(queue: shardq.Queue, *, forwards: bool) -> None:
        batch = queue.consumer().receive(COUNT)
        batch.forward(dead.name, atomic=False) if forwards else batch.dead_letter("bad")

    doomed.calls_left, doomed.after = step, True
    with pytest.raises(Died):
        act(shardq.Client(doomed, retry_seconds=0).queue("source"), forwards=forwarded_first)
    clock.advance(3_600)
    act(source, forwards=not forwarded_first)
    clock.advance(1)
    found = dead.consumer().receive(COUNT)
    assert sorted(found.bodies, key=int) == BODIES
    found.ack()
    assert dead.counts().oldest is None


def test_the_header_of_a_dead_letter_has_the_group_and_another_one_the_lane(client: shardq.Client) -> None:
    source = fill(client)
    source.consumer().receive(COUNT).dead_letter("bad")
    letters = client.queue("source.dead").peek(COUNT)
    assert {letter.headers["shardq-group"] for letter in letters} == {"a"}
    assert {letter.headers.get("shardq-lane") for letter in letters} == {None, 1, 2, 3}
    source.redrive()
    assert not any(message.headers for message in source.peek(COUNT))


def test_a_copied_queue_has_the_lanes_of_its_own_setting(client: shardq.Client) -> None:
    source, target = fill(client), client.create_queue("target", group_concurrency=2)
    run = begin_copy(context_of(target))
    shards = group_shards("source")
    for lanes in (2, 1):  # again, after it was changed meanwhile
        target.alter(group_concurrency=lanes)
        copied = [copy_shard(context_of(source), shard, context_of(target), run) for shard in shards]
        found = [hash_of_shard(context_of(target), shard) for shard in group_shards("target")]
        assert sum(each.hash for each in copied) % 2**63 == sum(each.hash for each in found) % 2**63
    assert [len(lane) for lane in lanes_in(target).values()] == [COUNT / 2] * 2
