"""A stream that has nothing to do asks little, and misses nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

import shardq
from shardq.base.shard import Shard
from shardq.spark import planning
from shardq.spark.claim_stream import ClaimPartition, ClaimStream, partitions_of
from shardq.spark.connection import context_of
from shardq.spark.options import ClaimStreamOptions
from shardq.spark.planning import Planner
from shardq.spark.rows import schema_of
from shardq.testing import seam
from shardq.testing.seam import store_of
from tests.deaf_store import DeafStore

REQUESTS = ("acknowledge", "claim", "extend", "probe", "reserve_keys", "shards")


@pytest.fixture
def stream(url: str) -> Callable[[shardq.Queue], ClaimStream]:
    """The reader of a stream, as Spark's driver has it."""

    def made(queue: shardq.Queue) -> ClaimStream:
        options = ClaimStreamOptions(url=url, queue=queue.name)
        return ClaimStream(options, schema_of(options))

    return made


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Counter[str]]:
    """Counts what a store is asked from now on."""

    def counted(store: Any) -> Counter[str]:
        seen: Counter[str] = Counter()

        def count(name: str) -> Callable[..., Any]:
            ask = getattr(store, name)
            return lambda *arguments, **named: seen.update([name]) or ask(*arguments, **named)

        for name in REQUESTS:
            monkeypatch.setattr(store, name, count(name))
        return seen

    return counted


