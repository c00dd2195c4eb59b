"""Queues as tables of a catalog and as views."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import shardq
from shardq.spark.options import BrowseStreamOptions, ClaimStreamOptions
from shardq.spark.rows import schema_of
from shardq.spark.source import ShardqDataSource, of_the_user, remember, remembered


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


REFUSED = {
    "INSERT INTO orders SELECT binary('x')": "the reason is not enough data columns",
    "INSERT INTO orders (body) VALUES ('x')": 'Cannot safely cast `body` "STRING" to "BINARY"',
    "INSERT OVERWRITE orders (body) VALUES (binary('x'))": "truncate",
    "DELETE FROM orders": "Table does not support deletes: shardq",
    "TRUNCATE TABLE orders": "Table does not support truncates: shardq",
    "UPDATE orders SET priority = 1": "does not support UPDATE TABLE",
    "MERGE INTO orders USING waiting ON orders.id = waiting.id WHEN MATCHED THEN DELETE": (
        "does not support MERGE INTO TABLE"
    ),
    "CREATE TABLE others USING shardq OPTIONS (url '{url}', queue '{queue}') AS SELECT binary('x') AS body": (
        "option 'url' is missing"
    ),
}


def test_what_spark_cannot_do_with_a_table_is_refused(pipes, queue, table) -> None:
    def refusal(use: Callable[..., object], *given: str) -> str:
        with pytest.raises(Exception) as caught:
            use(*given)
        return str(caught.value)

    for statement, text in REFUSED.items():
        assert text in refusal(pipes.spark.sql, statement.format(url=pipes.url, queue=queue.name)), statement
    rows = pipes.spark.sql("SELECT binary('x') AS body")
    assert "dynamic overwrite in batch mode" in refusal(rows.writeTo("orders").overwritePartitions)
    landing = str(pipes.folder / "landing")
    rows.write.parquet(landing)
    stream = pipes.spark.readStream.schema("body binary").parquet(landing).writeStream
    stream = stream.option("checkpointLocation", str(pipes.folder / "checkpoint")).trigger(availableNow=True)
    assert "option 'url' is missing" in refusal(lambda: stream.toTable("orders").awaitTermination(120))
    assert queue.counts().ready == 0


def test_what_spark_forgets_of_a_table_is_said_when_it_is_used(pipes, queue, table) -> None:
    def said(statement: str) -> str:
        with pytest.raises(Exception) as caught:
            pipes.spark.sql(statement).collect()
        return str(caught.value)

    sql, given = pipes.spark.sql, f"OPTIONS (url '{pipes.url}', queue '{queue.name}')"
    sql(f"CREATE TABLE columned (body STRING) USING shardq {given}")
    created = pipes.spark.sql("SELECT binary('x') AS body").writeTo("created").using("shardq")
    created.options(**pipes.options(queue)).create()
    sql("ALTER TABLE orders ADD COLUMN x int")
    try:
        assert "option 'url' is missing" in said("SELECT * FROM columned")
        assert "option 'url' is missing" in said("SELECT * FROM created")
        assert "the schema of a queue is" in said("SELECT * FROM orders")
        assert queue.counts().ready == 1
        sql(f"INSERT INTO columned WITH (url = '{pipes.url}', queue = '{queue.name}') VALUES ('y')")
        assert queue.counts().ready == 2
    finally:
        sql("DROP TABLE columned")
        sql("DROP TABLE created")


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
