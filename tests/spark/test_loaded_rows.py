"""What comes out of a drain is what went into a load, for every type that rows of files have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, functions
from pyspark.sql.types import StructType

from shardq.spark.jobs.files import drain, load
from shardq.spark.jobs.job import QueueLocation

VALUES = {
    "boolean": ["true"],
    "byte": ["-128Y"],
    "short": ["32767S"],
    "integer": ["-2147483648"],
    "long": ["9223372036854775807L", "-9007199254740993L"],
    "float": ["float('0.1')", "float('NaN')", "float('-Infinity')", "float('1e-45')"],
    "double": ["0.1D", "double('NaN')", "double('Infinity')", "1.7976931348623157E308D"],
    "decimal": ["cast('12345678901234567890.123456789012345678' as decimal(38,18))"],
    "small_decimal": ["cast('-0.01' as decimal(5,2))"],
    "string": ["''", "concat('a \"quoted\" ', chr(9), 'line \u00e4\u20ac')"],
    "binary": ["X'00FF7F80'", "X''"],
    "date": ["date'2024-02-29'", "date'0001-01-01'", "date'9999-12-31'"],
    "timestamp": [
        "timestamp'2024-01-02 03:04:05.678901Z'",
        "timestamp'1890-01-01 00:00:00.000001Z'",
        "timestamp'9999-12-31 23:59:59.999999Z'",
    ],
    "timestamp_ntz": ["timestamp_ntz'2024-01-02 03:04:05.678901'", "timestamp_ntz'1890-01-01 00:00:00'"],
    "day_interval": ["interval '1 02:03:04.567891' day to second", "interval '-5' day"],
    "year_interval": ["interval '3-4' year to month"],
    "array": ["array(1, null, 3)", "cast(array() as array<int>)"],
    "map": ["map('a', 1.5D, 'b', null)", "cast(map() as map<string,double>)"],
    "struct": ["named_struct('x', 1, 'y', cast(null as string))"],
    "nested": [
        "array(named_struct('at', timestamp'2024-01-02 03:04:05.000001Z', 'of', map('k', array(X'01'))), null)"
    ],
}
ZONES = ("UTC", "Europe/Amsterdam")
NOT_TYPED = {"year_interval"}  # PySpark has no Arrow type for it
ROWS = max(map(len, VALUES.values())) + 1  # the last one has nulls only


@pytest.fixture
def in_zone(spark) -> Iterator[Callable[[str], None]]:
    before = spark.conf.get("spark.sql.session.timeZone")
    yield partial(spark.conf.set, "spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", before)


def test_a_row_that_is_loaded_is_the_same_in_every_column_when_it_is_drained_or_read_by_its_schema(
    spark, url, queue, tmp_path, in_zone
) -> None:
    place = QueueLocation(url, queue.name)
    for zone in ZONES:
        in_zone(zone)
        spark.sql(" union all ".join(map(select_of, range(ROWS)))).selectExpr(
            "*", f"'{zone}' as zone"
        ).coalesce(1).write.parquet(f"{tmp_path}/{zone}")
        load(spark, place, f"{tmp_path}/{zone}")
    schema = spark.read.parquet(f"{tmp_path}/{ZONES[0]}").schema
    typed = StructType([field for field in schema if field.name not in NOT_TYPED])
    by_schema = place.read(spark, bodyFormat="json", bodySchema=typed.json()).select("body.*").persist()
    assert by_schema.count() == ROWS * len(ZONES)
    drain(spark, place, str(tmp_path / "out"))
    parsed = functions.from_json(functions.col("body").cast("string"), schema, {"mode": "FAILFAST"})
    drained = spark.read.parquet(str(tmp_path / "out")).select(parsed.alias("row")).select("row.*")
    for zone in ZONES:
        in_zone(zone)
        loaded = shown(spark.read.parquet(f"{tmp_path}/{zone}"), zone)
        assert differences(loaded, shown(drained, zone), VALUES) == {}
        assert differences(loaded, shown(by_schema, zone), VALUES.keys() - NOT_TYPED) == {}
    by_schema.unpersist()


def select_of(number: int) -> str:
    """A row with a value of each type."""
    cells = [
        f"{values[number] if number < len(values) else 'null'} as {name}" for name, values in VALUES.items()
    ]
    return f"select {number} as number, {', '.join(cells)}"


def shown(rows: DataFrame, zone: str) -> list[Row]:
    """The rows that were loaded in a time zone."""
    if "year_interval" in rows.columns:  # PySpark has no value for it
        rows = rows.withColumn("year_interval", functions.col("year_interval").cast("string"))
    found = rows.where(functions.col("zone") == zone).orderBy("number").collect()
    assert len(found) == ROWS
    return found


def differences(expected: list[Row], found: list[Row], columns: Iterable[str]) -> dict[tuple[str, int], Any]:
    """The cells that are not the same, by column and row; NaN does not equal itself."""
    assert [row["number"] for row in found] == [row["number"] for row in expected]
    return {
        (name, one["number"]): (one[name], two[name])
        for one, two in zip(expected, found, strict=True)
        for name in columns
        if repr(one[name]) != repr(two[name])
    }