def silence(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store signal nothing, as those of which consumers poll."""
    silent = msgspec.structs.replace(store.capabilities, signals=False)
    monkeypatch.setattr(type(store), "capabilities", silent)
    monkeypatch.setattr(store, "listen", DeafStore(store).listen)


def receive(stream: ClaimStream, start: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """One batch: the offset at its end, and its rows."""
    end = stream.latestOffset(start, ReadMaxRows(100_000))
    return end, sum(batch.num_rows for each in stream.partitions(start, end) for batch in stream.read(each))


def test_a_batch_is_finished_once_and_an_idle_tick_costs_one_glance(
    make_queue, stream, requests, url, monkeypatch
) -> None:
    monkeypatch.setattr(planning, "LONGEST_REST", 0.0)
    queue = make_queue(shards=16, time_shards=2)
    with queue.producer(bundle_messages=10) as producer:
        producer.send_many([b"x"] * 160)
    reader = stream(queue)
    end, rows = receive(reader, reader.initialOffset())
    assert rows == 160
    seen = requests(context_of(ClaimStreamOptions(url=url, queue=queue.name)).store)
    assert reader.latestOffset(end, ReadMaxRows(100_000)) == end
    assert seen["acknowledge"] > 0
    assert queue.counts().in_flight == 0
    ticks = []
    for _ in range(5):
        seen.clear()
        assert reader.latestOffset(end, ReadMaxRows(100_000)) == end
        ticks.append(seen.total())
        assert seen["acknowledge"] == seen["reserve_keys"] == 0
    assert min(ticks) == 1  # where seconds have passed since the last one, the directory is read as well


def test_an_idle_stream_asks_nothing_until_a_signal_comes_something_is_due_or_a_second_has_passed(
    connect, clock, requests
) -> None:
    queue = connect().create_queue("idle", shards=16, time_shards=2)
    store = store_of(queue)
    planner = Planner(seam.context_of(queue), "test")

    def asked() -> int:
        seen.clear()
        found.update(planner.plan(1_000, None))
        return seen.total()

    seen, found = requests(store), {}
    assert asked() > 0
    for _ in range(9):
        clock.advance(0.1)
        assert asked() == 0
    clock.advance(0.1)
    assert asked() > 0
    queue.producer().send(b"x", delay=0.5)
    assert asked() > 0  # a signal came
    clock.advance(0.3)
    assert asked() == 0
    assert found == {}
    clock.advance(0.3)
    assert asked() > 0
    assert sum(found.values()) == 1_000
    assert queue.consumer().receive(1)


@pytest.mark.parametrize("signals", [True, False])
def test_what_came_while_a_queue_was_paused_is_planned_when_it_is_resumed(
    connect, clock, monkeypatch, signals
) -> None:
    queue = connect().create_queue("paused", shards=2, time_shards=2)
    if not signals:
        silence(store_of(queue), monkeypatch)
    planner = Planner(seam.context_of(queue), "test")
    assert planner.plan(1_000, None) == {}
    queue.pause()
    queue.producer().send(b"x")
    assert planner.plan(1_000, None) == {}
    queue.resume()
    clock.advance(0.3)
    assert sum(planner.plan(1_000, None).values()) == 1_000


def test_without_signals_an_idle_stream_looks_less_and_less_often(
    connect, clock, requests, monkeypatch
) -> None:
    queue = connect().create_queue("polled", shards=4, time_shards=2)
    store = store_of(queue)
    silence(store, monkeypatch)
    planner = Planner(seam.context_of(queue), "test")
    seen = requests(store)

    def looks(ticks: int) -> int:
        """How often it looks while 10 ms pass from each tick to the next."""
        found = 0
        for _ in range(ticks):
            seen.clear()
            assert planner.plan(1_000, None) == {}
            found += seen.total() > 0
            clock.advance(0.01)
        return found

    assert 5 <= looks(50) <= 9
    assert looks(100) in {4, 5}
    queue.producer().send(b"x")
    clock.advance(0.25)
    assert sum(planner.plan(1_000, None).values()) == 1_000
    assert queue.consumer().receive(1)
    assert 5 <= looks(50) <= 9


def test_a_batch_whose_ack_failed_is_acked_by_the_next_tick(make_queue, stream, url, monkeypatch) -> None:
    queue = make_queue()
    queue.producer().send(b"x")
    reader = stream(queue)
    end, _ = receive(reader, reader.initialOffset())
    store = context_of(ClaimStreamOptions(url=url, queue=queue.name)).store
    with monkeypatch.context() as broken:
        broken.setattr(store, "acknowledge", lambda _: (_ for _ in ()).throw(shardq.InvalidReceipt("broken")))
        with pytest.raises(shardq.ShardqError):
            reader.latestOffset(end, ReadMaxRows(100_000))
    assert queue.counts().in_flight == 1
    reader.latestOffset(end, ReadMaxRows(100_000))
    assert queue.counts().in_flight == 0


def test_a_small_limit_is_filled_from_as_many_shards_as_are_due(make_queue, stream) -> None:
    queue = make_queue(shards=16, time_shards=1)
    with queue.producer(bundle_messages=64) as producer:
        producer.send_many([b"%d" % number for number in range(16 * 64)])
    reader, other = stream(queue), stream(queue)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(500))
    (task,) = reader.partitions(start, end)
    attempts = [list(each.read(task)) for each in (reader, reader, other)]
    assert [sum(batch.num_rows for batch in attempt) for attempt in attempts] == [500] * 3
    assert attempts[0] == attempts[1] == attempts[2]
    assert queue.counts().in_flight == 500
    reader.latestOffset(end, ReadMaxRows(500))
    assert (queue.counts().ready, queue.counts().in_flight) == (524, 0)
    reader.stop()


def test_a_task_that_lost_messages_claims_no_others_in_their_place(make_queue, stream) -> None:
    queue = make_queue(shards=4, time_shards=1)
    with queue.producer(bundle_messages=5) as producer:
        producer.send_many([b"x"] * 20)
    reader = stream(queue)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(12))
    (task,) = reader.partitions(start, end)
    (first,) = reader.read(task)
    queue.release(first.column("receipt").to_pylist()[:3])
    assert queue.consumer().receive(3, wait=5.0)
    (again,) = reader.read(task)
    assert set(again.column("id").to_pylist()) < set(first.column("id").to_pylist())
    reader.stop()


def test_a_plan_of_one_shard_for_each_task_is_still_understood() -> None:
    options = ClaimStreamOptions(url="sqlite:///x.db", queue="q")
    old = {"incarnation": "i", "seq": 3, "plan": {"7:1": 1_000, "8:0": 999}}
    assert partitions_of(old, options) == [
        ClaimPartition((Shard("q", 7, 1),), "spark:i:3", 1_000),
        ClaimPartition((Shard("q", 8, 0),), "spark:i:3", 999),
    ]


@pytest.mark.parametrize("late", [{}, {"delay": 40.0}, {"priority": 0}])
def test_what_comes_while_a_stream_is_idle_is_planned(connect, clock, late) -> None:
    queue = connect().create_queue("idle", shards=4, time_shards=5, time_shard_seconds=10)
    planner = Planner(seam.context_of(queue), "test")
    for _ in range(3):
        assert planner.plan(1_000, None) == {}
        clock.advance(0.01)
    queue.producer().send(b"x", **late)
    clock.advance(late.get("delay", 0) + 2)
    assert sum(planner.plan(1_000, None).values()) == 1_000
    assert queue.consumer().receive(1)


def test_a_lease_that_runs_out_while_a_stream_is_idle_is_planned(connect, clock) -> None:
    queue = connect().create_queue("idle", shards=4, time_shards=5, visibility_timeout=30.0)
    queue.producer().send(b"x")
    assert queue.consumer().receive(1)
    planner = Planner(seam.context_of(queue), "test")
    for _ in range(2):
        assert planner.plan(1_000, None) == {}
    clock.advance(31)
    assert planner.plan(1_000, None)
