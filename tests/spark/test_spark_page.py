"""The examples of docs/spark.md run, one after the other."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_examples_of_the_page_run_from_the_first_in_an_empty_folder(
    spark, url, client, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    booked: dict[str, list[int]] = {}
    fences = (token for token in MarkdownIt().parse(PAGE.read_text()) if token.type == "fence")
    blocks = [token.content for token in fences if token.info == 'python title="on Spark"']
    assert len(blocks) == 16
    good, bad = b'{"customer": "c1", "amount": 2.5}', [b'{"customer": ', b"\xff\xfe", b""]
    for number, block in enumerate(blocks, start=1):
        if "sort_out" in block:
            client.queue("orders").producer().send_many([good, *bad])
        if "withWatermark" in block or "ledger" in block:
            client.queue("sales").producer().send_many([good, good, *bad])
        if "observe" in block or "isolate_failures" in block:
            client.queue("amounts").producer().send_many([b"4", b"no number", b"5"])
        code = block.replace('"path", "orders"', f'"path", "{tmp_path}/orders"')
        for name in re.findall(r'"([a-z]+-checkpoint|sorted-orders|purchase-files|audited|shares)"', block):
            code = code.replace(f'"{name}"', f'"{tmp_path}/{name}"')
        exec(compile(code, f"spark.md, block {number}", "exec"), names)
        if "observe" in block:
            seen = names["query"].lastProgress["observedMetrics"]["batch"]
            assert (seen["claimed"], seen["redelivered"]) == (3, 0)
    assert (names["spark"], names["url"]) == (spark, url)
    assert [tuple(row) for row in names["typed"].select("body.*").collect()] == [("carla", 1.5)]
    assert spark.read.parquet(f"{tmp_path}/orders").count() == 1_001
    counts = client.queue("orders").counts()
    assert (counts.ready, counts.in_flight) == (0, 0)
    assert [tuple(row) for row in spark.read.parquet(f"{tmp_path}/sorted-orders").collect()] == [("c1", 2.5)]
    letters = client.queue("orders.dead").peek(10)
    assert sorted((message.body, message.headers["shardq-reason"]) for message in letters) == sorted(
        (body, "no order") for body in bad
    )
    assert [
        (row.customer, row.amount) for row in spark.table("totals").where("customer = 'c1'").collect()
    ] == [("c1", 5.0)]
    shares = spark.read.parquet(f"{tmp_path}/shares").collect()
    assert sorted(row.share for row in shares) == [20.0, 25.0]
    assert [message.body for message in client.queue("amounts.dead").peek(10)] == [b"no number"]
    with closing(sqlite3.connect("ledger.db")) as ledger:
        assert ledger.execute("SELECT customer, amount FROM sale").fetchall() == [("c1", 2.5)] * 2
    purchases = spark.read.parquet(f"{tmp_path}/purchase-files").selectExpr(
        "customer", "amount", "cast(corrupt_body AS string)"
    )
    assert {tuple(row) for row in purchases.collect()} == {("carla", 7.5, None), (None, None, "no order")}
    assert purchases.count() == 2
    assert [bytes(row.body) for row in spark.read.parquet(f"{tmp_path}/audited").collect()] == [b"7.50"]
    assert (client.queue("sales").counts().ready, client.queue("sales").counts().in_flight) == (0, 0)
    assert client.queue("bookings").counts().ready == 1_000
    with client.queue("bookings").consumer() as consumer:
        for batch in consumer.batches(100, wait=0):
            for message in batch:
                booked.setdefault(message.group, []).append(int(message.body.split()[1]))
            batch.ack()
    assert booked == {str(account): list(range(account, 1_000, 7)) for account in range(7)}
    client.delete_topic("prices")
    for name in (
        "orders",
        "sales",
        "amounts",
        "avro-orders",
        "bookings",
        "purchases",
        "orders.dead",
        "amounts.dead",
    ):
        client.delete_queue(name)
