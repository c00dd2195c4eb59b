"""Queues as tables of a catalog and as views."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shardq
from shardq.spark.options import BrowseStreamOptions, ClaimStreamOptions
from shardq.spark.row_schema import schema_of
from shardq.spark.source import ShardqDataSource
from shardq.spark.tables import of_the_user, remember, remembered


@pytest.fixture
def table(pipes, queue) -> Iterator[str]:
    given = f"OPTIONS (url '{pipes.url}', queue '{queue.name}')"
    pipes.spark.sql(f"CREATE TABLE orders USING shardq {given}")
    pipes.spark.sql(f"CREATE TEMPORARY VIEW waiting USING shardq {given}")
    yield "orders"
    pipes.spark.sql("DROP TABLE orders")
    pipes.spark.sql("DROP VIEW waiting")


def test_a_table_keeps_its_options_and_is_written_and_read(pipes, queue, table) -> None:
    sql = pipes.spark.sql
    sql("INSERT INTO orders (body, priority) VALUES (binary('a'), 2), (binary('b'), 7)")
    sql("INSERT INTO orders BY NAME SELECT binary('c') AS body")
    sql("INSERT INTO waiting (body) VALUES (binary('d'))")
    pipes.spark.range(1).selectExpr("binary('e') AS body").writeTo("orders").append()
    into = pipes.spark.createDataFrame([(bytearray(b"f"),)], "body binary").write.format("shardq")
    into.options(**pipes.options(queue)).mode("append").saveAsTable("orders")
    for name in ("orders", "waiting"):
        rows = sql(f"SELECT cast(body AS string) AS body, priority FROM {name} ORDER BY body").collect()
        assert [row.body for row in rows] == list("abcdef")
        assert [row.priority for row in rows] == [2, 7, 5, 5, 5, 5]
    stream = pipes.spark.readStream.table("orders").select("body").writeStream
    pipes.run(stream.format("parquet").option("path", str(pipes.folder / "out")))
    assert pipes.spark.read.parquet(str(pipes.folder / "out")).count() == 6
    assert (queue.counts().ready, queue.counts().in_flight) == (0, 0)


def test_a_table_of_texts_takes_and_gives_strings(pipes, queue) -> None:
    given = f"OPTIONS (url '{pipes.url}', queue '{queue.name}', bodyFormat 'text')"
    pipes.spark.sql(f"CREATE TABLE texts USING shardq {given}")
    try:
        pipes.spark.sql("INSERT INTO texts (body) VALUES ('a')")
        pipes.spark.range(1).selectExpr("'b' AS body").writeTo("texts").append()
        rows = pipes.spark.sql("SELECT body, corrupt_body FROM texts ORDER BY body").collect()
        assert [tuple(row) for row in rows] == [("a", None), ("b", None)]
        with pytest.raises(Exception, match="column 'body' is null in a row"):
            pipes.spark.sql("INSERT INTO texts BY NAME SELECT NULL AS body, binary('c') AS corrupt_body")
        assert queue.counts().ready == 2
    finally:
        pipes.spark.sql("DROP TABLE texts")


def test_a_stream_goes_to_a_table_with_the_options_of_its_queue(pipes, queue, table) -> None:
    pipes.bodies(3).write.parquet(str(pipes.folder / "landing"))
    rows = pipes.spark.readStream.schema("body string").parquet(str(pipes.folder / "landing"))
    writer = rows.writeStream.options(**pipes.options(queue)).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(pipes.folder / "checkpoint")).toTable("orders")
    assert query.awaitTermination(120)
    assert queue.counts().ready == 3


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("INSERT INTO orders SELECT binary('x')", "the reason is not enough data columns"),
        ("INSERT INTO orders (body) VALUES ('x')", 'Cannot safely cast `body` "STRING" to "BINARY"'),
        ("DELETE FROM orders", "Table does not support deletes: shardq"),
        ("INSERT OVERWRITE orders (body) VALUES (binary('x'))", "truncate"),
    ],
)
def test_what_spark_cannot_do_with_a_table_is_refused(pipes, queue, table, statement, text) -> None:
    with pytest.raises(Exception) as caught:
        pipes.spark.sql(statement)
    assert text in str(caught.value)
    assert queue.counts().ready == 0


def test_a_stream_of_a_table_that_only_looks_receives_nothing() -> None:
    given = {"url": "sqlite:///:memory:", "queue": "q", "mode": "browse", "lagseconds": "0"}
    columns = remember(schema_of(BrowseStreamOptions(url="u", queue="q")), given)
    with pytest.raises(shardq.InvalidSetting, match="lagSeconds"):
        ShardqDataSource({"lagSeconds": "-1"}).streamReader(columns)


def test_a_schema_keeps_the_options_of_its_table_without_what_a_catalog_adds() -> None:
    given = {"url": "u", "queue": "q"}
    of_catalog = given | {"option.url": "u", "option.queue": "q", "provider": "shardq", "owner": "me"}
    assert of_the_user(of_catalog) == given
    assert of_the_user(given | {"owner": "me"}) == given | {"owner": "me"}
    columns = schema_of(ClaimStreamOptions(url="u", queue="q"))
    kept = type(columns).fromJson(remember(columns, given).jsonValue())
    assert remembered(kept) == given
    assert remembered(columns) == {}
    assert kept.simpleString() == columns.simpleString()
