"""Rows per second through the sink, beside the Spark Cassandra Connector, which writes plain rows.

    python tools/servers/cassandra.py run -- python tools/spark/connectors.py --url {url} [--rows N] [--size BYTES]

The connector comes from Maven Central. One JSON object for each on stdout, after a warm-up of both.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cassandra.cluster import Cluster, Session
from pyspark.sql import DataFrame, SparkSession

import shardq
from shardq.spark.jobs.place import Place
from shardq.storage.cassandra.url import parse

PACKAGE = "com.datastax.spark:spark-cassandra-connector_2.13:3.5.1"
NAME = "shardq_connector"


def main() -> None:
    options = _options()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = _session(PACKAGE)
    body = f"cast(rpad(cast(id as string), {options.size}, sha2(cast(id as string), 512)) as binary) as body"
    rows = spark.range(0, options.rows, 1, 2).selectExpr("cast(id % 8 as int) as shard", "id", body).cache()
    assert rows.count() == options.rows
    with shardq.connect(options.url) as client:
        place = Place(options.url, client.create_queue(NAME, shards=8, time_shards=4).name)
        try:
            with _table(options.url) as session:
                _compare(rows, place, _into_cassandra)
                assert _stored(session) == options.rows, "the connector did not store every row"
            assert client.queue(NAME).counts().ready == options.rows + 1_000
        finally:
            client.delete_queue(NAME)
    spark.stop()


def _compare(rows: DataFrame, place: Place, connector: Callable[[DataFrame, str], None]) -> None:
    def sink(some: DataFrame, _url: str) -> None:
        place.writer(some.select("body"), inputOrder="stable").save()

    for way in (connector, sink):
        way(rows.limit(1_000), place.url)
    for name, way in (("connector", connector), ("sink", sink)):
        begun = time.monotonic()
        way(rows, place.url)
        seconds, count = time.monotonic() - begun, rows.count()
        print(json.dumps({"step": name, "rows": count, "per_second": round(count / seconds)}), flush=True)


@contextmanager
def _table(url: str) -> Iterator[Session]:
    """A table for the connector: made once, as the connector remembers which ones there are."""
    address = parse(url)
    cluster = Cluster(address.hosts, port=address.port)
    try:
        session = cluster.connect()
        session.default_timeout = 60
        session.execute(
            f"CREATE KEYSPACE {NAME} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        session.execute(
            f"CREATE TABLE {NAME}.rows (shard int, id bigint, body blob, PRIMARY KEY (shard, id))"
        )
        yield session
        session.execute(f"DROP KEYSPACE {NAME}")
    finally:
        cluster.shutdown()


def _into_cassandra(rows: DataFrame, url: str) -> None:
    address = parse(url)
    named = {
        "spark.cassandra.connection.host": ",".join(address.hosts),
        "spark.cassandra.connection.port": str(address.port),
        "keyspace": NAME,
        "table": "rows",
    }
    rows.write.format("org.apache.spark.sql.cassandra").options(**named).mode("append").save()


def _stored(session: Session) -> int:
    """Rows in the table, shard by shard."""
    count = session.prepare(f"SELECT count(*) FROM {NAME}.rows WHERE shard = ?")
    return sum(session.execute(count, [shard]).one()[0] for shard in range(8))


def _session(package: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("connectors")
    for name, value in {
        "spark.jars.packages": package,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True, help="Of a Cassandra.")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=512)
    return parser.parse_args()


if __name__ == "__main__":
    main()
