"""Which shards a micro-batch is planned over."""

from __future__ import annotations

from typing import Any

import pytest

import shardq
from shardq.base.shard import group_shard
from shardq.spark.planning import Planner, Sizes
from shardq.spark.stream_upkeep import slots_of
from shardq.testing.seam import context_of, expire_caches, store_of


@pytest.fixture
def narrow(connect, clock) -> shardq.Queue:
    """A queue of one shard, on the manual clock."""
    return connect().create_queue("narrow", shards=1, time_shards=1)


def send(queue: shardq.Queue, count: int, **options: Any) -> None:
    queue.producer(bundle_messages=10).send_many([b"x"] * count, **options)


def test_what_was_due_in_time_is_planned_also_behind_what_is_newer_and_goes_first(narrow, clock) -> None:
    send(narrow, 100, priority=7)
    last = clock.now()
    clock.advance(10)
    send(narrow, 50, priority=0)
    planner = Planner(context_of(narrow), "test")
    assert sum(planner.plan(1_000, last).values()) == 1_000
    narrow.consumer().receive(150).ack()
    send(narrow, 50, priority=0)
    assert planner.plan(1_000, last) == {}
    assert planner.plan(1_000, None)


def test_a_shard_is_looked_through_in_vain_only_once(narrow, clock, monkeypatch) -> None:
    last = clock.now()
    clock.advance(10)
    send(narrow, 50)
    planner = Planner(context_of(narrow), "test")
    looks = []
    peek = store_of(narrow).peek
    monkeypatch.setattr(store_of(narrow), "peek", lambda request: looks.append(request) or peek(request))
    for _ in range(3):
        assert planner.plan(1_000, last) == {}
    assert len(looks) == 1
    assert not looks[0].bodies


def test_what_another_consumer_holds_or_is_delayed_is_not_waited_for(narrow, clock) -> None:
    send(narrow, 20, priority=9)
    send(narrow, 20, delay=5)
    assert len(narrow.consumer().receive(20)) == 20
    last = clock.now()
    clock.advance(6)
    assert Planner(context_of(narrow), "test").plan(1_000, last) == {}


@pytest.mark.parametrize("how", ["in flight", "blocked", "put off"])
def test_what_waits_behind_a_message_of_its_group_is_not_waited_for(connect, clock, how) -> None:
    queue = connect().create_queue("grouped", on_dead_letter="block")
    send(queue, 3, group="a")
    (first,) = queue.consumer().receive(1)
    if how == "blocked":
        first.dead_letter("broken")
    elif how == "put off":
        first.release(delay=600)
    last = clock.now()
    clock.advance(1)
    shard = group_shard(queue.name, "a")
    beside = next(group for group in map(str, range(1_000)) if group_shard(queue.name, group) == shard)
    send(queue, 3, group=beside)
    assert Planner(context_of(queue), "test").plan(1_000, last) == {}
    assert list(Planner(context_of(queue), "test").plan(1_000, None)) == [(shard,)]


@pytest.fixture
def wide(connect) -> shardq.Queue:
    """A queue with 64 messages in each of 16 shards."""
    queue = connect().create_queue("wide", shards=16, time_shards=1)
    for _ in range(16):
        send(queue, 40)
        send(queue, 24)
    return queue


def test_a_limit_is_divided_over_few_tasks_and_all_shards(wide) -> None:
    planned = Planner(context_of(wide), "test").plan(3_500, None)
    assert sorted(len(shards) for shards in planned) == [5, 5, 6]
    assert len({shard for shards in planned for shard in shards}) == 16
    assert sum(planned.values()) == 3_500


@pytest.mark.parametrize(("most", "shards", "tasks"), [(1, 1, 1), (5, 5, 1), (2_000, 16, 2), (10**7, 16, 16)])
def test_a_task_has_no_more_shards_than_messages(wide, most, shards, tasks) -> None:
    planned = Planner(context_of(wide), "test").plan(most, None)
    assert (sum(map(len, planned)), len(planned), sum(planned.values())) == (shards, tasks, most)


def planner(queue: shardq.Queue, **sizes: int) -> Planner:
    return Planner(context_of(queue), "test", Sizes(**sizes))


@pytest.mark.parametrize(
    ("most", "least_tasks", "most_tasks", "tasks"),
    [
        (100_000, 1, 4, 4),
        (5, 3, 100, 3),
        (1_000, 12, 100, 12),
        (1_000, 99, 100, 16),
        (4_000, 6, 8, 6),
        (1, 9, 9, 1),
    ],
)
def test_the_tasks_of_a_batch_are_bounded_and_claim_all_of_it(
    wide, most, least_tasks, most_tasks, tasks
) -> None:
    planned = planner(wide, min_tasks=least_tasks, max_tasks=most_tasks).plan(most, None)
    assert (len(planned), sum(planned.values())) == (tasks, most)
    assert len({shard for shards in planned for shard in shards}) == min(16, most)


