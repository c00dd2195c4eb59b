"""Rows become messages, and messages rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions

from shardq.spark.source import ShardqDataSource
from shardq.testing.seam import store_of


def test_every_row_becomes_one_message(pipes, queue, numbers_in) -> None:
    pipes.write(pipes.bodies(2_500), queue)
    assert numbers_in(queue) == list(range(2_500))


def test_equal_rows_become_as_many_messages(pipes, queue) -> None:
    pipes.write(pipes.spark.range(3_000).select(functions.lit("same").alias("body")), queue)
    assert queue.counts().ready == 3_000


def test_an_empty_table_sends_nothing_and_an_empty_queue_has_no_rows(pipes, queue) -> None:
    pipes.write(pipes.bodies(0), queue)
    assert pipes.read(queue).count() == 0
    assert pipes.read(queue, view="shards").count() == 0


def test_priority_due_and_headers_travel_with_the_row(pipes, queue) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    rows = pipes.spark.createDataFrame(
        [("first", 0, None, {"a": "1"}), ("later", None, soon, None)],
        "body string, priority int, due timestamp, headers map<string, string>",
    )
    pipes.write(rows, queue)
    found = {bytes(row.body): row for row in pipes.read(queue, includeHeaders="true").collect()}
    first, later = found[b"first"], found[b"later"]
    assert (first.priority, first.state, first.headers) == (0, "ready", {"a": "1"})
    assert (later.priority, later.state, later.headers) == (5, "delayed", {})
    stored = {message.body: message for message in queue.peek(10)}
    assert stored[b"later"].due == soon
    assert stored[b"first"].headers == {"a": "1"}


def test_headers_keep_their_types_when_they_are_packed(pipes, make_queue) -> None:
    source, target = make_queue(), make_queue()
    headers = {"text": "x", "number": 7, "share": 0.5, "yes": True, "raw": b"\x00\xff"}
    with source.producer() as producer:
        producer.send(b"x", headers=headers)
        producer.send(b"y")
    rows = pipes.read(source, includeHeaders="packed")
    pipes.write(rows, target)
    assert {message.body: message.headers for message in target.peek(10)} == {b"x": headers, b"y": {}}


def test_numbers_in_headers_stay_numbers(pipes, queue) -> None:
    pipes.write(
        pipes.spark.range(3).select(
            functions.lit("x").alias("body"),
            functions.create_map(functions.lit("n"), functions.col("id")).alias("headers"),
        ),
        queue,
    )
    assert sorted(message.headers["n"] for message in queue.peek(10)) == [0, 1, 2]


def test_columns_may_have_other_names(pipes, queue) -> None:
    rows = pipes.spark.range(3).select(functions.lit("x").alias("text"), functions.lit(2).alias("rank"))
    pipes.write(rows, queue, bodyColumn="text", priorityColumn="rank")
    assert [message.priority for message in queue.peek(10)] == [2, 2, 2]


def test_rows_of_a_key_go_to_one_shard_in_their_order(pipes, queue) -> None:
    rows = (
        pipes.spark.range(2_000)
        .selectExpr("cast(id % 7 as string) as key", "cast(id as string) as body")
        .repartition(2, "key")
        .sortWithinPartitions("key", functions.col("body").cast("int"))
    )
    pipes.write(rows, queue, shardBy="key", inputOrder="stable")
    shards: dict[int, set[str]] = {}
    seen: dict[int, list[int]] = {}
    for message in queue.peek(10_000):
        number = int(message.body)
        shards.setdefault(number % 7, set()).add(message.id.split(":")[2])
        seen.setdefault(number % 7, []).append(number)
    assert all(len(found) == 1 for found in shards.values())
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_many_tasks_spread_evenly_over_the_shards(pipes, make_queue) -> None:
    queue = make_queue(shards=16, time_shards=1)
    rows = pipes.bodies(64 * 1_200).repartition(64)
    pipes.write(rows, queue, bundleMessages=100)
    loads = [state.counts.ready for state in queue.shard_states()]
    assert len(loads) == 16
    assert max(loads) / (sum(loads) / 16) <= 1.3


def test_the_views_show_shards_dead_letters_and_history(pipes, make_queue) -> None:
    queue = make_queue(history_retention=3_600.0)
    pipes.write(pipes.bodies(30), queue)
    with queue.consumer() as consumer:
        batch = consumer.receive(10)
        batch[0].dead_letter("broken")
        batch.ack()
    states = [row.asDict() for row in pipes.read(queue, view="shards").collect()]
    assert sum(state["ready"] for state in states) == 20
    assert sum(state["processed"] for state in states) >= 9
    (dead,) = pipes.read(queue, view="dead", includeHeaders="true").collect()
    assert dead.headers["shardq-reason"] == "broken"
    assert pipes.read(queue, view="history").count() >= 9
    assert pipes.read(queue, view="history", until="2020-01-01T00:00:00Z").count() == 0
    assert pipes.read(queue).count() == 20


@pytest.mark.parametrize(
    ("options", "reads"),
    [
        ({"columns": "priority, id"}, False),
        ({"columns": "body"}, True),
        ({"columns": "dedupe_key"}, True),
        ({"columns": "headers, shard", "includeHeaders": "packed"}, True),
        ({"columns": "corrupt_body", "bodyFormat": "text"}, True),
        ({"columns": "number,ready", "view": "shards"}, False),
        ({"columns": "receipt,deliveries"}, False),
    ],
)
def test_the_columns_that_are_chosen_are_those_of_all_in_the_order_of_the_choice(
    url, queue, monkeypatch, options, reads
) -> None:
    queue.producer().send_many([b"x", b"\xff"], headers={"a": 1}, priority=3)

    def rows(**given: str) -> list[dict[str, object]]:
        source = ShardqDataSource({"url": url, "queue": queue.name} | given)
        reader = source.reader(source.schema())
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
        return [row for batch in batches for row in batch.to_pylist()]

    names = [name.strip() for name in options["columns"].split(",")]
    every = rows(**{name: value for name, value in options.items() if name != "columns"})
    asked: list[bool] = []
    store = type(store_of(queue))
    peek = store.peek
    monkeypatch.setattr(store, "peek", lambda *given: asked.append(given[1].bodies) or peek(*given))
    found = rows(**options)
    assert found == [{name: row[name] for name in names} for row in every]
    assert [list(row) for row in found] == [names] * len(every)
    assert any(asked) is reads


def test_bodies_that_are_left_out_are_not_read(pipes, queue) -> None:
    pipes.write(pipes.bodies(50), queue, bundleMessages=20)
    whole = pipes.read(queue).drop("body", "dedupe_key").collect()
    with closing(sqlite3.connect(pipes.url.removeprefix("sqlite:///"))) as behind, behind:
        assert behind.execute("UPDATE slice SET data = x'00'").rowcount == 4
    rows = pipes.read(queue, includeBody="false")
    assert sorted(rows.collect()) == sorted(whole)
    with pytest.raises(Exception, match="cannot be read"):
        pipes.read(queue).collect()
