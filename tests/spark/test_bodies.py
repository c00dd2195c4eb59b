"""Bodies become text or typed columns, and what cannot be read shows where the reader asked for it."""

from __future__ import annotations

import base64
import json
import math
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardq
from shardq.spark.bodies import CORRUPT, BodyReader, body_type
from shardq.spark.ddl import columns_of
from shardq.spark.options import BrowseOptions


def options(**given: Any) -> BrowseOptions:
    return BrowseOptions(url="sqlite:///x.db", queue="q", **given)


def read(bodies: list[bytes | None], **given: Any) -> dict[str, list[Any]]:
    made = BodyReader(options(**given)).columns(
        bodies, lambda: pa.array([f"m{n}" for n in range(len(bodies))])
    )
    return {name: column.to_pylist() for name, column in made.items()}


def as_json(schema: str, *bodies: bytes | None, **given: Any) -> dict[str, list[Any]]:
    return read(list(bodies), body_format="json", body_schema=schema, **given)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a INT, b string", "struct<a:int,b:string>"),
        ("a: bigint", "struct<a:bigint>"),
        ("struct<a:int,b:array<string>>", "struct<a:int,b:array<string>>"),
        ("`a b` decimal(10, 2), `c``d` map<string, struct<x double>>",
         "struct<a b:decimal(10,2),c`d:map<string,struct<x:double>>>"),
        ("s struct<a:array<array<int>>>, t timestamp, n timestamp_ntz",
         "struct<s:struct<a:array<array<int>>>,t:timestamp,n:timestamp_ntz>"),
        ("a interval day to second, b interval hour, c array<interval minute to second>",
         "struct<a:interval day to second,b:interval hour,c:array<interval minute to second>>"),
        ("a decimal, b decimal(5), struct int", "struct<a:decimal(10,0),b:decimal(5,0),struct:int>"),
    ],
)  # fmt: skip
def test_a_schema_is_read_as_spark_writes_it(text, columns) -> None:
    read = columns_of("bodySchema", text)
    assert read.simpleString() == columns
    assert columns_of("bodySchema", read.json()) == read


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "cannot be read at ''"),
        ("a", "cannot be read at ''"),
        ("a INT b INT", "cannot be read at 'b INT'"),
        ("a INTT", "cannot be read at 'INTT'"),
        ("a array<int", "cannot be read at ''"),
        ("a INT NOT NULL", "cannot be read at 'NOT NULL'"),
        ("a INT, A STRING", "column 'A' twice"),
        ("a interval", "cannot be read at ''"),
        ("a interval second to day", "cannot be read at"),
        ("a interval year to month", "cannot be read at 'year to month'"),
        ("a decimal(60, 2)", "1 to 38 digits"),
        ("{nonsense", "is not a schema in JSON"),
    ],
)
def test_a_schema_that_cannot_be_read_is_named_with_the_place(text, part) -> None:
    with pytest.raises(shardq.InvalidSetting, match=part):
        columns_of("bodySchema", text)


@given(st.text("ab <>,:()`int struct array map decimal 12", max_size=40))
def test_any_text_is_a_schema_or_is_refused(text) -> None:
    with suppress(shardq.InvalidSetting):
        columns_of("bodySchema", text)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"body_format": "json"}, "bodyFormat=json needs bodySchema"),
        ({"body_schema": "a int"}, "add option"),
        ({"body_format": "json", "body_schema": "a map<int, string>"}, "is not read from JSON"),
    ],
)
def test_options_that_do_not_go_together_are_refused(given, part) -> None:
    with pytest.raises(shardq.InvalidSetting, match=part):
        body_type(options(**given))


def test_json_has_its_types() -> None:
    schema = (
        "s string, i int, l bigint, f float, b boolean, r binary, d date, t timestamp, n timestamp_ntz, "
        "c decimal(10,2), a array<int>, m map<string,double>, o struct<x:int,y:string>"
    )
    row = {
        "s": "ü", "i": -5, "l": 2**62, "f": 0.5, "b": True, "r": base64.b64encode(b"\0\xff").decode(),
        "d": "2026-01-31",
        "t": "2026-01-31T08:00:00+02:00", "n": "2026-01-31T08:00:00", "c": 12.34, "a": [1, None], "m": {"k": 1},
        "o": {"x": 1, "unknown": [1]}, "unknown": {},
    }  # fmt: skip
    made = as_json(schema, json.dumps(row).encode())
    assert made[CORRUPT] == [None]
    assert made["body"] == [
        {
            "s": "ü", "i": -5, "l": 2**62, "f": 0.5, "b": True, "r": b"\0\xff", "d": date(2026, 1, 31),
            "t": datetime(2026, 1, 31, 6, tzinfo=UTC), "n": datetime(2026, 1, 31, 8), "c": Decimal("12.34"),
            "a": [1, None], "m": [("k", 1.0)], "o": {"x": 1, "y": None},
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("INTERVAL '1 02:03:04.567891' DAY TO SECOND", 93_784.567891),
        ("INTERVAL '-5 00:00:00.000001' DAY TO SECOND", -432_000.000001),
        ("INTERVAL '106751990' DAY", 9_223_371_936_000),
        ("INTERVAL '-26:30' HOUR TO MINUTE", -95_400),
        ("INTERVAL '59.5' SECOND", 59.5),
    ],
)
def test_intervals_are_read_as_spark_writes_them(text, seconds) -> None:
    made = as_json("i interval day to second", json.dumps({"i": text}).encode())
    assert made == {"body": [{"i": timedelta(seconds=seconds)}], CORRUPT: [None]}