@pytest.mark.parametrize(
    ("due", "most", "slots", "tasks"),
    [
        (1_024, 100_000, 2, 1),
        (12_000, 100_000, 2, 2),
        (12_000, 100_000, 64, 2),
        (30_000, 100_000, 4, 4),
        (30_000, 6_000, 4, 1),
        (250_000, 2_000_000, 2, 2),
        (250_000, 2_000_000, 1, 2),
    ],
)
def test_the_tasks_of_a_batch_follow_what_runs_at_a_time_and_what_is_due(
    connect, clock, due, most, slots, tasks
) -> None:
    queue = connect().create_queue("wide", shards=16, time_shards=1)
    with queue.producer(bundle_messages=500) as producer:
        producer.send_many([b""] * due)
    planned = planner(queue, slots=slots).plan(most, None)
    assert (len(planned), sum(planned.values())) == (tasks, most)


@pytest.mark.parametrize(
    ("sizes", "tasks"), [({"min_tasks": 6}, 6), ({"max_tasks": 1}, 1), ({"min_tasks": 3, "max_tasks": 3}, 3)]
)
def test_the_tasks_that_were_asked_for_go_before_those_that_are_worth_it(wide, sizes, tasks) -> None:
    assert len(planner(wide, slots=4, **sizes).plan(100_000, None)) == tasks


@pytest.mark.parametrize(
    ("arguments", "slots"),
    [
        (["--conf", "spark.master=local[2]", "pyspark-shell"], 2),
        (["--conf", "spark.master=local[2,4]", "pyspark-shell"], 2),
        (["--master", "local[8]", "job.py"], 8),
        (["--master=local", "job.py"], 1),
        (["--conf", "spark.master=local[*]", "pyspark-shell"], None),
        (["--master", "spark://host:7077", "local[3].py"], None),
        (["--conf", "spark.master=local-cluster[2,1,1024]"], None),
    ],
)
def test_the_threads_of_a_local_master_are_found_in_its_command(arguments, slots) -> None:
    assert slots_of("\0".join(["java", "SparkSubmit", *arguments]).encode() + b"\0") == slots


def test_a_batch_waits_until_there_is_enough_for_it(narrow, clock) -> None:
    planning = planner(narrow, min_messages=100, max_delay=60_000_000)
    send(narrow, 60)
    for _ in range(3):
        assert planning.plan(1_000, None, patient=True) == {}
        clock.advance(1)
    send(narrow, 40)
    clock.advance(1)
    assert planning.plan(1_000, None, patient=True)


def test_a_batch_waits_no_longer_than_is_allowed_and_the_next_one_waits_again(narrow, clock) -> None:
    planning = planner(narrow, min_messages=100, max_delay=60_000_000)
    send(narrow, 10)
    assert planning.plan(1_000, None, patient=True) == {}
    clock.advance(59)
    assert planning.plan(1_000, None, patient=True) == {}
    clock.advance(1)
    assert planning.plan(1_000, None, patient=True)
    assert planning.plan(1_000, None, patient=True) == {}


def test_what_waits_for_more_is_counted_no_more_often_than_every_second(narrow, clock, monkeypatch) -> None:
    planning = planner(narrow, min_messages=100, max_delay=60_000_000)
    send(narrow, 10)
    counted = []
    count = store_of(narrow).count
    monkeypatch.setattr(store_of(narrow), "count", lambda shard: counted.append(shard) or count(shard))
    for _ in range(20):
        assert planning.plan(1_000, None, patient=True) == {}
        clock.advance(0.1)
    assert len(counted) == 2


def test_a_stream_that_waits_uses_its_queue(connect, clock) -> None:
    client = connect()
    queue = client.create_queue("a/1", expires=60)
    planning = planner(queue)
    for _ in range(5):
        assert queue.name not in client.delete_expired_queues("a/")
        clock.advance(61)
        expire_caches(queue)
        assert planning.plan(1_000, None) == {}


@pytest.mark.parametrize("last", [None, "now"])
def test_the_only_trigger_of_a_query_does_not_wait(narrow, clock, last) -> None:
    send(narrow, 10)
    moment = None if last is None else clock.now()
    assert planner(narrow, min_messages=100, max_delay=60_000_000).plan(1_000, moment)
