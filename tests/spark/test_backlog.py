"""The progress of a query says what waits."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from shardq.base.shard import Shard
from shardq.core.receiving.named_claim_log import ClaimName
from shardq.core.receiving.named_claims import NamedClaims
from shardq.spark.claim_stream import ClaimStream
from shardq.spark.options import ClaimStreamOptions
from shardq.spark.rows import schema_of
from shardq.spark.stream_upkeep import Backlog
from shardq.testing.seam import context_of


def test_a_backlog_is_counted_no_more_often_than_is_asked(connect, clock) -> None:
    queue = connect().create_queue("counted", shards=4, time_shards=2)
    backlog = Backlog(context_of(queue))
    assert (backlog.report(10)["ready"], backlog.report(10)["readySince"]) == (0, None)
    queue.producer().send_many([b"x"] * 5)
    queue.producer().send(b"x", delay=60)
    queue.consumer().receive(2)
    clock.advance(9)
    assert backlog.report(10)["ready"] == 0
    clock.advance(1)
    found = backlog.report(10)
    assert (found["ready"], found["delayed"], found["inFlight"]) == (3, 1, 2)
    assert found["oldest"] <= found["readySince"]


def test_a_report_tells_what_was_acked_and_lost_since_the_stream_began(connect, clock) -> None:
    queue = connect().create_queue("reported", shards=1, time_shards=1)
    queue.producer().send_many([b"x"] * 4)
    queue.consumer().receive(1).ack()
    backlog = Backlog(context_of(queue))
    assert (backlog.report(10)["acked"], backlog.report(10)["leaseLost"]) == (0, 0)
    claims = NamedClaims(context_of(queue), lease=30_000_000, memory=3_600_000_000)
    name = ClaimName(Shard(queue.name, 0, 0), "first")
    claims.take(name, 3, owner="me", strict=False)
    clock.advance(31)
    assert queue.consumer().receive(1)
    assert claims.ack([name]) == 1
    assert (backlog.report(1_000)["acked"], backlog.report(1_000)["leaseLost"]) == (2, 1)


def test_the_progress_of_a_query_has_the_backlog_where_it_is_asked_for(pipes, queue) -> None:
    queue.producer().send_many([b"x"] * 30)
    query = pipes.run(
        pipes.stream(queue, maxMessagesPerTrigger=10, backlogSeconds=0).writeStream.format("noop")
    )
    reports = [json.loads(progress.sources[0].latestOffset) for progress in query.recentProgress]
    assert reports[0]["ready"] == 30
    assert reports[-1]["ready"] < 30
    assert 10 <= reports[-1]["acked"] <= 30
    assert reports[-1]["leaseLost"] == 0


@pytest.mark.parametrize(("limit", "waits"), [(ReadMaxRows(100), True), (ReadAllAvailable(), False)])
def test_a_batch_waits_only_where_another_trigger_follows(queue, url, limit, waits) -> None:
    queue.producer().send(b"x")
    options = ClaimStreamOptions(url=url, queue=queue.name, min_messages_per_trigger=10)
    reader = ClaimStream(options, schema_of(options))
    start = reader.initialOffset()
    assert (reader.latestOffset(start, limit) == start) is waits
