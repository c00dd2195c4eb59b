"""What comes out of a drain is what went into a load, for every type that rows of files have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import Row, functions
from pyspark.sql.types import StructType

from shardq.spark.jobs.drain import drain
from shardq.spark.jobs.load import load
from shardq.spark.jobs.place import Place

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
NOT_TYPED = {"year_interval"}  # PySpark has no Arrow type for it
ROWS = max(map(len, VALUES.values())) + 1  # the last one has nulls only


@pytest.mark.parametrize("zone", ["UTC", "Europe/Amsterdam"])
def test_a_row_that_is_loaded_is_the_same_in_every_column_when_it_is_drained_or_read_by_its_schema(
    spark, url, queue, tmp_path, zone
) -> None:
    def row(number: int) -> str:
        cells = [
            f"{values[number] if number < len(values) else 'null'} as {name}"
            for name, values in VALUES.items()
        ]
        return f"select {number} as number, {', '.join(cells)}"

    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        spark.sql(" union all ".join(map(row, range(ROWS)))).coalesce(1).write.parquet(str(tmp_path / "in"))
        loaded = spark.read.parquet(str(tmp_path / "in"))
        load(spark, Place(url, queue.name), str(tmp_path / "in"))
        columns = StructType([field for field in loaded.schema if field.name not in NOT_TYPED])
        typed = Place(url, queue.name).read(spark, bodyFormat="json", bodySchema=columns.json())
        by_schema = typed.select("body.*").orderBy("number").collect()
        drain(spark, Place(url, queue.name), str(tmp_path / "out"))
        text = functions.col("body").cast("string")
        drained = (
            spark.read.parquet(str(tmp_path / "out"))
            .select(functions.from_json(text, loaded.schema, {"mode": "FAILFAST"}).alias("row"))
            .select("row.*")
        )
        shown = functions.col("year_interval").cast("string")  # PySpark has no value for it
        expected, found = (
            rows.withColumn("year_interval", shown).orderBy("number").collect() for rows in (loaded, drained)
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert differences(expected, found, VALUES) == {}
    assert differences(expected, by_schema, VALUES.keys() - NOT_TYPED) == {}


def differences(expected: list[Row], found: list[Row], columns: Iterable[str]) -> dict[tuple[str, int], Any]:
    """The cells that are not the same, by column and row; NaN does not equal itself."""
    assert [row["number"] for row in found] == [row["number"] for row in expected]
    return {
        (name, one["number"]): (one[name], two[name])
        for one, two in zip(expected, found, strict=True)
        for name in columns
        if repr(one[name]) != repr(two[name])
    }
