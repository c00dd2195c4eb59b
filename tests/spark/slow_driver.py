"""A driver whose tasks take their rows slowly: it drains a queue, and tells what it found in a file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

STARTS = 20

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches):
        if number < 5:
            time.sleep(1.0)
        yield batch


def _run(writer: DataStreamWriter) -> None:
    """Run a query; again when Spark gave its Python process up before it began, for which it has ten seconds."""
    for left in reversed(range(STARTS)):
        try:
            writer.start().awaitTermination()
        except StreamingQueryException as error:
            if not left or "failed to connect back" not in str(error):
                raise
        else:
            return


def main() -> None:
    url, queue, folder, lease = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("slow-driver")
    for name, value in (SETTINGS | {"spark.sql.warehouse.dir": f"{folder}/warehouse"}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    options = {"url": url, "queue": queue, "leaseSeconds": lease, "failOnLeaseLoss": "true"}
    read = spark.readStream.format("shardq").options(**options).load().select("body", "deliveries")
    writer = (
        read.mapInArrow(slowly, read.schema).writeStream.format("parquet").option("path", f"{folder}/out")
    )
    _run(writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True))
    found = spark.read.parquet(f"{folder}/out").selectExpr(
        "count(*)", "count(distinct body)", "min(deliveries)", "max(deliveries)"
    )
    row = found.first()
    assert row is not None
    text = "{} rows, {} different, deliveries {} to {}".format(*row)
    Path(folder, "found").write_text(text)
    spark.stop()


if __name__ == "__main__":
    main()
