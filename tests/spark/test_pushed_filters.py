"""Filters of a query spare work, and never a row."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    Not,
    StringStartsWith,
)

from shardq.base.shard import Shard
from shardq.spark.browsing import FilteringBrowser, Pruning
from shardq.spark.options import BrowseOptions
from shardq.spark.rows import schema_of

SHARD = Shard("q", 7, 1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        (EqualTo(("shard",), str(SHARD)), True),
        (EqualTo(("shard",), "another"), False),
        (Not(EqualTo(("shard",), str(SHARD))), False),
        (In(("shard",), ("another", str(SHARD))), True),
        (Not(In(("shard",), (str(SHARD),))), False),
        (StringStartsWith(("shard",), "another"), True),
        (EqualTo(("shard", "inner"), "another"), True),
        (EqualTo(("shard",), None), True),
        (EqualTo(("body",), "another"), True),
    ],
)
def test_a_shard_is_left_out_where_a_filter_says_so(condition, kept) -> None:
    assert Pruning([IsNotNull(("shard",)), condition]).keeps_shard(SHARD) is kept


def test_a_period_is_that_of_the_filters() -> None:
    seconds = [EPOCH + timedelta(seconds=number) for number in range(10)]
    pruning = Pruning([GreaterThan(("due",), seconds[3]), LessThan(("due",), seconds[6])])
    assert pruning.period(0, 2**62) == (3_000_000, 6_000_001)
    assert pruning.period(4_000_000, 5_000_000) == (4_000_000, 5_000_000)
    assert Pruning([EqualTo(("due",), seconds[2])]).period(0, 9) == (2_000_000, 2_000_000)
    assert Pruning([Not(GreaterThan(("due",), seconds[3]))]).period(0, 9) == (0, 9)
    assert Pruning([GreaterThan(("due",), datetime(2026, 1, 1))]).period(0, 9) == (0, 9)


@pytest.fixture
def mixed(make_queue):
    """Messages of three priorities; some are in flight and some are in the history."""
    queue = make_queue(
        history_retention=3_600.0, visibility_timeout=3_600.0
    )  # what a slow machine reads stays held
    for priority in (0, 5, 9):
        queue.producer(bundle_messages=5).send_many([b"%d" % priority] * 20, priority=priority)
    consumer = queue.consumer()
    for _ in range(3):
        consumer.receive(5).ack()
    consumer.receive(5)
    return queue


def test_a_browser_reads_only_what_the_filters_keep(mixed, url) -> None:
    def read(*filters, **chosen) -> tuple[int, int]:
        options = BrowseOptions(url=url, queue=mixed.name, **chosen)
        browser = FilteringBrowser(options, schema_of(options))
        assert browser.pushFilters(list(filters)) == list(filters)
        found = browser.partitions()
        return len(found), sum(batch.num_rows for part in found for batch in browser.read(part))

    shards, rows = read()
    assert rows == 45
    left = Counter(message.priority for message in mixed.peek(100))
    assert read(EqualTo(("priority",), 9)) == (shards, left[9])
    assert read(GreaterThanOrEqual(("priority",), 5), LessThan(("priority",), 9)) == (shards, left[5])
    assert read(EqualTo(("state",), "in_flight")) == (shards, 5)
    now = datetime.now(UTC)
    assert read(LessThan(("enqueued_at",), now)) == (shards, 45)
    assert read(GreaterThan(("enqueued_at",), now)) == (shards, 0)
    assert read(LessThan(("due",), now - timedelta(hours=1)), view="history") == (shards, 0)
    assert read(GreaterThan(("due",), now - timedelta(hours=1)), view="history")[1] == 15
    one = mixed.shard_states()[0].shard
    assert read(EqualTo(("shard",), str(one)))[0] == 1
    assert read(EqualTo(("shard",), str(one)), view="shards") == (1, 1)


def test_a_query_finds_the_same_with_and_without_pushdown(pipes, mixed) -> None:
    (first, *_) = (str(state.shard) for state in mixed.shard_states())
    conditions = [
        "priority = 9",
        f"shard = '{first}'",
        f"shard <> '{first}' AND priority IN (0, 5)",
        "enqueued_at > timestamp'2026-01-01 00:00:00' AND state = 'ready'",
        "NOT (deliveries = 0)",
        "cast(body as string) LIKE '9%'",
        "priority > 5 OR state = 'in_flight'",
    ]

    def found(view: str) -> list[list[str]]:
        rows = pipes.read(mixed, view=view)
        return [sorted(row.id for row in rows.where(condition).collect()) for condition in conditions]

    without = [found("messages"), found("history")]
    assert all(any(each) for each in without)
    pipes.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert [found("messages"), found("history")] == without
        few = pipes.read(mixed).where(f"shard = '{first}'")
        assert few.rdd.getNumPartitions() == 1 < pipes.read(mixed).rdd.getNumPartitions()
    finally:
        pipes.spark.conf.unset("spark.sql.python.filterPushdown.enabled")