def test_numbers_that_are_none_are_read_as_spark_writes_them() -> None:
    body = b'{"d": "-Infinity", "f": "Infinity", "a": ["NaN", 1, 0.5, null]}'
    made = as_json("d double, f float, a array<double>", body, b'{"d": 1}')
    assert made[CORRUPT] == [None, None]
    first, second = made["body"]
    assert (first["d"], first["f"], repr(first["a"])) == (-math.inf, math.inf, "[nan, 1.0, 0.5, None]")
    assert second == {"d": 1.0, "f": None, "a": None}


def test_what_is_missing_or_null_is_null() -> None:
    assert as_json("a int, b string", b'{"a": null}', b"{}") == {
        "body": [{"a": None, "b": None}] * 2,
        CORRUPT: [None, None],
    }


@pytest.mark.parametrize(
    "body",
    [
        b"", b"nul", b"null", b"[1]", b'{"a": "x"}', b'{"a": 1.5}', b'{"a": 2147483648}', b'{"b": 1}',
        b'{"a": 1} {"a": 2}',
        b'{"b": "\xff"}', b'{"b": "\\ud800"}', b'{"c": 1.234}', b'{"c": 123456}', b'{"t": "2026-01-31T08:00:00"}',
        b'{"d": "nan"}', b'{"d": "1.5"}', b'{"d": true}', b'{"d": ' + b"9" * 400 + b"}", b'{"i": 5}',
        b'{"i": "5 days"}', b'{"i": "INTERVAL \'999999999999\' DAY"}',
        pytest.param(b'{"x": ' + b"[" * 100_000, id="deep"),
    ],
)  # fmt: skip
def test_a_body_that_does_not_fit_is_corrupt_and_its_neighbours_are_not(body) -> None:
    good = b'{"a": 1, "c": 1.5}'
    schema = "a int, b string, c decimal(5,2), t timestamp, d double, i interval day to second"
    made = as_json(schema, good, body, None, good)
    row = {"a": 1, "b": None, "c": Decimal("1.50"), "t": None, "d": None, "i": None}
    assert made == {"body": [row, None, None, row], CORRUPT: [None, body, None, None]}


def test_failfast_names_the_message() -> None:
    with pytest.raises(shardq.InvalidMessage, match=r"message m1 cannot be read: b'\{'"):
        as_json("a int", b"{}", b"{", body_mode="failfast")


def test_text_is_utf_8() -> None:
    assert read(["ü".encode(), b"\xff", b""], body_format="text") == {
        "body": ["ü", None, ""],
        CORRUPT: [None, b"\xff", None],
    }


def test_a_queue_is_a_table_and_a_stream_of_typed_columns(pipes, queue) -> None:
    queue.producer().send_many([b'{"customer": "c1", "lines": [{"amount": 2.5}]}', b"broken", b"{}"])
    chosen = {"bodyFormat": "json", "bodySchema": "customer STRING, lines ARRAY<STRUCT<amount: DOUBLE>>"}
    rows = pipes.read(queue, **chosen)
    assert rows.selectExpr("sum(body.lines[0].amount)").first()[0] == 2.5
    assert sorted(row.customer or "" for row in rows.select("body.*").collect()) == ["", "", "c1"]
    assert [bytes(row[0]) for row in rows.where("corrupt_body IS NOT NULL").select(CORRUPT).collect()] == [
        b"broken"
    ]
    with pytest.raises(Exception, match="cannot be read: b'broken'"):
        pipes.read(queue, **chosen, bodyMode="failfast").collect()
    given = ", ".join(f"{name} '{value}'" for name, value in pipes.options(queue, **chosen).items())
    pipes.spark.sql(f"CREATE TABLE typed USING shardq OPTIONS ({given})")
    assert pipes.spark.sql("SELECT count(body.customer) FROM typed").first()[0] == 1
    pipes.spark.sql("DROP TABLE typed")
    stream = pipes.stream(queue, **chosen).select("body.customer").writeStream
    pipes.run(stream.format("parquet").option("path", str(pipes.folder / "out")))
    assert pipes.spark.read.parquet(str(pipes.folder / "out")).where("customer = 'c1'").count() == 1
    assert queue.counts().in_flight == 0


def test_text_bodies_come_as_strings(pipes, queue) -> None:
    queue.producer().send_many([b"one", b"two"])
    found = pipes.read(queue, bodyFormat="text", bodyMode="failfast")
    assert sorted(row.body for row in found.collect()) == ["one", "two"]
    assert CORRUPT not in found.columns


def test_a_query_goes_on_with_more_columns_than_it_began_with(pipes, queue) -> None:
    out = str(pipes.folder / "out")
    for body, schema in (
        (b'{"a": 1}', "a INT"),
        (b'{"a": 2, "b": "x"}', "a INT"),
        (b'{"a": 3, "b": "y"}', "a INT, b STRING"),
    ):
        queue.producer().send(body)
        stream = pipes.stream(queue, bodyFormat="json", bodySchema=schema).select("body.*").writeStream
        pipes.run(stream.format("parquet").option("path", out))
    found = pipes.spark.read.option("mergeSchema", "true").parquet(out).orderBy("a").collect()
    assert [(row.a, row.b) for row in found] == [(1, None), (2, None), (3, "y")]
