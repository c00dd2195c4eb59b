"""Rows per second through the sink, beside the connector of the same database, which writes plain rows.

    python tools/servers/cassandra.py run -- python tools/spark/connectors.py --url {url} [--rows N] [--size BYTES]
    python tools/servers/mongodb.py run -- python tools/spark/connectors.py --url {url}

The connectors come from Maven Central. One JSON object for each on stdout, after a warm-up of both.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import cassandra_connector
import mongodb_connector
from local_session import local_session
from pyspark.sql import DataFrame

import shardq
from shardq.spark.jobs.job import QueueLocation

CONNECTORS = {"cassandra": cassandra_connector, "mongodb": mongodb_connector}
NAME = "shardq_connector"
WARM_UP = 1_000


def main() -> None:
    options = _options()
    connector = CONNECTORS[urlsplit(options.url).scheme]
    spark = local_session(NAME, "local[2]", jars_packages=connector.PACKAGE, driver_memory="2g")
    body = f"cast(rpad(cast(id as string), {options.size}, sha2(cast(id as string), 512)) as binary) as body"
    rows = spark.range(0, options.rows, 1, 2).selectExpr("cast(id % 8 as int) as shard", "id", body).cache()
    assert rows.count() == options.rows
    extra = spark.range(options.rows, options.rows + WARM_UP, 1, 2)
    extra = extra.selectExpr("cast(id % 8 as int) as shard", "id", body)
    with shardq.connect(options.url) as client:
        place = QueueLocation(options.url, client.create_queue(NAME, shards=8, time_shards=4).name)
        try:
            with connector.table(options.url) as stored:
                _compare(rows, extra, place, connector.write)
                assert stored() == options.rows + WARM_UP, "the connector did not store every row"
            assert client.queue(NAME).counts().ready == options.rows + WARM_UP
        finally:
            client.delete_queue(NAME)
    spark.stop()


def _compare(
    rows: DataFrame, extra: DataFrame, place: QueueLocation, connector: Callable[[DataFrame, str], None]
) -> None:
    def sink(some: DataFrame, _url: str) -> None:
        place.writer(some.select("body"), inputOrder="stable").save()

    for way in (connector, sink):
        way(extra, place.url)
    for name, way in (("connector", connector), ("sink", sink)):
        begun = time.monotonic()
        way(rows, place.url)
        seconds, count = time.monotonic() - begun, rows.count()
        print(json.dumps({"step": name, "rows": count, "per_second": round(count / seconds)}), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True, help="Of a Cassandra or a MongoDB.")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=512)
    return parser.parse_args()


if __name__ == "__main__":
    main()
