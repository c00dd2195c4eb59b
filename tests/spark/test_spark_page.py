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
    assert len(blocks) == 4
    for number, block in enumerate(blocks, start=1):
        code = block.replace('"orders-checkpoint"', f'"{tmp_path}/checkpoint"')
        code = code.replace('"path", "orders"', f'"path", "{tmp_path}/orders"')
        exec(compile(code, f"spark.md, block {number}", "exec"), names)
    assert spark.read.parquet(f"{tmp_path}/orders").count() == 1_000
    counts = client.queue("orders").counts()
    assert (counts.ready, counts.in_flight) == (0, 0)
    client.delete_queue("orders")
