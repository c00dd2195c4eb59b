"""Plain rows into a collection with the MongoDB Spark Connector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pymongo import MongoClient
from pyspark.sql import DataFrame

from shardq.storage.mongodb.url import parse

PACKAGE = "org.mongodb.spark:mongo-spark-connector_2.13:10.5.0"
NAME = "shardq_connector"


@contextmanager
def table(url: str) -> Iterator[Callable[[], int]]:
    """A collection; gives what counts its documents."""
    address = parse(url)
    server: MongoClient[dict[str, Any]] = MongoClient(address.uri)
    with server as client:
        rows = client.get_database(address.database).create_collection(NAME)
        try:
            yield lambda: rows.count_documents({})
        finally:
            rows.drop()


def write(rows: DataFrame, url: str) -> None:
    """Write the rows with the connector's default settings, and the durability of the store."""
    address = parse(url)
    named = {
        "connection.uri": address.uri,
        "database": address.database,
        "collection": NAME,
        "writeConcern.w": "majority",
        "writeConcern.journal": "true",
    }
    rows.write.format("mongodb").options(**named).mode("append").save()
