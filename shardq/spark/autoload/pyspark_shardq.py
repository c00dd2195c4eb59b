"""Spark finds ``format("shardq")`` here by itself: it looks for ``DefaultSource`` in modules called ``pyspark_*``."""

from shardq.spark.source import ShardqDataSource as DefaultSource  # noqa: F401
