"""Plain rows into a table with the Spark Cassandra Connector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cassandra.cluster import Cluster
from pyspark.sql import DataFrame

from shardq.storage.cassandra.url import parse

PACKAGE = "com.datastax.spark:spark-cassandra-connector_2.13:3.5.1"
NAME = "shardq_connector"


@contextmanager
def table(url: str) -> Iterator[Callable[[], int]]:
    """A table, made once as the connector remembers which ones there are; gives what counts its rows."""
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
        count = session.prepare(f"SELECT count(*) FROM {NAME}.rows WHERE shard = ?")
        yield lambda: sum(session.execute(count, [shard]).one()[0] for shard in range(8))
        session.execute(f"DROP KEYSPACE {NAME}")
    finally:
        cluster.shutdown()


def write(rows: DataFrame, url: str) -> None:
    """Write the rows with the connector's default settings."""
    address = parse(url)
    named = {
        "spark.cassandra.connection.host": ",".join(address.hosts),
        "spark.cassandra.connection.port": str(address.port),
        "keyspace": NAME,
        "table": "rows",
    }
    rows.write.format("org.apache.spark.sql.cassandra").options(**named).mode("append").save()
