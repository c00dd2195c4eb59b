"""The examples of docs/spark.md run, one after the other."""

from __future__ import annotations

from pathlib import Path

from markdown_it import MarkdownIt

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_examples_of_the_page_run(spark, url, client, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    client.create_queue("orders")
    names = {"spark": spark, "url": url}
    fences = (token for token in MarkdownIt().parse(PAGE.read_text()) if token.type == "fence")
    blocks = [token.content for token in fences if token.info == 'python title="on Spark"']
    assert len(blocks) == 6
    good, bad = b'{"customer": "c1", "amount": 2.5}', [b'{"customer": ', b"\xff\xfe", b""]
    for number, block in enumerate(blocks, start=1):
        if "sort_out" in block:
            client.queue("orders").producer().send_many([good, *bad])
        code = block.replace('"path", "orders"', f'"path", "{tmp_path}/orders"')
        for name in ("orders-checkpoint", "sorting-checkpoint", "sorted-orders"):
            code = code.replace(f'"{name}"', f'"{tmp_path}/{name}"')
        exec(compile(code, f"spark.md, block {number}", "exec"), names)
    assert spark.read.parquet(f"{tmp_path}/orders").count() == 1_001
    counts = client.queue("orders").counts()
    assert (counts.ready, counts.in_flight) == (0, 0)
    assert [tuple(row) for row in spark.read.parquet(f"{tmp_path}/sorted-orders").collect()] == [("c1", 2.5)]
    letters = client.queue("orders.dead").peek(10)
    assert sorted((message.body, message.headers["shardq-reason"]) for message in letters) == sorted(
        (body, "no order") for body in bad
    )
    client.delete_queue("orders")
    client.delete_queue("orders.dead")
