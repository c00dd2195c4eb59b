"""Spark finds ``format("shardq")`` here: it searches for ``DefaultSource`` in modules called ``pyspark_*``."""

from shardq.spark.source import ShardqDataSource as DefaultSource  # noqa: F401
