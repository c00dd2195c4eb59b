"""Which shards a micro-batch is planned over."""

from __future__ import annotations

from typing import Any

import pytest

import shardq
from shardq.spark.planning import Planner


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
    planner = Planner(narrow._context, "test")
    assert sum(planner.plan(1_000, last).values()) == 1_000
    narrow.consumer().receive(150).ack()
    send(narrow, 50, priority=0)
    assert planner.plan(1_000, last) == {}
    assert planner.plan(1_000, None)


def test_a_shard_is_looked_through_in_vain_only_once(narrow, clock, monkeypatch) -> None:
    last = clock.now()
    clock.advance(10)
    send(narrow, 50)
    planner = Planner(narrow._context, "test")
    looks = []
    peek = narrow._context.store.peek
    monkeypatch.setattr(narrow._context.store, "peek", lambda request: looks.append(request) or peek(request))
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
    assert Planner(narrow._context, "test").plan(1_000, last) == {}


@pytest.fixture
def wide(connect) -> shardq.Queue:
    """A queue with 64 messages in each of 16 shards."""
    queue = connect().create_queue("wide", shards=16, time_shards=1)
    for _ in range(16):
        send(queue, 40)
        send(queue, 24)
    return queue


def test_a_limit_is_divided_over_few_tasks_and_all_shards(wide) -> None:
    planned = Planner(wide._context, "test").plan(3_500, None)
    assert sorted(len(shards) for shards in planned) == [5, 5, 6]
    assert len({shard for shards in planned for shard in shards}) == 16
    assert sum(planned.values()) == 3_500


@pytest.mark.parametrize(("most", "shards", "tasks"), [(1, 1, 1), (5, 5, 1), (2_000, 16, 2), (10**7, 16, 16)])
def test_a_task_has_no_more_shards_than_messages(wide, most, shards, tasks) -> None:
    planned = Planner(wide._context, "test").plan(most, None)
    assert (sum(map(len, planned)), len(planned), sum(planned.values())) == (shards, tasks, most)
