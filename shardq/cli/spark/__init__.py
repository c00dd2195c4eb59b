"""``shardq spark``: the group of its jobs."""

from __future__ import annotations

from shardq.cli.command import ExampleGroup
from shardq.cli.spark.jobs import load_command, report_command
from shardq.cli.spark.streams import drain_command, migrate_command, replay_command, transform_command

__all__ = ["spark"]

spark = ExampleGroup(
    name="spark",
    help=(
        "Move many messages with Spark.\n\nEach job runs on this computer, or under spark-submit on a cluster. "
        "Progress goes to stderr, the result with --json to stdout."
    ),
    example="shardq spark load orders orders.csv --format csv --read header=true\nshardq spark drain orders out/",
)
for _command in (
    load_command, drain_command, transform_command, replay_command, migrate_command, report_command,
):  # fmt: skip
    spark.add_command(_command)
