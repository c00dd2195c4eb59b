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


def test_a_limit_is_divided_over_few_shards(connect) -> None:
    queue = connect().create_queue("wide", shards=16, time_shards=1)
    for _ in range(64):
        send(queue, 10)
    planned = Planner(queue._context, "test").plan(3_500, None)
    assert len(planned) == 3
    assert sum(planned.values()) == 3_500
